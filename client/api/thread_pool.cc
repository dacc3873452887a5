// One word, `gate`, says which loop is open and how many helpers are inside it. A helper enters by raising the count,
// so the loop's owner never waits for a helper that has not arrived: it does the work itself, closes the gate and waits
// only for those inside. A late riser finds the gate closed and the loop costs it nothing.
//
//   gate ::= loop number:47 open:1 helpers inside:16
//
// Every worker has a part of the loop that is its own from call to call, so that the data of that part stays in its
// core's caches; who is done with it takes from the others' parts.
#include "client/api/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <system_error>
#include <utility>

namespace hone {
namespace {

constexpr uint64_t kInsideMask = 0xffff;
constexpr uint64_t kOpen = 0x10000;
constexpr uint64_t kLoopUnit = 0x20000;
constexpr int kRangesPerWorker = 4;  // so that a worker that was held up leaves its share to others

inline void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void FutexWake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// Counts forks: threads do not survive one, so a crew of another generation is not ours.
std::atomic<uint32_t> fork_generation{0};
struct ForkWatch {
  ForkWatch() {
    pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
  }
};
const ForkWatch fork_watch;

// The worker that the calling thread is within its pool's running loop, so that a loop within a loop keeps the number.
struct Position {
  const ThreadPool* pool = nullptr;
  int32_t worker = 0;
};
thread_local Position position;

}  // namespace

struct ThreadPool::Crew {
  struct Loop {
    int64_t n = 0;
    int64_t step = 1;
    int workers = 1;
    Body body = nullptr;
    void* ctx = nullptr;
  };

  // One worker's part, in steps; written with the loop.
  struct alignas(64) Part {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  Crew(const ThreadPool* pool, int helpers, std::chrono::microseconds spin)
      : pool(pool), spin(spin), generation(fork_generation.load()), parts(static_cast<size_t>(helpers) + 1) {
    threads.reserve(helpers);
    if (sched_getaffinity(0, sizeof processors, &processors) != 0) CPU_ZERO(&processors);
    // The application's signals are not for these threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (int i = 0; i < helpers; ++i) threads.emplace_back([this, i] { Help(i + 1); });
    } catch (const std::system_error&) {
      // Out of threads: those that started, and the caller, do all the work.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~Crew() {
    stop.store(true);
    wake.fetch_add(1);
    FutexWake(wake, INT_MAX);
    for (std::thread& thread : threads) thread.join();
  }

  void Run(const Loop& next_loop) {
    loop = next_loop;
    const int64_t steps = (loop.n + loop.step - 1) / loop.step;
    for (int w = 0; w < loop.workers; ++w) {
      parts[w].next.store(steps * w / loop.workers, std::memory_order_relaxed);
      parts[w].end = steps * (w + 1) / loop.workers;
    }
    helpers_seen.store(0, std::memory_order_relaxed);
    uint64_t opened = (gate.load(std::memory_order_relaxed) & ~(kLoopUnit - 1)) + kLoopUnit + kOpen;
    // Pairs with Sleep: either the sleeper sees the open gate, or we see the sleeper.
    gate.store(opened, std::memory_order_seq_cst);
    int sleepers = sleeping.load(std::memory_order_seq_cst);
    // Where each processor is needed, also when the caller has moved to one that a helper is on.
    if (sleepers > 0 || static_cast<int>(threads.size()) + 1 >= CPU_COUNT(&processors)) LeaveProcessorToCaller();
    if (sleepers > 0) {
      wake.fetch_add(1, std::memory_order_relaxed);
      FutexWake(wake, std::min(sleepers, loop.workers - 1));
    }
    TakeRanges(0, 0);
    uint64_t left = gate.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    for (int spins = 0; (left & kInsideMask) != 0; left = gate.load(std::memory_order_acquire)) {
      if (++spins < kJoinSpins) {
        Relax();
      } else {
        sched_yield();  // the helper inside was preempted: let it run
      }
    }
  }

  // A sleeper wakes where its waker runs, as a rule, and waits there for up to 10 ms until the scheduler moves it: as
  // long as a model runs. So helpers may not run on the processor that the caller is on now.
  void LeaveProcessorToCaller() {
    int here = sched_getcpu();
    if (here < 0 || here == avoided || here >= CPU_SETSIZE || CPU_COUNT(&processors) < 2) return;
    cpu_set_t others = processors;
    CPU_CLR(here, &others);
    for (std::thread& thread : threads) pthread_setaffinity_np(thread.native_handle(), sizeof others, &others);
    avoided = here;
  }

  // `home`: the part that this thread begins with.
  void Help(int home) {
    pthread_setname_np(pthread_self(), "hone-worker");
    uint64_t seen = 0;
    for (;;) {
      uint64_t now = WaitForLoop(seen);
      if (stop.load(std::memory_order_relaxed)) return;
      seen = now & ~(kLoopUnit - 1);
      if ((now & kInsideMask) + 1 > kInsideMask) continue;
      if (!gate.compare_exchange_strong(now, now + 1, std::memory_order_acq_rel)) {
        seen = 0;  // somebody entered or the gate closed: look again
        continue;
      }
      // Numbered by arrival: whoever was woken is useful, and no number is taken twice in a loop.
      int worker = 1 + helpers_seen.fetch_add(1, std::memory_order_relaxed);
      if (worker < loop.workers) {
        position = {pool, worker};
        TakeRanges(worker, home < loop.workers ? home : worker);
      }
      gate.fetch_sub(1, std::memory_order_release);
    }
  }

  // The gate's value once a loop other than `seen` is open, or anything once the crew stops.
  uint64_t WaitForLoop(uint64_t seen) {
    for (;;) {
      auto give_up = std::chrono::steady_clock::now() + spin;
      do {
        for (int i = 0; i < kSpinsPerLook; ++i) {
          uint64_t now = gate.load(std::memory_order_acquire);
          if (((now & kOpen) && (now & ~(kLoopUnit - 1)) != seen) || stop.load(std::memory_order_relaxed)) return now;
          Relax();
        }
      } while (std::chrono::steady_clock::now() < give_up);
      Sleep(seen);
    }
  }

  void Sleep(uint64_t seen) {
    uint32_t ticket = wake.load(std::memory_order_relaxed);
    sleeping.fetch_add(1, std::memory_order_seq_cst);
    uint64_t now = gate.load(std::memory_order_seq_cst);
    bool open = (now & kOpen) && (now & ~(kLoopUnit - 1)) != seen;
    if (!open && !stop.load(std::memory_order_seq_cst)) FutexWait(wake, ticket);
    sleeping.fetch_sub(1, std::memory_order_relaxed);
  }

  void TakeRanges(int32_t worker, int home) {
    for (int i = 0; i < loop.workers; ++i) {
      Part& part = parts[(home + i) % loop.workers];
      while (part.next.load(std::memory_order_relaxed) < part.end) {
        int64_t step = part.next.fetch_add(1, std::memory_order_relaxed);
        if (step >= part.end) break;
        loop.body(step * loop.step, std::min(loop.n, (step + 1) * loop.step), worker, loop.ctx);
      }
    }
  }

  static constexpr int kJoinSpins = 4'000;
  static constexpr int kSpinsPerLook = 32;

  const ThreadPool* const pool;
  const std::chrono::microseconds spin;
  const uint32_t generation;
  alignas(64) std::atomic<uint64_t> gate{0};
  std::vector<Part> parts;  // one per worker
  std::atomic<int> helpers_seen{0};
  alignas(64) Loop loop;                      // written while the gate is closed and nobody is inside
  alignas(64) std::atomic<uint32_t> wake{0};  // futex word
  std::atomic<int> sleeping{0};
  std::atomic<bool> stop{false};
  cpu_set_t processors;  // of the thread that made the crew
  int avoided = -1;      // by the helpers
  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(const ThreadPoolOptions& options)
    : threads_(std::clamp(options.threads > 0 ? options.threads : AvailableProcessors(), 1, 1024)),
      spin_(options.spin) {}

ThreadPool::~ThreadPool() {
  // Another process' threads are not here: nothing to join, and joining would wait for ever.
  if (crew_ && crew_->generation != fork_generation.load()) (void)crew_.release();
}

ThreadPool::Crew* ThreadPool::FindCrew() {
  if (crew_ && crew_->generation != fork_generation.load(std::memory_order_relaxed)) (void)crew_.release();
  if (!crew_) crew_ = std::make_unique<Crew>(this, threads_ - 1, spin_);
  return crew_.get();
}

bool ThreadPool::TryBusy() {
  uint32_t ours = fork_generation.load(std::memory_order_relaxed) + 1;
  uint32_t holder = busy_.load(std::memory_order_relaxed);
  // A holder of another generation is a thread of the parent process: it will never give the pool back here.
  return holder != ours && busy_.compare_exchange_strong(holder, ours, std::memory_order_acquire);
}

void ThreadPool::ParallelFor(int64_t n, int64_t grain, int workers, Body body, void* ctx) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  workers = static_cast<int>(std::min<int64_t>(std::min(workers, threads_), (n + grain - 1) / grain));
  bool inside = position.pool == this;
  if (workers <= 1 || inside || !TryBusy()) {
    body(0, n, inside ? position.worker : 0, ctx);
    return;
  }
  int64_t ranges = static_cast<int64_t>(workers) * kRangesPerWorker;
  // Rounded down: a few ranges more rather than parts of unequal length.
  Crew::Loop loop{n, std::max(grain, n / ranges), workers, body, ctx};
  Position before = std::exchange(position, {this, 0});
  FindCrew()->Run(loop);
  position = before;
  busy_.store(0, std::memory_order_release);
}

int PoolView::ParallelFor(void* view, int64_t n, int64_t grain, ThreadPool::Body body, void* ctx) {
  auto* self = static_cast<PoolView*>(view);
  self->pool->ParallelFor(n, grain, self->workers, body, ctx);
  return 0;
}

int AvailableProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace hone
