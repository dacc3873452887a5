// A few threads and the work that waits for them, in order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace hone {

// Thread-safe.
class WorkQueue {
 public:
  using Id = uint64_t;

  // `name` shows in the process table, at most 15 characters.
  WorkQueue(int threads, const std::string& name);
  ~WorkQueue();  // = Close

  Id Push(std::function<void()> work);
  // False if it has begun or is done.
  bool Cancel(Id id);
  size_t waiting() const;

  // Drops what waits, and returns when what runs is done.
  void Close();

 private:
  struct Item {
    Id id;
    std::function<void()> work;
  };

  void Run();

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Item> items_ HONE_GUARDED_BY(mutex_);
  Id last_id_ HONE_GUARDED_BY(mutex_) = 0;
  bool closed_ HONE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace hone
