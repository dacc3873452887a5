// Answers in parts: who reads slowly waits for himself, and nobody else does.
#include "daemon/serve/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <new>

#include "tests/daemon/test_server.h"

namespace hone {
namespace {

using namespace std::chrono_literals;
using testing::LoopThread;
using testing::Soon;
using testing::TestServer;

// Counts what it is sent, and has taken it when the test says so.
class FakePeer : public Peer {
 public:
  explicit FakePeer(const ClientId& client) : Peer(client) {}
  void Reply(uint64_t request_id, MessageType type, std::string body) override {
    last_type[request_id] = type;
    ReplyPart(request_id, type, std::move(body));
    ++ended;
  }
  void ReplyPart(uint64_t request_id, MessageType, std::string body) override {
    order.push_back(request_id);
    if (!reads) unsent_ += body.size() + 1;
    ++parts;
  }
  void ReplyHit(uint64_t, const HotCodePtr&) override {}
  void ReplyWithCode(uint64_t, std::string, HotCodePtr) override {}
  void Take() { unsent_ = 0; }

  bool reads = true;
  std::atomic<int> parts{0}, ended{0};
  std::vector<uint64_t> order;
  std::map<uint64_t, MessageType> last_type;
};

class AnswersTest : public ::testing::Test {
 protected:
  AnswersTest() {
    loop_.Do([&] { answers_ = std::make_unique<Answers>(loop_.loop, metrics_); });
  }
  ~AnswersTest() override {
    loop_.Do([&] { answers_->Close(); });
    loop_.Stop();
  }
  std::shared_ptr<FakePeer> NewPeer(pid_t pid, bool reads = true) {
    auto peer = std::make_shared<FakePeer>(ClientId{1, pid});
    peer->reads = reads;
    return peer;
  }
  // An answer of so many parts, which counts those that were made.
  void Push(Lane lane, const PeerPtr& peer, uint64_t id, int parts, size_t bytes = 0) {
    loop_.Do([&] {
      answers_->Push(lane, peer, id, bytes, [this, parts, made = 0](const std::stop_token&) mutable {
        ++made_;
        return AnswerPart{MessageType::kListReply, "part", ++made < parts};
      });
    });
  }
  // Whatever goes on by itself has come to its end.
  void Settle() {
    for (int before = -1; before != made_;) {
      before = made_;
      std::this_thread::sleep_for(30ms);
      loop_.Do([] {});
    }
  }

  LoopThread loop_;
  Metrics metrics_;
  std::unique_ptr<Answers> answers_;
  std::atomic<int> made_{0};
};

TEST_F(AnswersTest, APartIsMadeWhenTheOneBeforeWasTaken) {
  auto peer = NewPeer(1, false);
  Push(Lane::kList, peer, 7, 5);
  for (int taken = 1; taken <= 5; ++taken) {
    Settle();
    EXPECT_EQ(made_, taken);
    EXPECT_EQ(peer->ended, taken == 5 ? 1 : 0);
    loop_.Do([&] {
      peer->Take();
      answers_->GoOn(*peer);
    });
  }
  Settle();
  EXPECT_EQ(made_, 5);
}

TEST_F(AnswersTest, WhoDoesNotReadHoldsOnePartInALaneWhateverItAsksFor) {
  auto peer = NewPeer(1, false);
  for (uint64_t id = 1; id <= 60; ++id) Push(Lane::kList, peer, id, 100);
  Settle();
  EXPECT_EQ(made_, 1);
  auto other = NewPeer(2);
  for (Lane lane : {Lane::kQuick, Lane::kList, Lane::kWork}) Push(lane, other, static_cast<uint64_t>(lane), 20);
  EXPECT_TRUE(TestServer::Eventually([&] { return other->ended == 3; }));
}

TEST_F(AnswersTest, ListsOfOneConnectionGoOnInTurns) {
  auto peer = NewPeer(1);
  std::atomic<bool> go{false};
  loop_.Do([&] {
    for (uint64_t id : {1, 2})
      answers_->Push(Lane::kList, peer, id, 0, [&go, made = 0](const std::stop_token&) mutable {
        go.wait(false);
        return AnswerPart{MessageType::kListReply, "", ++made < 3};
      });
    go = true;
    go.notify_all();
  });
  EXPECT_TRUE(TestServer::Eventually([&] { return peer->ended == 2; }));
  EXPECT_THAT(peer->order, ::testing::ElementsAre(1, 2, 1, 2, 1, 2));
}

TEST_F(AnswersTest, WorkOfAClientThatIsGoneIsToldToStop) {
  auto peer = NewPeer(1);
  std::atomic<bool> begun{false}, stopped{false};
  loop_.Do([&] {
    answers_->Push(Lane::kWork, peer, 1, 0, [&](const std::stop_token& stop) {
      begun = true;
      while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
      stopped = true;
      return AnswerPart{MessageType::kListReply, "", true};
    });
  });
  ASSERT_TRUE(TestServer::Eventually([&] { return begun.load(); }));
  loop_.Do([&] { answers_->Forget(*peer); });
  EXPECT_TRUE(TestServer::Eventually([&] { return stopped.load(); }));
  Settle();
  EXPECT_EQ(peer->parts, 0);
  EXPECT_EQ(peer.use_count(), 1);  // nothing holds it
}

TEST_F(AnswersTest, ARequestThatFindsNoMemoryCostsThatRequest) {
  auto peer = NewPeer(1);
  loop_.Do([&] {
    answers_->Push(Lane::kQuick, peer, 1, 0, [](const std::stop_token&) -> AnswerPart { throw std::bad_alloc(); });
  });
  ASSERT_TRUE(TestServer::Eventually([&] { return peer->ended == 1; }));
  loop_.Do([&] { EXPECT_EQ(peer->last_type[1], MessageType::kError); });
  Push(Lane::kQuick, peer, 2, 1);
  EXPECT_TRUE(TestServer::Eventually([&] { return peer->ended == 2; }));
}

TEST_F(AnswersTest, TextsThatWaitAreBoundedAndShortRequestsFindRoom) {
  std::vector<std::shared_ptr<FakePeer>> greedy;
  for (pid_t pid = 100; pid < 130; ++pid) {
    greedy.push_back(NewPeer(pid, false));
    for (uint64_t id = 1; id <= 10; ++id) Push(Lane::kWork, greedy.back(), id, 100, size_t{1} << 20);
  }
  Settle();
  EXPECT_GE(metrics_.busy, 300u - 64u);  // 64 MiB of texts
  EXPECT_LE(metrics_.busy, 300u - 50u);
  auto honest = NewPeer(1);
  for (uint64_t id = 1; id <= 3; ++id) Push(Lane::kQuick, honest, id, 1);
  EXPECT_TRUE(TestServer::Eventually([&] { return honest->ended == 3; }));
  loop_.Do([&] { EXPECT_EQ(honest->last_type[3], MessageType::kListReply); });
  loop_.Do([&] {
    for (auto& peer : greedy) answers_->Forget(*peer);
  });
  Push(Lane::kWork, honest, 4, 1, size_t{1} << 20);
  EXPECT_TRUE(TestServer::Eventually([&] { return honest->ended == 4; }));
  loop_.Do([&] { EXPECT_EQ(honest->last_type[4], MessageType::kListReply); });
}

}  // namespace
}  // namespace hone
