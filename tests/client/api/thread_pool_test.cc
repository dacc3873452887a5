#include "client/api/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <set>
#include <vector>

namespace hone {
namespace {

struct Seen {
  explicit Seen(int64_t n) : counts(n) {}
  std::vector<std::atomic<int>> counts;
  std::atomic<int64_t> shortest{INT64_MAX};
  std::atomic<int> ranges{0};
  std::atomic<int> most_worker{0};
  std::atomic<bool> overlap{false};
  std::atomic<bool> inside[64] = {};
  std::chrono::microseconds pause{0};

  static void Body(int64_t begin, int64_t end, int32_t worker, void* ctx) {
    auto& seen = *static_cast<Seen*>(ctx);
    if (seen.inside[worker].exchange(true)) seen.overlap = true;
    for (int64_t i = begin; i < end; ++i) seen.counts[i]++;
    if (seen.pause.count()) std::this_thread::sleep_for(seen.pause);
    if (end != static_cast<int64_t>(seen.counts.size())) {
      int64_t length = end - begin, now = seen.shortest;
      while (length < now && !seen.shortest.compare_exchange_weak(now, length)) {}
    }
    int most = seen.most_worker;
    while (worker > most && !seen.most_worker.compare_exchange_weak(most, worker)) {}
    seen.ranges++;
    seen.inside[worker] = false;
  }
  bool EachOnce() const {
    for (const auto& count : counts) {
      if (count != 1) return false;
    }
    return true;
  }
};

TEST(ThreadPool, RunsEveryIndexOnceWhateverTheSizes) {
  ThreadPool pool({.threads = 4});
  for (int64_t n : {1, 2, 3, 7, 13, 64, 1000}) {
    for (int64_t grain : {1, 2, 5, 100}) {
      for (int workers : {1, 2, 4, 9}) {
        Seen seen(n);
        pool.ParallelFor(n, grain, workers, Seen::Body, &seen);
        EXPECT_TRUE(seen.EachOnce()) << n << " " << grain << " " << workers;
        EXPECT_FALSE(seen.overlap);
        EXPECT_LT(seen.most_worker, std::min(workers, 4));
        if (seen.ranges > 1) { EXPECT_GE(seen.shortest, grain); }
      }
    }
  }
}

TEST(ThreadPool, NothingToDoCallsNothing) {
  ThreadPool pool({.threads = 2});
  pool.ParallelFor(0, 1, 2, [](int64_t, int64_t, int32_t, void*) { FAIL(); }, nullptr);
}

TEST(ThreadPool, SpreadsOverThreadsThatSlept) {
  ThreadPool pool({.threads = 3, .spin = std::chrono::microseconds(0)});
  int helped = 0;
  for (int round = 0; round < 20; ++round) {
    Seen seen(12);
    seen.pause = std::chrono::milliseconds(2);
    pool.ParallelFor(12, 1, 3, Seen::Body, &seen);
    ASSERT_TRUE(seen.EachOnce());
    helped += seen.most_worker == 2;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(helped, 10) << "helpers sleep through whole loops";
}

TEST(ThreadPool, ALoopWithinALoopRunsInPlaceWithTheSameWorker) {
  ThreadPool pool({.threads = 4});
  struct Outer {
    ThreadPool* pool;
    std::atomic<int> wrong{0}, inner{0};
  } outer{&pool};
  pool.ParallelFor(
      8, 1, 4,
      [](int64_t, int64_t, int32_t worker, void* ctx) {
        auto& outer = *static_cast<Outer*>(ctx);
        struct Inner {
          Outer* outer;
          int32_t worker;
          std::thread::id thread;
        } inner{&outer, worker, std::this_thread::get_id()};
        outer.pool->ParallelFor(
            5, 1, 4,
            [](int64_t begin, int64_t end, int32_t worker, void* ctx) {
              auto& inner = *static_cast<Inner*>(ctx);
              inner.outer->wrong += worker != inner.worker || std::this_thread::get_id() != inner.thread;
              inner.outer->inner += static_cast<int>(end - begin);
            },
            &inner);
      },
      &outer);
  EXPECT_EQ(outer.wrong, 0);
  EXPECT_GE(outer.inner, 5);
  EXPECT_EQ(outer.inner % 5, 0);
}

TEST(ThreadPool, ServesSeveralCallersAtOnce) {
  ThreadPool pool({.threads = 3});
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        Seen seen(33);
        pool.ParallelFor(33, 2, 3, Seen::Body, &seen);
        wrong += !seen.EachOnce();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, AChildProcessHasThreadsOfItsOwn) {
  ThreadPool pool({.threads = 3});
  Seen before(100);
  pool.ParallelFor(100, 1, 3, Seen::Body, &before);
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(10);
    Seen seen(30);
    seen.pause = std::chrono::milliseconds(2);
    pool.ParallelFor(30, 1, 3, Seen::Body, &seen);
    _exit(seen.EachOnce() && seen.most_worker > 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ThreadPool, ForkDuringALoopLeavesTheChildAFreePool) {
  ThreadPool pool({.threads = 2});
  std::atomic<bool> started{false}, leave{false};
  struct Shared {
    std::atomic<bool>*started, *leave;
  } shared{&started, &leave};
  std::thread caller([&] {
    pool.ParallelFor(
        2, 1, 2,
        [](int64_t, int64_t, int32_t, void* ctx) {
          auto& shared = *static_cast<Shared*>(ctx);
          *shared.started = true;
          while (!*shared.leave) std::this_thread::yield();
        },
        &shared);
  });
  while (!started) std::this_thread::yield();
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
    Seen seen(20);
    seen.pause = std::chrono::milliseconds(5);
    pool.ParallelFor(20, 1, 2, Seen::Body, &seen);
    _exit(seen.EachOnce() && seen.most_worker == 1 ? 0 : 1);
  }
  leave = true;
  caller.join();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace hone
