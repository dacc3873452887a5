// A check of a whole output at the price of reading the operands: where an output is a sum of products of inputs
// (contractions, biases, residuals), its sum under random signs s₀[i₀]·s₁[i₁]·… can be computed from the inputs by
// summing out one axis after the other, without computing the output. A wrong or missing tile shifts that sum.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "ir/graph/kernel.h"
#include "ir/reference/interpret.h"

namespace hone {

struct Projection {
  std::vector<std::vector<double>> signs;  // per dimension of the output as stages index it: +1 or -1
  double value = 0;                        // Σ signs · r, in double
  double magnitude = 0;                    // Σ A over all elements
  double bound = 0;                        // how far Σ signs · y of a right output may be from value
};

// nullopt if the output is not a sum of products of float inputs with affine indices, or if this would take more than
// `budget` multiply-adds. `inputs` as for Interpreter. REQUIRES: static, verified kernel.
//
// The bound: each element is off by at most tolerance · A, and signs are independent of the errors, so the sum's
// standard deviation is at most tolerance · √ΣA². With ΣA²  ≈ (ΣA)²/n for n elements, 32 deviations are allowed, and
// never more than the worst case tolerance · ΣA.
std::optional<Projection> ProjectOutput(const Kernel& kernel, std::span<const OperandView> inputs, int output, Rng& rng,
                                        double budget);

// Σ signs · y for an output in memory, and how far it may be off because each y was rounded to a narrow float: at most
// its unit · Σ|y|, by the same reckoning as above. 0 for other types. What the rounding adds is thus taken from the
// output itself: one that is larger than it should be is off by more than that buys it.
struct ProjectedSum {
  double value = 0;
  double rounding = 0;
};
ProjectedSum ProjectionOf(const Projection& projection, const void* output, DType type);

}  // namespace hone
