// Elements that take fewer bits than what they are computed with, converted once: a sum of products reads an operand
// again and again, and a processor without instructions for its type would convert each element each time.
//
// `y[m, n] = sum(k) float(x[m, k]) * float(w[n, k])` becomes `xw[m, k] = float(x[m, k])`, of f32, and
// `y[m, n] = sum(k) xw[m, k] * float(w[n, k])`. Floats of 16 bits are exact in f32.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

class Widening {
 public:
  Widening(const Kernel& kernel, TensorId tensor, TensorId wide) : kernel_(kernel), tensor_(tensor), wide_(wide) {}

  // The expression with loads of the copy in the place of converted loads of the tensor.
  Expr Replaced(const Expr& e) {
    const Tensor& copy = kernel_.tensors[wide_];
    if (e.op() == Op::kCast && e.arg(0).Loads(tensor_)) {
      (e.type() == copy.dtype ? converted_ : others_) += 1;
      return LoadOf(wide_, copy.dtype, e.arg(0).args());
    }
    others_ += e.Loads(tensor_) ? 1 : 0;
    std::vector<Expr> args;
    for (const Expr& arg : e.args()) args.push_back(Replaced(arg));
    return Expr(e.op(), e.type(), std::move(args), e.int_value(), e.float_value());
  }
  bool ConvertsAll() const { return converted_ > 0 && others_ == 0; }

 private:
  const Kernel& kernel_;
  const TensorId tensor_, wide_;
  int converted_ = 0, others_ = 0;
};

Result<Kernel> Widen(Kernel kernel, StageId index, const RewriteStep& step) {
  const TensorId tensor = FindTensor(kernel, step.names[0]);
  if (!tensor) return Refuse("there is no tensor " + step.names[0]);
  if (FindTensor(kernel, step.names[1])) return Refuse(fmt::format("the name {} is taken", step.names[1]));
  const Tensor source = kernel.tensors[tensor];
  const DType wide = DType::kF32;
  if (!IsNarrowFloat(source.dtype))
    return Refuse(fmt::format("{} is {}: f16 and bf16 are widened", source.name, Name(source.dtype)));
  Stage copy;
  for (size_t d = 0; d < source.shape.size(); ++d) copy.axes.push_back({fmt::format("d{}", d), source.shape[d]});
  copy.output = kernel.tensors.Add({step.names[1], wide, source.shape, {}, TensorKind::kIntermediate, false});
  const Expr load = LoadOf(tensor, source.dtype, AxisRefs(copy.spatial_ids()));
  copy.body = CastTo(wide, load);
  Stage& reader = kernel.stages[index];
  Widening widening(kernel, tensor, copy.output);
  reader.body = widening.Replaced(reader.body);
  if (!widening.ConvertsAll())
    return Refuse(fmt::format("{} reads {} otherwise than converted to {}", kernel.tensors[reader.output].name,
                              source.name, Name(wide)));
  kernel.stages.Insert(index, std::move(copy));
  return kernel;
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kWiden = {
    .name = "widen",
    .takes = "a tensor and a name for its elements in a wider type",
    .names = 2,
    .is_algorithm = true,
    .apply = Widen,
};

}  // namespace rewrites
}  // namespace hone
