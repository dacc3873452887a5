// A reduction over one axis as one over two: k = n · q + r. Runs of n terms can then be divided among threads (rfactor)
// whole, each of them a vector in memory.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "ir/graph/stage_graph.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

Result<Kernel> SplitReduction(Kernel kernel, StageId index, const RewriteStep& step) {
  Stage& stage = kernel.stages[index];
  const int64_t run = step.numbers[0];
  const AxisId axis = FindAxis(stage, step.names[0]);
  if (!axis || !stage.Reduces(axis))
    return Refuse(fmt::format("{} does not reduce over {}", kernel.tensors[stage.output].name, step.names[0]));
  const Expr extent = stage.axis(axis).extent;
  const int64_t terms = UpperExtent(kernel, extent);
  if (run < 1 || LowerExtent(kernel, extent) != terms || terms % run != 0)
    return Refuse(fmt::format("{} is no multiple of {}", step.names[0], run));
  const size_t at = axis.index() - stage.axes.size();
  const std::string rest = FreshAxis({&stage}, step.names[0] + "r");
  stage.reduce_axes[at].extent = Binary(Op::kFloorDiv, extent, Int(run));
  stage.reduce_axes.insert(stage.reduce_axes.begin() + static_cast<ptrdiff_t>(at) + 1, {rest, Int(run)});
  std::vector<Expr> values;
  for (size_t old = 0; old + 1 < stage.axis_count(); ++old)
    values.push_back(AxisRef(AxisId(old <= axis.index() ? old : old + 1)));
  values[axis.index()] = AxisRef(axis) * Int(run) + AxisRef(AxisId(axis.index() + 1));
  stage.body = SubstituteAxes(stage.body, values);
  return kernel;
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kSplitReduction = {
    .name = "split_reduction",
    .takes = "an axis that is reduced, and terms of a run",
    .names = 1,
    .numbers = 1,
    .apply = SplitReduction,
};

}  // namespace rewrites
}  // namespace hone
