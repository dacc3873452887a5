// Reductions of whole groups: a sum over an axis whose extent is no multiple of n goes on over zeros, up to one. Both
// factors are read through copies that have them: of one alone, infinity times zero would be NaN. Integers know no such
// thing: there one of the factors may be read in windows, `x[i + k]`, and be anything where the other one is zero.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph/affine.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

Expr ZeroOf(DType type) { return IsFloat(type) ? Float(0, type) : Int(0, type); }

bool IsZero(const Expr& e) {
  return (e.op() == Op::kInt && e.int_value() == 0) || (e.op() == Op::kFloat && e.float_value() == 0);
}

// What a copy of the tensor computes: the tensor within its bounds, and zero beyond. One that is padded with zeros
// itself is padded further.
Expr PaddedBody(const Kernel& kernel, TensorId tensor, size_t dimension) {
  const Tensor& source = kernel.tensors[tensor];
  if (const Stage* producer = ProducerOf(kernel, tensor)) {
    const Expr& body = producer->body;
    if (body.op() == Op::kPad && IsZero(body.arg(1))) {
      const Expr& load = body.arg(0);
      const Tensor& inner = kernel.tensors[load.tensor()];
      for (size_t d = 0; d < load.args().size(); ++d)
        if (load.arg(d).IsAxis(AxisId(static_cast<int>(dimension))) &&
            SameExpr(inner.shape[d], source.shape[dimension]))
          return body;
    }
  }
  return PadOf(LoadOf(tensor, source.dtype, AxisRefs(IdRange<AxisId>(source.shape.size()))), ZeroOf(source.dtype));
}

bool IsFixed(const Kernel& kernel, const Expr& extent) {
  return LowerExtent(kernel, extent) == UpperExtent(kernel, extent);
}

struct Factor {
  Expr load;
  size_t dimension = 0;    // that the padded axis indexes, alone or along with another one
  bool is_window = false;  // along with another one
};

// What a copy of a tensor that is read in windows computes: one that is padded is padded further.
Expr WindowBody(const Kernel& kernel, TensorId tensor) {
  const Tensor& source = kernel.tensors[tensor];
  if (const Stage* producer = ProducerOf(kernel, tensor); producer && producer->body.op() == Op::kPad)
    return producer->body;
  return PadOf(LoadOf(tensor, source.dtype, AxisRefs(IdRange<AxisId>(source.shape.size()))), ZeroOf(source.dtype));
}

// Whether an index moves with the axis, step by step, from where other axes put it.
bool IsWindow(const Kernel& kernel, const Expr& index, AxisId axis) {
  const std::optional<Linear> form = AffineIndex(kernel, index);
  return form && form->CoefOf(VarOf(axis)) == 1;
}

Result<Kernel> PadReduction(Kernel kernel, StageId index, const RewriteStep& step) {
  const int64_t multiple = step.numbers[0];
  Stage& sum = kernel.stages[index];
  const std::string name = kernel.tensors[sum.output].name;
  for (size_t i = 1; i < step.names.size(); ++i)
    if (FindTensor(kernel, step.names[i]) || std::count(step.names.begin(), step.names.end(), step.names[i]) > 1)
      return Refuse(fmt::format("the name {} is taken", step.names[i]));
  if (sum.reduction != Reduction::kSum || sum.body.op() != Op::kMul)
    return Refuse(fmt::format("{} is no sum of products", name));
  const AxisId axis = FindAxis(sum, step.names[0]);
  if (!axis || !sum.Reduces(axis)) return Refuse(fmt::format("{} does not reduce over {}", name, step.names[0]));
  const Expr extent = sum.axis(axis).extent;
  if (!IsFixed(kernel, extent)) return Refuse(fmt::format("{} is a dynamic size", step.names[0]));
  const int64_t elements = UpperExtent(kernel, extent), padded = (elements + multiple - 1) / multiple * multiple;
  if (padded == elements)
    return Refuse(fmt::format("{} has {} elements: nothing is left over", step.names[0], elements));

  std::vector<Factor> factors;
  for (const Expr& arg : sum.body.args()) {
    Factor factor{arg.op() == Op::kCast ? arg.arg(0) : arg};
    int uses = 0;
    if (factor.load.op() != Op::kLoad) return Refuse(fmt::format("a factor of {} is no element of a tensor", name));
    for (size_t d = 0; d < factor.load.args().size(); ++d) {
      const std::vector<AxisId> axes = AxesOf(factor.load.arg(d));
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
      ++uses;
      factor.is_window = factor.load.arg(d).op() != Op::kAxis;
      const bool is_read_so =
          !factor.is_window || (!IsFloat(sum.body.type()) && IsWindow(kernel, factor.load.arg(d), axis));
      factor.dimension = is_read_so ? d : factor.load.args().size();
    }
    const Tensor& tensor = kernel.tensors[factor.load.tensor()];
    if (uses != 1 || factor.dimension == factor.load.args().size())
      return Refuse(fmt::format("{} does not index one dimension of {} alone", step.names[0], tensor.name));
    if (factor.is_window ? !IsFixed(kernel, tensor.shape[factor.dimension])
                         : !SameExpr(tensor.shape[factor.dimension], extent))
      return Refuse(fmt::format("{} does not run over all of {}", step.names[0], tensor.name));
    factors.push_back(std::move(factor));
  }
  if (factors[0].load.tensor() == factors[1].load.tensor())
    return Refuse(fmt::format("both factors of {} are of one tensor", name));

  if (factors[0].is_window && factors[1].is_window)
    return Refuse(fmt::format("{} does not index one dimension of {} alone", step.names[0],
                              kernel.tensors[factors[0].load.tensor()].name));

  std::vector<Stage> copies;
  std::vector<Expr> args;
  for (size_t i = 0; i < 2; ++i) {
    const Expr& load = factors[i].load;
    const Tensor source = kernel.tensors[load.tensor()];
    Stage copy;
    std::vector<Expr> shape = source.shape;
    Expr& along = shape[factors[i].dimension];
    if (factors[i].is_window) {
      copy.body = WindowBody(kernel, load.tensor());
      along = Int(UpperExtent(kernel, along) + padded - elements);
    } else {
      copy.body = PaddedBody(kernel, load.tensor(), factors[i].dimension);
      along = Int(padded);
    }
    std::set<std::string> taken;
    for (size_t d = 0; d < shape.size(); ++d) {
      std::string own = fmt::format("d{}", d);
      if (const Expr& at = load.arg(d); at.op() == Op::kAxis) {
        const std::string& of_sum = sum.axis(at.axis()).name;
        if (!taken.contains(of_sum)) own = of_sum;
      }
      taken.insert(own);
      copy.axes.push_back({own, shape[d]});
    }
    copy.output =
        kernel.tensors.Add({step.names[i + 1], source.dtype, std::move(shape), {}, TensorKind::kIntermediate, false});
    const Expr read = LoadOf(copy.output, source.dtype, load.args());
    args.push_back(sum.body.arg(i).op() == Op::kCast ? CastTo(sum.body.arg(i).type(), read) : read);
    copies.push_back(std::move(copy));
  }
  sum.reduce_axes[axis.index() - sum.axes.size()].extent = Int(padded);
  sum.body = Binary(Op::kMul, args[0], args[1]);
  kernel.stages.Insert(index, {std::move(copies[0]), std::move(copies[1])});
  return kernel;
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kPadReduction = {
    .name = "pad_reduction",
    .takes = "an axis, names for the padded copies of both factors, and the number that is to divide it",
    .names = 3,
    .numbers = 1,
    .apply = PadReduction,
};

}  // namespace rewrites
}  // namespace hone
