#include "codegen/rules/tile_model.h"

#include <algorithm>
#include <cmath>

#include "base/arithmetic.h"
#include "codegen/instructions.h"
#include "ir/graph/affine.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

double Tiles(int64_t extent, int64_t tile) { return static_cast<double>(CeilDiv(extent, tile)); }

// A row and a step of the reduction that together, and nothing else, move along a dimension of what is padded.
std::optional<PaddedWindow> WindowAlong(const SchedulePlanner& planner, const Stage& stage, const Expr& index,
                                        const Expr& extent) {
  const Kernel& kernel = planner.kernel();
  const std::optional<Linear> form = AffineIndex(kernel, index);
  if (!form || form->terms().size() != 2 || LowerExtent(kernel, extent) != UpperExtent(kernel, extent))
    return std::nullopt;
  const Term row = form->terms()[0], step = form->terms()[1];  // in the order of their axes
  const AxisId row_axis = AxisOf(row.var), step_axis = AxisOf(step.var);
  if (stage.Reduces(row_axis) || !stage.Reduces(step_axis)) return std::nullopt;
  const Axis &rows = stage.axis(row_axis), &steps = stage.axis(step_axis);
  for (const Axis* axis : {&rows, &steps})
    if (LowerExtent(kernel, axis->extent) != UpperExtent(kernel, axis->extent)) return std::nullopt;
  constexpr int64_t kLongestWindow = 64;
  const int64_t row_count = planner.Extent(rows), step_count = planner.Extent(steps);
  if (row.coef <= 0 || step_count > kLongestWindow) return std::nullopt;
  double inside = 0;
  for (int64_t s = 0; s < step_count; ++s) {
    const int64_t start = form->constant() + s * step.coef;  // of the first row
    const int64_t first = std::max<int64_t>(0, FloorDiv(-start + row.coef - 1, row.coef));
    const int64_t last = std::min(row_count - 1, FloorDiv(UpperExtent(kernel, extent) - 1 - start, row.coef));
    inside += static_cast<double>(std::max<int64_t>(0, last - first + 1));
  }
  const double share = 1 - inside / (static_cast<double>(row_count) * static_cast<double>(step_count));
  return share > 0 ? std::optional(PaddedWindow{row_axis, step_axis, share}) : std::nullopt;
}

void FindPaddedWindows(const SchedulePlanner& planner, const Stage& stage, Contraction& c) {
  const Kernel& kernel = planner.kernel();
  if (stage.body.op() != Op::kMul || !IsFloat(stage.body.type())) return;
  for (int v = 0; v < 2; ++v) {
    const Tensor& constant = kernel.tensors[c.operands[1 - v].tensor];
    const Stage* pad = ProducerOf(kernel, c.operands[v].tensor);
    if (!pad || !constant.is_const || constant.kind != TensorKind::kInput) continue;
    if (pad->body.op() != Op::kPad || pad->body.arg(1).op() != Op::kFloat || pad->body.arg(1).float_value() != 0)
      continue;
    for (const Expr& load : stage.body.args()) {
      if (!load.Loads(c.operands[v].tensor)) continue;
      const Tensor& source = kernel.tensors[pad->body.arg(0).tensor()];
      for (size_t d = 0; d < source.shape.size(); ++d)
        if (std::optional<PaddedWindow> window =
                WindowAlong(planner, stage, SubstituteAxes(pad->body.arg(0).arg(d), load.args()), source.shape[d]))
          c.windows.push_back(*window);
    }
    if (!c.windows.empty()) c.padded = v;
  }
}

}  // namespace

TrimWay TrimWayOf(const Contraction& c, const PaddedWindow& window, const RegisterTile& tile) {
  if (c.padded != 1 - tile.vector_operand || window.reduce == c.reduce[0]) return TrimWay::kNot;
  int64_t rows = 1;
  for (int i = 0; i < 2; ++i)
    if (tile.row_axis[i] == window.row) rows = tile.rows[i];
  if (rows == 1) return TrimWay::kByLoop;
  constexpr int64_t kMostCopies = 8;
  const bool fits =
      c.extents[window.reduce] <= kMostCopies && (tile.rows[0] * tile.rows[1] + 1) * tile.vectors <= c.most_in_copies;
  return fits && rows >= c.extents[window.row] ? TrimWay::kByCopies : TrimWay::kNot;
}

double TrimGain(const Contraction& c, const RegisterTile& tile, TrimWay most) {
  constexpr double kEdgeSteps = 1.5;  // what one term of the edges costs, in steps of the reduction
  double kept = 1, edges = kEdgeSteps;
  bool any = false;
  for (const PaddedWindow& window : c.windows) {
    const TrimWay way = TrimWayOf(c, window, tile);
    if (way == TrimWay::kNot || (way == TrimWay::kByCopies && most == TrimWay::kByLoop)) continue;
    any = true;
    kept *= 1 - window.share;
    edges *= static_cast<double>(c.extents[window.reduce]);
  }
  return any ? 1 - kept - edges / static_cast<double>(c.reduction) : 0;
}

namespace {

// Whether a stage of its own, which nobody else reads, computes a tensor element by element of constants, whole numbers
// among them that take fewer bytes: weights that are kept as bytes.
bool IsWidened(const SchedulePlanner& planner, TensorId tensor) {
  const Kernel& kernel = planner.kernel();
  const Stage* stage = ProducerOf(kernel, tensor);
  if (stage == nullptr || stage->reduction != Reduction::kNone || planner.IsScheduled(planner.NameOf(*stage)) ||
      ReadersOf(kernel, tensor).size() != 1)
    return false;
  bool is_constant = true, is_narrower = false;
  Walk(stage->body, [&](const Expr& e) {
    if (e.op() != Op::kLoad) return;
    const Tensor& source = kernel.tensors[e.tensor()];
    is_constant = is_constant && source.is_const && source.kind == TensorKind::kInput;
    is_narrower = is_narrower || IsByte(source.dtype);
  });
  return is_constant && is_narrower && IsFloat(kernel.tensors[tensor].dtype);
}

}  // namespace

std::optional<Contraction> AnalyzeContraction(const SchedulePlanner& planner, const std::string& name) {
  const Stage& stage = planner.StageNamed(name);
  if (stage.reduction != Reduction::kSum) return std::nullopt;
  std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  if (accesses.size() != 2 || accesses[0].tensor == accesses[1].tensor || !accesses[0].affine || !accesses[1].affine)
    return std::nullopt;
  Contraction c;
  c.stage = name;
  c.lanes = planner.LanesFor(stage);
  c.element_bytes = ByteSize(planner.kernel().tensors[stage.output].dtype);
  for (AxisId axis : stage.axis_ids()) {
    c.extents.Add(planner.Extent(stage, axis));
    bool in_a = accesses[0].uses[axis], in_b = accesses[1].uses[axis];
    if (stage.Reduces(axis)) {
      c.reduce.push_back(axis);
      c.reduction *= c.extents[axis];
    } else if (in_a && in_b) {
      c.batch.push_back(axis);
    } else if (in_a || in_b) {
      c.only[in_a ? 0 : 1].push_back(axis);
    } else if (c.extents[axis] == 1) {
      c.batch.push_back(axis);
    } else {
      return std::nullopt;
    }
  }
  for (AxisId axis : stage.spatial_ids())
    if (!c.contiguous || c.extents[axis] > 1) c.contiguous = axis;
  c.operands[0] = std::move(accesses[0]);
  c.operands[1] = std::move(accesses[1]);
  for (int v = 0; v < 2; ++v)
    if (IsWidened(planner, c.operands[v].tensor)) c.widened = v;
  FindPaddedWindows(planner, stage, c);
  c.most_in_copies = planner.machine().vector_registers - planner.machine().copy_registers;
  return c;
}

namespace {

// The operand that is read in vectors along one of its axes, and the axes of the other one that make rows.
struct VectorSide {
  int operand = 0;
  AxisId axis;
  int64_t extent = 1, lanes = 1;
  bool plain = true;           // every axis is a dimension of its own: a panel can be packed
  bool contiguous = false;     // the axis is: vectors can be read where they lie
  bool is_const = false;       // packed ahead of time
  double bytes = 0;            // of the operand
  bool evicts_itself = false;  // where it lies, the vectors of all steps share a few sets of the first-level cache
  bool crosses_lines = false;  // where it lies, vectors are not aligned
  bool misses_pages = false;   // where it lies, each step is on another page, and they are too many to stay at hand
  double other_tiles = 1;      // of the operand's other own axes
  AxisId outer, inner;
  int64_t outer_extent = 1, inner_extent = 1;
  double other_rows = 1;
  bool transposed = false;
};

double BatchOf(const Contraction& c) {
  double batch = 1;
  for (AxisId axis : c.batch) batch *= static_cast<double>(c.extents[axis]);
  return batch;
}

std::optional<VectorSide> SideAlong(const SchedulePlanner& planner, const Contraction& c, int operand, AxisId axis) {
  const AccessPattern& access = c.operands[operand];
  VectorSide side;
  side.operand = operand;
  side.axis = axis;
  side.extent = c.extents[axis];
  if (side.extent < 2 || c.reduce.empty()) return std::nullopt;
  side.plain = access.IsPlain();
  side.contiguous = access.strides[axis] == 1 && c.group == 1;  // groups of steps lie nowhere side by side in lanes
  if (c.group > 1) {
    // The packed operand's lanes lie side by side if they are the elements of a dimension, in its order. The other
    // operand becomes a copy in groups, whose lanes do where the elements of its last dimension did.
    const Tensor& tensor = planner.kernel().tensors[access.tensor];
    const bool is_interleaved = access.strides[axis] == 1 && access.strides[c.use.grouped] != 1 &&
                                UpperExtent(planner.kernel(), tensor.shape.back()) >= side.extent;
    // Or it is read where it lies, and the lanes' groups overlap as its windows do.
    const bool overlaps = !access.dimension[c.use.grouped] && access.strides[c.use.grouped] == 1 &&
                          access.strides[axis] >= 1 && access.strides[axis] <= c.group;
    const bool lies_in_lanes =
        operand == c.use.packed ? access.dimension[axis].has_value() : is_interleaved || overlaps;
    if (side.extent < c.lanes || !lies_in_lanes) return std::nullopt;
  } else if (!side.plain && !side.contiguous) {
    return std::nullopt;
  }
  side.lanes = std::min<int64_t>(c.lanes, BitCeil(side.extent));
  side.is_const = planner.kernel().tensors[access.tensor].is_const;
  side.bytes = static_cast<double>(planner.Bytes(access.tensor));
  const AxisId longest = *std::max_element(c.reduce.begin(), c.reduce.end(),
                                           [&](AxisId a, AxisId b) { return c.extents[a] < c.extents[b]; });
  const int64_t stride = access.strides[longest] * c.element_bytes / c.group;
  const MachineModel& machine = planner.machine();
  side.evicts_itself = RowsCollide(machine, c.extents[longest], stride);
  side.crosses_lines = stride % machine.line_bytes != 0;
  side.misses_pages = stride >= machine.page_bytes && c.extents[longest] > machine.near_pages;
  for (AxisId other : c.only[operand])
    if (other != axis) side.other_tiles *= static_cast<double>(c.extents[other]);
  const std::vector<AxisId>& rows = c.only[1 - operand];
  if (!rows.empty()) side.inner = rows.back();
  if (rows.size() >= 2) side.outer = rows[rows.size() - 2];
  for (size_t i = 0; i + 2 < rows.size(); ++i) side.other_rows *= static_cast<double>(c.extents[rows[i]]);
  if (side.inner) side.inner_extent = c.extents[side.inner];
  if (side.outer) side.outer_extent = c.extents[side.outer];
  side.transposed = c.contiguous != axis;
  if (side.transposed && c.contiguous != side.inner) return std::nullopt;
  return side;
}

// Cycles that `lines` next to each other take at each step of a far stride. Within the second-level cache, what that
// delivers. Beyond it what the next one does, unless too few steps are in flight to hide its latency: prefetchers see
// nothing in such a stride. `operations`: of one step.
double FetchCycles(const MachineModel& machine, bool far, double lines, double operations) {
  if (!far) return lines * static_cast<double>(machine.line_bytes) / machine.l2_bytes_per_cycle;
  return std::max(lines * machine.far_line_cycles, machine.far_latency * operations / machine.instructions_in_flight);
}

// Steps of the reduction that a tile need not do, since they meet padding; less what the edges cost instead.
double StepsSaved(const Contraction& c, const VectorSide& side, int64_t vectors, int64_t rows0, int64_t rows1) {
  RegisterTile tile;
  tile.vector_operand = side.operand;
  tile.vectors = vectors;
  tile.row_axis[0] = side.outer;
  tile.row_axis[1] = side.inner;
  tile.rows[0] = rows0;
  tile.rows[1] = rows1;
  return std::max(0.0, TrimGain(c, tile, TrimWay::kByCopies)) * static_cast<double>(c.reduction);
}

// Of the whole contraction.
double CyclesOf(const SchedulePlanner& planner, const Contraction& c, const VectorSide& side, int64_t vectors,
                int64_t rows0, int64_t rows1, bool direct) {
  const MachineModel& machine = planner.machine();
  const int64_t rows = rows0 * rows1;
  const double steps = static_cast<double>(c.reduction) - StepsSaved(c, side, vectors, rows0, rows1);
  const double batch = BatchOf(c);
  const double vector_tiles = Tiles(side.extent, vectors * side.lanes) * side.other_tiles;
  const double row_tiles = Tiles(side.inner_extent, rows1) * Tiles(side.outer_extent, rows0) * side.other_rows;
  const double step_bytes = static_cast<double>(vectors * side.lanes * c.element_bytes);
  // Per step of the reduction: FMAs, loads, and the way from an FMA to the next of its chain.
  const double per_fma = c.use.instruction ? c.use.instruction->per_fma : 1;
  const double conversions = c.use.instruction ? c.use.instruction->conversions : 0;
  const double work = static_cast<double>(rows * vectors) / per_fma + conversions * static_cast<double>(rows + vectors);
  double step = std::max({work / machine.fma_per_cycle, static_cast<double>(rows + vectors) / machine.loads_per_cycle,
                          machine.fma_latency});
  if (!side.plain) step += 0.5 * static_cast<double>(vectors);  // unaligned vectors cross lines
  const double panel = steps * step_bytes;
  // Then a piece stays in the first level.
  const bool blocked = panel > static_cast<double>(machine.l2_bytes) / 2 && row_tiles >= 4;
  if ((panel > static_cast<double>(machine.l1_bytes) * 0.7 && !blocked) || row_tiles < 2)
    step = std::max(step, step_bytes / machine.l2_bytes_per_cycle);
  double stores;
  if (side.transposed) {
    const auto lanes = static_cast<double>(side.lanes);
    double blocks = static_cast<double>(vectors) * Tiles(rows1, side.lanes) * static_cast<double>(rows0);
    stores = blocks * (lanes * std::log2(lanes) + 3.0 * lanes);
  } else {
    stores = static_cast<double>(rows * vectors) * 2;
  }
  double loops = 20;
  if (c.reduce.size() > 1) loops += steps / static_cast<double>(c.extents.back()) * 1.5;
  double cycles = batch * vector_tiles * row_tiles * (steps * step + stores + loops);
  // A panel that is not constant comes from where the operand lies once for all row tiles: while it is packed, or under
  // the first of them.
  if (side.plain && !side.is_const && c.group == 1) {
    // Lines that two tiles share stay in the second level, or are fetched twice.
    const bool far = side.bytes > static_cast<double>(machine.l2_bytes);
    const double lines =
        step_bytes / static_cast<double>(machine.line_bytes) + (far && side.contiguous && side.crosses_lines ? 1 : 0);
    if (!direct) {
      const double fetch = FetchCycles(machine, far, lines, 2 * static_cast<double>(vectors));
      cycles +=
          batch * vector_tiles * steps * std::max(fetch, static_cast<double>(vectors) * (side.contiguous ? 2.0 : 8.0));
    } else {
      const double fetch = FetchCycles(machine, far, lines, static_cast<double>(rows * vectors + rows + vectors));
      double again = step + (side.misses_pages ? 1 : 0);
      if (side.evicts_itself) again = std::max(again, step_bytes / machine.l2_bytes_per_cycle);
      cycles += batch * vector_tiles * steps * (std::max(again, fetch) + (row_tiles - 1) * again - row_tiles * step);
    }
  }
  // Rows read along a far stride get no help from the prefetchers: each line comes at its latency.
  const AccessPattern& row_operand = c.operands[1 - side.operand];
  const bool is_const = planner.kernel().tensors[row_operand.tensor].is_const;
  for (AxisId k : c.reduce) {
    const int64_t far = row_operand.strides[k] * c.element_bytes / c.group;
    const auto bytes = static_cast<double>(planner.Bytes(row_operand.tensor));
    if (!is_const && c.extents[k] > 8 && far >= 1024 && bytes > static_cast<double>(machine.l2_bytes) / 2)
      cycles += bytes * 0.2;
  }
  if (direct && !side.plain && side.extent % (vectors * side.lanes) != 0 && side.extent < vectors * side.lanes)
    cycles *= 1.05;
  return cycles;
}

// Read where it lies, packed, or either. A constant is packed ahead of time: into what few tiles read at another page
// each step, or many tiles at all.
std::vector<bool> WaysToRead(const VectorSide& side, double row_tiles) {
  if (!side.plain) return {true};
  if (!side.contiguous) return {false};
  if (side.is_const) return {row_tiles < 4 && !side.misses_pages};
  return {false, true};
}

}  // namespace

bool RowsCollide(const MachineModel& machine, int64_t rows, int64_t stride_bytes) {
  const int64_t way = machine.l1_way_bytes, ways = machine.l1_bytes / way;
  const int64_t period = std::max(machine.line_bytes, std::min(way, stride_bytes & -stride_bytes));
  const int64_t sets = way / period;
  return rows / sets > ways / 2;
}

std::vector<RegisterTile> RegisterTiles(const SchedulePlanner& planner, const Contraction& c) {
  const int64_t registers = planner.machine().vector_registers;
  const int64_t each = c.use.instruction && c.use.instruction->conversions > 0 ? 2 : 1;
  std::vector<RegisterTile> tiles;
  for (int v = 0; v < 2; ++v) {
    if (c.widened == 1 - v) continue;  // only a panel is made of what it is computed of
    for (AxisId axis : c.only[v]) {
      const std::optional<VectorSide> side = SideAlong(planner, c, v, axis);
      if (!side) continue;
      for (int64_t vectors = 1; vectors <= 8 && vectors <= CeilDiv(side->extent, side->lanes); ++vectors) {
        for (int64_t rows1 = 1; rows1 <= std::min(side->inner_extent, registers); ++rows1) {
          for (int64_t rows0 = 1; rows0 <= std::min(side->outer_extent, registers / rows1); ++rows0) {
            if (rows0 > 1 && rows1 < side->inner_extent && rows1 < 4) continue;
            // Accumulators, the vectors of one step, and one broadcast.
            if (rows0 * rows1 * vectors + each * (vectors + 1) > registers) continue;
            const double row_tiles =
                Tiles(side->inner_extent, rows1) * Tiles(side->outer_extent, rows0) * side->other_rows;
            for (bool direct : c.group > 1 ? std::vector<bool>{false} : WaysToRead(*side, row_tiles))
              tiles.push_back({v,
                               axis,
                               vectors,
                               {side->outer, side->inner},
                               {rows0, rows1},
                               direct,
                               side->transposed,
                               CyclesOf(planner, c, *side, vectors, rows0, rows1, direct)});
          }
        }
      }
    }
  }
  return tiles;
}

namespace {

// A tile this many times as expensive as the cheapest is not worth measuring.
constexpr double kHopeless = 3;

// Vectors along a size that is known at run time only would all be masked.
void KeepVectorsFixed(const SchedulePlanner& planner, const std::string& stage, std::vector<RegisterTile>& tiles) {
  auto is_dynamic = [&](const RegisterTile& tile) {
    const Expr& extent = planner.StageNamed(stage).axis(tile.vector_axis).extent;
    return LowerExtent(planner.kernel(), extent) != UpperExtent(planner.kernel(), extent);
  };
  if (!std::all_of(tiles.begin(), tiles.end(), is_dynamic)) std::erase_if(tiles, is_dynamic);
}

const RegisterTile& Cheapest(const std::vector<RegisterTile>& tiles) {
  return *std::min_element(tiles.begin(), tiles.end(),
                           [](const RegisterTile& a, const RegisterTile& b) { return a.cycles < b.cycles; });
}

// Decides one number of the tile; what is left has it, and the cheapest of that is preferred in the next decision.
template <typename Part>
void Narrow(SchedulePlanner& planner, const std::string& stage, const Decision& decision,
            std::vector<RegisterTile>& tiles, const Part& part) {
  std::vector<int64_t> options;
  for (const RegisterTile& tile : tiles) options.push_back(part(tile));
  int64_t value = planner.Choose(stage, decision, std::move(options), part(Cheapest(tiles)));
  std::erase_if(tiles, [&](const RegisterTile& tile) { return part(tile) != value; });
}

}  // namespace

std::optional<RegisterTile> ChooseTile(SchedulePlanner& planner, const Contraction& c) {
  std::vector<RegisterTile> tiles = RegisterTiles(planner, c);
  if (tiles.empty()) return std::nullopt;
  KeepVectorsFixed(planner, c.stage, tiles);
  double most = Cheapest(tiles).cycles * kHopeless;
  std::erase_if(tiles, [&](const RegisterTile& tile) { return tile.cycles > most; });
  Narrow(planner, c.stage,
         {"vector_axis", "the axis that vectors run along, by position", Decision::Kind::kAlternative}, tiles,
         [](const RegisterTile& tile) { return int64_t{tile.vector_axis.value}; });
  Narrow(planner, c.stage, kVectors, tiles, [](const RegisterTile& tile) { return tile.vectors; });
  Narrow(planner, c.stage, kRows, tiles, [](const RegisterTile& tile) { return tile.rows[1]; });
  Narrow(planner, c.stage, {"outer_rows", "rows of the register tile along the second axis"}, tiles,
         [](const RegisterTile& tile) { return tile.rows[0]; });
  return Cheapest(tiles);
}

}  // namespace hone
