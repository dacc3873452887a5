#include "ir/language/instance_sizes.h"

#include <string>

#include "ir/language/canonical.h"
#include "ir/language/parse.h"

namespace hone {

// Sizes of canonical texts are named in the order of their first mention, so that those of kernels that differ in
// values alone correspond. That they do is not believed: the ranged kernel at these values has to be the wanted one.
std::optional<std::vector<int64_t>> InstanceSizes(std::string_view wanted, std::string_view ranged) {
  Result<Kernel> fixed = ParseKernel(std::string(wanted)), kernel = ParseKernel(std::string(ranged));
  if (!fixed || !kernel || !IsStatic(*fixed) || fixed->sizes.size() != kernel->sizes.size()) return std::nullopt;
  std::vector<int64_t> values;
  for (int i : DynamicSizes(*kernel)) {
    Size& size = kernel->sizes[static_cast<size_t>(i)];
    const int64_t value = fixed->sizes[static_cast<size_t>(i)].lo;
    if (value < size.lo || value > size.hi) return std::nullopt;
    size.lo = size.hi = value;
    values.push_back(value);
  }
  if (values.empty() || !SameButThreads(Canonicalize(*kernel).text, wanted)) return std::nullopt;
  return values;
}

}  // namespace hone
