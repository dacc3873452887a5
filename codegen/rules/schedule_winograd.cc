// 3×3 convolutions by Winograd's minimal filtering, block by block: rows of tiles go through the input transform, one
// matrix product for each of the (m+2)² frequencies, and the output transform while they are in the second-level cache.
// The filter is transformed once, by hone_pack.
//
//   out: n, block of tile rows ▸ input, tiles (with the row sums of one row), products ▸ channel, tile row, columns ▸
//        half and result in registers, then the epilogue
//
// Where the image is small and the filter large, the tasks are blocks of filters instead: all tiles are made first, and
// the transformed filter is read once.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/arithmetic.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/winograd.h"

namespace hone {
namespace {

constexpr double kTransformCycles = 2;  // for each vector of each frequency, in and out: arithmetic, loads, stores
constexpr int64_t kTilesAtOnce = 32;    // of a block: two vectors of a register tile, and little memory
constexpr double kWorthIt = 0.9;        // of the direct form's time
constexpr double kBf16Share = 0.7;      // of what instructions for bf16 could do at most, convolutions come to

struct Shape {
  double rows = 1, columns = 1;                 // of the output
  double channels = 1, filters = 1, batch = 1;  // summed over; of the filter alone; of everything else
  bool is_const = false;
  int64_t element_bytes = 4;
};

// Whole vectors of tiles in a row, or all of them in a part of a vector.
int64_t TileColumns(int64_t width, int64_t m, int64_t lanes) {
  int64_t tiles = CeilDiv(width, m);
  int64_t vector = std::min(lanes, BitCeil(tiles));
  return RoundUp(tiles, vector);
}

// Cycles of one core; m = 0: the direct form, whose products are `direct_rate` times as fast as FMAs.
double Cycles(const Shape& shape, int64_t m, int64_t lanes, const MachineModel& machine, double direct_rate = 1) {
  const double weights = shape.channels * shape.filters, bytes = static_cast<double>(shape.element_bytes);
  auto total = [&](double products, double filter_bytes, double transforms) {
    // Filters that no cache holds come from memory, beside the arithmetic.
    double far =
        filter_bytes > static_cast<double>(machine.l2_bytes) ? filter_bytes / machine.memory_bytes_per_cycle : 0;
    return std::max(products / (machine.fma_per_cycle * static_cast<double>(lanes)), far) + transforms;
  };
  if (m == 0)
    return total(9 * weights * shape.rows * shape.columns * shape.batch / direct_rate, 9 * weights * bytes, 0);
  const double frequencies = static_cast<double>((m + 2) * (m + 2));
  double tiles = std::ceil(shape.rows / static_cast<double>(m)) *
                 static_cast<double>(TileColumns(static_cast<int64_t>(shape.columns), m, lanes)) * shape.batch;
  double vectors = (shape.channels + shape.filters) * tiles / static_cast<double>(lanes);
  return total(frequencies * weights * tiles, frequencies * weights * bytes, frequencies * vectors * kTransformCycles);
}

// The rows of a register tile: as many as registers allow, without leaving much of the last tile empty.
int64_t TileRows(int64_t filters, int64_t vectors, int registers) {
  int64_t most = (registers - 1 - vectors) / vectors, best = 1;
  double best_score = 0;
  for (int64_t rows = 2; rows <= most; ++rows) {
    double full = static_cast<double>(filters) / static_cast<double>(CeilDiv(filters, rows) * rows);
    double score = full * static_cast<double>(rows) / static_cast<double>(rows + 2);
    if (score > best_score) {
      best_score = score;
      best = rows;
    }
  }
  return best;
}

class WinogradRule {
 public:
  WinogradRule(SchedulePlanner& planner, const std::string& sum) : planner_(planner), sum_(sum) {}

  bool Apply() {
    if (!Recognise()) return false;
    const MachineModel& machine = planner_.machine();
    const std::optional<Contraction> direct = AnalyzeContraction(planner_, sum_);
    const double direct_rate = direct ? std::max(1.0, kBf16Share * Bf16Gain(planner_, *direct)) : 1;
    double best = kWorthIt * Cycles(shape_, 0, lanes_, machine, direct_rate);
    int64_t preferred = 0;
    for (int64_t m : {2, 4}) {
      double cycles = Cycles(shape_, m, lanes_, machine);
      if (cycles < best) {
        best = cycles;
        preferred = m;
      }
    }
    m_ = planner_.Choose(
        sum_, {"winograd", "outputs of a Winograd tile along an axis; 0: direct", Decision::Kind::kAlternative},
        {0, 2, 4}, preferred);
    if (m_ == 0)
      return Refuse(preferred == 0 ? "the transforms would cost more than the products that they save"
                                   : "left out by a choice of the search");
    cycles_ = Cycles(shape_, m_, lanes_, machine);
    columns_ = TileColumns(static_cast<int64_t>(shape_.columns), m_, lanes_);
    std::string base = planner_.FreshName("wino");
    if (!planner_.Rewrite({"winograd", sum_, {base}, {m_, columns_}})) return Refuse("the rewrite refused these sizes");
    Emit(WinogradNames(base));
    planner_.Took("winograd", sum_,
                  m_ == 2 ? "F(2x2,3x3): 2.25 times fewer products" : "F(4x4,3x3): 4 times fewer products");
    return true;
  }

 private:
  bool Refuse(std::string_view why) { return planner_.Refuse("winograd", sum_, why); }
  const Axis& AxisAt(const std::string& stage, AxisId axis) const { return planner_.StageNamed(stage).axis(axis); }

  // The roles of the sum's axes, as the rewrite will find them.
  bool Recognise() {
    const Kernel& kernel = planner_.kernel();
    const Stage& stage = planner_.StageNamed(sum_);
    // Cheaply first: most reductions are no such convolution, and every candidate of a search comes by here.
    auto is_three = [&](const Axis& axis) { return planner_.Extent(axis) == 3; };
    if (stage.reduction != Reduction::kSum || stage.axes.size() < 2 ||
        std::ranges::count_if(stage.reduce_axes, is_three) < 2)
      return Refuse("not a 3x3 convolution with stride 1");
    if (!planner_.Admits("winograd")) return Refuse("only accuracy=relaxed admits it");
    if (Result<void> fits =
            CheckWinograd(kernel, FindStage(kernel, sum_), 2, CeilDiv(planner_.Extent(stage.axes.back()), 2));
        !fits)
      return Refuse(fits.error().message);
    lanes_ = planner_.LanesFor(stage);
    const AxisId last = stage.last_axis();
    shape_.element_bytes = ByteSize(kernel.tensors[stage.output].dtype);
    std::vector<AccessPattern> operands = planner_.AccessesOf(stage);
    if (operands.size() != 2) return Refuse("not a product of two tensors");
    // Columns move through the input alone.
    const AccessPattern &input = operands[operands[0].uses[last] ? 0 : 1],
                        &filter = operands[operands[0].uses[last] ? 1 : 0];
    const Tensor& weights = kernel.tensors[filter.tensor];
    if (!weights.is_const || weights.kind != TensorKind::kInput || ReadersOf(kernel, filter.tensor).size() != 1)
      return Refuse("the filter is not a constant of this stage alone: it would be transformed on every call");
    size_t filters = 0;
    AxisId window;  // the last of those along which one slides, but for columns
    for (AxisId axis : stage.spatial_ids()) {
      if (axis == last) continue;
      if (input.uses[axis] && !filter.uses[axis]) window = axis;
      if (filter.uses[axis] && !input.uses[axis]) {
        ++filters;
        filter_ = axis;
        filter_axis_ = stage.axis(axis).name;
        shape_.filters *= static_cast<double>(planner_.Extent(stage, axis));
      }
    }
    if (filters != 1 || !window) return Refuse("not one axis of filters over one image");
    rows_ = window;
    height_ = stage.axis(rows_).name;
    width_ = stage.axis(last).name;
    shape_.rows = static_cast<double>(planner_.Extent(stage, rows_));
    shape_.columns = static_cast<double>(planner_.Extent(stage, last));
    for (AxisId axis : stage.spatial_ids()) {
      if (axis == last || axis == rows_ || axis == filter_) continue;
      outer_.push_back(axis);
      shape_.batch *= static_cast<double>(planner_.Extent(stage, axis));
    }
    for (const Axis& axis : stage.reduce_axes) shape_.channels *= static_cast<double>(planner_.Extent(axis));
    shape_.channels /= 9;
    return true;
  }

  void Emit(const WinogradNames& names) {
    const MachineModel& machine = planner_.machine();
    const int64_t rows_of_tiles = CeilDiv(static_cast<int64_t>(shape_.rows), m_);
    lanes_in_row_ = std::min<int64_t>(lanes_, columns_);
    const int registers = machine.vector_registers;
    // What the sum was is now a copy; its finisher takes it in.
    std::string out = sum_;
    if (std::string finisher = planner_.FinishingStage(sum_); !finisher.empty() && planner_.Inline(sum_))
      out = finisher;

    const bool is_serial = planner_.kernel().options.threads == 1;
    by_filters_ = planner_.ChooseIf(sum_, {"by_filters", "tasks are blocks of filters, not of rows"},
                                    !is_serial && rows_of_tiles * columns_ <= 2 * kTilesAtOnce);
    // Blocks: enough for the workers, whole vectors of tiles.
    int64_t per_block = rows_of_tiles;
    if (!by_filters_) {
      per_block = std::clamp<int64_t>(CeilDiv(kTilesAtOnce, columns_), 1, rows_of_tiles);
      int64_t blocks = is_serial ? 1 : CeilDiv(machine.cores, static_cast<int64_t>(shape_.batch));
      per_block = std::min(per_block, std::max<int64_t>(1, CeilDiv(rows_of_tiles, blocks)));
      std::vector<int64_t> options;
      for (int64_t rows = 1; rows <= rows_of_tiles; rows *= 2) options.push_back(rows);
      options.push_back(rows_of_tiles);
      per_block =
          planner_.Choose(sum_, {"tile_rows", "rows of Winograd tiles in a block"}, std::move(options), per_block);
    }
    const int64_t tiles = per_block * columns_;
    int64_t vectors = planner_.Choose(sum_, kVectors, {1, 2, 3, 4}, tiles > lanes_ ? 2 : 1);
    const int64_t filters = static_cast<int64_t>(shape_.filters);
    std::vector<int64_t> row_options;
    for (int64_t rows : {4, 6, 8, 10, 12, 14, 16, 24, 28})
      if ((rows + 1) * vectors < registers) row_options.push_back(rows);
    const int64_t rows = planner_.Choose(sum_, kRows, std::move(row_options), TileRows(filters, vectors, registers));

    ScheduleOut(out, per_block, rows);
    ScheduleResult(names, out);
    ScheduleProduct(names, out, vectors, rows);
    ScheduleTiles(names, out);
    ScheduleFilter(names, rows);
    for (const std::string& name : {out, names.result, names.half, names.product, names.filter, names.filter_rows,
                                    names.tiles, names.rows, names.input})
      planner_.MarkScheduled(name);
  }

  void ScheduleOut(const std::string& out, int64_t per_block, int64_t rows) {
    std::string height = AxisAt(out, rows_).name, width = planner_.StageNamed(out).axes.back().name,
                filter = AxisAt(out, filter_).name;
    const int64_t span = m_ * lanes_in_row_, vector = std::min(span, lanes_);
    planner_.Split(out, height, {per_block, m_});
    planner_.Split(out, width, {span / vector, vector});
    std::vector<std::string> task;
    double tasks = shape_.batch;
    for (AxisId axis : outer_) task.push_back(AxisAt(out, axis).name);
    std::vector<std::string> order;
    if (by_filters_) {
      // The filters of a task: whole register tiles.
      int64_t tiles = CeilDiv(static_cast<int64_t>(shape_.filters), rows);
      int64_t each = planner_.Choose(sum_, {"filter_tiles", "register tiles of filters in a task"}, {1, 2, 4, 8, 16},
                                     std::max<int64_t>(1, tiles / (4 * planner_.machine().cores)));
      planner_.Split(out, filter, {each * rows});
      task.push_back(filter + ".0");
      tasks *= static_cast<double>(CeilDiv(tiles, each));
      order = task;
      order.push_back(height + ".0");
      filter += ".1";
    } else {
      task.push_back(height + ".0");
      tasks *= std::ceil(shape_.rows / static_cast<double>(per_block * m_));
      order = task;
    }
    for (const std::string& loop : {filter, height + ".1", width + ".0", height + ".2", width + ".1", width + ".2"})
      order.push_back(loop);
    planner_.Reorder(out, order);
    task_ = planner_.Parallelize(out, task, static_cast<int64_t>(tasks), cycles_);
    planner_.Unroll(out, {height + ".2", width + ".1"});
    planner_.Vectorize(out, {width + ".2"});
    inside_ = width + ".0";
  }

  // The output transform, in registers: vectors of tiles, which the copy in `out` interleaves.
  void ScheduleResult(const WinogradNames& names, const std::string& out) {
    for (const std::string& name : {names.result, names.half}) {
      planner_.ComputeAt(name, out, inside_);
      planner_.Store(name, Scope::kRegisters);
      Rows(name, lanes_in_row_);
    }
  }

  // All axes but the last unrolled, that one in vectors.
  void Rows(const std::string& name, int64_t lanes) {
    std::vector<std::string> unrolled;
    const Stage stage = planner_.StageNamed(name);
    for (const Axis& axis : stage.axes) unrolled.push_back(axis.name);
    std::string last = unrolled.back();
    planner_.Split(name, last, {lanes});
    unrolled.back() = last + ".0";
    planner_.Unroll(name, unrolled);
    planner_.Vectorize(name, {last + ".1"});
  }

  void ScheduleProduct(const WinogradNames& names, const std::string& out, int64_t vectors, int64_t rows) {
    const std::string& name = names.product;
    const Stage stage = planner_.StageNamed(name);
    planner_.ComputeAt(name, out, task_);
    std::vector<LayoutDim> layout;
    std::vector<std::string> order;
    for (const Axis& axis : stage.axes) {
      // A column more: powers of two between the frequencies would share cache sets.
      layout.push_back(Whole(axis.name, axis.name == filter_axis_ ? 1 : 0));
      if (axis.name != filter_axis_ && axis.name != stage.axes.back().name) order.push_back(axis.name);
    }
    planner_.Store(name, Scope::kPerWorker, layout);
    std::string t = stage.axes.back().name;
    planner_.Split(name, filter_axis_, {rows});
    planner_.Split(name, t, {vectors, lanes_});
    order.push_back(t + ".0");
    order.push_back(filter_axis_ + ".0");
    for (const Axis& axis : stage.reduce_axes) order.push_back(axis.name);
    for (const std::string& loop : {filter_axis_ + ".1", t + ".1", t + ".2"}) order.push_back(loop);
    planner_.Reorder(name, order);
    planner_.RegisterTile(name, filter_axis_ + ".0");
    planner_.Unroll(name, {filter_axis_ + ".1", t + ".1"});
    planner_.Vectorize(name, {t + ".2"});
  }

  void ScheduleTiles(const WinogradNames& names, const std::string& out) {
    // V: … channels, tile row, columns ▸ all frequencies.
    const Stage tiles = planner_.StageNamed(names.tiles);
    const size_t rank = tiles.axes.size();  // i, j, …, row, column
    std::string i = tiles.axes[0].name, j = tiles.axes[1].name, row = tiles.axes[rank - 2].name,
                column = tiles.axes[rank - 1].name;
    if (!by_filters_) planner_.ComputeAt(names.tiles, out, task_);
    std::vector<LayoutDim> layout;
    std::vector<std::string> order;
    for (size_t a = 0; a < rank; ++a) {
      layout.push_back(Whole(tiles.axes[a].name, a + 3 == rank ? 1 : 0));
      if (a >= 2 && a + 1 < rank) order.push_back(tiles.axes[a].name);
    }
    planner_.Store(names.tiles, by_filters_ ? Scope::kWorkspace : Scope::kPerWorker, layout);
    planner_.Split(names.tiles, column, {lanes_in_row_});
    for (const std::string& loop : {column + ".0", i, j, column + ".1"}) order.push_back(loop);
    planner_.Reorder(names.tiles, order);
    if (by_filters_)  // one channel after the other
      order[0] = planner_.Parallelize(names.tiles, {order.begin(), order.begin() + static_cast<int64_t>(rank) - 4},
                                      static_cast<int64_t>(shape_.channels * shape_.batch), cycles_ / 10);
    const std::string channel_loop = order[0];
    planner_.Unroll(names.tiles, {i, j});
    planner_.Vectorize(names.tiles, {column + ".1"});

    // The row sums of one row of tiles.
    const Stage sums = planner_.StageNamed(names.rows);
    std::string frequency = sums.axes[sums.axes.size() - 3].name, x = sums.axes.back().name;
    planner_.ComputeAt(names.rows, names.tiles, row);
    planner_.Split(names.rows, x, {lanes_});
    order.clear();
    for (size_t a = 0; a + 1 < sums.axes.size(); ++a)
      if (sums.axes[a].name != frequency) order.push_back(sums.axes[a].name);
    for (const std::string& loop : {x + ".0", frequency, x + ".1"}) order.push_back(loop);
    planner_.Reorder(names.rows, order);
    planner_.Unroll(names.rows, {frequency});
    planner_.Vectorize(names.rows, {x + ".1"});

    if (by_filters_)
      planner_.ComputeAt(names.input, names.tiles, channel_loop);
    else
      planner_.ComputeAt(names.input, out, task_);
    std::string last = planner_.StageNamed(names.input).axes.back().name;
    planner_.Split(names.input, last, {lanes_});
    planner_.Vectorize(names.input, {last + ".1"});
  }

  void ScheduleFilter(const WinogradNames& names, int64_t rows) {
    const Stage stage = planner_.StageNamed(names.filter);
    std::vector<LayoutDim> layout;
    std::vector<std::string> order, last;
    for (size_t a = 0; a < stage.axes.size(); ++a) {
      const std::string& axis = stage.axes[a].name;
      if (axis == filter_axis_) {
        layout.push_back(Quotient(axis, rows));
        last.push_back(axis);
      } else {
        layout.push_back(Whole(axis));
      }
      if (a >= 2) order.push_back(axis);
    }
    layout.push_back(Remainder(filter_axis_, rows));
    planner_.Store(names.filter, Scope::kConst, layout);
    std::string i = stage.axes[0].name, j = stage.axes[1].name;
    order.push_back(i);
    order.push_back(j);
    planner_.Reorder(names.filter, order);
    planner_.Unroll(names.filter, {i, j});
    // The rows' transform of one filter and channel, in registers.
    planner_.ComputeAt(names.filter_rows, names.filter, order[order.size() - 3]);
    planner_.Store(names.filter_rows, Scope::kRegisters);
    std::vector<std::string> unrolled;
    for (const Axis& axis : planner_.StageNamed(names.filter_rows).axes) unrolled.push_back(axis.name);
    planner_.Unroll(names.filter_rows, unrolled);
  }

  SchedulePlanner& planner_;
  const std::string sum_;
  Shape shape_;
  int64_t lanes_ = 1, lanes_in_row_ = 1, m_ = 0, columns_ = 0;
  double cycles_ = 0;
  bool by_filters_ = false;
  std::string filter_axis_, height_, width_;
  AxisId filter_, rows_;
  std::vector<AxisId> outer_;  // what is neither window nor filter
  std::string task_, inside_;  // loops of `out`
};

}  // namespace

bool ScheduleWinograd(SchedulePlanner& planner, const std::string& stage) {
  return WinogradRule(planner, stage).Apply();
}

}  // namespace hone
