// Proves that a kernel never reads outside its tensors, or says which access may and how far.
#pragma once

#include "base/result.h"
#include "ir/kernel.h"

namespace hone {

// Checks the graph's form (each tensor written once, before it is read; ranks; types; sizes positive) and every access
// by interval arithmetic over linear forms. kInvalid with the statement and the index range otherwise.
Result<void> VerifyKernel(const Kernel& kernel);

}  // namespace hone
