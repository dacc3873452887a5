// Threads that map and unmap code, so that a fork finds the dynamic linker at rest: its own lock stays in the child as
// it was, where nobody who held it would give it back.
//
// They do not keep each other out. Who loads may hold the linker's lock, in the constructor of a library, say; a lock
// of ours around it would be taken in both orders.
#pragma once

#include <atomic>

#include "base/mutex.h"

namespace hone {

// Within the linker for as long as it lives. Waits while the process is copied; not nested.
class LinkerUse {
 public:
  LinkerUse() HONE_EXCLUDES(door_) {
    MutexLock lock(door_);
    users_.fetch_add(1);
  }
  ~LinkerUse() { users_.fetch_sub(1); }
  LinkerUse(const LinkerUse&) = delete;
  LinkerUse& operator=(const LinkerUse&) = delete;

  // Keeps others out until Open, and waits for those within. Not without end: who forks may be within the linker
  // itself, for which they wait.
  static void Close() HONE_ACQUIRE(door_);
  static void Open() HONE_RELEASE(door_) { door_.Unlock(); }
  static void OpenInChild() HONE_RELEASE(door_) {
    users_ = 0;  // they are not in this process
    door_.Unlock();
  }

 private:
  inline static Mutex door_;
  inline static std::atomic<int> users_{0};
};

}  // namespace hone
