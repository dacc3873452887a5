// Before any rule looks at a stage: what it reads by a function of its axes (borders that repeat or mirror, an image
// that is scaled up) is read by sums of axes as far as that pays, since only then do the elements that a vector wants
// lie side by side, and the rules know what is read again.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/rules/schedule_planner.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/affine.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

bool IsByFunction(const Kernel& kernel, const Expr& index) {
  return !AxesOf(index).empty() && !index.Has(Op::kLoad) && !AffineIndex(kernel, index).has_value();
}

// Whether a window slides over the load: one index takes an axis of the output and one of the reduction through a
// function, so that elements are read more than once.
bool SlidesAWindow(const Kernel& kernel, const Stage& stage, const Expr& load) {
  return std::any_of(load.args().begin(), load.args().end(), [&](const Expr& index) {
    if (!IsByFunction(kernel, index)) return false;
    const std::vector<AxisId> axes = AxesOf(index);
    return !stage.Reduces(axes.front()) && stage.Reduces(axes.back());
  });
}

// Tensors that the stage reads through windows.
std::vector<TensorId> WindowedBy(const Kernel& kernel, const Stage& stage) {
  std::vector<TensorId> tensors;
  Walk(stage.body, [&](const Expr& e) {
    if (e.op() != Op::kLoad || !SlidesAWindow(kernel, stage, e)) return;
    const auto tensor = e.tensor();
    if (std::find(tensors.begin(), tensors.end(), tensor) == tensors.end()) tensors.push_back(tensor);
  });
  return tensors;
}

// Whether the vectors of the stage, along its last axis, would run along the last index of a clamped load.
bool RunsAlongAClamp(const Kernel& kernel, const Stage& stage) {
  if (stage.axes.empty()) return false;
  bool runs = false;
  Walk(stage.body, [&](const Expr& e) {
    if (e.op() != Op::kLoad || e.args().empty() || !IsByFunction(kernel, e.args().back())) return;
    const Expr& index = e.args().back();
    if (index.op() != Op::kMin && index.op() != Op::kMax) return;
    const std::vector<AxisId> axes = AxesOf(index);
    runs |= std::find(axes.begin(), axes.end(), stage.last_axis()) != axes.end();
  });
  return runs;
}

}  // namespace

void StraightenAccesses(SchedulePlanner& planner) {
  std::vector<std::string> names;
  for (const Stage& stage : planner.kernel().stages) names.push_back(planner.NameOf(stage));
  for (const std::string& name : names) {
    // The copy costs about what one step of the window does.
    if (const Stage& stage = planner.StageNamed(name); stage.reduction != Reduction::kNone)
      for (TensorId tensor : WindowedBy(planner.kernel(), stage)) {
        const std::string source = planner.kernel().tensors[tensor].name;
        if (planner.Rewrite({"reindex", name, {source, planner.FreshName(source + "_at")}}))
          planner.Took("straighten", name, "a window is read through a copy in which it lies side by side");
      }
    if (RunsAlongAClamp(planner.kernel(), planner.StageNamed(name)) && planner.Rewrite({"split_clamp", name, {}}))
      planner.Took("straighten", name, "between its borders, what a clamp reads lies side by side");
  }
}

}  // namespace hone
