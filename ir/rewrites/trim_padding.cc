#include "ir/rewrites/trim_padding.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/graph/stage_graph.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

using AxisSet = IdVector<AxisId, bool>;  // of all axes of a stage, whether it is one of them

AxisSet AxesIn(const Expr& e, const Stage& stage) {
  AxisSet used(stage.axis_count());
  for (AxisId axis : AxesOf(e)) used[axis] = true;
  return used;
}

// Where the padded element of the stage's load comes from inside x, as far as `trimmed` axes move it.
Result<Expr> InsideSource(const Kernel& kernel, const Stage& stage, const Expr& padded_load, const AxisSet& trimmed) {
  const std::string& name = kernel.tensors[padded_load.tensor()].name;
  const StageId producer = FindStage(kernel, name);
  const Expr pad = !producer ? Expr() : kernel.stages[producer].body;
  if (!pad || pad.op() != Op::kPad || pad.arg(1).op() != Op::kFloat || pad.arg(1).float_value() != 0)
    return Refuse(name + " is not padded with zeros");
  const Tensor& source = kernel.tensors[pad.arg(0).tensor()];
  AxisSet covered(trimmed.size());
  Expr inside;
  for (size_t d = 0; d < source.shape.size(); ++d) {
    const Expr index = SubstituteAxes(pad.arg(0).arg(d), padded_load.args());
    const std::vector<AxisId> used = AxesOf(index);
    if (std::none_of(used.begin(), used.end(), [&](AxisId axis) { return trimmed[axis]; })) continue;
    for (AxisId axis : used) {
      if (stage.Reduces(axis) && !trimmed[axis])
        return Refuse(fmt::format("{} moves along dimension {} of {}, too: trim all of its axes, or none",
                                  stage.axis(axis).name, d, source.name));
      covered[axis] = true;
    }
    const Expr bounds = Binary(Op::kAnd, Binary(Op::kLe, Int(0), index), Binary(Op::kLt, index, source.shape[d]));
    inside = inside ? Binary(Op::kAnd, inside, bounds) : bounds;
  }
  for (AxisId axis : stage.reduce_ids())
    if (trimmed[axis] && !covered[axis])
      return Refuse(fmt::format("{} does not move over {}", stage.axis(axis).name, name));
  return inside;
}

Result<Kernel> TrimPadding(Kernel kernel, StageId index, const RewriteStep& step) {
  const TensorId padded = FindTensor(kernel, step.names[0]);
  if (!padded) return Refuse("there is no tensor " + step.names[0]);
  const std::string& base = step.names[1];
  const std::vector<std::string> axes(step.names.begin() + 2, step.names.end());
  const Stage sum = kernel.stages[index];
  const Tensor total = kernel.tensors[sum.output];
  const TrimNames names(base);
  for (const std::string& name : {names.whole, names.edges, names.weights})
    if (FindTensor(kernel, name)) return Refuse(fmt::format("the name {} is taken", name));
  if (total.kind == TensorKind::kOutput)
    return Refuse(total.name + " is an output: move the sum to a stage of its own first, by cache_write");
  if (sum.reduction != Reduction::kSum || !IsFloat(total.dtype) || sum.body.op() != Op::kMul)
    return Refuse(total.name + " is no sum of products of floats");
  const size_t side = sum.body.arg(0).Loads(padded) ? 0 : 1;
  const Expr padded_load = sum.body.arg(side), weight = sum.body.arg(1 - side);
  if (!padded_load.Loads(padded) || weight.op() != Op::kLoad || !kernel.tensors[weight.tensor()].is_const)
    return Refuse(
        fmt::format("{} is no sum over the product of {} with a constant", total.name, kernel.tensors[padded].name));

  AxisSet trimmed(sum.axis_count());
  for (const std::string& name : axes) {
    const AxisId axis = FindAxis(sum, name);
    if (!axis || !sum.Reduces(axis) || trimmed[axis])
      return Refuse(fmt::format("{} does not reduce {}, or it is named twice", total.name, name));
    trimmed[axis] = true;
  }
  const Expr inside = HONE_TRY(InsideSource(kernel, sum, padded_load, trimmed));
  const Expr zero = Float(0, total.dtype);
  const AxisSet by_weight = AxesIn(weight, sum), by_condition = AxesIn(inside, sum);

  // A new stage over those axes of the sum, in its order; `own`: the sum's axes there.
  auto add_stage = [&](const std::string& name, auto&& keeps, auto&& reduces, std::vector<Expr>* own) {
    Stage stage;
    Tensor tensor;
    tensor.name = name;
    tensor.dtype = total.dtype;
    tensor.kind = TensorKind::kIntermediate;
    own->assign(sum.axis_count(), Expr());
    for (AxisId axis : sum.axis_ids()) {
      if (!keeps(axis)) continue;
      (*own)[axis.index()] = AxisRef(AxisId(stage.axis_count()));
      stage.axes.push_back(sum.axis(axis));
      tensor.shape.push_back(sum.axis(axis).extent);
    }
    for (AxisId axis : sum.axis_ids()) {
      if (!reduces(axis)) continue;
      (*own)[axis.index()] = AxisRef(AxisId(stage.axis_count()));
      stage.reduce_axes.push_back(sum.axis(axis));
    }
    for (Expr& axis : *own)
      if (!axis) axis = Int(0);  // it does not depend on it
    stage.reduction = stage.reduce_axes.empty() ? Reduction::kNone : Reduction::kSum;
    stage.output = kernel.tensors.Add(std::move(tensor));
    return stage;
  };
  std::vector<Expr> own;
  auto used_by_weights = [&](AxisId axis) { return sum.Reduces(axis) ? trimmed[axis] : by_weight[axis]; };
  auto summed_by_weights = [&](AxisId axis) { return sum.Reduces(axis) && !trimmed[axis]; };
  Stage weights = add_stage(names.weights, used_by_weights, summed_by_weights, &own);
  weights.body = Binary(Op::kMul, SubstituteAxes(weight, own), zero);

  auto used_by_edges = [&](AxisId axis) { return !sum.Reduces(axis) && (by_weight[axis] || by_condition[axis]); };
  Stage edges = add_stage(names.edges, used_by_edges, [&](AxisId axis) { return trimmed[axis]; }, &own);
  std::vector<Expr> from_weights;
  for (AxisId axis : sum.axis_ids())
    if (used_by_weights(axis)) from_weights.push_back(own[axis.index()]);
  edges.body =
      SelectOf(SubstituteAxes(inside, own), zero, LoadOf(weights.output, total.dtype, std::move(from_weights)));

  Stage whole =
      add_stage(names.whole, [&](AxisId axis) { return !sum.Reduces(axis); }, [](AxisId) { return false; }, &own);
  std::vector<Expr> all = AxisRefs(whole.spatial_ids()), edge;
  for (AxisId axis : sum.spatial_ids())
    if (used_by_edges(axis)) edge.push_back(AxisRef(axis));
  whole.body = Binary(Op::kAdd, LoadOf(sum.output, total.dtype, std::move(all)),
                      LoadOf(edges.output, total.dtype, std::move(edge)));
  for (StageId reader : ReadersOf(kernel, sum.output)) {
    Stage& stage = kernel.stages[reader];
    stage.body = Rewrite(stage.body, [&](const Expr& e) {
      return e.Loads(sum.output) ? LoadOf(whole.output, total.dtype, e.args()) : e;
    });
  }
  kernel.stages[index].body = SelectOf(inside, sum.body, zero);
  StageId behind = index;
  kernel.stages.Insert(++behind, std::move(whole));
  kernel.stages.Insert(index, {std::move(weights), std::move(edges)});
  return kernel;
}

// "h of 14, 7 there", if the image is longer than the donor's where the window moves along it; "" otherwise.
std::string LongerAlong(const std::string& window, const Kernel& kernel, const Stage& stage, const Kernel& donor_kernel,
                        const Stage& donor_stage) {
  const IdRange<AxisId> shared(std::min(stage.axes.size(), donor_stage.axes.size()));
  std::string found;
  Walk(stage.body, [&](const Expr& load) {
    if (load.op() != Op::kLoad) return;
    for (const Expr& index : load.args()) {
      const AxisSet used = AxesIn(index, stage);
      bool moves = false;
      for (AxisId axis : stage.axis_ids()) moves |= used[axis] && stage.axis(axis).name == window;
      if (!moves) continue;
      for (AxisId axis : shared) {
        if (!used[axis]) continue;
        const int64_t here = UpperExtent(kernel, stage.axis(axis).extent);
        const int64_t there = UpperExtent(donor_kernel, donor_stage.axis(axis).extent);
        if (here > there) found = fmt::format("{} of {}, {} there", stage.axis(axis).name, here, there);
      }
    }
  });
  return found;
}

// Copies of an unrolled body know which terms lie in the padding only if a tile spans the image, as the donor's did;
// elsewhere every term would ask.
std::string FitTrimPadding(RewriteStep& step, const FitContext& context) {
  const Kernel &here = context.before.kernel, &there = context.donor.kernel;
  const StageId index = FindStage(here, step.stage), donor_index = FindStage(there, step.stage);
  if (!index || !donor_index) return "";
  const StageSchedule& donor_loops = context.donor.stages[donor_index];
  std::string why;
  std::erase_if(step.names, [&](const std::string& name) {
    if (KindOf(donor_loops, name) != LoopKind::kUnrolled) return false;
    const std::string reason = LongerAlong(name, here, here.stages[index], there, there.stages[donor_index]);
    if (!reason.empty()) why = reason;
    return !reason.empty();
  });
  return why;
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kTrimPadding = {
    .name = "trim_padding",
    .takes = "a padded tensor, a name for the new stages and the axes whose padding is left out",
    .names = 3,
    .or_more_names = true,
    .apply = TrimPadding,
    .fit = FitTrimPadding,
};

}  // namespace rewrites
}  // namespace hone
