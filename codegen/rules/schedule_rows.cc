// Reductions along rows: softmax, normalisations, row sums, a matrix times a vector. A row's intermediates are computed
// where the row is and stay in the first-level cache; each reduction runs in several independent vectors of lanes. Of a
// long row, two statistics that belong together may be taken block by block, while it is read once.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/arithmetic.h"
#include "codegen/rules/kept_row.h"
#include "codegen/rules/row_group.h"
#include "codegen/rules/schedule_planner.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/op_traits.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/online_reduction.h"

namespace hone {
namespace {

// Vectors that one reduction accumulates into: enough chains to cover the latency of an addition.
constexpr int64_t kChains = 4;

// Elements in a block of a row, about: what stays in the first-level cache, or in a part of the second.
constexpr int64_t kOnlineBlocks[] = {256, 1024, 4096, 16384, 65536};
constexpr int64_t kUsualOnlineBlock = 4096;

// Whether a body chooses by a short axis alone, as by the halves of a byte: unrolled, no copy has a choice.
bool ChoosesBy(const SchedulePlanner& planner, const Stage& stage, AxisId axis) {
  constexpr int64_t kShort = 4;
  bool chooses = false;
  Walk(stage.body, [&](const Expr& e) {
    if (e.op() != Op::kSelect) return;
    const std::vector<AxisId> axes = AxesOf(e.arg(0));
    chooses =
        chooses || (!axes.empty() && std::all_of(axes.begin(), axes.end(), [&](AxisId by) { return by == axis; }));
  });
  return chooses && planner.Extent(stage, axis) <= kShort;
}

// Loops of a stage that is computed for one row (or a few): `fixed` leading axes are unrolled, the last of the others
// is vectorised, a reduction without further axes goes through lanes. `together`: rows that are unrolled.
void ScheduleInRow(SchedulePlanner& planner, const std::string& name, size_t fixed, const std::string& out,
                   const std::string& loop, bool in_registers, int64_t together = 1) {
  const Stage stage = planner.StageNamed(name);
  const int64_t lanes = planner.LanesFor(stage);
  std::vector<std::string> rows, unrolled;
  for (size_t i = 0; i < fixed; ++i) rows.push_back(stage.axes[i].name);

  if (stage.axes.size() == fixed && !stage.reduce_axes.empty()) {
    // One number a row. Lanes of the last reduction axis first, then across the lanes.
    size_t longest = stage.reduce_axes.size() - 1;
    while (longest > 0 && planner.Extent(stage.reduce_axes[longest]) == 1) --longest;
    const Axis& last = stage.reduce_axes[longest];
    const Passed passed = ComputedInPassing(planner, stage, fixed, out);
    int64_t extent = planner.Extent(last);
    int64_t width = std::min(lanes, BitCeil(extent));
    int64_t chains = std::clamp<int64_t>(extent / width, 1, kChains);
    while (chains > 1 && extent % (chains * width) != 0 && extent < 16 * width) --chains;
    // Their accumulators stay in registers, beside what a step widens there.
    const int64_t kOfAStep = stage.body.Has(Op::kCast) ? 4 : 0;
    const int64_t most = std::max<int64_t>(1, (planner.machine().vector_registers - kOfAStep) / together);
    while (chains > most) chains /= 2;
    constexpr int64_t kLongRow = 256;  // vectors
    if (passed.is_costly) chains = extent >= kLongRow * width ? 2 : 1;
    std::vector<int64_t> chain_options;
    for (int64_t count : {1, 2, 4, 8})
      if (count * width <= extent) chain_options.push_back(count);
    chains = planner.Choose(
        name, {.name = "chains", .meaning = "independent accumulators of the reduction", .grows_code = true},
        std::move(chain_options), chains);
    if (stage.reduction == Reduction::kMax) planner.Rewrite({"max_ignore_nan", name});
    std::string part = planner.FreshName(name + "_lanes");
    // Chains of lanes side by side; then their sum, vector by vector; then across the lanes of one vector.
    bool factored = planner.Rfactor(name, last.name, chains * width, part);
    std::string vector = planner.FreshName(name + "_vector");
    // The lanes' axis in the sum over them, and where they come from: rewrites name it, away from names in use.
    std::string across = factored ? planner.StageNamed(name).reduce_axes.back().name : "";
    std::string lane = factored ? planner.StageNamed(part).axes.back().name : "";
    bool by_vectors = factored && chains > 1 && planner.Rfactor(name, across, width, vector);
    planner.ComputeAt(name, out, loop);
    planner.Store(name, Scope::kRegisters);
    planner.MarkScheduled(name);
    if (!factored) {
      planner.Unroll(name, rows);
      return;
    }
    // The partial sums: reduction loops outside, rows and chains unrolled, lanes in a vector.
    planner.ComputeAt(part, out, loop);
    planner.Store(part, Scope::kRegisters);
    planner.Split(part, lane, {width});
    std::vector<std::string> order, chosen;
    const Stage partial = planner.StageNamed(part);
    for (AxisId axis : partial.reduce_ids())
      (ChoosesBy(planner, partial, axis) ? chosen : order).push_back(partial.axis(axis).name);
    for (const std::string& row : rows) order.push_back(row), unrolled.push_back(row);
    order.push_back(lane + ".0");
    unrolled.push_back(lane + ".0");
    order.insert(order.end(), chosen.begin(), chosen.end());
    unrolled.insert(unrolled.end(), chosen.begin(), chosen.end());
    order.push_back(lane + ".1");
    planner.Reorder(part, order);
    planner.Unroll(part, unrolled);
    planner.Vectorize(part, {lane + ".1"});
    planner.MarkScheduled(part);
    if (!passed.name.empty()) ScheduleInPassing(planner, passed.name, rows, width, part, order.front(), out, loop);
    if (by_vectors) {
      const Stage whole = planner.StageNamed(vector);
      planner.ComputeAt(vector, out, loop);
      planner.Store(vector, Scope::kRegisters);
      std::vector<std::string> unrolled_rows = rows;
      for (const Axis& axis : whole.reduce_axes) unrolled_rows.push_back(axis.name);
      order = unrolled_rows;
      order.push_back(whole.axes.back().name);
      planner.Reorder(vector, order);
      planner.Unroll(vector, unrolled_rows);
      planner.Vectorize(vector, {order.back()});
      planner.MarkScheduled(vector);
    }
    planner.Unroll(name, rows);
    planner.Vectorize(name, {planner.StageNamed(name).reduce_axes.back().name});
    return;
  }
  planner.ComputeAt(name, out, loop);
  planner.MarkScheduled(name);
  if (stage.axes.size() == fixed) {
    planner.Store(name, Scope::kRegisters);
    planner.Unroll(name, rows);
    return;
  }
  if (in_registers) planner.Store(name, Scope::kRegisters);
  std::string along = stage.axes.back().name;
  int64_t extent = planner.Extent(stage.axes.back());
  int64_t width = std::min(lanes, BitCeil(extent));
  int64_t unroll = std::clamp<int64_t>(extent / width, 1, 2);
  while (unroll > 1 && extent % (unroll * width) != 0) --unroll;
  unroll = planner.Choose(name, kUnroll, {1, 2, 4}, unroll);
  planner.Split(name, along, {unroll, width});
  if (stage.reduce_axes.empty()) {
    std::vector<std::string> order;
    for (size_t i = fixed; i + 1 < stage.axes.size(); ++i) order.push_back(stage.axes[i].name);
    order.push_back(along + ".0");
    order.insert(order.end(), rows.begin(), rows.end());
    order.push_back(along + ".1");
    order.push_back(along + ".2");
    planner.Reorder(name, order);
    rows.push_back(along + ".1");
    planner.Unroll(name, rows);
  } else {
    // Sums per element of the row: the reduction outside, the tile in registers.
    std::vector<std::string> order;
    for (size_t i = 0; i + 1 < stage.axes.size(); ++i) order.push_back(stage.axes[i].name);
    order.push_back(along + ".0");
    for (const Axis& axis : stage.reduce_axes) order.push_back(axis.name);
    order.push_back(along + ".1");
    order.push_back(along + ".2");
    planner.Reorder(name, order);
    planner.RegisterTile(name, along + ".0");
    planner.Unroll(name, {along + ".1"});
  }
  planner.Vectorize(name, {along + ".2"});
}

// What the stages of a row need in between, in bytes, and the work on a row, in cycles.
struct RowCost {
  int64_t bytes = 0;
  double work = 0;
};

RowCost CostOf(const SchedulePlanner& planner, const std::vector<std::string>& group, size_t rows) {
  RowCost cost;
  for (const std::string& name : group) {
    const Stage& stage = planner.StageNamed(name);
    double points = 1;
    int64_t bytes = ByteSize(planner.kernel().tensors[stage.output].dtype);
    for (size_t i = rows; i < stage.axes.size(); ++i) {
      bytes *= planner.Extent(stage.axes[i]);
      points *= static_cast<double>(planner.Extent(stage.axes[i]));
    }
    for (const Axis& axis : stage.reduce_axes) points *= static_cast<double>(planner.Extent(axis));
    Walk(stage.body, [&](const Expr& e) { cost.work += points * planner.machine().element_operation.Of(e.op()); });
    cost.bytes += bytes;
  }
  return cost;
}

// About `wanted` elements: such that blocks, in `step` or at least in `lanes` elements at once, divide the row evenly,
// where there are such.
int64_t BlockOf(int64_t extent, int64_t wanted, int64_t step, int64_t lanes) {
  constexpr int64_t kTries = 256;
  const int64_t fewest = CeilDiv(extent, wanted);
  for (int64_t part : {step, lanes})
    for (int64_t count = fewest; count <= std::min(2 * fewest, fewest + kTries); ++count)
      if (extent % count == 0 && extent / count % part == 0) return extent / count;
  return wanted;
}

// Where a reduction along the row needs another one (a softmax, a normalisation): both in one pass over the row, if
// that is chosen. What was computed from the first alone is computed again where it is read.
std::optional<OnlineNames> TakeOnline(SchedulePlanner& planner, const std::string& out,
                                      const std::vector<std::string>& group, size_t rows, int64_t row_bytes) {
  for (const std::string& name : group) {
    const Stage stage = planner.StageNamed(name);
    const Result<StageId> found = FirstOfOnline(planner.kernel(), FindStage(planner.kernel(), name));
    if (!found || stage.axes.size() != rows) continue;
    const Stage first = planner.kernel().stages[*found];
    const std::string first_name = planner.NameOf(first);
    if (std::find(group.begin(), group.end(), first_name) == group.end()) continue;
    const int64_t extent = planner.Extent(stage.reduce_axes[0]);
    std::vector<int64_t> options{0};
    for (int64_t block : kOnlineBlocks)
      if (block <= extent) options.push_back(block);
    const bool is_long = row_bytes > planner.machine().l2_bytes;
    const int64_t wanted = planner.Choose(
        out, {"online", "elements of a row whose two statistics are taken while it is read once; 0: a pass for each"},
        std::move(options), is_long ? kUsualOnlineBlock : 0);
    if (wanted == 0) {
      planner.Refuse("online", name,
                     is_long ? "left out by a choice of the search" : "the row stays in the cache from pass to pass");
      return std::nullopt;
    }
    if (first.reduction == Reduction::kMax) planner.Rewrite({"max_ignore_nan", first_name});
    const OnlineNames names(planner.FreshName(name + "_blocks"));
    const int64_t lanes = planner.LanesFor(stage);
    const int64_t block = BlockOf(extent, wanted, kChains * lanes, lanes);
    if (!planner.Rewrite({"online_reduction", name, {names.kept}, {block}})) return std::nullopt;
    for (const std::string& other : group) {
      if (!FindStage(planner.kernel(), other)) continue;
      const Stage& left = planner.StageNamed(other);
      const std::vector<StageId> readers = ReadersOf(planner.kernel(), left.output);
      if (left.reduction == Reduction::kNone && left.axes.size() > rows && readers.size() == 1 &&
          planner.kernel().stages[readers[0]].reduction == Reduction::kNone)
        planner.Inline(other);
    }
    planner.Took(
        "online", name,
        fmt::format("with {}, which it needs, in one pass over the row: in blocks that stay in the cache", first_name));
    return names;
  }
  return std::nullopt;
}

// Loops of the stage that keeps the statistics of all blocks of a row: what a block is needed for happens inside the
// loop over blocks.
void ScheduleBlocks(SchedulePlanner& planner, const OnlineNames& names, size_t rows, const std::string& out,
                    const std::string& loop) {
  const Stage stage = planner.StageNamed(names.kept);
  std::vector<std::string> unrolled;
  for (size_t i = 0; i <= rows; ++i) unrolled.push_back(stage.axes[i].name);
  const std::string block = stage.axes.back().name;
  std::vector<std::string> order{block};
  order.insert(order.end(), unrolled.begin(), unrolled.end());
  planner.ComputeAt(names.kept, out, loop);
  planner.Reorder(names.kept, order);
  planner.Unroll(names.kept, unrolled);
  planner.MarkScheduled(names.kept);
  for (const std::string& name : {names.first, names.second})
    ScheduleInRow(planner, name, rows + 1, names.kept, block, false);
}

// Whether rows may be divided among workers: each row is one run of elements, and of what it needs in between only the
// blocks' statistics are more than a number.
bool CanDivideRows(const SchedulePlanner& planner, const Stage& out, const std::vector<std::string>& group, size_t rows,
                   const OnlineNames& names) {
  return out.axes.size() == rows + 1 && planner.kernel().options.threads != 1 &&
         std::all_of(group.begin(), group.end(), [&](const std::string& g) {
           return g == names.first || g == names.second || g == names.kept || planner.StageNamed(g).axes.size() == rows;
         });
}

// Fewer rows than workers: first the statistics of all blocks of all rows, then the rows' elements, in parts that merge
// the blocks of their row anew.
void DivideRows(SchedulePlanner& planner, const std::string& name, const std::vector<std::string>& group, size_t rows,
                const OnlineNames& names, double cycles) {
  const Stage kept = planner.StageNamed(names.kept), out = planner.StageNamed(name);
  int64_t row_count = 1;
  std::vector<std::string> outer, loops;
  for (size_t i = 0; i < rows; ++i) {
    row_count *= planner.Extent(out.axes[i]);
    outer.push_back(kept.axes[i].name);
    loops.push_back(out.axes[i].name);
  }
  const std::string statistic = kept.axes[rows].name;
  outer.push_back(kept.axes.back().name);
  std::vector<std::string> order = outer;
  order.push_back(statistic);
  planner.Reorder(names.kept, order);
  const std::string task = planner.Parallelize(names.kept, outer, row_count * planner.Extent(kept.axes.back()), cycles);
  planner.Unroll(names.kept, {statistic});
  planner.MarkScheduled(names.kept);
  for (const std::string& stage : {names.first, names.second})
    ScheduleInRow(planner, stage, rows + 1, names.kept, task, false);

  constexpr int64_t kPartsOfAWorker = 4;
  const std::string along = out.axes.back().name;
  const int64_t extent = planner.Extent(out.axes.back()), width = planner.LanesFor(out);
  const int64_t unroll = planner.Choose(name, kUnroll, {1, 2, 4}, 2);
  const int64_t wanted = std::max<int64_t>(1, kPartsOfAWorker * planner.machine().cores / row_count);
  const int64_t steps = (extent + wanted * unroll * width - 1) / (wanted * unroll * width);
  planner.Split(name, along, {steps, unroll, width});
  loops.push_back(along + ".0");
  const int64_t part = steps * unroll * width;
  const std::string loop = planner.Parallelize(name, loops, row_count * CeilDiv(extent, part), cycles);
  planner.Unroll(name, {along + ".2"});
  planner.Vectorize(name, {along + ".3"});
  for (const std::string& g : group)
    if (!planner.IsScheduled(g)) ScheduleInRow(planner, g, rows, name, loop, false);
  planner.MarkScheduled(name);
  planner.Took("rows", name, "reductions along rows, which are divided among workers");
}

// Where the operands outgrow the second-level cache, they are fetched ahead of the pass that reads them first: the
// passes that follow a row's first one read nothing, and leave memory idle. A single pass never does, and a processor
// fetches ahead of it by itself.
void PrefetchRows(SchedulePlanner& planner, const std::string& name, std::span<const std::string> group,
                  bool is_single_pass) {
  constexpr int64_t kUsualAhead = 4096;
  const Kernel& kernel = planner.kernel();
  int64_t bytes = 0;
  std::vector<std::pair<std::string, std::string>> first_reads;  // tensor, stage
  for (TensorId id : kernel.tensors.ids()) {
    const Tensor& tensor = kernel.tensors[id];
    if (tensor.kind == TensorKind::kIntermediate) continue;
    bytes += planner.Bytes(id);
    const bool stays = planner.Bytes(id) <= planner.machine().l2_bytes / 8;  // a scale per column
    if (tensor.kind != TensorKind::kInput || stays) continue;
    const std::vector<StageId> readers = ReadersOf(kernel, id);
    if (readers.empty()) continue;
    const Stage& reader = kernel.stages[readers.front()];
    if (std::find(group.begin(), group.end(), planner.NameOf(reader)) == group.end()) continue;
    first_reads.emplace_back(tensor.name, planner.NameOf(reader));
  }
  if (bytes <= planner.machine().l2_bytes || first_reads.empty()) return;
  const int64_t ahead =
      planner.Choose(name, kPrefetch, {0, 1024, kUsualAhead, 16384}, is_single_pass ? 0 : kUsualAhead);
  if (ahead == 0) return;
  for (const auto& [tensor, stage] : first_reads) planner.Prefetch(tensor, stage, ahead);
  planner.Took("prefetch", name,
               "the operands come from beyond the second-level cache: what is next is asked for ahead");
}

constexpr std::string_view kByColumns = "it reduces down columns: what it reads lies in memory along the last axis";

}  // namespace

bool ScheduleRows(SchedulePlanner& planner, const std::string& name) {
  {
    // A reduction to an output is separated first, so that its value may live in registers.
    const Stage stage = planner.StageNamed(name);
    if (ReducesColumns(planner, stage)) return planner.Refuse("rows", name, kByColumns);
    if (stage.reduction != Reduction::kNone &&
        !planner.Rewrite({"cache_write", name, {planner.FreshName(name + "_sum")}}))
      return planner.Refuse("rows", name, "the reduction cannot be separated from what it is written to");
  }
  const Stage out = planner.StageNamed(name);
  if (out.axes.empty()) return planner.Refuse("rows", name, "a single number: there are no rows");
  // As many leading axes as leave something to do in a row: all but the last, or all where the output is one number a
  // row.
  std::vector<std::string> group;
  size_t rows = 0;
  for (size_t candidate = out.axes.size(); candidate >= 1; --candidate) {
    group = RowGroup(planner, name, candidate);
    bool reduces = std::any_of(group.begin(), group.end(), [&](const std::string& g) {
      return planner.StageNamed(g).reduction != Reduction::kNone;
    });
    rows = candidate;
    if (reduces) break;
    if (candidate == 1) return planner.Refuse("rows", name, "nothing that feeds it reduces along rows");
  }
  if (rows == out.axes.size() && group.size() == 1 && ReducesColumns(planner, planner.StageNamed(group[0])))
    return planner.Refuse("rows", name, kByColumns);
  const bool is_single_pass = group.size() == 1;
  const size_t before = planner.scheduled().size();
  RowCost cost = CostOf(planner, group, rows);
  const std::optional<OnlineNames> online = TakeOnline(planner, name, group, rows, cost.bytes);
  if (online) {
    group = RowGroup(planner, name, rows);
    cost = CostOf(planner, group, rows);
  }
  // Row intermediates must fit the second-level cache.
  const int64_t row_bytes = cost.bytes;
  if (row_bytes > planner.machine().l2_bytes)
    return planner.Refuse("rows", name, "what a row needs in between is more than the second-level cache holds");

  double row_count = 1;
  for (size_t i = 0; i < rows; ++i) row_count *= static_cast<double>(planner.Extent(out.axes[i]));
  if (online && CanDivideRows(planner, out, group, rows, *online) &&
      planner.ChooseIf(name, {"divided_rows", "workers share a row: for fewer rows than workers"},
                       row_count < planner.machine().cores)) {
    DivideRows(planner, name, group, rows, *online, cost.work * row_count);
    PrefetchRows(planner, name, planner.scheduled().subspan(before), false);
    return true;
  }
  const bool scalar_rows = rows == out.axes.size();
  // Several rows at once where each gives one number: their loads and horizontal sums overlap. Axes of one element do
  // not count.
  size_t inner = rows - 1;
  while (scalar_rows && inner > 0 && planner.Extent(out.axes[inner]) == 1) --inner;
  std::vector<std::string> task;
  for (size_t i = 0; i <= inner; ++i) task.push_back(out.axes[i].name);
  std::string loop;
  int64_t tasks = static_cast<int64_t>(row_count);
  const std::string last = out.axes[inner].name;
  const int64_t last_extent = planner.Extent(out.axes[inner]);
  int64_t together = 1;
  if (scalar_rows) {
    for (int64_t count : {4, 3, 2})
      if (last_extent % count == 0 && together == 1) together = count;
    if (together == 1 && last_extent >= 16) together = 4;
  } else if (!online && row_bytes <= planner.machine().l1_bytes / 8 && last_extent % 2 == 0) {
    together = 2;
  }
  if (last_extent >= 2) {
    std::vector<int64_t> options;
    for (int64_t count : {1, 2, 3, 4, 6, 8})
      if (count <= last_extent && (scalar_rows || last_extent % count == 0)) options.push_back(count);
    together = planner.Choose(
        name, {.name = "rows_together", .meaning = "rows that are worked on together", .grows_code = true},
        std::move(options), together);
  }
  if (together > 1) {
    planner.Split(name, last, {together});
    task.back() = last + ".0";
    if (last_extent % together != 0) planner.SetTail(name, last, Tail::kShift);
    tasks = tasks / last_extent * CeilDiv(last_extent, together);
  }
  loop = planner.Parallelize(name, task, tasks, cost.work * row_count);
  if (together > 1 && scalar_rows) planner.Unroll(name, {last + ".1"});
  if (!scalar_rows) {
    std::string along = out.axes.back().name;
    int64_t extent = planner.Extent(out.axes.back());
    int64_t width = std::min<int64_t>(planner.LanesFor(out), BitCeil(extent));
    int64_t unroll = std::clamp<int64_t>(extent / width, 1, 2);
    while (unroll > 1 && extent % (unroll * width) != 0) --unroll;
    unroll = planner.Choose(name, kUnroll, {1, 2, 4}, unroll);
    planner.Split(name, along, {unroll, width});
    if (together > 1) {
      std::vector<std::string> order{loop};
      for (size_t i = rows; i + 1 < out.axes.size(); ++i) order.push_back(out.axes[i].name);
      order.insert(order.end(), {along + ".0", last + ".1", along + ".1", along + ".2"});
      planner.Reorder(name, order);
      planner.Unroll(name, {last + ".1"});
    }
    planner.Unroll(name, {along + ".1"});
    planner.Vectorize(name, {along + ".2"});
  }
  if (online) ScheduleBlocks(planner, *online, rows, name, loop);
  // Reductions first: some compute in passing what they read.
  for (const bool reduces : {true, false})
    for (const std::string& g : group)
      if (!planner.IsScheduled(g) && (planner.StageNamed(g).reduction != Reduction::kNone) == reduces)
        ScheduleInRow(planner, g, rows, name, loop, false, scalar_rows ? together : 1);
  planner.MarkScheduled(name);
  StoreInOutput(planner, name, group);
  PrefetchRows(planner, name, planner.scheduled().subspan(before), is_single_pass);
  planner.Took("rows", name, "reductions along rows; what a row needs in between stays in the cache");
  return true;
}

}  // namespace hone
