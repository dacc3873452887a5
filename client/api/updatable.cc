#include "client/api/updatable.h"

#include <utility>

#include "ir/language/canonical.h"

namespace hone {

Result<void> CheckSameCalls(const Manifest& held, const Manifest& fresh) {
  auto differs = [](std::string what) {
    return Error{ErrorKind::kUnsupported, "the new version is called in another way: " + std::move(what), "manifest"};
  };
  if (!SameButThreads(fresh.kernel, held.kernel)) return differs("another kernel");
  if (fresh.dynamic_sizes != held.dynamic_sizes) return differs("other dynamic sizes");
  if (fresh.operands.size() != held.operands.size()) return differs("another number of operands");
  for (size_t i = 0; i < held.operands.size(); ++i) {
    const ManifestOperand &was = held.operands[i], &is = fresh.operands[i];
    auto same_dim = [](const ManifestDim& a, const ManifestDim& b) {
      return a.lo == b.lo && a.hi == b.hi && a.size_index == b.size_index;
    };
    bool same = is.name == was.name && is.dtype == was.dtype && is.is_output == was.is_output &&
                is.is_const == was.is_const && is.shape.size() == was.shape.size();
    for (size_t d = 0; same && d < is.shape.size(); ++d) same = same_dim(is.shape[d], was.shape[d]);
    if (!same) return differs("operand " + std::to_string(i) + " (" + was.name + ")");
    if (is.alignment > was.alignment) return differs("operand " + was.name + " is to be aligned more");
  }
  return {};
}

}  // namespace hone
