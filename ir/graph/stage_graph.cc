#include "ir/graph/stage_graph.h"

#include <limits>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/op_traits.h"

namespace hone {

int FindStage(const Kernel& kernel, std::string_view tensor_name) {
  for (size_t i = 0; i < kernel.stages.size(); ++i)
    if (kernel.tensors[kernel.stages[i].output].name == tensor_name) return static_cast<int>(i);
  return -1;
}

TensorId FindTensor(const Kernel& kernel, std::string_view name) {
  for (TensorId id : kernel.tensors.ids())
    if (kernel.tensors[id].name == name) return id;
  return {};
}

bool ReadsTensor(const Stage& stage, TensorId tensor) {
  bool found = false;
  Walk(stage.body, [&](const Expr& e) { found |= e.Loads(tensor); });
  return found;
}

std::vector<int> ReadersOf(const Kernel& kernel, TensorId tensor) {
  std::vector<int> readers;
  for (size_t i = 0; i < kernel.stages.size(); ++i)
    if (ReadsTensor(kernel.stages[i], tensor)) readers.push_back(static_cast<int>(i));
  return readers;
}

IdVector<TensorId, std::vector<int>> ReadersOfAll(const Kernel& kernel) {
  IdVector<TensorId, std::vector<int>> readers(kernel.tensors.size());
  for (size_t i = 0; i < kernel.stages.size(); ++i) {
    const int stage = static_cast<int>(i);
    Walk(kernel.stages[i].body, [&](const Expr& e) {
      if (e.op() != Op::kLoad) return;
      std::vector<int>& known = readers[e.tensor()];
      if (known.empty() || known.back() != stage) known.push_back(stage);
    });
  }
  return readers;
}

Expr SubstituteAxes(const Expr& expr, const std::vector<Expr>& values) {
  if (expr.op() == Op::kAxis) return values[static_cast<size_t>(expr.int_value())];
  std::vector<Expr> args;
  args.reserve(expr.args().size());
  bool changed = false;
  for (const Expr& arg : expr.args()) {
    args.push_back(SubstituteAxes(arg, values));
    changed |= args.back().id() != arg.id();
  }
  if (!changed) return expr;
  if (args.size() == 2 && expr.type() == DType::kI64 && IsIndexArithmetic(expr.op()))
    return Binary(expr.op(), args[0], args[1]);  // folds
  return Expr(expr.op(), expr.type(), std::move(args), expr.int_value(), expr.float_value());
}

Expr ReductionIdentity(Reduction reduction, DType type) {
  double inf = std::numeric_limits<double>::infinity();
  switch (reduction) {
    case Reduction::kSum: return IsFloat(type) ? Float(0, type) : Int(0, type);
    case Reduction::kProd: return IsFloat(type) ? Float(1, type) : Int(1, type);
    case Reduction::kMaxOfNumbers:
    case Reduction::kMax: return IsFloat(type) ? Float(-inf, type) : Int(TraitsOf(type).lowest, type);
    case Reduction::kMin: return IsFloat(type) ? Float(inf, type) : Int(TraitsOf(type).highest, type);
    case Reduction::kNone: break;
  }
  HONE_CHECK(!"a reduction");
  return {};
}

}  // namespace hone
