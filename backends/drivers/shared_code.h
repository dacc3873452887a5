// What a driver has made of code, shared by all that hold the same code at once: known by the digest of what it was
// made of, for as long as somebody holds it.
#pragma once

#include <map>
#include <memory>
#include <string_view>

#include "base/hash.h"
#include "base/mutex.h"

namespace hone {

// Thread-safe.
template <typename T>
class SharedCode {
 public:
  // nullptr: nobody holds what was made of this code.
  std::shared_ptr<const T> Find(std::string_view code) const HONE_EXCLUDES(mutex_) {
    const Digest256 digest = Hash256(code);
    MutexLock lock(mutex_);
    const auto found = made_.find(digest);
    return found == made_.end() ? nullptr : found->second.lock();
  }

  std::shared_ptr<const T> Add(std::string_view code, std::shared_ptr<const T> made) HONE_EXCLUDES(mutex_) {
    const Digest256 digest = Hash256(code);
    MutexLock lock(mutex_);
    std::erase_if(made_, [](const auto& entry) { return entry.second.expired(); });
    made_[digest] = made;
    return made;
  }

 private:
  mutable Mutex mutex_;
  std::map<Digest256, std::weak_ptr<const T>> made_ HONE_GUARDED_BY(mutex_);
};

}  // namespace hone
