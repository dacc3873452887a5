// Library operations at odd sizes: ones, primes, below a vector, just past one, with every epilogue.
#pragma once

#include <string>

#include "base/rng.h"

namespace hone {

// Any of them, small enough for the reference of every element.
std::string OddKernel(Rng& rng);

}  // namespace hone
