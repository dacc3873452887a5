// Signs of life: there while questions are answered, gone while they are not.
#include "daemon/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/daemon/test_server.h"

namespace hone {
namespace {

using namespace std::chrono_literals;
using testing::LoopThread;
using testing::TestServer;

TEST(WatchdogLimit, IsForTheProcessThatIsAsked) {
  setenv("WATCHDOG_USEC", "2500000", 1);
  EXPECT_EQ(WatchdogLimit(), 2500ms);
  EXPECT_EQ(getenv("WATCHDOG_USEC"), nullptr);  // children are not asked
  EXPECT_EQ(WatchdogLimit(), std::nullopt);
  setenv("WATCHDOG_USEC", "2500000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid() + 1).c_str(), 1);
  EXPECT_EQ(WatchdogLimit(), std::nullopt);
  EXPECT_EQ(getenv("WATCHDOG_PID"), nullptr);
  setenv("WATCHDOG_USEC", "2500000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  EXPECT_EQ(WatchdogLimit(), 2500ms);
  for (const char* wrong : {"", "-1", "0", "1s"}) {
    setenv("WATCHDOG_USEC", wrong, 1);
    EXPECT_EQ(WatchdogLimit(), std::nullopt) << wrong;
  }
}

class WatchdogTest : public ::testing::Test {
 protected:
  WatchdogTest() {
    loop_.Do([&] {
      answers_ = std::make_unique<Answers>(loop_.loop, metrics_);
      watchdog_.emplace(
          loop_.loop, 40ms,
          [this](std::function<void(bool)> done) { answers_->Run(Lane::kQuick, [] {}, std::move(done)); },
          [this] { ++told_; });
    });
  }
  ~WatchdogTest() override {
    loop_.Do([&] {
      watchdog_.reset();
      answers_->Close();
    });
    loop_.Stop();
  }
  void ExpectAlive() {
    const int before = told_;
    EXPECT_TRUE(TestServer::Eventually([&] { return told_ > before + 2; }));
  }
  // Nothing is told for a while, but for what was on its way.
  void ExpectSilent() {
    std::this_thread::sleep_for(30ms);
    const int before = told_;
    std::this_thread::sleep_for(150ms);
    EXPECT_EQ(told_, before);
  }

  LoopThread loop_;
  Metrics metrics_;
  std::atomic<int> told_{0};
  std::unique_ptr<Answers> answers_;
  std::optional<Watchdog> watchdog_;
};

TEST_F(WatchdogTest, IsSilentWhileTheQuickLaneHangs) {
  ExpectAlive();
  std::atomic<bool> hangs{true}, has_begun{false};
  loop_.Do([&] {
    class Nobody : public Peer {
     public:
      Nobody() : Peer({1, 2}) {}
      void Reply(uint64_t, MessageType, std::string) override {}
      void ReplyPart(uint64_t, MessageType, std::string) override {}
      void ReplyHit(uint64_t, const HotCodePtr&) override {}
      void ReplyWithCode(uint64_t, std::string, HotCodePtr) override {}
    };
    answers_->Push(Lane::kQuick, std::make_shared<Nobody>(), 1, 0, [&](const std::stop_token&) {
      has_begun = true;
      hangs.wait(true);
      return AnswerPart{};
    });
  });
  EXPECT_TRUE(TestServer::Eventually([&] { return has_begun.load(); }));
  ExpectSilent();
  hangs = false;
  hangs.notify_all();
  ExpectAlive();
}

TEST_F(WatchdogTest, IsSilentWhileTheLoopHangs) {
  ExpectAlive();
  std::atomic<bool> hangs{true};
  loop_.loop.Post([&] { hangs.wait(true); });
  ExpectSilent();
  hangs = false;
  hangs.notify_all();
  ExpectAlive();
}

}  // namespace
}  // namespace hone
