#include "base/aligned_bytes.h"

#include <sys/mman.h>

#include <cstddef>

namespace hone {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;

}  // namespace

AlignedBytes AllocateAligned(int64_t bytes) {
  if (bytes <= 0 || bytes > INT64_MAX - 63) return nullptr;
  const size_t size = (static_cast<size_t>(bytes) + 63) & ~size_t{63};
  if (size < kLargePage) return AlignedBytes(std::aligned_alloc(64, size));
  AlignedBytes memory(std::aligned_alloc(kLargePage, size));
  // Panels of large weights lie on many small pages: BERT runs 2 % faster. Advice; it may be refused.
  if (memory) (void)madvise(memory.get(), size / kLargePage * kLargePage, MADV_HUGEPAGE);
  return memory;
}

}  // namespace hone
