#include "daemon/work_queue.h"

#include <pthread.h>

#include <algorithm>

namespace hone {

WorkQueue::WorkQueue(int threads, const std::string& name) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, name] {
      pthread_setname_np(pthread_self(), name.c_str());
      Run();
    });
  }
}

WorkQueue::~WorkQueue() { Close(); }

WorkQueue::Id WorkQueue::Push(std::function<void()> work) {
  MutexLock lock(mutex_);
  items_.push_back({++last_id_, std::move(work)});
  changed_.NotifyOne();
  return last_id_;
}

bool WorkQueue::Cancel(Id id) {
  MutexLock lock(mutex_);
  auto item = std::find_if(items_.begin(), items_.end(), [&](const Item& item) { return item.id == id; });
  if (item == items_.end()) return false;
  items_.erase(item);
  return true;
}

size_t WorkQueue::waiting() const {
  MutexLock lock(mutex_);
  return items_.size();
}

void WorkQueue::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
    items_.clear();
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkQueue::Run() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      while (items_.empty() && !closed_) changed_.Wait(mutex_);
      if (closed_) return;
      work = std::move(items_.front().work);
      items_.pop_front();
    }
    work();
  }
}

}  // namespace hone
