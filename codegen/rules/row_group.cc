#include "codegen/rules/row_group.h"

#include <algorithm>
#include <set>

#include "ir/graph/stage_graph.h"

namespace hone {

std::vector<std::string> RowGroup(const SchedulePlanner& planner, const std::string& out, size_t rows,
                                  const std::function<bool(const Stage&)>& admits) {
  const Kernel& kernel = planner.kernel();
  std::set<StageId> group{FindStage(kernel, out)};
  std::vector<std::string> names;
  for (StageId s = kernel.stages.last(); s; --s) {
    const Stage& stage = kernel.stages[s];
    const Tensor& tensor = kernel.tensors[stage.output];
    if (group.contains(s) || tensor.kind != TensorKind::kIntermediate || planner.IsScheduled(tensor.name) ||
        stage.axes.size() < rows || (admits && !admits(stage)))
      continue;
    const std::vector<StageId> readers = ReadersOf(kernel, stage.output);
    bool inside = !readers.empty();
    for (StageId reader : readers) {
      inside &= group.contains(reader);
      Walk(kernel.stages[reader].body, [&](const Expr& e) {
        if (!e.Loads(stage.output)) return;
        for (size_t i = 0; i < rows; ++i) inside &= planner.IndexesInPlace(e.arg(i), stage, AxisId(i));
      });
    }
    if (!inside) continue;
    group.insert(s);
    names.push_back(tensor.name);
  }
  std::reverse(names.begin(), names.end());
  return names;
}

int64_t TermsOf(const SchedulePlanner& planner, const Stage& stage) {
  int64_t terms = 1;
  for (const Axis& axis : stage.reduce_axes) terms *= planner.Extent(axis);
  return terms;
}

int64_t RowsOf(const SchedulePlanner& planner, const Stage& stage, size_t rows) {
  int64_t count = 1;
  for (size_t i = 0; i < rows; ++i) count *= planner.Extent(stage.axes[i]);
  return count;
}

bool ReducesColumns(const SchedulePlanner& planner, const Stage& stage) {
  if (stage.reduction == Reduction::kNone || stage.axes.empty()) return false;
  const AxisId last = stage.last_axis();
  if (planner.Extent(stage, last) < 4) return false;
  bool reads_columns = false;
  for (const AccessPattern& access : planner.AccessesOf(stage)) {
    if (!access.affine) return false;
    for (AxisId axis : stage.reduce_ids())
      if (access.strides[axis] == 1 && planner.Extent(stage, axis) > 1) return false;
    reads_columns = reads_columns || access.strides[last] == 1;
  }
  return reads_columns;
}

int64_t LeastReuse(const SchedulePlanner& planner, const Stage& stage) {
  int64_t least = INT64_MAX;
  for (const AccessPattern& access : planner.AccessesOf(stage)) {
    if (!access.affine || !access.IsPlain()) continue;
    int64_t reuse = 1;
    for (AxisId axis : stage.spatial_ids())
      if (!access.uses[axis]) reuse *= planner.Extent(stage, axis);
    least = std::min(least, reuse);
  }
  return least;
}

std::optional<AccessPattern> LargestOperand(const SchedulePlanner& planner, const Stage& stage) {
  std::optional<AccessPattern> largest;
  int64_t most = 0;
  for (const AccessPattern& access : planner.AccessesOf(stage)) {
    int64_t elements = 1;
    for (AxisId axis : stage.axis_ids())
      if (access.uses[axis]) elements *= planner.Extent(stage, axis);
    if (elements > most) largest = access;
    most = std::max(most, elements);
  }
  return largest;
}

void InlineFeeders(SchedulePlanner& planner, const std::string& reduction) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const AccessPattern& access : planner.AccessesOf(planner.StageNamed(reduction))) {
      const Stage* producer = ProducerOf(planner.kernel(), access.tensor);
      if (producer == nullptr || producer->reduction != Reduction::kNone) continue;
      const std::string name = planner.NameOf(*producer);
      if (planner.kernel().tensors[access.tensor].kind != TensorKind::kIntermediate || planner.IsScheduled(name) ||
          ReadersOf(planner.kernel(), access.tensor).size() != 1 || !planner.Inline(name))
        continue;
      changed = true;
      break;
    }
  }
}

bool IsMatrixTimesFewVectors(const SchedulePlanner& planner, const Stage& stage) {
  constexpr int64_t kTermsWorthDividing = 64;
  return TermsOf(planner, stage) >= kTermsWorthDividing && LeastReuse(planner, stage) <= kReusedTooLittle;
}

}  // namespace hone
