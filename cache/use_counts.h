// How often and when kernels were asked for since that was last written down: a hit costs a hash-table update and no
// I/O.
#pragma once

#include <cstring>
#include <unordered_map>

#include "base/mutex.h"
#include "cache/record.h"

namespace hone {

struct FingerprintHash {
  size_t operator()(const Fingerprint& fingerprint) const {
    size_t hash;  // a fingerprint is a hash already
    std::memcpy(&hash, fingerprint.bytes.data(), sizeof(hash));
    return hash;
  }
};

// Thread-safe.
class UseCounts {
 public:
  using Map = std::unordered_map<Fingerprint, KernelUse, FingerprintHash>;

  void Add(const Fingerprint& fingerprint, const KernelUse& use) {
    MutexLock lock(mutex_);
    // Beyond this many kernels between two batches the rest go uncounted: memory matters more.
    if (uses_.size() >= kMostKernels && !uses_.contains(fingerprint)) return;
    Merge(uses_[fingerprint], use);
  }

  KernelUse Of(const Fingerprint& fingerprint) const {
    MutexLock lock(mutex_);
    auto found = uses_.find(fingerprint);
    return found == uses_.end() ? KernelUse{} : found->second;
  }

  Map Take() {
    MutexLock lock(mutex_);
    return std::exchange(uses_, {});
  }

  void Forget(const Fingerprint& fingerprint) {
    MutexLock lock(mutex_);
    uses_.erase(fingerprint);
  }

  static void Merge(KernelUse& into, const KernelUse& more) {
    into.class_fingerprint = more.class_fingerprint;
    into.calls += more.calls;
    into.last_used = std::max(into.last_used, more.last_used);
  }

 private:
  static constexpr size_t kMostKernels = 1 << 17;

  mutable Mutex mutex_;
  Map uses_ HONE_GUARDED_BY(mutex_);
};

}  // namespace hone
