#include "backends/cpu/candidate_threads.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/clock.h"

namespace hone {
namespace {

constexpr int64_t kSpinNs = 50'000;  // as client/api/thread_pool.h
constexpr int kRangesPerWorker = 4;
constexpr uint64_t kInside = 0xffff, kOpen = 0x10000, kLoopUnit = 0x20000;
constexpr size_t kStackBytes = size_t{1} << 20;

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void Futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

thread_local int32_t this_worker = 0;

struct ThreadStart {
  CandidateThreads* threads;
  int32_t worker;
  void (*run)(CandidateThreads*, int32_t);
};

}  // namespace

bool CandidateThreads::Start(int32_t workers, void (*prepare_thread)()) {
  workers_ = workers;
  prepare_thread_ = prepare_thread;
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);  // with a guard page below
  for (int32_t worker = 1; worker < workers; ++worker) {
    pthread_t thread;
    auto* start = new ThreadStart{this, worker, [](CandidateThreads* self, int32_t w) { self->Help(w); }};
    auto run = [](void* argument) -> void* {
      ThreadStart start = *static_cast<ThreadStart*>(argument);
      delete static_cast<ThreadStart*>(argument);
      start.run(start.threads, start.worker);
      return nullptr;
    };
    if (const int code = ::pthread_create(&thread, &attributes, run, start); code != 0) {
      errno = code;
      return false;
    }
  }
  ::pthread_attr_destroy(&attributes);
  while (ready_.load(std::memory_order_acquire) < workers - 1) ::sched_yield();
  return true;
}

// The gate's value once a loop other than `seen` is open.
uint64_t CandidateThreads::WaitForLoop(uint64_t seen) {
  auto is_new = [seen](uint64_t gate) { return (gate & kOpen) != 0 && (gate & ~(kLoopUnit - 1)) != seen; };
  while (true) {
    for (int64_t give_up = NowNs() + kSpinNs; NowNs() < give_up;)
      for (int i = 0; i < 32; ++i, Relax())
        if (uint64_t gate = gate_.load(std::memory_order_acquire); is_new(gate)) return gate;
    // Pairs with ParallelFor: either the sleeper sees the open gate, or the loop's owner sees the sleeper.
    uint32_t ticket = wake_.load(std::memory_order_relaxed);
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
    if (!is_new(gate_.load(std::memory_order_seq_cst))) Futex(wake_, FUTEX_WAIT_PRIVATE, ticket);
    sleeping_.fetch_sub(1, std::memory_order_relaxed);
  }
}

void CandidateThreads::Help(int32_t worker) {
  this_worker = worker;
  prepare_thread_();
  ready_.fetch_add(1, std::memory_order_release);
  uint64_t seen = 0;
  while (true) {
    uint64_t gate = WaitForLoop(seen);
    if (!gate_.compare_exchange_strong(gate, gate + 1, std::memory_order_acq_rel)) continue;
    seen = gate & ~(kLoopUnit - 1);
    if (worker < wanted_) TakeRanges(worker);
    gate_.fetch_sub(1, std::memory_order_release);
  }
}

void CandidateThreads::TakeRanges(int32_t worker) {
  while (true) {
    int64_t begin = next_.fetch_add(step_, std::memory_order_relaxed);
    if (begin >= n_) return;
    body_(begin, std::min(n_, begin + step_), worker, ctx_);
  }
}

int CandidateThreads::ParallelFor(void* pool, int64_t n, int64_t grain, Body body, void* ctx) {
  auto* self = static_cast<CandidateThreads*>(pool);
  if (n <= 0) return 0;
  grain = std::max<int64_t>(grain, 1);
  int64_t ranges = (n + grain - 1) / grain;
  int32_t wanted = static_cast<int32_t>(std::min<int64_t>(self->workers_, ranges));
  if (wanted <= 1 || self->in_loop_ || this_worker != 0) {
    body(0, n, this_worker, ctx);
    return 0;
  }
  self->in_loop_ = true;
  int64_t pieces = int64_t{wanted} * kRangesPerWorker;
  self->n_ = n, self->body_ = body, self->ctx_ = ctx, self->wanted_ = wanted;
  self->step_ = std::max(grain, (n + pieces - 1) / pieces);
  self->next_.store(0, std::memory_order_relaxed);
  uint64_t opened = (self->gate_.load(std::memory_order_relaxed) & ~(kLoopUnit - 1)) + kLoopUnit + kOpen;
  self->gate_.store(opened, std::memory_order_seq_cst);
  if (self->sleeping_.load(std::memory_order_seq_cst) > 0) {
    self->wake_.fetch_add(1, std::memory_order_relaxed);
    Futex(self->wake_, FUTEX_WAKE_PRIVATE, INT_MAX);
  }
  self->TakeRanges(0);
  uint64_t left = self->gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spins = 0; (left & kInside) != 0; left = self->gate_.load(std::memory_order_acquire))
    if (++spins < 4'000)
      Relax();
    else
      ::sched_yield();
  self->in_loop_ = false;
  return 0;
}

}  // namespace hone
