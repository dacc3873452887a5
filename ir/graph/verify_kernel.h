// Proves that a kernel never reads outside its tensors, or says which access may and how far.
#pragma once

#include <optional>

#include "base/result.h"
#include "ir/graph/kernel.h"

namespace hone {

// Checks the graph's form (each tensor written once, before it is read; ranks; types; sizes positive) and every access
// by interval arithmetic over linear forms. kInvalid with the statement and the index range otherwise.
Result<void> VerifyKernel(const Kernel& kernel);

// The same for callers that know places better: what is wrong first, nullopt if nothing.
struct Violation {
  Error error;
  StageId stage = StageId(0);
  const ExprNode* node = nullptr;  // the offending access or operation; null if the error is about the stage
};
std::optional<Violation> FindViolation(const Kernel& kernel);

}  // namespace hone
