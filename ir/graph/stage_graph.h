// Questions about a kernel's graph of stages, for whoever rewrites or schedules it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/kernel.h"

namespace hone {

// The stage that writes the tensor of that name; none if none does.
StageId FindStage(const Kernel& kernel, std::string_view tensor_name);
// None if there is none.
TensorId FindTensor(const Kernel& kernel, std::string_view name);
// None if there is none.
AxisId FindAxis(const Stage& stage, std::string_view name);
// `base`, or base1, base2 …: the first that no axis of any of the stages has.
std::string FreshAxis(std::initializer_list<const Stage*> stages, const std::string& base);
bool ReadsTensor(const Stage& stage, TensorId tensor);
// Stages that load a tensor, in order.
std::vector<StageId> ReadersOf(const Kernel& kernel, TensorId tensor);
IdVector<TensorId, std::vector<StageId>> ReadersOfAll(const Kernel& kernel);
// `expr` with each axis replaced by the value at its position.
Expr SubstituteAxes(const Expr& expr, const std::vector<Expr>& values);
// The value a reduction starts from, in that type.
Expr ReductionIdentity(Reduction reduction, DType type);

}  // namespace hone
