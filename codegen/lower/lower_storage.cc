// Where each stage keeps what it computes: buffers with their layouts, register tiles, and the workspace that they
// share.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/hash.h"
#include "codegen/lower/lower_internal.h"
#include "ir/graph/print.h"
#include "ir/graph/stage_graph.h"
#include "ir/schedule/check_in_output.h"
#include "ir/schedule/refuse.h"
#include "ir/steps/layouts.h"

namespace hone::lowering {
namespace {

// Whether the stage computes nothing: each element is the one of the same place of what it reads.
bool IsCopyInOrder(const Stage& stage) {
  if (stage.reduction != Reduction::kNone || stage.body.op() != Op::kLoad) return false;
  const std::vector<Expr>& indices = stage.body.args();
  for (size_t i = 0; i < indices.size(); ++i)
    if (!indices[i].IsAxis(AxisId(static_cast<int>(i)))) return false;
  return indices.size() == stage.axes.size();
}

// "f32[2,64,3,3,32] d0/32 d1 d2 d3 d0%32"; of what is not copied in order, with a digest of its definition.
std::string LayoutText(const Kernel& kernel, const Buffer& buffer, const Stage& stage,
                       const std::vector<LayoutDim>& layout) {
  std::string text = fmt::format("{}[{}]", Name(buffer.dtype), fmt::join(buffer.extents, ","));
  for (const LayoutDim& dim : layout) {
    text += fmt::format(" d{}", FindAxis(stage, dim.axis).value);
    if (dim.part == LayoutDim::Part::kQuotient) text += fmt::format("/{}", dim.factor);
    if (dim.part == LayoutDim::Part::kRemainder) text += fmt::format("%{}", dim.factor);
    if (dim.extra != 0) text += fmt::format("+{}", dim.extra);
  }
  if (!IsCopyInOrder(stage)) {
    Hasher64 hasher;
    for (const Axis& axis : stage.axes) hasher.Update(axis.name + " ");
    hasher.Update(std::to_string(static_cast<int>(stage.reduction)));
    for (const Axis& axis : stage.reduce_axes) hasher.Update(axis.name + "<" + PrintExtent(kernel, axis.extent));
    hasher.Update(" " + PrintExpr(kernel, stage, stage.body));
    text += fmt::format(" {:02x}", fmt::join(hasher.Finish(), ""));
  }
  return text;
}

}  // namespace

Result<void> Lowering::MakeBuffer(StageId index) {
  const Stage& stage = kernel_.stages[index];
  const StageSchedule& schedule = scheduled_.stages[index];
  StageState& state = states_[index];
  const Tensor& tensor = kernel_.tensors[stage.output];
  if (tensor.kind == TensorKind::kOutput) {
    state.buffer = operand_buffers_[stage.output];
    program_.buffers[state.buffer].written = true;
    return {};
  }
  if (IsInOutput(index)) {
    state.buffer = states_[OutputUnder(scheduled_, index)].buffer;
    return {};
  }
  Buffer buffer;
  buffer.name = tensor.name;
  buffer.dtype = tensor.dtype;
  buffer.scope = EffectiveScope(scheduled_, index);
  if (buffer.scope == Scope::kRegisters && OfWarp(index)) buffer.scope = Scope::kFragments;
  buffer.written = true;
  if (buffer.scope == Scope::kConst) {
    const TensorId source = OnlyInputOf(kernel_, stage);
    auto operand = std::find(kernel_.operands.begin(), kernel_.operands.end(), source);
    HONE_CHECK(operand != kernel_.operands.end());
    buffer.operand = static_cast<int>(operand - kernel_.operands.begin());
    buffer.written = false;
  }
  if (IsSwizzled(schedule.layout)) {
    const LayoutDim& last = schedule.layout.back();
    if (buffer.scope != Scope::kBlock || last.part != LayoutDim::Part::kRemainder ||
        last.factor * ByteSize(buffer.dtype) != kSwizzledRowBytes)
      return Refuse(
          fmt::format("{0} is swizzled, which block storage in rows of 128 bytes alone may be: store {0} "
                      "block […, {1}/{2}, …, {1}%{2} swizzled]",
                      tensor.name, last.axis, kSwizzledRowBytes / ByteSize(buffer.dtype)));
    buffer.is_swizzled = true;
  }
  auto add = [&](int64_t extent) { buffer.extents.push_back(extent); };
  if (schedule.layout.empty()) {
    for (AxisId id : stage.spatial_ids()) {
      const AxisState& axis = state.axes[id];
      add(axis.kept == 0 ? axis.padded : axis.kept + axis.padded - axis.extent_max);
    }
  } else {
    for (const LayoutDim& dim : schedule.layout) {
      const int64_t padded = state.axes[FindAxis(stage, dim.axis)].padded;
      switch (dim.part) {
        case LayoutDim::Part::kWhole: add(padded + dim.extra); break;
        case LayoutDim::Part::kQuotient: add(CeilDiv(padded, dim.factor) + dim.extra); break;
        case LayoutDim::Part::kRemainder: add(dim.factor + dim.extra); break;
      }
    }
  }
  if (schedule.buffers > 1) buffer.extents.insert(buffer.extents.begin(), buffer.slots = schedule.buffers);
  if (buffer.scope == Scope::kConst) buffer.packed_layout = LayoutText(kernel_, buffer, stage, schedule.layout);
  buffer.elements = 1;
  buffer.strides.resize(buffer.extents.size());
  for (size_t d = buffer.extents.size(); d-- > 0;) {
    buffer.strides[d] = buffer.elements;
    if (__builtin_mul_overflow(buffer.elements, buffer.extents[d], &buffer.elements) ||
        buffer.elements > limits_.workspace_bytes)
      return Error{ErrorKind::kLimit,
                   fmt::format("{} would take more than {} bytes of workspace", tensor.name, limits_.workspace_bytes),
                   ""};
  }
  if (buffer.scope == Scope::kRegisters && buffer.elements * ByteSize(buffer.dtype) > limits_.registers_bytes)
    return Refuse(fmt::format("{} in registers would take {} bytes, at most {} are allowed", tensor.name,
                              buffer.elements * ByteSize(buffer.dtype), limits_.registers_bytes));
  SetBuffer(state.buffer, std::move(buffer));
  return {};
}

void Lowering::SetBuffer(BufferId& slot, Buffer buffer) {
  if (slot)
    program_.buffers[slot] = std::move(buffer);
  else
    slot = program_.buffers.Add(std::move(buffer));
}

Result<void> Lowering::MakeTile(StageId index) {
  const Stage& stage = kernel_.stages[index];
  const StageSchedule& schedule = scheduled_.stages[index];
  StageState& state = states_[index];
  if (schedule.promote_loop.empty()) return {};
  if (program_.buffers[state.buffer].scope == Scope::kRegisters)
    return Refuse(fmt::format("{} is in registers already", program_.buffers[state.buffer].name));
  std::vector<VarId> visible = VisibleInside(index, LoopIndex(index, schedule.promote_loop));
  Buffer tile;
  tile.name = program_.buffers[state.buffer].name + ".tile";
  tile.dtype = kernel_.tensors[stage.output].dtype;
  const Instruction* on_tiles = OnTiles(index);
  tile.scope = on_tiles ? Scope::kFragments : Scope::kRegisters;
  tile.written = true;
  tile.elements = 1;
  state.tile_min.clear();
  for (AxisId axis : stage.spatial_ids()) {
    Span span = Widen(program_.vars.ExpandAxes(Linear::Of(state.axes[axis].var)), visible);
    state.tile_min.push_back(span.min);
    tile.extents.push_back(span.extent);
    tile.elements *= span.extent;
    if (!on_tiles && tile.elements * ByteSize(tile.dtype) > limits_.registers_bytes)
      return Refuse(fmt::format("the register tile of {} takes more than {} bytes: place register_tile further inside",
                                tile.name, limits_.registers_bytes));
  }
  tile.strides.resize(tile.extents.size());
  int64_t stride = 1;
  for (size_t d = tile.extents.size(); d-- > 0;) {
    tile.strides[d] = stride;
    stride *= tile.extents[d];
  }
  SetBuffer(state.tile, std::move(tile));
  return {};
}

Result<void> Lowering::PlanWorkspace() {
  for (Buffer& buffer : program_.buffers) {
    int64_t bytes = RoundUp(buffer.elements * ByteSize(buffer.dtype), 64);
    int64_t* total = buffer.scope == Scope::kWorkspace ? &program_.workspace_common
                     : buffer.scope == Scope::kPerWorker || (buffer.scope == Scope::kFragments && !program_.for_gpu)
                         ? &program_.workspace_per_worker
                         : nullptr;
    if (!total) continue;
    buffer.offset = *total;
    *total += bytes;
  }
  int64_t need = program_.workspace_common + program_.workspace_per_worker;
  if (need > limits_.workspace_bytes)
    return Error{
        ErrorKind::kLimit,
        fmt::format("the schedule needs {} bytes of workspace, at most {} are allowed", need, limits_.workspace_bytes),
        ""};
  return {};
}

}  // namespace hone::lowering
