// Bundles on their way to honed: pieces from clients, gathered in files that have no name.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/mutex.h"
#include "base/result.h"
#include "base/sealed_memfd.h"
#include "base/unique_fd.h"
#include "client/protocol/messages.h"

namespace hone {

// Thread-safe.
class BundleUploads {
 public:
  // `directory`: where there is room for them; "": in memory. kInvalid: not the next piece; kBusy: too many at once;
  // kLimit: too long, or the disk is full; kNotFound: it was dropped, since nothing came for a minute.
  Result<UploadReply> Add(const UploadRequest& request, const std::string& directory);
  // A whole one. It is forgotten here.
  Result<ReadOnlyMapping> Take(uint64_t upload);

 private:
  using Clock = std::chrono::steady_clock;
  struct Upload {
    UniqueFd file;
    uint64_t total = 0, received = 0;
    Clock::time_point touched{};
  };
  Result<uint64_t> Begin(const UploadRequest& request, const std::string& directory) HONE_REQUIRES(mutex_);
  void DropIdle() HONE_REQUIRES(mutex_);

  Mutex mutex_;
  std::map<uint64_t, Upload> uploads_ HONE_GUARDED_BY(mutex_);
};

}  // namespace hone
