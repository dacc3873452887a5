#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace hone {
namespace {

class Box {
 public:
  void Fill() {
    MutexLock lock(mutex_);
    full_ = true;
    filled_.NotifyAll();
  }
  void Await() {
    MutexLock lock(mutex_);
    while (!full_) filled_.Wait(mutex_);
  }
  // Waits until full, stopped or late.
  bool AwaitFor(std::chrono::milliseconds limit, const std::stop_token& stop) {
    MutexLock lock(mutex_);
    auto end = std::chrono::steady_clock::now() + limit;
    while (!full_ && !stop.stop_requested() && std::chrono::steady_clock::now() < end)
      filled_.WaitFor(mutex_, end - std::chrono::steady_clock::now(), stop);
    return full_;
  }

 private:
  Mutex mutex_;
  CondVar filled_;
  bool full_ HONE_GUARDED_BY(mutex_) = false;
};

TEST(Mutex, WaitersAreWoken) {
  Box box;
  std::jthread filler([&] { box.Fill(); });
  box.Await();
  EXPECT_TRUE(box.AwaitFor(std::chrono::milliseconds(0), {}));
}

TEST(Mutex, WaitEndsOnStopAndOnTime) {
  Box box;
  auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(box.AwaitFor(std::chrono::milliseconds(30), std::stop_token()));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(30));
  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_FALSE(box.AwaitFor(std::chrono::hours(1), stop.get_token()));
}

TEST(Mutex, TryLockTellsWhetherItIsFree) {
  Mutex mutex;
  auto free = [&] {
    if (!mutex.TryLock()) return false;
    mutex.Unlock();
    return true;
  };
  EXPECT_TRUE(free());
  MutexLock lock(mutex);
  bool seen = true;
  std::thread([&] { seen = free(); }).join();
  EXPECT_FALSE(seen);
}

}  // namespace
}  // namespace hone
