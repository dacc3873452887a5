#include "ir/rewrites/trim_padding.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/graph/stage_graph.h"
#include "ir/rewrites/registry.h"

namespace hone {
namespace {

Error Refuse(std::string message) { return {ErrorKind::kInvalid, std::move(message), ""}; }

std::vector<bool> AxesIn(const Expr& e, size_t count) {
  std::vector<bool> used(count);
  Walk(e, [&](const Expr& part) {
    if (part.op() == Op::kAxis) used[static_cast<size_t>(part.int_value())] = true;
  });
  return used;
}

// Where the padded element of the stage's load comes from inside x, as far as `trimmed` axes move it.
Result<Expr> InsideSource(const Kernel& kernel, const Stage& stage, const Expr& padded_load,
                          const std::vector<bool>& trimmed) {
  const std::string& name = kernel.tensors[padded_load.tensor()].name;
  const StageId producer = FindStage(kernel, name);
  const Expr pad = !producer ? Expr() : kernel.stages[producer].body;
  if (!pad || pad.op() != Op::kPad || pad.arg(1).op() != Op::kFloat || pad.arg(1).float_value() != 0)
    return Refuse(name + " is not padded with zeros");
  const Tensor& source = kernel.tensors[pad.arg(0).tensor()];
  const size_t rank = stage.axes.size();
  std::vector<bool> covered(trimmed.size());
  Expr inside;
  for (size_t d = 0; d < source.shape.size(); ++d) {
    const Expr index = SubstituteAxes(pad.arg(0).arg(d), padded_load.args());
    const std::vector<bool> used = AxesIn(index, trimmed.size());
    bool is_trimmed = false;
    for (size_t i = 0; i < used.size(); ++i) is_trimmed |= used[i] && trimmed[i];
    if (!is_trimmed) continue;
    for (size_t i = 0; i < used.size(); ++i) {
      if (i >= rank && used[i] && !trimmed[i])
        return Refuse(fmt::format("{} moves along dimension {} of {}, too: trim all of its axes, or none",
                                  stage.reduce_axes[i - rank].name, d, source.name));
      covered[i] = covered[i] || used[i];
    }
    const Expr bounds = Binary(Op::kAnd, Binary(Op::kLe, Int(0), index), Binary(Op::kLt, index, source.shape[d]));
    inside = inside ? Binary(Op::kAnd, inside, bounds) : bounds;
  }
  for (size_t i = rank; i < trimmed.size(); ++i)
    if (trimmed[i] && !covered[i])
      return Refuse(fmt::format("{} does not move over {}", stage.reduce_axes[i - rank].name, name));
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

  const size_t rank = sum.axes.size(), count = rank + sum.reduce_axes.size();
  std::vector<bool> trimmed(count);
  for (const std::string& axis : axes) {
    size_t i = 0;
    while (i < sum.reduce_axes.size() && sum.reduce_axes[i].name != axis) ++i;
    if (i == sum.reduce_axes.size() || trimmed[rank + i])
      return Refuse(fmt::format("{} does not reduce {}, or it is named twice", total.name, axis));
    trimmed[rank + i] = true;
  }
  const Expr inside = HONE_TRY(InsideSource(kernel, sum, padded_load, trimmed));
  const Expr zero = Float(0, total.dtype);
  const std::vector<bool> by_weight = AxesIn(weight, count), by_condition = AxesIn(inside, count);

  // A new stage over those axes of the sum, in its order; `own[i]`: the sum's axis i there.
  auto add_stage = [&](const std::string& name, auto&& keeps, auto&& reduces, std::vector<Expr>* own) {
    Stage stage;
    Tensor tensor;
    tensor.name = name;
    tensor.dtype = total.dtype;
    tensor.kind = TensorKind::kIntermediate;
    own->assign(count, Expr());
    auto axis_at = [&](size_t i) { return i < rank ? sum.axes[i] : sum.reduce_axes[i - rank]; };
    for (size_t i = 0; i < count; ++i) {
      if (!keeps(i)) continue;
      (*own)[i] = AxisRef(static_cast<int>(stage.axes.size()));
      stage.axes.push_back(axis_at(i));
      tensor.shape.push_back(axis_at(i).extent);
    }
    for (size_t i = 0; i < count; ++i) {
      if (!reduces(i)) continue;
      (*own)[i] = AxisRef(static_cast<int>(stage.axes.size() + stage.reduce_axes.size()));
      stage.reduce_axes.push_back(axis_at(i));
    }
    for (Expr& axis : *own)
      if (!axis) axis = Int(0);  // it does not depend on it
    stage.reduction = stage.reduce_axes.empty() ? Reduction::kNone : Reduction::kSum;
    stage.output = kernel.tensors.Add(std::move(tensor));
    return stage;
  };
  std::vector<Expr> own;
  auto used_by_weights = [&](size_t i) { return i < rank ? by_weight[i] : trimmed[i]; };
  Stage weights = add_stage(names.weights, used_by_weights, [&](size_t i) { return i >= rank && !trimmed[i]; }, &own);
  weights.body = Binary(Op::kMul, SubstituteAxes(weight, own), zero);

  auto used_by_edges = [&](size_t i) { return i < rank && (by_weight[i] || by_condition[i]); };
  Stage edges = add_stage(names.edges, used_by_edges, [&](size_t i) { return trimmed[i]; }, &own);
  std::vector<Expr> from_weights;
  for (size_t i = 0; i < count; ++i)
    if (used_by_weights(i)) from_weights.push_back(own[i]);
  edges.body =
      SelectOf(SubstituteAxes(inside, own), zero, LoadOf(weights.output, total.dtype, std::move(from_weights)));

  Stage whole = add_stage(names.whole, [&](size_t i) { return i < rank; }, [](size_t) { return false; }, &own);
  std::vector<Expr> all(own.begin(), own.begin() + static_cast<ptrdiff_t>(rank)), edge;
  for (size_t i = 0; i < rank; ++i)
    if (used_by_edges(i)) edge.push_back(own[i]);
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

const Axis& AxisAt(const Stage& stage, size_t i) {
  return i < stage.axes.size() ? stage.axes[i] : stage.reduce_axes[i - stage.axes.size()];
}

// "h of 14, 7 there", if the image is longer than the donor's where the window moves along it; "" otherwise.
std::string LongerAlong(const std::string& window, const Kernel& kernel, const Stage& stage, const Kernel& donor_kernel,
                        const Stage& donor_stage) {
  const size_t count = stage.axes.size() + stage.reduce_axes.size();
  const size_t shared = std::min(stage.axes.size(), donor_stage.axes.size());
  std::string found;
  Walk(stage.body, [&](const Expr& load) {
    if (load.op() != Op::kLoad) return;
    for (const Expr& position : load.args()) {
      const std::vector<bool> used = AxesIn(position, count);
      bool moves = false;
      for (size_t i = 0; i < count; ++i) moves |= used[i] && AxisAt(stage, i).name == window;
      for (size_t i = 0; moves && i < shared; ++i) {
        if (!used[i]) continue;
        const int64_t here = UpperExtent(kernel, stage.axes[i].extent);
        const int64_t there = UpperExtent(donor_kernel, donor_stage.axes[i].extent);
        if (here > there) found = fmt::format("{} of {}, {} there", stage.axes[i].name, here, there);
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
