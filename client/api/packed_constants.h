// Packed copies of constants, shared by the kernels of a client: those that want the same memory in the same layout, as
// one operation's kernels for several batch sizes do, keep one copy of it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/mutex.h"
#include "base/result.h"
#include "ir/manifest.h"

namespace hone {

// Thread-safe. Holds no copy itself: one goes with the last kernel that has it.
class PackedConstants {
 public:
  using Copy = std::shared_ptr<const void>;

  // The copy of `data` that `operand` wants: one that a kernel has, or what `pack` makes, whose errors are returned.
  // Two threads may pack the same at once; both get the first that is done. `anew`: the bytes at `data` may be others
  // than those that were packed before.
  Result<Copy> Take(const void* data, const ManifestOperand& operand, bool anew,
                    const std::function<Result<Copy>()>& pack) HONE_EXCLUDES(mutex_);

  // Memory for a copy, not written yet; nullptr: there is none.
  std::shared_ptr<void> Allocate(int64_t bytes) { return pages_.Take(bytes); }

  int64_t bytes() const HONE_EXCLUDES(mutex_);  // of the copies that kernels have

  // Of all objects: who holds it while the process is copied has the child find it free. Not held where pages are
  // taken.
  static constexpr Mutex& mutex() HONE_RETURN_CAPABILITY(mutex_) { return mutex_; }

 private:
  // What decides the copy's bytes: the layout says where elements lie, the shape how they lay before.
  using Key = std::tuple<const void*, DType, std::vector<int64_t>, int64_t, std::string>;
  struct Kept {
    std::weak_ptr<const void> copy;
    int64_t bytes = 0;
  };

  LargePages pages_;
  inline static Mutex mutex_;
  std::map<Key, Kept> copies_ HONE_GUARDED_BY(mutex_);
};

}  // namespace hone
