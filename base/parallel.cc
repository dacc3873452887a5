#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/start_thread.h"

namespace hone {

void ForEachIndex(size_t count, int threads, const std::function<void(size_t index)>& work) {
  std::atomic<size_t> next{0};
  auto take = [&] {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(i);
  };
  const size_t helpers = std::min<size_t>(static_cast<size_t>(std::max(threads, 1)), std::max<size_t>(count, 1)) - 1;
  std::vector<std::jthread> running;
  while (running.size() < helpers) {
    Result<std::jthread> helper = StartThread(take);
    if (!helper) break;
    running.push_back(*std::move(helper));
  }
  take();
}

}  // namespace hone
