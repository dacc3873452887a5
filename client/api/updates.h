// Better versions of the kernels that a program holds: told by honed, loaded and put in place by one thread of the
// library, which sleeps until there is something to do.
//
//   hold a kernel → (a moment later) WatchRequest → NewerNotice … → GetRequest → checked, loaded, packed → published
//
// Nothing that the application calls waits for the daemon: handles come and go under a lock that is held for
// microseconds, and only Bind and the release of a handle wait while that very handle's constants are packed. A daemon
// that is gone is looked for again after growing pauses. Every few seconds it is told how often kernels were called.
//
// After fork, the child has neither the thread nor its connection: they are the parent's. The kernels that it inherited
// stay as they are until it asks for one itself, which starts a thread of its own for all of them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/api/disk_cache.h"
#include "client/api/updatable.h"
#include "client/protocol/protocol.h"

namespace hone {

struct UpdatesOptions {
  std::string socket;
  std::shared_ptr<const DiskCache> disk;  // new versions are kept there, too; may be nullptr
  // A kernel that is given back sooner is never watched: tools and tests take kernels by the thousand.
  std::chrono::milliseconds settle{50};
  // Between attempts to reach a daemon: doubled each time.
  std::chrono::milliseconds first_pause{100};
  std::chrono::milliseconds longest_pause{10'000};
  std::chrono::milliseconds report_every{5'000};  // how often kernels were called
};

// Thread-safe. Outlives every handle that it watches.
class Updates {
 public:
  explicit Updates(UpdatesOptions options);
  ~Updates();  // the thread ends; waits for no daemon
  Updates(const Updates&) = delete;
  Updates& operator=(const Updates&) = delete;

  // From now on the handle, which must be live, is kept up to date. `request`: what it was asked for with; `canonical`:
  // the text of its kernel, "" if that is not known. Where no thread can be started, the handle stays as it is.
  static void Watch(const std::shared_ptr<Updates>& updates, Updatable& handle, GetRequest request,
                    std::string canonical);

  // For the handle's destructor: nothing touches it from the return on.
  void Remove(Updatable& handle);

  // Keeps new versions away from the handle for as long as it lives.
  class Pause {
   public:
    Pause(Updates& updates, Updatable& handle);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Updates& updates_;
    const uint64_t id_;
  };

  // Asks the daemon once more what it has for this kernel.
  void LookAgain(Updatable& handle);

 private:
  using Clock = std::chrono::steady_clock;
  class Worker;      // what the thread does
  struct Crew;       // the thread, seen by others
  struct ForkGuard;  // holds the library's locks while the process is copied

  // A kernel that is held.
  struct Entry {
    Updatable* handle = nullptr;
    GetRequest request;
    std::string canonical;
    std::string fingerprint, target;  // what the daemon knows it by
    std::string digest, origin;       // of the code that is held
    std::string refused;              // digest of the last code that was not taken
    Clock::time_point due;            // nothing is done before
    bool watched = false;             // the daemon was told, over the present connection
    bool stale = false;               // there may be other code: to be asked for
    bool asked = false;               // it was, and the answer is on its way
    bool has_retired = false;         // replaced versions wait for their last calls
    uint64_t reported = 0;            // calls that the daemon knows of
    uint32_t holder = 0;              // who is at the handle, the thread or Bind: 0, or the process' generation
  };

  Entry* Find(uint64_t id) HONE_REQUIRES(mutex_);
  Entry* Take(uint64_t id, bool wait) HONE_REQUIRES(mutex_);  // nullptr: gone, or not to be waited for
  void GiveBack(uint64_t id) HONE_REQUIRES(mutex_);
  bool StartThread() HONE_REQUIRES(mutex_);
  void Wake() HONE_REQUIRES(mutex_);

  // Of all objects, so that a fork finds it free. Held for moments, in which no code is mapped or unmapped.
  inline static Mutex mutex_;

  const UpdatesOptions options_;
  std::map<uint64_t, Entry> entries_ HONE_GUARDED_BY(mutex_);
  uint64_t last_id_ HONE_GUARDED_BY(mutex_) = 0;
  std::vector<CallCount> gone_ HONE_GUARDED_BY(mutex_);  // watched once; their last calls
  std::unique_ptr<Crew> crew_ HONE_GUARDED_BY(mutex_);
  std::atomic<uint32_t> given_back_{0};  // counts, for those who wait in Take
};

}  // namespace hone
