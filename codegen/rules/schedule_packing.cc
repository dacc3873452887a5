// Packing for contractions: constants once, ahead of time; panels of the other operand per task; rows where they would
// evict each other.
#include "base/arithmetic.h"
#include "base/check.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/stage_graph.h"

namespace hone {
// [axis / width, the other dimensions: batch, own, reduction, axis % width]; empty if the axis is no plain dimension.
std::vector<LayoutDim> ContractionRule::PanelLayout(const AccessPattern& access, AxisId axis, int64_t width,
                                                    const std::string& tensor) const {
  std::vector<std::string> names = planner_.CopyAxes(tensor, pair_.sum);
  const std::optional<size_t> split = access.dimension[axis];
  if (!split || names.empty()) return {};
  std::vector<LayoutDim> layout{Quotient(names[*split], width)};
  std::vector<bool> placed(names.size(), false);
  placed[*split] = true;
  auto place = [&](size_t dimension) {
    if (!placed[dimension]) layout.push_back(Whole(names[dimension]));
    placed[dimension] = true;
  };
  for (const std::vector<AxisId>* group : {&c_.batch, &c_.only[0], &c_.only[1], &c_.reduce})
    for (AxisId other : *group)
      if (std::optional<size_t> d = access.dimension[other]) place(*d);
  for (size_t d = 0; d < names.size(); ++d) place(d);
  layout.push_back(Remainder(names[*split], width));
  return layout;
}

void ContractionRule::PackVectorOperand() {
  const AccessPattern& access = c_.operands[tile_.vector_operand];
  const Tensor tensor = planner_.kernel().tensors[access.tensor];
  const int64_t bytes = planner_.Bytes(access.tensor);
  const bool is_const = (tensor.kind == TensorKind::kInput && tensor.is_const) ||
                        (!c_.wide_vectors.empty() && IsOfAConstant(planner_, access.tensor));
  // A network's weights come from memory, even those that would stay in the cache of a kernel called alone.
  const bool is_large =
      (is_const || tensor.kind == TensorKind::kInput) && bytes > planner_.machine().l2_bytes / (is_const ? 8 : 1);
  if (is_large && tile_.direct) streamed_ = tensor.name;
  if (tile_.direct) return;
  std::string name = tensor.name, copy = planner_.FreshName(name + "_panel");
  if (is_const) {
    std::string axis = Name(tile_.vector_axis);
    std::vector<LayoutDim> layout = PanelLayout(access, tile_.vector_axis, width_, tensor.name);
    if (!layout.empty() && CacheReadConst(name, copy, layout)) {
      // Written in vectors along the panel's rows; read with the tensor's own stride.
      planner_.Split(copy, axis, {lanes_});
      std::vector<std::string> order{axis + ".0"};
      for (const Axis& other : planner_.StageNamed(copy).axes)
        if (other.name != axis) order.push_back(other.name);
      order.push_back(axis + ".1");
      planner_.Reorder(copy, order);
      planner_.Vectorize(copy, {order.back()});
      planner_.MarkScheduled(copy);
      if (is_large) streamed_ = copy;
      return;
    }
  }
  if (planner_.CacheRead(name, copy, pair_.sum, Scope::kPerWorker)) panel_ = copy;
  // The panel takes its columns from where they come from. What is widened along another axis comes through registers.
  const bool is_widened_along = c_.widened == tile_.vector_operand && access.strides[tile_.vector_axis] == 1;
  if (!panel_.empty() && (name == columns_ || is_widened_along)) planner_.Inline(name);
}

// A copy that hone_pack makes, of a constant or of what a stage computes of one: that is computed there.
bool ContractionRule::CacheReadConst(const std::string& tensor, const std::string& copy,
                                     const std::vector<LayoutDim>& layout) {
  const bool is_operand = FindStage(planner_.kernel(), tensor) == StageId();
  if (!planner_.CacheRead(tensor, copy, pair_.sum, is_operand ? Scope::kConst : Scope::kWorkspace,
                          is_operand ? layout : std::vector<LayoutDim>{}))
    return false;
  if (is_operand) return true;
  HONE_CHECK(planner_.Inline(tensor));
  planner_.Store(copy, Scope::kConst, layout);
  return true;
}

void ContractionRule::PackRowOperand() {
  const AccessPattern& access = c_.operands[1 - tile_.vector_operand];
  const Tensor tensor = planner_.kernel().tensors[access.tensor];
  row_is_total_ = row_is_total_ || tensor.kind == TensorKind::kIntermediate;
  const AxisId row = tile_.row_axis[1];
  if (!row || c_.group > 1) return;
  int64_t rows = tile_.rows[1];
  if (!access.IsPlain()) return;
  std::string copy = planner_.FreshName(tensor.name + "_rows");
  const bool is_wide_const = !c_.wide_rows.empty() && IsOfAConstant(planner_, access.tensor);
  if (is_wide_const || (tensor.kind == TensorKind::kInput && tensor.is_const && access.strides[row] != 1)) {
    if (!is_wide_const && !planner_.ChooseIf(pair_.sum, {"pack_rows", "constant rows are packed ahead of time"}, true))
      return;
    std::vector<LayoutDim> layout = PanelLayout(access, row, rows, tensor.name);
    if (!layout.empty() && CacheReadConst(tensor.name, copy, layout)) {
      row_is_packed_const_ = true;
      planner_.MarkScheduled(copy);
      // Rows are few; vectors run along the reduction where the tensor is contiguous.
      const Stage stage = planner_.StageNamed(copy);
      std::vector<std::string> order;
      for (const Axis& axis : stage.axes)
        if (axis.name != Name(row)) order.push_back(axis.name);
      planner_.Split(copy, Name(row), {rows});
      order.insert(order.begin(), Name(row) + ".0");
      order.push_back(Name(row) + ".1");
      planner_.Reorder(copy, order);
      planner_.Vectorize(copy, {order.back()});
    }
    return;
  }
  // Rows in the operand's own order, far enough apart not to evict each other: each is a run of elements, over one axis
  // of the sum or several.
  int64_t stride = access.strides[row] * c_.element_bytes, run = 1;
  for (AxisId axis : c_.reduce) run += (c_.extents[axis] - 1) * access.strides[axis];
  if (tensor.kind != TensorKind::kInput) return;
  bool collide = run == c_.reduction && RowsCollide(planner_.machine(), rows, stride);
  if (!planner_.ChooseIf(pair_.sum, {"copy_rows", "rows are copied apart, so that they do not evict each other"},
                         collide || reduction_block_ > 0))
    return;
  // Room between two rows: in the outermost of the dimensions that a row is a run over.
  constexpr int64_t kRoom = 16;  // elements
  AxisId widest = c_.reduce.front();
  for (AxisId axis : c_.reduce)
    if (access.strides[axis] > access.strides[widest]) widest = axis;
  std::vector<LayoutDim> layout;
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    for (AxisId axis : c_.extents.ids())
      if (access.dimension[axis] == d)
        layout.push_back(Whole(Name(axis), collide && axis == widest ? CeilDiv(kRoom, access.strides[widest]) : 0));
  if (layout.size() != tensor.shape.size()) layout.clear();
  if (!planner_.CacheRead(tensor.name, copy, pair_.sum, Scope::kWorkspace, layout)) return;
  row_is_total_ = true;
  ScheduleElementwise(planner_, copy);
}

// Constants are packed in the order in which they are read, so what lies ahead is what comes next. In a network they
// come from memory; a measurement calls one kernel over and over and finds them in a cache, so this is not left to it.
void ContractionRule::PrefetchOperand() {
  if (streamed_.empty()) return;
  constexpr int64_t kUsualAhead = 4096;
  const AccessPattern& access = c_.operands[tile_.vector_operand];
  const bool is_const = c_.group > 1 ? c_.use.packed == tile_.vector_operand : IsOfAConstant(planner_, access.tensor);
  // What lies ahead in a row is what another tile reads.
  const bool by_columns = tile_.direct && access.strides[c_.reduce.back()] * c_.element_bytes > kUsualAhead;
  if (by_columns) return;
  const int64_t ahead = is_const ? kUsualAhead : planner_.Choose(pair_.sum, kPrefetch, {0, 1024, kUsualAhead}, 0);
  if (ahead == 0) return;
  // A panel has its time while the one before it is read, if the second-level cache holds both, and what else is read.
  const bool fits = c_.reduction * width_ * c_.element_bytes <= planner_.machine().l2_bytes / 3;
  planner_.Prefetch(streamed_, pair_.sum, is_const && !tile_.direct && fits ? kNextPanel : ahead);
  planner_.Took("prefetch", pair_.sum,
                is_const ? "constants come from memory when other kernels run between the calls"
                         : "the operand comes from beyond the second-level cache");
}

// A panel of the vector operand, packed once per task: rows of `width_` elements, one after the other.
void ContractionRule::SchedulePanel() {
  planner_.ComputeAt(panel_, pair_.out, out_task_);
  const AccessPattern& access = c_.operands[tile_.vector_operand];
  const Stage stage = planner_.StageNamed(panel_);
  std::string vector = Name(tile_.vector_axis);
  std::vector<LayoutDim> layout;
  std::vector<std::string> order;
  for (const Axis& axis : stage.axes)
    if (axis.name != vector) layout.push_back(Whole(axis.name)), order.push_back(axis.name);
  layout.push_back(Whole(vector));
  planner_.Store(panel_, Scope::kPerWorker, layout);
  if (access.strides[tile_.vector_axis] == 1) {
    planner_.Split(panel_, vector, {lanes_});
    order.push_back(vector + ".0");
    order.push_back(vector + ".1");
    planner_.Reorder(panel_, order);
    planner_.Unroll(panel_, {vector + ".0"});
    planner_.Vectorize(panel_, {vector + ".1"});
    planner_.MarkScheduled(panel_);
    return;
  }
  // The operand is contiguous along another axis: blocks of it go through registers and leave transposed. What is
  // widened is computed there.
  const std::string along = stage.axes.back().name;
  const bool is_widened = c_.widened == tile_.vector_operand;
  const std::string tensor = planner_.kernel().tensors[access.tensor].name;
  const std::string block = is_widened ? tensor : planner_.FreshName(tensor + "_block");
  if (along == vector || (!is_widened && !planner_.CacheRead(tensor, block, panel_, Scope::kRegisters))) {
    planner_.MarkScheduled(panel_);
    return;
  }
  std::erase(order, along);
  planner_.Split(panel_, vector, {lanes_});
  planner_.Split(panel_, along, {lanes_});
  order.push_back(along + ".0");
  order.push_back(vector + ".0");
  order.push_back(along + ".1");
  order.push_back(vector + ".1");
  planner_.Reorder(panel_, order);
  planner_.Unroll(panel_, {along + ".1"});
  planner_.Vectorize(panel_, {vector + ".1"});
  planner_.ComputeAt(block, panel_, vector + ".0");
  if (is_widened) planner_.Store(block, Scope::kRegisters);
  std::vector<std::string> block_order;
  for (const Axis& axis : planner_.StageNamed(block).axes) block_order.push_back(axis.name);
  const std::vector<std::string> block_unrolled(block_order.begin(), block_order.end() - 1);
  planner_.Reorder(block, block_order);
  planner_.Unroll(block, block_unrolled);
  planner_.Vectorize(block, {block_order.back()});
  planner_.MarkScheduled(block);
  planner_.MarkScheduled(panel_);
}

}  // namespace hone
