#include "ir/rewrites/rfactor.h"

#include <fmt/format.h>

#include <vector>

#include "ir/graph/stage_graph.h"
#include "ir/schedule/refuse.h"

namespace hone {
Result<Kernel> Rfactor(Kernel kernel, StageId index, const std::string& axis_name, int64_t lanes,
                       const std::string& result, int64_t width) {
  Stage& stage = kernel.stages[index];
  const std::string stage_name = kernel.tensors[stage.output].name;
  if (FindTensor(kernel, result)) return Refuse(fmt::format("the name {} is taken", result));
  const AxisId axis = FindAxis(stage, axis_name);
  if (stage.reduction == Reduction::kNone || !axis || !stage.Reduces(axis))
    return Refuse(fmt::format("{} does not reduce over {}", stage_name, axis_name));
  constexpr int64_t kMostAtAStep = int64_t{1} << 32;
  if (lanes > kMostAtAStep / width)
    return Refuse(fmt::format("{} lanes of {} elements are more than 2^32", lanes, width));
  const Tensor& out = kernel.tensors[stage.output];
  const Expr extent = stage.axis(axis).extent;

  // part[spatial…, l] = reduce over (k.q, the other axes, v) of body with k = (q·lanes + l)·width + v; outside, the
  // identity.
  const std::string lane = FreshAxis({&stage}, "l");
  Stage part;
  part.axes = stage.axes;
  part.axes.push_back({lane, Int(lanes)});
  part.reduce_axes = stage.reduce_axes;
  part.reduce_axes[axis.index() - stage.axes.size()].extent =
      Binary(Op::kFloorDiv, extent + Int(lanes * width - 1), Int(lanes * width));
  part.reduction = stage.reduction;
  std::vector<Expr> values = AxisRefs(stage.spatial_ids());
  for (AxisId reduced : part.reduce_ids()) values.push_back(AxisRef(reduced));
  const Expr group = values[axis.index()] * Int(lanes) + AxisRef(part.last_axis());
  Expr k = group;
  if (width > 1) {
    part.reduce_axes.push_back({FreshAxis({&stage, &part}, "v"), Int(width)});
    k = group * Int(width) + AxisRef(AxisId(static_cast<int>(part.axis_count()) - 1));
  }
  values[axis.index()] = k;
  part.body = SubstituteAxes(stage.body, values);
  bool divides = extent.op() == Op::kInt && extent.int_value() % (lanes * width) == 0;
  if (!divides) {
    // kSize extents that divide are proven in bounds by lowering, which then drops the condition. Of whole groups each
    // is inside or outside: one condition for all of its elements.
    const bool are_whole = extent.op() == Op::kInt && extent.int_value() % width == 0;
    const Expr inside =
        are_whole ? Binary(Op::kLt, group, Int(extent.int_value() / width)) : Binary(Op::kLt, k, extent);
    part.body = SelectOf(inside, part.body, ReductionIdentity(stage.reduction, stage.body.type()));
  }
  Tensor tensor{result, stage.body.type(), out.shape, {}, TensorKind::kIntermediate, false};
  tensor.shape.push_back(Int(lanes));
  part.output = kernel.tensors.Add(std::move(tensor));

  stage.body = LoadOf(part.output, stage.body.type(), AxisRefs(part.spatial_ids()));
  stage.reduce_axes = {{lane, Int(lanes)}};
  kernel.stages.Insert(index, std::move(part));
  return kernel;
}

}  // namespace hone
