#include "daemon/serve/fair_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <vector>

#include "tests/support/no_threads.h"

namespace hone {
namespace {

using std::chrono::milliseconds;

constexpr ClientId kAnn{1000, 1};
constexpr ClientId kAnnToo{1000, 2};
constexpr ClientId kBob{1001, 3};

void SleepFor(milliseconds time) { std::this_thread::sleep_for(time); }

// What ran, in order; jobs that wait until they are let go.
class Log {
 public:
  FairQueue::Job Job(const ClientId& client, const std::string& name, milliseconds works = milliseconds(0)) {
    FairQueue::Job job;
    job.client = client;
    job.run = [this, name, works](const std::stop_token&) {
      SleepFor(works);
      Add(name);
    };
    job.drop = [this, name] { Add("drop " + name); };
    return job;
  }
  FairQueue::Job Large(const ClientId& client, const std::string& name, size_t bytes) {
    FairQueue::Job job = Job(client, name);
    job.bytes = bytes;
    return job;
  }
  // Runs until it is stopped or let go; adds "NAME stopped" or "NAME".
  FairQueue::Job Endless(const ClientId& client, const std::string& name, milliseconds slice) {
    FairQueue::Job job;
    job.client = client;
    job.slice = slice;
    job.run = [this, name](const std::stop_token& stop) {
      ++running;
      while (!stop.stop_requested() && !go) SleepFor(milliseconds(1));
      Add(name + (stop.stop_requested() ? " stopped" : ""));
    };
    return job;
  }
  void Add(const std::string& what) {
    std::lock_guard lock(mutex_);
    ran_.push_back(what);
  }
  std::vector<std::string> ran() {
    std::lock_guard lock(mutex_);
    return ran_;
  }
  bool Await(size_t count) {
    for (int i = 0; i < 20'000; ++i) {
      if (ran().size() >= count) return true;
      SleepFor(milliseconds(1));
    }
    return false;
  }
  bool AwaitRunning(int count) {
    for (int i = 0; i < 20'000 && running < count; ++i) SleepFor(milliseconds(1));
    return running >= count;
  }
  std::atomic<int> running{0};
  std::atomic<bool> go{false};

 private:
  std::mutex mutex_;
  std::vector<std::string> ran_;
};

using Strings = std::vector<std::string>;

TEST(FairQueue, RunsOneClientsWorkInOrder) {
  Log log;
  FairQueue queue(1, "test", {});
  queue.Push(log.Endless(kAnn, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  for (const char* name : {"a", "b", "c"}) queue.Push(log.Job(kAnn, name));
  EXPECT_EQ(queue.waiting(), 3u);
  log.go = true;
  ASSERT_TRUE(log.Await(4));
  EXPECT_EQ(log.ran(), (Strings{"first", "a", "b", "c"}));
}

TEST(FairQueue, ServesWhoHadLeastBeforeWhoCameFirst) {
  Log log;
  FairQueue queue(1, "test", {});
  queue.Push(log.Endless(kAnn, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  for (int i = 0; i < 20; ++i) queue.Push(log.Job(kAnn, "flood", milliseconds(2)));
  queue.Push(log.Job(kBob, "bob"));
  SleepFor(milliseconds(20));
  log.go = true;
  ASSERT_TRUE(log.Await(22));
  EXPECT_EQ(log.ran()[1], "bob");
}

TEST(FairQueue, TakesTurnsAmongTheProcessesOfAUser) {
  Log log;
  FairQueue queue(1, "test", {});
  queue.Push(log.Endless(kAnn, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  for (int i = 0; i < 5; ++i) queue.Push(log.Job(kAnn, "flood", milliseconds(5)));
  queue.Push(log.Job(kAnnToo, "too"));
  SleepFor(milliseconds(20));
  log.go = true;
  ASSERT_TRUE(log.Await(7));
  EXPECT_EQ(log.ran()[1], "too");
}

TEST(FairQueue, CountsAllProcessesOfAUserAgainstOthers) {
  Log log;
  FairQueue queue(1, "test", {});
  // Bob had 30 ms; Ann's first process 60 ms, her second nothing.
  queue.Push(log.Job(kBob, "warm bob", milliseconds(30)));
  queue.Push(log.Job(kAnn, "warm ann", milliseconds(60)));
  ASSERT_TRUE(log.Await(2));
  queue.Push(log.Endless({1002, 9}, "other", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  queue.Push(log.Job(kAnnToo, "ann too"));
  queue.Push(log.Job(kBob, "bob"));
  log.go = true;
  ASSERT_TRUE(log.Await(5));
  EXPECT_EQ(log.ran()[3], "bob");
}

TEST(FairQueue, WhatHadItsSliceMakesRoomForOthersOnly) {
  Log log;
  FairQueue queue(1, "test", {});
  queue.Push(log.Endless(kAnn, "long", milliseconds(30)));
  ASSERT_TRUE(log.AwaitRunning(1));
  queue.Push(log.Job(kAnn, "own"));
  SleepFor(milliseconds(100));
  EXPECT_EQ(log.ran(), Strings{});  // nobody else waits
  auto pushed = FairQueue::Clock::now();
  queue.Push(log.Job(kBob, "bob"));
  ASSERT_TRUE(log.Await(2));
  EXPECT_EQ(log.ran()[0], "long stopped");
  EXPECT_EQ(log.ran()[1], "bob");
  EXPECT_LT(FairQueue::Clock::now() - pushed, std::chrono::seconds(10));
}

TEST(FairQueue, MoreOfTheSameClientDoesNotHideThatAnotherWaits) {
  Log log;
  FairQueue queue(1, "test", {});
  // Bob has been served more than Ann when her work begins, and less after a while.
  queue.Push(log.Job(kBob, "earlier", milliseconds(200)));
  ASSERT_TRUE(log.Await(1));
  queue.Push(log.Endless(kAnn, "long", milliseconds(20)));
  ASSERT_TRUE(log.AwaitRunning(1));
  queue.Push(log.Job(kAnn, "next"));
  queue.Push(log.Job(kBob, "short"));
  EXPECT_TRUE(log.Await(3));
  log.go = true;
  ASSERT_TRUE(log.Await(4));
  EXPECT_EQ(log.ran(), (Strings{"earlier", "long stopped", "short", "next"}));
}

TEST(FairQueue, WhatHasNotHadItsSliceGoesOn) {
  Log log;
  FairQueue queue(1, "test", {});
  queue.Push(log.Endless(kAnn, "long", std::chrono::minutes(10)));
  ASSERT_TRUE(log.AwaitRunning(1));
  queue.Push(log.Job(kBob, "bob"));
  SleepFor(milliseconds(100));
  EXPECT_EQ(log.ran(), Strings{});
  log.go = true;
  ASSERT_TRUE(log.Await(2));
  EXPECT_EQ(log.ran(), (Strings{"long", "bob"}));
}

TEST(FairQueue, StopsAsManyAsWait) {
  Log log;
  FairQueue queue(2, "test", {});
  queue.Push(log.Endless(kAnn, "one", milliseconds(10)));
  queue.Push(log.Endless(kAnn, "two", milliseconds(10)));
  ASSERT_TRUE(log.AwaitRunning(2));
  queue.Push(log.Endless(kBob, "bob", std::chrono::minutes(10)));
  ASSERT_TRUE(log.AwaitRunning(3));
  SleepFor(milliseconds(100));
  EXPECT_EQ(log.ran().size(), 1u);
  log.go = true;
  ASSERT_TRUE(log.Await(3));
}

TEST(FairQueue, WhatTakesLongLeavesAThreadToOthers) {
  Log log;
  FairQueue queue(2, "test", {});
  for (const char* name : {"one", "two"}) {
    FairQueue::Job job = log.Endless(kAnn, name, std::chrono::minutes(10));
    job.is_long = true;
    queue.Push(std::move(job));
  }
  ASSERT_TRUE(log.AwaitRunning(1));
  queue.Push(log.Job(kBob, "bob"));
  queue.Push(log.Job(kAnn, "own"));  // it is not who asks, but for how much
  ASSERT_TRUE(log.Await(2));
  EXPECT_EQ(log.running, 1);
  EXPECT_EQ(queue.waiting(), 1u);
  log.go = true;
  ASSERT_TRUE(log.Await(4));
}

TEST(FairQueue, TheOnlyThreadTakesWhatTakesLong) {
  Log log;
  FairQueue queue(1, "test", {});
  FairQueue::Job job = log.Endless(kAnn, "long", std::chrono::minutes(10));
  job.is_long = true;
  queue.Push(std::move(job));
  ASSERT_TRUE(log.AwaitRunning(1));
  log.go = true;
  ASSERT_TRUE(log.Await(1));
}

TEST(FairQueue, WhatTakesLongTakesTurnsInThePlacesThatThereAreForIt) {
  Log log;
  FairQueue queue(2, "test", {});
  auto long_job = [&](const ClientId& client, const std::string& name) {
    FairQueue::Job job = log.Endless(client, name, milliseconds(20));
    job.is_long = true;
    return job;
  };
  queue.Push(long_job(kAnn, "ann's"));
  ASSERT_TRUE(log.AwaitRunning(1));
  queue.Push(long_job(kBob, "bob's"));  // though a thread is free
  EXPECT_TRUE(log.AwaitRunning(2));
  log.go = true;
  ASSERT_TRUE(log.Await(2));
  EXPECT_EQ(log.ran(), (Strings{"ann's stopped", "bob's"}));
}

TEST(FairQueue, ManyProcessesOfOneUserLeaveRoomForAnother) {
  Log log;
  FairQueue queue(1, "test", {.jobs = 4});
  queue.Push(log.Endless(kAnn, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  for (pid_t pid = 11; pid <= 14; ++pid) ASSERT_TRUE(queue.Push(log.Job({1000, pid}, std::to_string(pid))));
  EXPECT_FALSE(queue.Push(log.Job({1000, 15}, "15")));
  EXPECT_TRUE(queue.Push(log.Job(kBob, "bob")));
  EXPECT_TRUE(queue.Push(log.Job({1001, 4}, "bob's other")));   // two each …
  EXPECT_FALSE(queue.Push(log.Job({1001, 5}, "bob's third")));  // … and no more
  EXPECT_EQ(log.ran().size(), 2u);
  log.go = true;
  ASSERT_TRUE(log.Await(7));
}

TEST(FairQueue, WhoIsRefusedTakesNobodysPlace) {
  Log log;
  FairQueue queue(1, "test", {.jobs = 100, .bytes = 1000});
  queue.Push(log.Endless(kAnn, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  ASSERT_TRUE(queue.Push(log.Large(kAnn, "a", 300)));
  ASSERT_TRUE(queue.Push(log.Large(kAnn, "b", 300)));
  ASSERT_TRUE(queue.Push(log.Large(kBob, "bob", 350)));
  EXPECT_FALSE(queue.Push(log.Large({1002, 9}, "large", 500)));
  EXPECT_EQ(log.ran(), Strings{});
  log.go = true;
  ASSERT_TRUE(log.Await(4));
}

TEST(FairQueue, AFullQueueDropsTheLastOfWhoHasMost) {
  Log log;
  FairQueue queue(1, "test", {.jobs = 4});
  queue.Push(log.Endless(kAnn, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(queue.Push(log.Job(kAnn, name)));
  EXPECT_FALSE(queue.Push(log.Job(kAnn, "e")));
  EXPECT_TRUE(queue.Push(log.Job(kBob, "bob")));
  EXPECT_EQ(log.ran(), Strings{"drop d"});
  EXPECT_TRUE(queue.Push(log.Job(kBob, "bob")));   // two each …
  EXPECT_FALSE(queue.Push(log.Job(kBob, "bob")));  // … and no more
  log.go = true;
  ASSERT_TRUE(log.Await(7));
}

TEST(FairQueue, BytesFillItToo) {
  Log log;
  FairQueue queue(1, "test", {.jobs = 100, .bytes = 1000});
  queue.Push(log.Endless(kAnn, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  ASSERT_TRUE(queue.Push(log.Large(kAnn, "a", 600)));
  ASSERT_TRUE(queue.Push(log.Large(kAnn, "b", 400)));
  EXPECT_FALSE(queue.Push(log.Large(kAnn, "c", 1)));
  EXPECT_FALSE(queue.Push(log.Large(kBob, "all of it", 1001)));
  EXPECT_EQ(log.ran(), Strings{});
  EXPECT_TRUE(queue.Push(log.Large(kBob, "bob", 300)));
  EXPECT_EQ(log.ran(), Strings{"drop b"});
  log.go = true;
}

TEST(FairQueue, TakesBackWhatHasNotBegun) {
  Log log;
  FairQueue queue(1, "test", {});
  auto first = queue.Push(log.Endless(kAnn, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  auto second = queue.Push(log.Job(kAnn, "second"));
  EXPECT_TRUE(queue.Withdraw(*second));
  EXPECT_FALSE(queue.Withdraw(*second));
  EXPECT_FALSE(queue.Withdraw(*first));
  EXPECT_EQ(queue.waiting(), 0u);
  queue.Stop(*first);
  ASSERT_TRUE(log.Await(1));
  EXPECT_EQ(log.ran(), Strings{"first stopped"});
}

TEST(FairQueue, WhatIsAbandonedRunsWhenNothingElseWaits) {
  Log log;
  FairQueue queue(1, "test", {});
  queue.Push(log.Endless(kBob, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  auto nobodys = queue.Push(log.Job(kAnn, "nobody's"));
  queue.Push(log.Job(kBob, "bob"));
  queue.Abandon(*nobodys);
  EXPECT_EQ(queue.waiting(), 1u);
  log.go = true;
  ASSERT_TRUE(log.Await(3));
  EXPECT_EQ(log.ran(), (Strings{"first", "bob", "nobody's"}));
}

TEST(FairQueue, WhatIsAbandonedWhileItRunsMakesRoomAtOnce) {
  Log log;
  FairQueue queue(1, "test", {});
  auto id = queue.Push(log.Endless(kAnn, "nobody's", std::chrono::minutes(10)));
  ASSERT_TRUE(log.AwaitRunning(1));
  queue.Abandon(*id);
  queue.Push(log.Job(kAnn, "somebody's"));
  ASSERT_TRUE(log.Await(2));
  EXPECT_EQ(log.ran(), (Strings{"nobody's stopped", "somebody's"}));
}

TEST(FairQueue, FewAreAbandonedAtOnce) {
  Log log;
  FairQueue queue(1, "test", {});
  queue.Push(log.Endless(kBob, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  for (int i = 0; i < 33; ++i) queue.Abandon(*queue.Push(log.Job(kAnn, std::to_string(i))));
  EXPECT_EQ(log.ran(), Strings{"drop 0"});
  log.go = true;
  ASSERT_TRUE(log.Await(34));
}

TEST(FairQueue, WhoJoinsBringsTheirOwnTurn) {
  Log log;
  FairQueue queue(1, "test", {});
  queue.Push(log.Endless(kAnn, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  queue.Push(log.Job(kAnn, "a"));
  queue.Push(log.Job(kAnn, "b"));
  auto both = queue.Push(log.Job(kAnn, "of both"));
  queue.Join(*both, kBob);
  EXPECT_EQ(queue.waiting(), 3u);
  log.go = true;
  ASSERT_TRUE(log.Await(4));
  EXPECT_EQ(log.ran()[1], "of both");
}

TEST(FairQueue, WhatWasAbandonedIsWantedAgain) {
  Log log;
  FairQueue queue(1, "test", {});
  queue.Push(log.Endless(kAnn, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  auto id = queue.Push(log.Job(kAnn, "wanted"));
  queue.Abandon(*id);
  queue.Push(log.Job(kAnn, "a"));
  queue.Join(*id, kBob);
  log.go = true;
  ASSERT_TRUE(log.Await(3));
  EXPECT_EQ(log.ran(), (Strings{"first", "wanted", "a"}));
}

TEST(FairQueue, WhatIsAbandonedHasCostItsClientUntilThen) {
  Log log;
  FairQueue queue(1, "test", {});
  auto first = queue.Push(log.Endless(kAnn, "ann's", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  queue.Push(log.Job(kAnn, "ann's next"));
  queue.Push(log.Job(kBob, "bob's"));
  SleepFor(milliseconds(20));
  queue.Abandon(*first);
  ASSERT_TRUE(log.Await(3));
  EXPECT_EQ(log.ran(), (Strings{"ann's stopped", "bob's", "ann's next"}));
}

TEST(FairQueue, WhoJoinsWhatRunsPaysForTheRestAlone) {
  Log log;
  FairQueue queue(1, "test", {});
  auto first = queue.Push(log.Endless(kAnn, "shared", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  SleepFor(milliseconds(100));
  queue.Join(*first, kBob);
  queue.Push(log.Job(kAnn, "ann's"));
  queue.Push(log.Job(kBob, "bob's"));
  log.go = true;
  ASSERT_TRUE(log.Await(3));
  EXPECT_EQ(log.ran(), (Strings{"shared", "bob's", "ann's"}));
}

TEST(FairQueue, WhatAnotherJoinsKeepsItsPlace) {
  Log log;
  FairQueue queue(1, "test", {});
  queue.Push(log.Endless(kAnn, "first", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(1));
  auto shared = queue.Push(log.Job(kAnn, "shared"));
  for (const char* name : {"b1", "b2", "b3"}) queue.Push(log.Job(kBob, name));
  queue.Join(*shared, kBob);
  log.go = true;
  ASSERT_TRUE(log.Await(5));
  EXPECT_EQ(log.ran(), (Strings{"first", "shared", "b1", "b2", "b3"}));
}

TEST(FairQueue, WhatRunsForAnotherNowMakesRoomForWhoeverItRanFor) {
  Log log;
  FairQueue queue(1, "test", {});
  auto first = queue.Push(log.Endless(kAnn, "shared", milliseconds(1)));
  ASSERT_TRUE(log.AwaitRunning(1));
  queue.Push(log.Job(kAnn, "ann's"));  // which waits for no other client's work
  SleepFor(milliseconds(20));
  queue.Join(*first, kBob);
  EXPECT_TRUE(log.Await(2));
  log.go = true;
  EXPECT_EQ(log.ran(), (Strings{"shared stopped", "ann's"}));
}

TEST(FairQueue, CloseStopsWhatRunsAndForgetsTheRest) {
  Log log;
  FairQueue queue(2, "test", {});
  queue.Push(log.Endless(kAnn, "one", FairQueue::kWhole));
  queue.Push(log.Endless(kAnn, "two", FairQueue::kWhole));
  ASSERT_TRUE(log.AwaitRunning(2));
  queue.Push(log.Job(kAnn, "three"));
  queue.Close();
  EXPECT_EQ(log.ran().size(), 2u);
  EXPECT_FALSE(queue.Push(log.Job(kAnn, "four")));
}

TEST(FairQueue, ThatFindsNoThreadsLeavesNone) {
  testing::NoThreads none;
  EXPECT_THROW(FairQueue(2, "test", {}), std::system_error);
}

TEST(FairQueue, ManyThreadsOfManyClientsAtOnce) {
  std::atomic<int> done{0};
  constexpr int kJobs = 200;
  {
    FairQueue queue(3, "test", {.jobs = 10'000});
    std::vector<std::thread> threads;
    for (pid_t pid = 0; pid < 4; ++pid)
      threads.emplace_back([&, pid] {
        for (int i = 0; i < kJobs; ++i) {
          FairQueue::Job job;
          job.client = {1000, pid};
          job.slice = milliseconds(i % 3);
          job.run = [&](const std::stop_token&) { ++done; };
          auto id = queue.Push(std::move(job));
          ASSERT_TRUE(id);
          if (i % 5 == 0) queue.Join(*id, {1000, pid + 1});
          if (i % 7 == 0 && queue.Withdraw(*id)) ++done;
          if (i % 11 == 0) queue.Stop(*id);
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < 20'000 && done < 4 * kJobs; ++i) SleepFor(milliseconds(1));
    EXPECT_EQ(done, 4 * kJobs);
  }
}

}  // namespace
}  // namespace hone
