// Which child of a pool a caller gets, and how long he waits for it. The children answer nothing: they are programs
// that are everywhere.
#include "backends/processes/child_pool.h"

#include <gtest/gtest.h>

#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "tests/support/deadline.h"

namespace hone::child_pool_test {
namespace {

using testing::In;
using namespace std::chrono_literals;

std::unique_ptr<ChildPool> StartPool(int children, const std::string& script) {
  ChildPoolOptions options;
  options.name = "child";
  options.children = children;
  options.process.executable = "/bin/sh";
  options.process.arguments = {"-c", script};
  Result<std::unique_ptr<ChildPool>> pool = ChildPool::Start(std::move(options));
  EXPECT_TRUE(pool) << pool.error().Text();
  return *std::move(pool);
}

constexpr char kIdle[] = "exec sleep 1000";

void Lose(ChildPool& pool, int times) {
  for (int i = 0; i < times; ++i) {
    Result<ChildPool::Lease> lease = pool.Acquire(In(60s));
    ASSERT_TRUE(lease) << lease.error().Text();
    lease->Reject("scripted");
  }
}

TEST(ChildPool, OneThatDiedOnceIsPreferredByItsUserLikeAnyOther) {
  std::unique_ptr<ChildPool> pool = StartPool(2, kIdle);
  Lose(*pool, 1);
  for (uint32_t user : {1u, 2u}) ASSERT_TRUE(pool->Acquire(In(20s), {}, {}, user));
  const uint64_t before = pool->restarts();
  for (uint32_t i = 0; i < 20; ++i) ASSERT_TRUE(pool->Acquire(In(20s), {}, {}, i % 2 + 1));
  EXPECT_EQ(pool->restarts(), before);
}

TEST(ChildPool, WhoWaitsForOneThatKeepsDyingTakesAnotherThatComesFree) {
  std::unique_ptr<ChildPool> pool = StartPool(2, kIdle);
  std::optional<ChildPool::Lease> other = *pool->Acquire(In(20s));
  Lose(*pool, 7);  // the next one may be started seconds later
  const MonotonicTime begun = std::chrono::steady_clock::now();
  std::thread gives_back([&] {
    std::this_thread::sleep_for(200ms);
    other.reset();
  });
  Result<ChildPool::Lease> lease = pool->Acquire(In(20s));
  gives_back.join();
  ASSERT_TRUE(lease) << lease.error().Text();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 900ms);
  // He has taken nothing from it: it comes back when its time has come.
  Result<ChildPool::Lease> second = pool->Acquire(In(20s));
  EXPECT_TRUE(second) << second.error().Text();
}

TEST(ChildPool, OneThatKeepsDyingIsWaitedForAsLongAsTheCallerHasTime) {
  std::unique_ptr<ChildPool> pool = StartPool(1, kIdle);
  Lose(*pool, 7);
  Result<ChildPool::Lease> lease = pool->Acquire(In(50ms));
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().kind, ErrorKind::kBusy);
  EXPECT_EQ(lease.error().Text(), "the child keeps dying and is being restarted");
  std::stop_source stop;
  std::thread stops([&] {
    std::this_thread::sleep_for(50ms);
    stop.request_stop();
  });
  EXPECT_EQ(pool->Acquire(In(20s), stop.get_token()).error().Text(), "given up");
  stops.join();
  EXPECT_TRUE(pool->Acquire(In(20s)));
}

// More than the socket holds, to a child that reads on when the pause is over.
TEST(ChildPool, APauseIsNotTheTimeOfWhoTakesAMessage) {
  std::unique_ptr<ChildPool> pool = StartPool(1, "exec cat <&3 >/dev/null");
  const std::string long_text(size_t{8} << 20, 'x');
  Result<ChildPool::Lease> lease = pool->Acquire(In(20s));
  ASSERT_TRUE(lease) << lease.error().Text();
  ASSERT_TRUE(lease->Send(ChildMessage::kPrepare, "", {}, In(20s)));
  pool->Pause();
  std::thread goes_on([&] {
    std::this_thread::sleep_for(1s);
    pool->Resume();
  });
  Result<uint64_t> sent = lease->Send(ChildMessage::kPrepare, long_text, {}, In(500ms));
  goes_on.join();
  EXPECT_TRUE(sent) << sent.error().Text();
  EXPECT_TRUE(lease->alive());
}

TEST(ChildPool, AMessageThatNobodyTakesHasADeadline) {
  std::unique_ptr<ChildPool> pool = StartPool(1, kIdle);
  Result<ChildPool::Lease> lease = pool->Acquire(In(20s));
  ASSERT_TRUE(lease) << lease.error().Text();
  Result<uint64_t> sent = lease->Send(ChildMessage::kPrepare, std::string(size_t{8} << 20, 'x'), {}, In(100ms));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().kind, ErrorKind::kTimeout);
  EXPECT_FALSE(lease->alive());
}

}  // namespace
}  // namespace hone::child_pool_test
