#include "ir/graph/stage_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/op_traits.h"

namespace hone {

StageId FindStage(const Kernel& kernel, std::string_view tensor_name) {
  for (StageId stage : kernel.stages.ids())
    if (kernel.tensors[kernel.stages[stage].output].name == tensor_name) return stage;
  return {};
}

TensorId FindTensor(const Kernel& kernel, std::string_view name) {
  for (TensorId id : kernel.tensors.ids())
    if (kernel.tensors[id].name == name) return id;
  return {};
}

AxisId FindAxis(const Stage& stage, std::string_view name) {
  for (AxisId axis : stage.axis_ids())
    if (stage.axis(axis).name == name) return axis;
  return {};
}

std::string FreshAxis(std::initializer_list<const Stage*> stages, const std::string& base) {
  std::string name = base;
  auto has_it = [&](const Stage* stage) { return FindAxis(*stage, name); };
  for (int i = 1; std::any_of(stages.begin(), stages.end(), has_it); ++i) name = fmt::format("{}{}", base, i);
  return name;
}

bool ReadsTensor(const Stage& stage, TensorId tensor) {
  bool found = false;
  Walk(stage.body, [&](const Expr& e) { found |= e.Loads(tensor); });
  return found;
}

std::vector<StageId> ReadersOf(const Kernel& kernel, TensorId tensor) {
  std::vector<StageId> readers;
  for (StageId stage : kernel.stages.ids())
    if (ReadsTensor(kernel.stages[stage], tensor)) readers.push_back(stage);
  return readers;
}

IdVector<TensorId, std::vector<StageId>> ReadersOfAll(const Kernel& kernel) {
  IdVector<TensorId, std::vector<StageId>> readers(kernel.tensors.size());
  for (StageId stage : kernel.stages.ids()) {
    Walk(kernel.stages[stage].body, [&](const Expr& e) {
      if (e.op() != Op::kLoad) return;
      std::vector<StageId>& known = readers[e.tensor()];
      if (known.empty() || known.back() != stage) known.push_back(stage);
    });
  }
  return readers;
}

Expr SubstituteAxes(const Expr& expr, const std::vector<Expr>& values) {
  if (expr.op() == Op::kAxis) return values[expr.axis().index()];
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
