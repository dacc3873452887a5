// What a daemon without a compiler was asked for and had no code for: the list that goes to the machine that tunes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/mutex.h"
#include "client/protocol/protocol.h"
#include "ir/language/fingerprint.h"

namespace hone {

// Thread-safe. Bounded: what comes when it is full is counted and not kept.
class MissingKernels {
 public:
  static constexpr size_t kKernels = 1024;
  static constexpr size_t kBytes = size_t{1} << 20;  // of all texts

  // True if it is new in the list.
  bool Note(const Fingerprint& fingerprint, std::string kernel);
  MissingReply List(const std::string& target) const;

 private:
  mutable Mutex mutex_;
  std::map<Fingerprint, MissingRow> rows_ HONE_GUARDED_BY(mutex_);
  size_t bytes_ HONE_GUARDED_BY(mutex_) = 0;
  uint64_t forgotten_ HONE_GUARDED_BY(mutex_) = 0;
};

}  // namespace hone
