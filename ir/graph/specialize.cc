#include "ir/graph/specialize.h"

#include "ir/graph/op_traits.h"

namespace hone {
namespace {

class Specializer {
 public:
  explicit Specializer(const Kernel& kernel) : kernel_(kernel) {}

  Expr Fold(const Expr& e) const {
    return Rewrite(e, [&](const Expr& node) {
      if (node.op() == Op::kSize) {
        const Size& size = kernel_.sizes[static_cast<size_t>(node.int_value())];
        return size.is_constant() ? Int(size.lo) : node;
      }
      if (node.op() == Op::kAxis && stage_) {
        const Expr& extent = stage_->axis(node.axis()).extent;
        return extent.op() == Op::kInt && extent.int_value() == 1 ? Int(0) : node;
      }
      if (node.type() != DType::kI64 || node.args().size() != 2 || !IsIndexArithmetic(node.op())) return node;
      // 0·x and x − 0 and the like fold here; Binary folds constants.
      auto is = [](const Expr& x, int64_t value) { return x.op() == Op::kInt && x.int_value() == value; };
      if (node.op() == Op::kMul && (is(node.arg(0), 0) || is(node.arg(1), 0))) return Int(0);
      return Binary(node.op(), node.arg(0), node.arg(1));
    });
  }

  void Run(Stage& stage) {
    for (std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
      for (Axis& axis : *axes) axis.extent = Fold(axis.extent);
    stage_ = &stage;
    stage.body = Fold(stage.body);
    stage_ = nullptr;
  }

 private:
  const Kernel& kernel_;
  const Stage* stage_ = nullptr;
};

}  // namespace

Kernel Specialize(Kernel kernel) {
  const Kernel original = kernel;
  Specializer specializer(original);
  for (Tensor& tensor : kernel.tensors)
    for (std::vector<Expr>* shape : {&tensor.shape, &tensor.declared})
      for (Expr& extent : *shape) extent = specializer.Fold(extent);
  for (Stage& stage : kernel.stages) specializer.Run(stage);
  return kernel;
}

}  // namespace hone
