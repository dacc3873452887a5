// A reduction in a stage of its own, which the stage then copies: the reduction's tile may live in registers, and what
// becomes of the sums goes with the copy.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "ir/graph/stage_graph.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

Result<Kernel> CacheWrite(Kernel kernel, StageId index, const RewriteStep& step) {
  const std::string& result = step.names[0];
  if (FindTensor(kernel, result)) return Refuse(fmt::format("the name {} is taken", result));
  Stage& stage = kernel.stages[index];
  const Tensor out = kernel.tensors[stage.output];
  if (stage.reduction == Reduction::kNone) return Refuse(out.name + " reduces nothing");
  Stage part = stage;
  part.output = kernel.tensors.Add({result, out.dtype, out.shape, {}, TensorKind::kIntermediate, false});
  stage.body = LoadOf(part.output, out.dtype, AxisRefs(stage.spatial_ids()));
  stage.reduce_axes.clear();
  stage.reduction = Reduction::kNone;
  kernel.stages.Insert(index, std::move(part));
  return kernel;
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kCacheWrite = {
    .name = "cache_write",
    .takes = "one name, of the new stage",
    .names = 1,
    .apply = CacheWrite,
};

}  // namespace rewrites
}  // namespace hone
