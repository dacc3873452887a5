// The pools of several kinds: who waits while one kind's are being started.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "backends/processes/worker_pools.h"
#include "tests/support/deadline.h"

namespace hone::pools_by_kind_test {
namespace {

using std::chrono::seconds;
using testing::In;

struct Seen {
  std::atomic<bool> is_paused{false}, is_shut{false};
};

// Pools that do nothing, and tell whether they were paused and shut down.
class QuietPools : public WorkerPools {
 public:
  explicit QuietPools(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) {}
  Result<std::unique_ptr<Reference>> Prepare(const std::string&, const Target&, Deadline,
                                             const std::stop_token&) override {
    return Nothing();
  }
  Result<std::unique_ptr<Evaluator>> MakeEvaluator(const std::string&, const Target&, const std::stop_token&) override {
    return Nothing();
  }
  Result<BuiltArtifact> Build(const BuildRequest&, Deadline, const std::stop_token&) override { return Nothing(); }
  Result<std::string> Explain(const BuildRequest&, Deadline, const std::stop_token&) override { return "explained"; }
  BuilderPoolStats BuilderStats() const override { return {}; }
  RunnerPoolStats RunnerStats() const override { return {}; }
  void Pause() override { seen_->is_paused = true; }
  void Resume() override { seen_->is_paused = false; }
  void Shutdown() override { seen_->is_shut = true; }

 private:
  static Error Nothing() { return {ErrorKind::kUnsupported, "nothing is done here", "test"}; }
  const std::shared_ptr<Seen> seen_;
};

// Pools of one kind, which somebody has asked for, and which are being started until the test lets them.
class PoolsByKindTest : public ::testing::Test {
 protected:
  void SetUp() override {
    pools_ = MakePoolsByKind({{std::string(kCpuKind), [this]() -> Result<std::unique_ptr<WorkerPools>> {
                                 begun_.count_down();
                                 go_.wait();
                                 return std::unique_ptr<WorkerPools>(std::make_unique<QuietPools>(seen_));
                               }}});
    asked_ = std::async(std::launch::async, [this] {
      BuildRequest request;
      request.target = CpuTarget{};
      return pools_->Explain(request, In(seconds(30)), {});
    });
    begun_.wait();
  }
  // Whether it returns although the pools have not been started; they are afterwards.
  template <typename Work>
  bool ReturnsMeanwhile(const Work& work) {
    std::future<void> done = std::async(std::launch::async, work);
    const bool returns = done.wait_for(seconds(2)) == std::future_status::ready;
    go_.count_down();
    return returns;
  }

  const std::shared_ptr<Seen> seen_ = std::make_shared<Seen>();
  std::latch begun_{1}, go_{1};
  std::unique_ptr<WorkerPools> pools_;
  std::future<Result<std::string>> asked_;
};

TEST_F(PoolsByKindTest, AShutdownDoesNotWaitForPoolsThatAreBeingStarted) {
  EXPECT_TRUE(ReturnsMeanwhile([&] { pools_->Shutdown(); }));
  Result<std::string> answer = asked_.get();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, ErrorKind::kUnavailable);
  EXPECT_TRUE(seen_->is_shut);
}

TEST_F(PoolsByKindTest, PoolsThatAreStartedInAPauseBeginInIt) {
  EXPECT_TRUE(ReturnsMeanwhile([&] { pools_->Pause(); }));
  EXPECT_TRUE(asked_.get());
  EXPECT_TRUE(seen_->is_paused);
  pools_->Resume();
  EXPECT_FALSE(seen_->is_paused);
}

TEST_F(PoolsByKindTest, CountsDoNotWaitForPoolsThatAreBeingStarted) {
  EXPECT_TRUE(ReturnsMeanwhile([&] { EXPECT_EQ(pools_->RunnerStats().busy, 0); }));
  EXPECT_TRUE(asked_.get());
}

}  // namespace
}  // namespace hone::pools_by_kind_test
