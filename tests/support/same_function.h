// Whether a rewritten kernel is the one it was made from: what the caller sees, and every value.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "ir/graph/print.h"
#include "ir/graph/stage_graph.h"
#include "ir/graph/verify_kernel.h"
#include "ir/language/parse.h"
#include "tests/support/kernel_inputs.h"

namespace hone {

inline Kernel Parsed(const std::string& text) {
  Result<Kernel> kernel = ParseKernel(text);
  EXPECT_TRUE(kernel) << text << ": " << kernel.error().Text();
  return kernel ? *std::move(kernel) : Kernel{};
}

// Sums in another order differ in the last bits of a double.
inline bool IsSameValue(const Reference& a, const Reference& b) {
  if (a.value == b.value || (std::isnan(a.value) && std::isnan(b.value))) return true;
  return std::abs(a.value - b.value) <= 1e-12 * std::max(a.magnitude, b.magnitude);
}

inline int OutputCount(const Kernel& kernel) {
  int count = 0;
  for (TensorId id : kernel.operands) count += kernel.tensors[id].kind == TensorKind::kOutput;
  return count;
}

// Rewrites leave tensors behind that nothing fills or reads; the verifier wants a stage for each.
inline Kernel WithoutUnused(const Kernel& kernel) {
  Kernel result = kernel;
  result.tensors = {};
  std::map<TensorId, TensorId> places;
  auto keep = [&](TensorId id) {
    TensorId& place = places[id];
    if (!place) place = result.tensors.Add(kernel.tensors[id]);
    return place;
  };
  for (TensorId& operand : result.operands) operand = keep(operand);
  for (Stage& stage : result.stages) {
    stage.body = Rewrite(stage.body, [&](const Expr& e) {
      return e.op() == Op::kLoad ? LoadOf(keep(e.tensor()), e.type(), e.args()) : e;
    });
    stage.output = keep(stage.output);
  }
  return result;
}

// What the caller sees stays, and so does every value.
inline void ExpectSameFunction(const Kernel& before, const Kernel& after, uint64_t seed = 3) {
  SCOPED_TRACE(PrintKernel(before) + "\nis now\n" + PrintKernel(after));
  Result<void> verified = VerifyKernel(WithoutUnused(after));
  ASSERT_TRUE(verified) << verified.error().Text();
  ASSERT_EQ(before.operands.size(), after.operands.size());
  for (size_t i = 0; i < before.operands.size(); ++i) {
    const Tensor& a = before.tensors[before.operands[i]];
    const Tensor& b = after.tensors[after.operands[i]];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(ElementCount(before, a), ElementCount(after, b));
  }
  Rng rng(seed);
  KernelInputs inputs(before, rng);
  for (int output = 0; output < OutputCount(before); ++output) {
    std::vector<Reference> wanted = WholeReference(before, inputs, output), got = WholeReference(after, inputs, output);
    ASSERT_EQ(wanted.size(), got.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      ASSERT_TRUE(IsSameValue(wanted[i], got[i]))
          << "output " << output << " element " << i << ": " << got[i].value << ", was " << wanted[i].value;
  }
}

// The rewritten kernel, which computes the same; an empty one if it was refused.
inline Kernel Kept(const Kernel& before, const Result<Kernel>& after) {
  EXPECT_TRUE(after) << after.error().Text();
  if (!after) return {};
  ExpectSameFunction(before, *after);
  return *after;
}

inline std::string RefusalOf(const Result<Kernel>& result) { return result ? "no refusal" : result.error().Text(); }

inline std::vector<std::string> StageNames(const Kernel& kernel) {
  std::vector<std::string> names;
  for (const Stage& stage : kernel.stages) names.push_back(kernel.tensors[stage.output].name);
  return names;
}

inline std::vector<std::string> AxisNames(const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  return names;
}

inline const Stage& StageOf(const Kernel& kernel, const std::string& name) {
  return kernel.stages.at(FindStage(kernel, name));
}

// The first stage that reduces.
inline std::string SumOf(const Kernel& kernel) {
  for (const Stage& stage : kernel.stages)
    if (stage.reduction != Reduction::kNone) return kernel.tensors[stage.output].name;
  return "";
}

}  // namespace hone
