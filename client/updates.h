// Better versions of the kernels that a program holds: told by honed, fetched, loaded and put in place by one thread of
// the library, which sleeps until there is something to do.
//
//   hold a kernel → (a moment later) WatchRequest → NewerNotice … → GetRequest → checked, loaded, packed → Adopt
//
// Nothing that the application calls waits for the daemon: handles come and go under a lock that is held for
// microseconds, and only Bind and the release of a handle wait while that very handle's constants are packed. A daemon
// that is gone is looked for again after growing pauses.
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
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "client/disk_cache.h"
#include "client/kernel_handle.h"
#include "client/protocol.h"

namespace hone {

struct UpdatesOptions {
  std::string socket;
  std::shared_ptr<const DiskCache> disk;  // new versions are kept there, too; may be nullptr
  // A kernel that is given back sooner is never watched: tools and tests take kernels by the thousand.
  std::chrono::milliseconds settle{50};
  // Between attempts to reach a daemon: doubled each time.
  std::chrono::milliseconds first_pause{100};
  std::chrono::milliseconds longest_pause{10'000};
};

// Thread-safe. Outlives every handle that was added.
class Updates {
 public:
  explicit Updates(UpdatesOptions options);
  ~Updates();  // the thread ends; waits for no daemon
  Updates(const Updates&) = delete;
  Updates& operator=(const Updates&) = delete;

  // From now on the handle is kept up to date. `request`: what it was asked for with; `canonical`: the text of its
  // kernel; `threads`: that the daemon made the code for. A thread that cannot be started is no reason to fail: the
  // handle stays as it is.
  static void Watch(const std::shared_ptr<Updates>& updates, KernelHandle& handle, GetRequest request,
                    std::string canonical, uint32_t threads);

  // For the handle's destructor: nothing touches it from the return on.
  void Remove(KernelHandle& handle);

  // Keeps new versions away from the handle for as long as it lives.
  class Pause {
   public:
    Pause(Updates& updates, KernelHandle& handle);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Updates& updates_;
    const uint64_t subscription_;
  };

  // Asks the daemon once more what it has for this kernel.
  void LookAgain(KernelHandle& handle);

  // What fork handlers do with every object: nothing of these is ever held while the process is copied.
  struct Fork;

 private:
  using Clock = std::chrono::steady_clock;
  class Worker;  // the thread's own: connection, what it waits for

  // What is to be done for a handle next.
  enum class Step : uint8_t {
    kWatch,    // tell the daemon that it is held
    kCompare,  // ask which code the daemon has, without taking it
    kFetch,    // ask for the code
    kAwait,    // an answer is on its way
    kRest,     // until a notice comes
    kOff,      // for good: refused by the daemon, or pinned
  };
  struct Entry {
    KernelHandle* handle = nullptr;
    GetRequest request;
    std::string canonical;
    std::string fingerprint, target;  // with `threads`: what the daemon knows the code by
    uint32_t threads = 0;
    std::string digest;   // of the code that is held
    std::string refused;  // of the last code that could not be taken
    bool is_tuned = false;
    Step step = Step::kWatch;
    Clock::time_point due;    // not before
    bool noticed = false;     // while an answer was on its way
    bool busy = false;        // somebody is at the handle: this thread with a new version, or Bind
    bool has_retired = false;  // versions wait for their last call

    bool IsSameCode(const Entry& other) const {
      return threads == other.threads && fingerprint == other.fingerprint && target == other.target;
    }
  };

  void WaitUntilFree(uint64_t subscription) HONE_REQUIRES(mutex_);
  void StartThread() HONE_REQUIRES(mutex_);
  void WakeBy(Clock::time_point due) HONE_REQUIRES(mutex_);

  // One for all objects, so that a fork finds it free: it is held for moments.
  inline static Mutex mutex_;
  // Held while code is mapped or unmapped here, so that a fork does not find the dynamic linker's lock taken.
  inline static Mutex linker_;
  inline static Updates* first_ HONE_GUARDED_BY(mutex_) = nullptr;  // of all objects

  const UpdatesOptions options_;
  Updates* next_ HONE_GUARDED_BY(mutex_) = nullptr;
  Updates** link_ HONE_GUARDED_BY(mutex_) = nullptr;  // what points here

  std::map<uint64_t, Entry> entries_ HONE_GUARDED_BY(mutex_);
  uint64_t last_subscription_ HONE_GUARDED_BY(mutex_) = 0;
  std::vector<WatchRequest> unwatch_ HONE_GUARDED_BY(mutex_);  // to be told to the daemon
  std::unique_ptr<Worker> worker_ HONE_GUARDED_BY(mutex_);
  std::unique_ptr<std::thread> thread_ HONE_GUARDED_BY(mutex_);
  bool stop_ HONE_GUARDED_BY(mutex_) = false;
  int socket_ HONE_GUARDED_BY(mutex_) = -1;  // the worker's, to be shut down
  UniqueFd wake_ HONE_GUARDED_BY(mutex_);
  Clock::time_point sleeps_until_ HONE_GUARDED_BY(mutex_) = Clock::time_point::max();
  std::atomic<uint32_t> freed_{0};  // counts ends of `busy`
};

}  // namespace hone
