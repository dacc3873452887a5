#include "base/aligned_bytes.h"

#include <sys/mman.h>

#include <cstddef>

namespace hone {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
// Smaller pieces are few pages, and would keep a large one alive; of larger ones no two fit.
constexpr int64_t kLeastShared = int64_t{128} << 10, kMostShared = int64_t{1} << 20;

size_t InWholeLines(int64_t bytes) { return (static_cast<size_t>(bytes) + 63) & ~size_t{63}; }

}  // namespace

AlignedBytes AllocateAligned(int64_t bytes) {
  if (bytes <= 0 || bytes > INT64_MAX - 63) return nullptr;
  const size_t size = InWholeLines(bytes);
  const bool is_large = size >= kLargePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, is_large ? kLargePage : 64, size) != 0) return nullptr;
  // Panels of large weights lie on many small pages: BERT runs 2 % faster. Advice; it may be refused.
  if (is_large) (void)madvise(memory, size / kLargePage * kLargePage, MADV_HUGEPAGE);
  return AlignedBytes(memory);
}

std::shared_ptr<void> LargePages::Take(int64_t bytes) {
  if (bytes < kLeastShared || bytes > kMostShared) return AllocateAligned(bytes);
  const size_t size = InWholeLines(bytes);
  MutexLock lock(mutex_);
  std::shared_ptr<void> page = page_.lock();
  if (!page || used_ + size > kLargePage) {
    page = AllocateAligned(kLargePage);
    if (!page) return nullptr;
    page_ = page;
    used_ = 0;
  }
  void* piece = static_cast<std::byte*>(page.get()) + used_;
  used_ += size;
  return std::shared_ptr<void>(std::move(page), piece);
}

}  // namespace hone
