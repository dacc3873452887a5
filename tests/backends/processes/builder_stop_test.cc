// Builds that nobody wants any more: what a request to stop ends, and what it leaves alone.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <stop_token>
#include <thread>

#include "backends/processes/builder_pool.h"
#include "base/rng.h"
#include "tests/backends/processes/fake_builder.h"

namespace hone {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::FakeBuilder;
using testing::FakeOptions;
using testing::In;
using testing::StartPool;

class BuilderStop : public FakeBuilder {
 protected:
  // Asks for `act` and stops it while it is at work.
  void ExpectGivenUp(const std::string& act) {
    SCOPED_TRACE(act);
    std::stop_source stop;
    std::thread stopper([&] {
      while (pool_->Stats().busy == 0) std::this_thread::yield();
      std::this_thread::sleep_for(milliseconds(20));
      stop.request_stop();
    });
    const auto start = steady_clock::now();
    Result<BuiltArtifact> built = Ask(act, seconds(60), stop.get_token());
    EXPECT_LT(steady_clock::now() - start, seconds(4));
    stopper.join();
    ASSERT_FALSE(built);
    EXPECT_EQ(built.error().kind, ErrorKind::kUnavailable);
    EXPECT_EQ(built.error().Text(), "given up");
  }
};

TEST_F(BuilderStop, EndsABuildAndNobodyIsToBlame) {
  for (const char* act : {"spin", "sleep", "linger"}) ExpectGivenUp(act);
  EXPECT_TRUE(Ask("good"));
  const BuilderPoolStats stats = pool_->Stats();
  EXPECT_EQ(stats.builds, 4u);
  EXPECT_EQ(stats.failed + stats.crashed + stats.timed_out, 0u);
  EXPECT_EQ(stats.restarts, 3u);
}

TEST_F(BuilderStop, EndsAnExplanation) {
  std::stop_source stop;
  std::thread stopper([&] {
    while (pool_->Stats().busy == 0) std::this_thread::yield();
    stop.request_stop();
  });
  Result<std::string> text = pool_->Explain({"sleep", "", Target{}}, In(seconds(60)), stop.get_token());
  stopper.join();
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().Text(), "given up");
}

// Ten that died of their own would have made the next one wait for a quarter of a minute.
TEST_F(BuilderStop, TheNextBuilderStartsAtOnce) {
  for (int i = 0; i < 10; ++i) ExpectGivenUp("sleep");
  const auto start = steady_clock::now();
  EXPECT_TRUE(Ask("good"));
  EXPECT_LT(steady_clock::now() - start, seconds(3));
}

TEST_F(BuilderStop, WhoWaitsForABuilderReturnsAndLeavesItAlone) {
  std::stop_source stop;
  std::atomic<bool> is_over{false};
  std::thread first([&] {
    EXPECT_TRUE(Ask("slow"));
    is_over = true;
  });
  while (pool_->Stats().busy == 0) std::this_thread::yield();
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(100));
    stop.request_stop();
  });
  Result<BuiltArtifact> built = Ask("good", seconds(60), stop.get_token());
  EXPECT_FALSE(is_over);
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().Text(), "given up");
  EXPECT_EQ(Ask("good", seconds(60), stop.get_token()).error().Text(), "given up");
  first.join();
  stopper.join();
  // Nor is one disturbed that is free.
  EXPECT_EQ(Ask("good", seconds(60), stop.get_token()).error().Text(), "given up");
  EXPECT_EQ(pool_->Stats().restarts, 0u);
}

TEST_F(BuilderStop, EndsWhatIsPaused) {
  ASSERT_TRUE(Ask("good"));
  BuilderPoolOptions options = FakeOptions();
  options.deadline = milliseconds(1);  // so that it comes to wait for the end of the pause
  pool_ = StartPool(options);
  pool_->Pause();
  ExpectGivenUp("sleep");
  std::stop_source stop;
  std::thread stopper([&] { stop.request_stop(); });
  pool_->AwaitResume(stop.get_token());
  stopper.join();
  pool_->Resume();
}

// The stop comes before, while or after the builder answers; the next one to lease it never hears of it.
// The worst moment is when the answer is there and nobody has looked yet: stops come earlier after each that came too
// late, and later after each that did not, so that they are always about then.
TEST_F(BuilderStop, NeverHitsTheNextRequest) {
  Rng rng(20);
  double about_us = 100;  // how long an answer takes
  int given_up = 0;
  for (int i = 0; i < 400; ++i) {
    std::stop_source stop;
    std::atomic<bool> has_begun{false};
    std::thread stopper([&, delay = microseconds(static_cast<int64_t>(about_us * (0.8 + 0.4 * rng.Uniform())))] {
      while (!has_begun) std::this_thread::yield();
      const auto begun = steady_clock::now();
      while (steady_clock::now() < begun + delay) {}
      stop.request_stop();
    });
    has_begun = true;
    Result<std::string> pid = pool_->Explain({"pid", "", Target{}}, In(seconds(20)), stop.get_token());
    if (!pid) {
      EXPECT_EQ(pid.error().Text(), "given up");
      ++given_up;
    }
    about_us = std::clamp(pid ? about_us / 1.1 : about_us * 1.1, 5.0, 1e6);
    Result<std::string> next = pool_->Explain({"pid", "", Target{}}, In(seconds(20)));
    EXPECT_TRUE(next) << i << ": " << next.error().Text();
    stopper.join();
  }
  const BuilderPoolStats stats = pool_->Stats();
  EXPECT_GE(stats.restarts, 1u);
  EXPECT_LE(stats.restarts, static_cast<uint64_t>(given_up));
  EXPECT_LT(given_up, 400);
  EXPECT_EQ(stats.crashed, 0u);
}

}  // namespace
}  // namespace hone
