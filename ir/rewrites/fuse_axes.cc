// Adjacent dimensions of the stage's tensor viewed as one, and so in every tensor whose accesses allow it: all stages
// that touch these axes must index with them plainly and in this order. Refuses where an access needs them apart;
// flatten_axes lets stages that make an intermediate compute them from the one by division: columns of an image
// (im2col) become a matrix.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph/stage_graph.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

// The axis first + j of those that became one.
Expr PartOf(const std::vector<Expr>& extents, AxisId first, size_t j) {
  Expr part = AxisRef(first), inner = Int(1);
  for (size_t i = j + 1; i < extents.size(); ++i) inner = inner * extents[i];
  if (j + 1 < extents.size()) part = Binary(Op::kFloorDiv, part, inner);
  return j == 0 ? part : Binary(Op::kMod, part, extents[j]);
}

Result<Kernel> Fuse(Kernel kernel, StageId index, const RewriteStep& step, bool by_division) {
  const std::vector<std::string>& names = step.names;
  const size_t count = names.size();
  // Tensors whose dimensions first … first+count-1 become one. Found by walking accesses from the stage's own axes.
  struct View {
    TensorId tensor;
    size_t first;
  };
  std::vector<View> views;
  auto view_of = [&](TensorId tensor) {
    return std::find_if(views.begin(), views.end(), [&](const View& v) { return v.tensor == tensor; });
  };
  // The first collapsed axis of each stage (spatial or reduction), if it has one.
  IdVector<StageId, AxisId> first_axis(kernel.stages.size());
  std::vector<StageId> queue;

  auto add_stage = [&](StageId s, AxisId first) -> Result<void> {
    if (first_axis[s]) {
      if (first_axis[s] != first) return Refuse("fuse_axes: one stage uses the dimensions in two ways");
      return {};
    }
    first_axis[s] = first;
    queue.push_back(s);
    return {};
  };
  auto add_view = [&](TensorId tensor, size_t first) -> Result<void> {
    if (auto v = view_of(tensor); v != views.end()) {
      if (v->first != first) return Refuse("fuse_axes: one tensor uses the dimensions in two ways");
      return {};
    }
    views.push_back({tensor, first});
    for (StageId s : kernel.stages.ids())
      if (kernel.stages[s].output == tensor) HONE_TRY(add_stage(s, AxisId(first)));
    return {};
  };

  const Stage& start = kernel.stages[index];
  {
    std::vector<std::string> all;
    for (const Axis& axis : start.axes) all.push_back(axis.name);
    size_t spatial = all.size();
    for (const Axis& axis : start.reduce_axes) all.push_back(axis.name);
    auto at = std::search(all.begin(), all.end(), names.begin(), names.end());
    size_t first = static_cast<size_t>(at - all.begin());
    if (at == all.end() || (first < spatial && first + count > spatial))
      return Refuse(
          fmt::format("fuse_axes: {} has no adjacent axes of these names", kernel.tensors[start.output].name));
    if (first < spatial)
      HONE_TRY(add_view(start.output, first));
    else
      HONE_TRY(add_stage(index, AxisId(first)));
  }

  // Propagate through accesses until nothing new is found.
  bool grew = true;
  while (grew) {
    size_t before = views.size() + queue.size();
    for (StageId s : kernel.stages.ids()) {
      Result<void> outcome;
      Walk(kernel.stages[s].body, [&](const Expr& load) {
        if (load.op() != Op::kLoad || !outcome) return;
        TensorId tensor = load.tensor();
        if (first_axis[s]) {
          // A load that walks the collapsed axes in order makes its tensor a view too.
          const size_t first = first_axis[s].index();
          for (size_t d = 0; d + count <= load.args().size(); ++d) {
            bool plain = true;
            for (size_t j = 0; j < count; ++j) plain &= load.arg(d + j).IsAxis(AxisId(first + j));
            if (plain) outcome = add_view(tensor, d);
            if (plain) break;
          }
        }
        if (auto v = view_of(tensor); v != views.end() && outcome) {
          const Expr& lead = load.arg(v->first);
          if (lead.op() != Op::kAxis) {
            outcome = Refuse("fuse_axes: " + kernel.tensors[tensor].name + " is not indexed plainly");
            return;
          }
          outcome = add_stage(s, lead.axis());
        }
      });
      HONE_TRY(std::move(outcome));
    }
    grew = views.size() + queue.size() != before;
  }

  // Check every access and every extent, then rewrite.
  for (StageId s : kernel.stages.ids()) {
    if (!first_axis[s]) continue;
    Stage& stage = kernel.stages[s];
    size_t first = first_axis[s].index(), spatial = stage.axes.size();
    bool reduces = first >= spatial;
    std::vector<Axis>& axes = reduces ? stage.reduce_axes : stage.axes;
    size_t at = reduces ? first - spatial : first;
    if (at + count > axes.size()) return Refuse("fuse_axes: the axes are not adjacent in every stage");
    if (!reduces && view_of(stage.output) == views.end())
      return Refuse("fuse_axes: a stage needs the dimensions apart");
    // Neighbours in the one axis must be neighbours in every view: all but the outermost dimension have the axes'
    // extents.
    for (const View& view : views) {
      const Tensor& tensor = kernel.tensors[view.tensor];
      if (view.tensor != stage.output && !ReadsTensor(stage, view.tensor)) continue;
      for (size_t j = 1; j < count; ++j)
        if (!SameExpr(axes[at + j].extent, tensor.shape[view.first + j]))
          return Refuse(fmt::format("fuse_axes: only a part of {} is indexed", tensor.name));
    }
    size_t plain_uses = 0, uses = 0;
    bool split_axis = false;
    Walk(stage.body, [&](const Expr& e) {
      if (e.op() == Op::kAxis && e.axis() >= AxisId(first) && e.axis() < AxisId(first + count)) ++uses;
      if (e.op() != Op::kLoad) return;
      auto v = view_of(e.tensor());
      if (v == views.end()) return;
      for (size_t j = 0; j < count; ++j) split_axis |= !e.arg(v->first + j).IsAxis(AxisId(first + j));
      plain_uses += count;
    });
    const bool is_apart = split_axis || uses != plain_uses;
    if (is_apart &&
        (!by_division || plain_uses > 0 || reduces || kernel.tensors[stage.output].kind != TensorKind::kIntermediate))
      return Refuse("fuse_axes: an access needs the dimensions apart");
    Axis merged = axes[at];
    std::vector<Expr> extents;
    for (size_t j = 0; j < count; ++j) extents.push_back(axes[at + j].extent);
    for (size_t j = 1; j < count; ++j) merged.extent = merged.extent * axes[at + j].extent;
    axes[at] = merged;
    axes.erase(axes.begin() + static_cast<int64_t>(at) + 1, axes.begin() + static_cast<int64_t>(at + count));
    stage.body = Rewrite(stage.body, [&](const Expr& e) {
      if (e.op() == Op::kAxis && e.axis() >= AxisId(first + count))
        return AxisRef(AxisId(e.axis().index() - (count - 1)));
      if (is_apart && e.op() == Op::kAxis && e.axis() >= AxisId(first))
        return PartOf(extents, AxisId(first), e.axis().index() - first);
      if (e.op() != Op::kLoad) return e;
      auto v = view_of(e.tensor());
      if (v == views.end()) return e;
      std::vector<Expr> args = e.args();
      args.erase(args.begin() + static_cast<int64_t>(v->first) + 1,
                 args.begin() + static_cast<int64_t>(v->first + count));
      return Expr(e.op(), e.type(), std::move(args), e.int_value());
    });
  }
  for (const View& view : views) {
    Tensor& tensor = kernel.tensors[view.tensor];
    if (tensor.declared.empty()) tensor.declared = tensor.shape;
    for (size_t j = 1; j < count; ++j)
      tensor.shape[view.first] = tensor.shape[view.first] * tensor.shape[view.first + j];
    tensor.shape.erase(tensor.shape.begin() + static_cast<int64_t>(view.first) + 1,
                       tensor.shape.begin() + static_cast<int64_t>(view.first + count));
  }
  return kernel;
}

Result<Kernel> FuseAxes(Kernel kernel, StageId index, const RewriteStep& step) {
  return Fuse(std::move(kernel), index, step, false);
}

Result<Kernel> FlattenAxes(Kernel kernel, StageId index, const RewriteStep& step) {
  return Fuse(std::move(kernel), index, step, true);
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kFuseAxes = {
    .name = "fuse_axes",
    .takes = "two adjacent axes, or more",
    .names = 2,
    .or_more_names = true,
    .apply = FuseAxes,
};

extern constinit const GraphRewrite kFlattenAxes = {
    .name = "flatten_axes",
    .takes = "two adjacent axes, or more",
    .names = 2,
    .or_more_names = true,
    .apply = FlattenAxes,
};

}  // namespace rewrites
}  // namespace hone
