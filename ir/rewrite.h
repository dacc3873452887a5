// Rewrites of the stage graph that keep the kernel's function: the first steps of a schedule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/kernel.h"

namespace hone {

// Index into kernel.stages of the stage that writes the tensor of that name; -1 if none does.
int FindStage(const Kernel& kernel, std::string_view tensor_name);
// Index into kernel.tensors; -1 if there is none.
TensorId FindTensor(const Kernel& kernel, std::string_view name);
// Stages that load a tensor, by index.
std::vector<int> ReadersOf(const Kernel& kernel, TensorId tensor);
std::vector<std::vector<int>> ReadersOfAll(const Kernel& kernel);  // by tensor
// `expr` with axis i replaced by values[i].
Expr SubstituteAxes(const Expr& expr, const std::vector<Expr>& values);

// Substitutes a stage without reduction into every stage that reads it, and drops it. Refuses outputs, reductions, and
// what would make the kernel larger, or a body higher, than a text may: a stage that is mentioned twice is doubled, and
// so is each of a chain.
Result<Kernel> InlineStage(Kernel kernel, int stage);
// Nodes that the body of `reader` has afterwards, at most.
double NodesOnceInlined(const Kernel& kernel, int stage, int reader);

// Views adjacent dimensions of the stage's tensor as one, and so in every tensor whose accesses allow it: all stages
// that touch these axes must index with them plainly and in this order. Refuses where an access needs them apart.
Result<Kernel> CollapseAxes(Kernel kernel, int stage, const std::vector<std::string>& axes);

// Moves a reduction into a stage of its own, `result`, which the stage then copies: its tile may live in registers.
Result<Kernel> SeparateReduction(Kernel kernel, int stage, const std::string& result);

// stage reads `tensor` through a copy: a new stage, result[i…] = tensor[i…], placed just before it.
Result<Kernel> CacheRead(Kernel kernel, TensorId tensor, int stage, const std::string& result);

// Reduces axis in `lanes` independent lanes: result[…, l] over the axis' quotient, then the stage over l alone.
Result<Kernel> Rfactor(Kernel kernel, int stage, const std::string& axis, int64_t lanes, const std::string& result);

// The value a reduction starts from, in that type.
Expr ReductionIdentity(Reduction reduction, DType type);

}  // namespace hone
