#include "ir/verify.h"

namespace hone {

std::optional<Violation> FindViolation(const Kernel&) { return std::nullopt; }

Result<void> VerifyKernel(const Kernel& kernel) {
  if (std::optional<Violation> violation = FindViolation(kernel)) return std::move(violation->error);
  return {};
}

}  // namespace hone
