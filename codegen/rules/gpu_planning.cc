#include "codegen/rules/gpu_planning.h"

#include "ir/graph/stage_graph.h"

namespace hone {

bool IsMadeForOneReader(const SchedulePlanner& planner, const std::string& tensor) {
  const StageId producer = FindStage(planner.kernel(), tensor);
  if (!producer || planner.IsScheduled(tensor)) return false;
  const Stage& stage = planner.kernel().stages[producer];
  return stage.reduction == Reduction::kNone && !stage.axes.empty() &&
         planner.kernel().tensors[stage.output].kind == TensorKind::kIntermediate &&
         ReadersOf(planner.kernel(), stage.output).size() == 1;
}

std::optional<std::string> HoldInBlock(SchedulePlanner& planner, const std::string& tensor, const std::string& reader,
                                       const LayoutOfCopy& layout) {
  std::string copy = tensor;
  if (IsMadeForOneReader(planner, tensor)) {
    planner.Store(copy, Scope::kBlock, layout(NamesOf(planner.StageNamed(tensor).axes)));
  } else {
    copy = planner.FreshName(tensor + "_block");
    if (!planner.CacheRead(tensor, copy, reader, Scope::kBlock, layout(planner.CopyAxes(tensor, reader))))
      return std::nullopt;
  }
  planner.MarkScheduled(copy);
  return copy;
}

std::string CopyByAllThreads(SchedulePlanner& planner, const std::string& copy, const std::string& reader,
                             const std::string& at, int64_t lanes, const ThreadsOfBlock& threads, int64_t buffers) {
  planner.ComputeAt(copy, reader, at);
  const Stage stage = planner.StageNamed(copy);
  if (stage.axes.empty()) return "";
  size_t last = stage.axes.size() - 1;
  while (last > 0 && planner.Extent(stage.axes[last]) == 1) --last;
  const std::string along = stage.axes[last].name;
  planner.Split(copy, along, {lanes});
  std::vector<std::string> spread = NamesOf(stage.axes);
  spread[last] += ".0";
  if (last + 1 < spread.size()) {
    std::vector<std::string> order = spread;
    order.push_back(along + ".1");
    planner.Reorder(copy, order);
  }
  const std::string all = Fused(planner, copy, spread);
  std::vector<int64_t> factors{threads.y, threads.x};
  std::vector<LaunchAxis> axes{LaunchAxis::kThreadY, LaunchAxis::kThreadX};
  if (threads.z > 1) {
    factors.insert(factors.begin(), threads.z);
    axes.insert(axes.begin(), LaunchAxis::kThreadZ);
  }
  planner.Split(copy, all, factors);
  for (size_t i = 0; i < axes.size(); ++i) planner.Bind(copy, all + "." + std::to_string(i + 1), axes[i]);
  planner.Vectorize(copy, {along + ".1"});
  if (buffers > 1) planner.Pipeline(copy, buffers);
  return all + ".0";
}

}  // namespace hone
