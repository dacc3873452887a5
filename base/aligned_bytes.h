// Memory for elements that kernels read in vectors: aligned, and of large pages where there is enough of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/mutex.h"

namespace hone {

struct FreeAligned {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedBytes = std::unique_ptr<void, FreeAligned>;

// Aligned to 64 bytes, from 2 MiB on to 2 MiB; not written yet. Empty if there is no memory, or for no bytes.
AlignedBytes AllocateAligned(int64_t bytes);

// Memory for pieces that are written at once and kept: several share a large page where each alone would lie on small
// ones, which the system fills one by one. A page goes with the last of its pieces. Thread-safe.
class LargePages {
 public:
  // As AllocateAligned: aligned to 64 bytes, not written yet, nullptr if there is no memory.
  std::shared_ptr<void> Take(int64_t bytes) HONE_EXCLUDES(mutex_);

  // Of all objects: who holds it while the process is copied has the child find it free.
  static constexpr Mutex& mutex() HONE_RETURN_CAPABILITY(mutex_) { return mutex_; }

 private:
  inline static Mutex mutex_;
  std::weak_ptr<void> page_ HONE_GUARDED_BY(mutex_);  // the one that is being filled
  size_t used_ HONE_GUARDED_BY(mutex_) = 0;           // of it
};

}  // namespace hone
