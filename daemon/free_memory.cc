#include "daemon/free_memory.h"

#include <malloc.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace hone {
namespace {

constexpr int kLargeBlockBytes = 1 << 20;

void ReturnUntilStopped(std::stop_token stop, std::chrono::milliseconds every) {
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  while (!woken.wait_for(lock, stop, every, [] { return false; }) && !stop.stop_requested())
    if (mallinfo2().fordblks > kKeptFreeBytes) malloc_trim(0);
}

}  // namespace

void ReturnLargeBlocksAtOnce() { mallopt(M_MMAP_THRESHOLD, kLargeBlockBytes); }

FreeMemoryReturner::FreeMemoryReturner(std::chrono::milliseconds every) : thread_(ReturnUntilStopped, every) {}

}  // namespace hone
