// An access that several axes share, as a tensor of its own: im2col where a convolution reads its input.
//
// The stage reads the tensor through a new stage over its own axes: cols[c, r, s, h, w] = x[c, h + r, w + s], placed
// just before it. The axes are named in the order of the new tensor's dimensions: exactly those that the access uses.
// Refuses where the tensor is read in two ways, or inside its bounds only by a condition.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph/stage_graph.h"
#include "ir/rewrites/in_bounds.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

Result<Kernel> Im2col(Kernel kernel, StageId index, const RewriteStep& step) {
  const TensorId tensor = FindTensor(kernel, step.names[0]);
  if (!tensor) return Refuse("there is no tensor " + step.names[0]);
  const std::string& result = step.names[1];
  const std::vector<std::string> axes(step.names.begin() + 2, step.names.end());
  Stage& reader = kernel.stages[index];
  const std::string reader_name = kernel.tensors[reader.output].name;
  const Tensor source = kernel.tensors[tensor];
  if (FindTensor(kernel, result)) return Refuse(fmt::format("the name {} is taken", result));

  Expr access;  // with its fill, where it has one
  bool one_way = true;
  auto visit = [&](auto&& self, const Expr& e) -> void {
    const bool is_load = e.Loads(tensor);
    const bool is_padded = e.op() == Op::kPad && e.arg(0).Loads(tensor);
    if (is_load || is_padded) {
      one_way &= !access || SameExpr(access, e);
      access = e;
      return;
    }
    for (const Expr& arg : e.args()) self(self, arg);
  };
  visit(visit, reader.body);
  if (!access) return Refuse(fmt::format("{} does not read {}", reader_name, source.name));
  if (!one_way) return Refuse(fmt::format("{} reads {} in more than one way", reader_name, source.name));

  std::vector<std::string> wanted;
  for (AxisId axis : AxesOf(access)) wanted.push_back(reader.axis(axis).name);
  if (!std::is_permutation(axes.begin(), axes.end(), wanted.begin(), wanted.end()))
    return Refuse(fmt::format("{} reads {} by {}: name these, in any order, and no others", reader_name, source.name,
                              fmt::join(wanted, " ")));

  Stage stage;
  Tensor expanded;
  expanded.name = result;
  expanded.dtype = source.dtype;
  expanded.kind = TensorKind::kIntermediate;
  std::vector<Expr> own = AxisRefs(reader.axis_ids()), indices;  // the reader's axes as the new stage's, and back
  for (size_t d = 0; d < axes.size(); ++d) {
    const AxisId axis = FindAxis(reader, axes[d]);
    stage.axes.push_back(reader.axis(axis));
    expanded.shape.push_back(reader.axis(axis).extent);
    own[axis.index()] = AxisRef(AxisId(d));
    indices.push_back(AxisRef(axis));
  }
  stage.output = kernel.tensors.Add(std::move(expanded));
  stage.body = SubstituteAxes(access, own);
  if (!AlwaysInBounds(kernel, stage))
    return Refuse(fmt::format("{} reads {} under a condition", reader_name, source.name));
  const Expr load = LoadOf(stage.output, source.dtype, std::move(indices));
  reader.body = Rewrite(reader.body, [&](const Expr& e) { return SameExpr(e, access) ? load : e; });
  kernel.stages.Insert(index, std::move(stage));
  return kernel;
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kIm2col = {
    .name = "im2col",
    .takes = "a tensor, a name for the new stage and the axes by which the tensor is read",
    .names = 3,
    .or_more_names = true,
    .is_algorithm = true,
    .apply = Im2col,
};

}  // namespace rewrites
}  // namespace hone
