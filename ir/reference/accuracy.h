// How far from the double-precision reference r a result y may be: |y − r| ≤ Tolerance · A, element by element, where A
// is the same expression over absolute values (for a non-linear f: A(f(x)) = max(|f(x)|, |f′(x)|·A(x))). A result of a
// narrow float is rounded once more: by 2⁻¹¹ (f16) or 2⁻⁸ (bf16) of itself, not of A.
#pragma once

#include <cstdint>

#include "ir/graph/kernel.h"
#include "ir/reference/interpret.h"

namespace hone {

// strict: (4 + √K) · 2⁻²⁴ for f32, f16 and bf16 (2⁻⁵³ if every float is f64, on the way, too); of products (prod) K in
// place of √K. relaxed: 10⁻⁴; fast: 10⁻². Where the kernel rounds to a narrow float and goes on computing: 2⁻¹¹ or 2⁻⁸
// more, each time. What that is of a number below the type's smallest normal one counts in A. 0 at any accuracy if no
// output is a float. REQUIRES: static kernel.
double Tolerance(const Kernel& kernel, Accuracy accuracy);
inline double Tolerance(const Kernel& kernel) { return Tolerance(kernel, kernel.options.accuracy); }

// The same for a float of the given type, whatever the outputs are.
double FloatTolerance(const Kernel& kernel, Accuracy accuracy, DType type);

// K of the formula: extents of the reduction axes, multiplied within a stage, the maximum over stages.
int64_t LongestReduction(const Kernel& kernel);

// |y − r| / A of a result of the given type: at most Allowed for a right one. Equal values, two NaN, and a reference
// beyond the type's range beside an infinity of its sign are 0; differences that underflow explains
// (DTypeTraits::underflow) count as none; anything else beside a NaN or an infinity is infinite. An integer is 0 if it
// is within the reference's slack, and infinite otherwise.
double RelativeError(double y, const Reference& reference, DType type);

// The most that RelativeError may be of a right result: the kernel's tolerance, and the result's own rounding. 0 for an
// integer.
double Allowed(const Reference& reference, DType type, double tolerance);

}  // namespace hone
