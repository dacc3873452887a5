// The bundles that packages and administrators drop into directories: a layer of schedules under what this user's honed
// finds out itself. Each is imported as `hone import` does, once: a kernel that is removed afterwards stays removed.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/inspect/admin.h"

namespace hone {

// Look() and the destructor belong to one thread. `admin` outlives it.
class DroppedBundles {
 public:
  explicit DroppedBundles(Admin& admin) : admin_(admin) {}

  // Imports every DIR/NAME.bundle that has not been imported as it is and by the keys that are trusted now, in a thread
  // of its own; returns at once. Files and directories must be this user's or root's and writable by nobody else. What
  // cannot be taken is logged and tried again the next time; a directory that is not there holds none. Nothing is
  // compiled before it is asked for.
  void Look(std::vector<std::string> directories);

 private:
  void Work(const std::stop_token& stop);
  Result<void> TakeUp(const UniqueFd& file, const std::string& path, const std::stop_token& stop);

  Admin& admin_;
  Mutex mutex_;
  std::optional<std::vector<std::string>> wanted_ HONE_GUARDED_BY(mutex_);  // to be looked through next
  bool is_at_work_ HONE_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: ends first
};

}  // namespace hone
