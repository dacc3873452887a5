// A maximum that may overlook NaN, because what is made of it becomes NaN all the same.
#pragma once

#include "base/result.h"
#include "ir/kernel.h"

namespace hone {

// Makes a float maximum T[o] = max(r) x[o, r] one of the numbers among x alone (Reduction::kMaxOfNumbers), which takes
// one instruction where keeping NaN takes three or four. As in a softmax: there is a sum S[o] of exp(x[o, r] − T[o])
// over all r, with the exponentials in a stage E of their own or without, and every other use of T and E lies under
// operations on S. Where some x[o, r] is NaN, so are S[o] and everything under it, whatever T[o] is. Refuses everywhere
// else.
Result<Kernel> MaxOfNumbers(Kernel kernel, int stage);

}  // namespace hone
