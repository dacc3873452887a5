// How far from the double-precision reference r a result y may be: |y − r| ≤ Tolerance · A, element by element, where A
// is the same expression over absolute values (for a non-linear f: A(f(x)) = max(|f(x)|, |f′(x)|·A(x))).
#pragma once

#include <cstdint>

#include "ir/kernel.h"

namespace hone {

// strict: (4 + √K) · 2⁻²⁴ for f32 (2⁻⁵³ for f64), K the longest chain of reductions on the way to an output;
// relaxed: 10⁻⁴; fast: 10⁻². Integer outputs: 0 at any accuracy. REQUIRES: static kernel.
double Tolerance(const Kernel& kernel, Accuracy accuracy);
inline double Tolerance(const Kernel& kernel) { return Tolerance(kernel, kernel.options.accuracy); }

// K of the formula: extents of the reduction axes, multiplied within a stage, the maximum over stages.
int64_t LongestReduction(const Kernel& kernel);

}  // namespace hone
