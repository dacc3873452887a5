// The threads of a candidate. Started before the process locks itself in; from then on they use futex and sched_yield
// alone. Idle ones look for work for a moment before they sleep, as the client library's do, so that times agree.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace hone {

class CandidateThreads {
 public:
  using Body = void (*)(int64_t begin, int64_t end, int32_t worker, void* ctx);

  // Starts workers-1 threads, each of which calls `prepare_thread` first; returns when all have. False if one could not
  // be started; errno says why.
  bool Start(int32_t workers, void (*prepare_thread)());

  // hone_env::parallel_for. Loops within loops run on the thread that asks.
  static int ParallelFor(void* pool, int64_t n, int64_t grain, Body body, void* ctx);

 private:
  void Help(int32_t worker);
  void TakeRanges(int32_t worker);

  uint64_t WaitForLoop(uint64_t seen);

  int32_t workers_ = 1;
  void (*prepare_thread_)() = nullptr;
  std::atomic<int32_t> ready_{0};
  // The loop: written while the gate is closed and nobody is inside.
  int64_t n_ = 0, step_ = 1;
  int32_t wanted_ = 1;
  Body body_ = nullptr;
  void* ctx_ = nullptr;
  bool in_loop_ = false;
  // gate ::= loop number:47 open:1 helpers inside:16. A helper that comes late finds it closed; nobody waits for it.
  alignas(64) std::atomic<uint64_t> gate_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> wake_{0};  // futex word
  std::atomic<int32_t> sleeping_{0};
};

}  // namespace hone
