// std::mutex with clang's thread-safety annotations: a lock names what it guards, and clang -Wthread-safety checks it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#if defined(__clang__)
#define HONE_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define HONE_THREAD_ATTRIBUTE(x)
#endif

#define HONE_CAPABILITY(x) HONE_THREAD_ATTRIBUTE(capability(x))
#define HONE_SCOPED_CAPABILITY HONE_THREAD_ATTRIBUTE(scoped_lockable)
#define HONE_GUARDED_BY(x) HONE_THREAD_ATTRIBUTE(guarded_by(x))
#define HONE_PT_GUARDED_BY(x) HONE_THREAD_ATTRIBUTE(pt_guarded_by(x))
#define HONE_REQUIRES(...) HONE_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define HONE_EXCLUDES(...) HONE_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define HONE_ACQUIRE(...) HONE_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define HONE_RELEASE(...) HONE_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define HONE_TRY_ACQUIRE(...) HONE_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define HONE_RETURN_CAPABILITY(x) HONE_THREAD_ATTRIBUTE(lock_returned(x))
#define HONE_NO_THREAD_SAFETY_ANALYSIS HONE_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace hone {

class HONE_CAPABILITY("mutex") Mutex {
 public:
  void Lock() HONE_ACQUIRE() { mutex_.lock(); }
  void Unlock() HONE_RELEASE() { mutex_.unlock(); }
  bool TryLock() HONE_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class HONE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HONE_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() HONE_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits with the mutex held before and after. Predicates are written as loops around Wait, so that the analysis sees
// guarded members read under their lock.
class CondVar {
 public:
  void Wait(Mutex& mutex) HONE_REQUIRES(mutex) { condition_.wait(mutex.mutex_); }

  // False if the time ran out.
  bool WaitFor(Mutex& mutex, std::chrono::nanoseconds limit) HONE_REQUIRES(mutex) {
    return condition_.wait_for(mutex.mutex_, limit) == std::cv_status::no_timeout;
  }

  // Returns on a notification, a stop request or when the time ran out; the caller looks which.
  void WaitFor(Mutex& mutex, std::chrono::nanoseconds limit, const std::stop_token& stop) HONE_REQUIRES(mutex) {
    bool woken = false;
    condition_.wait_for(mutex.mutex_, stop, limit, [&woken] { return std::exchange(woken, true); });
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace hone
