#include "ir/rewrites/inline_stage.h"

#include <vector>

#include "ir/graph/stage_graph.h"
#include "ir/language/parse.h"
#include "ir/rewrites/in_bounds.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

// In-bounds test of an index vector for a tensor, as a bool expression over the reader's axes.
Expr InBounds(const Kernel& kernel, TensorId tensor, const std::vector<Expr>& indices) {
  const Tensor& t = kernel.tensors[tensor];
  if (indices.empty()) return Int(1, DType::kBool);
  Expr all;
  for (size_t d = 0; d < indices.size(); ++d) {
    Expr inside = Binary(Op::kAnd, Binary(Op::kLe, Int(0), indices[d]), Binary(Op::kLt, indices[d], t.shape[d]));
    all = all ? Binary(Op::kAnd, all, inside) : inside;
  }
  return all;
}

// Tensors and stages keep their places: removing a stage leaves its tensor unused but numbered.
Expr InlineInto(const Kernel& kernel, const Expr& expr, const Stage& producer) {
  std::vector<Expr> args;
  for (const Expr& arg : expr.args()) args.push_back(InlineInto(kernel, arg, producer));
  if (expr.Loads(producer.output)) return SubstituteAxes(producer.body, args);
  if (expr.op() == Op::kPad && args[0].op() != Op::kLoad) {
    // pad() of an inlined load: outside the producer's domain the outer fill holds.
    std::vector<Expr> indices;
    for (const Expr& index : expr.arg(0).args()) indices.push_back(InlineInto(kernel, index, producer));
    return SelectOf(InBounds(kernel, producer.output, indices), args[0], args[1]);
  }
  if (expr.op() == Op::kPad && expr.arg(0).tensor() == producer.output) {
    std::vector<Expr> indices;
    for (const Expr& index : expr.arg(0).args()) indices.push_back(InlineInto(kernel, index, producer));
    return SelectOf(InBounds(kernel, producer.output, indices), args[0], args[1]);
  }
  return Expr(expr.op(), expr.type(), std::move(args), expr.int_value(), expr.float_value());
}

// What InlineInto makes of `expr`, counted at most. `mentions`: of each axis in the producer's body.
double NodesInlined(const Kernel& kernel, const Expr& expr, const Stage& producer, const std::vector<int>& mentions) {
  auto inlined = [&](const Expr& e) { return NodesInlined(kernel, e, producer, mentions); };
  const bool pads = expr.op() == Op::kPad;
  const Expr& load = pads ? expr.arg(0) : expr;
  if (!load.Loads(producer.output)) {
    double nodes = 1;
    for (const Expr& arg : expr.args()) nodes += inlined(arg);
    return nodes;
  }
  const Tensor& tensor = kernel.tensors[producer.output];
  double nodes = producer.body.nodes() + (pads ? 1 + inlined(expr.arg(1)) : 0);
  for (size_t d = 0; d < load.args().size(); ++d) {
    const double index = inlined(load.arg(d));
    nodes += mentions[d] * (index - 1) + (pads ? 5 + 2 * index + tensor.shape[d].nodes() : 0);
  }
  return nodes;
}

}  // namespace

double NodesOnceInlined(const Kernel& kernel, StageId stage, StageId reader) {
  const Stage& producer = kernel.stages[stage];
  std::vector<int> mentions(producer.axes.size());
  Walk(producer.body, [&](const Expr& e) {
    if (e.op() == Op::kAxis) ++mentions[e.axis().index()];
  });
  return NodesInlined(kernel, kernel.stages[reader].body, producer, mentions);
}

Result<Kernel> InlineStage(Kernel kernel, StageId index) {
  Stage producer = kernel.stages[index];
  // A border of no width, as of a 1×1 window: what is read through it are elements, plainly.
  if (producer.body.op() == Op::kPad) {
    Stage bare = producer;
    bare.body = producer.body.arg(0);
    if (AlwaysInBounds(kernel, bare)) producer.body = bare.body;
  }
  const Tensor& tensor = kernel.tensors[producer.output];
  if (producer.reduction != Reduction::kNone)
    return Refuse(tensor.name + " is a reduction: it can be placed, not inlined");
  if (tensor.kind == TensorKind::kOutput) return Refuse(tensor.name + " is an output: it must be stored");
  constexpr ParseLimits kLimits;
  const std::vector<StageId> readers = ReadersOf(kernel, producer.output);
  double nodes = 0;
  for (const Stage& stage : kernel.stages) nodes += stage.body.nodes();
  for (StageId reader : readers) {
    const Expr& body = kernel.stages[reader].body;
    nodes += NodesOnceInlined(kernel, index, reader) - body.nodes();
    if (nodes > kLimits.nodes || body.height() + producer.body.height() > kLimits.height)
      return Refuse(tensor.name + " is read too often, or in too long a chain, to be inlined");
  }
  for (StageId reader : readers) {
    Stage& stage = kernel.stages[reader];
    stage.body = InlineInto(kernel, stage.body, producer);
  }
  kernel.stages.Erase(index);
  return kernel;
}

}  // namespace hone
