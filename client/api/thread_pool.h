// The threads that kernels run on: start and end of a parallel loop cost well under a microsecond while the threads are
// awake, because they look for work for a moment before they sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/generated_code.h"

namespace hone {

struct ThreadPoolOptions {
  int threads = 0;  // the caller included; 0: as many processors as this process may run on
  // How long an idle thread spins before it sleeps: longer than the gaps between the kernels of a model, shorter than
  // what a laptop's battery notices. Waking a sleeper takes 50 µs on a virtual machine (bench/serving_bench).
  std::chrono::microseconds spin{50};
};

// Thread-safe: one loop at a time is spread over the threads; a loop that starts meanwhile, or within another, runs on
// the thread that asked. Survives fork: the child starts threads of its own at its first loop.
class ThreadPool {
 public:
  using Body = void (*)(int64_t begin, int64_t end, int32_t worker, void* ctx);

  // Starts no thread yet: the first loop does.
  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();  // REQUIRES: no loop is running
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs body over 0 … n-1 in ranges of at least `grain`, the last may be shorter, on at most `workers` threads.
  // Returns when all is done.
  void ParallelFor(int64_t n, int64_t grain, int workers, Body body, void* ctx);

  int threads() const { return threads_; }

 private:
  struct Crew;  // the threads of one process

  bool TryBusy();
  Crew* FindCrew();

  const int threads_;
  const std::chrono::microseconds spin_;
  // 0, or 1 + the fork generation of the loop that is spread over the threads.
  std::atomic<uint32_t> busy_{0};
  std::unique_ptr<Crew> crew_;
};

// A pool seen by generated code: at most `workers` of its threads. hone_env::pool points to one.
struct PoolView {
  ThreadPool* pool = nullptr;
  int workers = 1;
  static int ParallelFor(void* view, int64_t n, int64_t grain, ThreadPool::Body body, void* ctx);  // returns 0
};

// Processors that this process may run on, by its affinity mask.
int AvailableProcessors();

}  // namespace hone
