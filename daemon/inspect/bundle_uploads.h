// Bundles on their way to honed: pieces from clients, gathered in files that have no name.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "base/result.h"
#include "base/sealed_memfd.h"
#include "base/unique_fd.h"
#include "client/protocol/messages.h"

namespace hone {

// Thread-safe.
class BundleUploads {
 public:
  // One of which nothing has come for `idle` is dropped, at the latest when it has been so for twice as long; where
  // another one wants its place, after a twelfth of it.
  explicit BundleUploads(std::chrono::milliseconds idle = std::chrono::minutes(1)) : idle_(idle) {}

  // `directory`: where there is room for them; "": in memory. kInvalid: not the next piece; kBusy: too many at once
  // that go on, or no thread to look after them; kLimit: too long, or the disk is full; kNotFound: it was dropped,
  // since nothing came for too long.
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
  void DropIdle(std::chrono::milliseconds idle) HONE_REQUIRES(mutex_);
  // A client that has died comes back for nothing.
  void TakeCare(const std::stop_token& stop);

  const std::chrono::milliseconds idle_;
  Mutex mutex_;
  CondVar stopped_;
  std::map<uint64_t, Upload> uploads_ HONE_GUARDED_BY(mutex_);
  std::jthread caretaker_;  // since the first one; last: ends first
};

}  // namespace hone
