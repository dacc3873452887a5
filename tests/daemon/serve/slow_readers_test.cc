// Clients that ask for code and do not read it: what they cost, and that nobody else pays.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/daemon/test_server.h"

namespace hone {
namespace {

using testing::Soon;
using testing::TestServer;
using testing::TestServerOptions;

constexpr const char* kKernel = "add(M=1,N=1)";

// As the kernel counts them in the queue of `fd`.
size_t DescriptorsQueued(int fd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
  for (std::string word; info >> word;) {
    size_t count = 0;
    if (word == "scm_fds:" && info >> count) return count;
  }
  return 0;
}

void AskFor(int fd, uint64_t first_id, uint64_t count) {
  std::string frames;
  for (uint64_t id = first_id; id < first_id + count; ++id) frames += EncodeFrame(id, GetRequest{.kernel = kKernel});
  ASSERT_EQ(send(fd, frames.data(), frames.size(), MSG_NOSIGNAL), static_cast<ssize_t>(frames.size()));
}

void ExpectAnswers(Channel& channel, uint64_t first_id, uint64_t count) {
  for (uint64_t id = first_id; id < first_id + count; ++id) {
    Result<ReceivedFrame> answer = channel.Receive(Soon());
    ASSERT_TRUE(answer) << id << ": " << answer.error().Text();
    EXPECT_EQ(answer->header.type, MessageType::kGetReply);
    EXPECT_EQ(answer->header.request_id, id);
    EXPECT_TRUE(answer->descriptor);
  }
}

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(SlowReaders, OneGetsSixteenAndTheRestWhenItReads) {
  TestServer server;
  ASSERT_TRUE(server.Get(kKernel));
  Channel slow = server.Connect({1000, 1});
  AskFor(slow.fd(), 1, 64);
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.held_back == 48; }));
  EXPECT_EQ(DescriptorsQueued(slow.fd()), 16u);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(server.Get(kKernel));
  EXPECT_EQ(DescriptorsQueued(slow.fd()), 16u);
  ExpectAnswers(slow, 1, 64);
  AskFor(slow.fd(), 65, 1);
  ExpectAnswers(slow, 65, 1);
  EXPECT_EQ(server.metrics.connections_dropped, 0u);
}

TEST(SlowReaders, WhatHasNoDescriptorIsNotHeldBack) {
  TestServer server;
  ASSERT_TRUE(server.Get(kKernel));
  Channel slow = server.Connect();
  AskFor(slow.fd(), 1, 20);
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.held_back == 4; }));
  ASSERT_TRUE(slow.Send(EncodeFrame(21, StatusRequest{}) + EncodeFrame(22, GetRequest{.kernel = "?"}), Soon()));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ExpectAnswers(slow, 1, 16);
  std::set<uint64_t> others;
  for (int i = 0; i < 2; ++i) others.insert(slow.Receive(Soon())->header.request_id);
  EXPECT_EQ(others, (std::set<uint64_t>{21, 22}));
  ExpectAnswers(slow, 17, 4);
}

TEST(SlowReaders, AllConnectionsOfOneClientHaveItsShare) {
  TestServerOptions options;
  options.server.descriptors = 64;  // 48 of them shared
  TestServer server(options);
  ASSERT_TRUE(server.Get(kKernel));
  std::vector<Channel> slow;
  auto queued = [&] {
    size_t count = 0;
    for (Channel& channel : slow) count += DescriptorsQueued(channel.fd());
    return count;
  };
  for (int i = 0; i < 20; ++i) {
    slow.push_back(server.Connect({1000, 1}));
    AskFor(slow.back().fd(), 1, 16);
  }
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.held_back == 20 * 16 - 24; }));
  EXPECT_EQ(queued(), 24u);
  // Another client that reads has all that it asks for, at once and more than that …
  Channel honest = server.Connect({1000, 2});
  AskFor(honest.fd(), 1, 200);
  ExpectAnswers(honest, 1, 200);
  // … and however many do not read, one answer goes to who holds none.
  for (int pid = 3; pid < 15; ++pid) {
    slow.push_back(server.Connect({1000, pid}));
    AskFor(slow.back().fd(), 1, 16);
    ASSERT_TRUE(TestServer::Eventually([&] { return DescriptorsQueued(slow.back().fd()) > 0; })) << pid;
  }
  EXPECT_LE(queued(), 64u);
  for (uint64_t id = 1000; id < 1100; ++id) {
    AskFor(honest.fd(), id, 1);
    ExpectAnswers(honest, id, 1);
  }
  EXPECT_LE(queued(), 64u);
  for (Channel& channel : slow) ExpectAnswers(channel, 1, 16);
}

// Of one client's connections the one that reads goes on, however long others of them have waited.
TEST(SlowReaders, WhoReadsGetsTheRoomThatItMade) {
  TestServerOptions options;
  options.server.descriptors = 64;
  TestServer server(options);
  ASSERT_TRUE(server.Get(kKernel));
  Channel first = server.Connect({1000, 1}), reads = server.Connect({1000, 1}), waits = server.Connect({1000, 1});
  AskFor(first.fd(), 1, 16);
  ASSERT_TRUE(TestServer::Eventually([&] { return DescriptorsQueued(first.fd()) == 16; }));
  AskFor(reads.fd(), 1, 8);
  ASSERT_TRUE(TestServer::Eventually([&] { return DescriptorsQueued(reads.fd()) == 8; }));  // the client's share
  AskFor(waits.fd(), 1, 16);
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.held_back == 16; }));
  AskFor(reads.fd(), 9, 8);
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.held_back == 24; }));
  ExpectAnswers(reads, 1, 16);
  EXPECT_EQ(server.metrics.busy, 0U);
  for (Channel* channel : {&first, &waits}) ExpectAnswers(*channel, 1, 16);
}

TEST(SlowReaders, OneThatReadsNothingIsClosed) {
  TestServerOptions options;
  options.server.stall_time = std::chrono::milliseconds(200);
  TestServer server(options);
  ASSERT_TRUE(server.Get(kKernel));
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 0; }));
  Channel slow = server.Connect({1000, 1});
  AskFor(slow.fd(), 1, 64);
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 0; }));
  EXPECT_EQ(server.metrics.connections_dropped, 1u);
  EXPECT_EQ(server.metrics.connections_lingering, 1u);
  EXPECT_EQ(DescriptorsQueued(slow.fd()), 16u);
  ExpectAnswers(slow, 1, 16);
  EXPECT_FALSE(slow.Receive(Soon()));
}

// Answers each request with the same code, and knows who asked for longer than they are connected.
class RemembersItsPeers : public FrameHandler {
 public:
  void OnRequest(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte>) override {
    peers.push_back(peer);
    peer->ReplyHit(header.request_id, code);
  }
  void OnTaken(const Peer&) override {}
  void OnGone(const Peer&) override {}

  HotCodePtr code = [] {
    auto made = std::make_shared<HotCode>();
    made->hit_body = EncodeBody(GetReply{});
    made->artifact = *SealedMemfd::Create({});
    return made;
  }();
  std::vector<PeerPtr> peers;
};

// What is left of a closed connection may still have its turn: its last handlers hold it for a moment.
TEST(SlowReaders, OneThatIsClosedHasItsTurnInVain) {
  RemembersItsPeers handler;
  Metrics metrics;
  testing::LoopThread loop;
  std::unique_ptr<Server> server;
  ServerLimits limits;
  limits.stall_time = std::chrono::milliseconds(200);
  std::vector<Channel> slow;
  for (int i = 0; i < 3; ++i) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    slow.emplace_back(UniqueFd(ends[0]));
    loop.Do([&] {
      if (!server) server = std::make_unique<Server>(loop.loop, handler, metrics, limits);
      server->Adopt(UniqueFd(ends[1]));
    });
  }
  for (Channel& channel : slow) AskFor(channel.fd(), 1, 17);
  ASSERT_TRUE(TestServer::Eventually([&] { return metrics.connections == 0; }));
  EXPECT_EQ(metrics.connections_dropped, slow.size());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // over a few turns
  loop.Do([&] {
    server.reset();
    handler.peers.clear();
  });
}

// What ends it is something else than the time for which it has not read: no pause of the machine closes the other.
TEST(SlowReaders, OneThatIsClosedCountsUntilItHasReadOrLeft) {
  TestServerOptions options;
  options.server.descriptors = 64;
  TestServer server(options);
  ASSERT_TRUE(server.Get(kKernel));
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 0; }));
  const size_t before = OpenDescriptors();
  const std::string no_frame(kFrameHeaderBytes, '?');
  Channel first = server.Connect({1000, 1});
  AskFor(first.fd(), 1, 16);
  ASSERT_TRUE(TestServer::Eventually([&] { return DescriptorsQueued(first.fd()) == 16; }));
  ASSERT_TRUE(first.Send(no_frame, Soon()));
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 0; }));
  EXPECT_EQ(server.metrics.connections_dropped, 1u);
  EXPECT_EQ(server.metrics.connections_lingering, 1u);
  EXPECT_EQ(DescriptorsQueued(first.fd()), 16u);
  // The client's share is 24.
  Channel second = server.Connect({1000, 1});
  AskFor(second.fd(), 1, 16);
  EXPECT_TRUE(TestServer::Eventually([&] { return DescriptorsQueued(second.fd()) == 8; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(DescriptorsQueued(second.fd()), 8u);  // and stays so
  ExpectAnswers(first, 1, 16);                    // what had been sent can be read …
  Result<ReceivedFrame> refusal = first.Receive(Soon());
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->header.type, MessageType::kError);
  EXPECT_FALSE(first.Receive(Soon()));
  EXPECT_TRUE(TestServer::Eventually([&] { return DescriptorsQueued(second.fd()) == 16; }));  // … which makes room
  ExpectAnswers(second, 1, 16);
  AskFor(second.fd(), 17, 16);
  ASSERT_TRUE(TestServer::Eventually([&] { return DescriptorsQueued(second.fd()) == 16; }));
  ASSERT_TRUE(second.Send(no_frame, Soon()));
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 0; }));
  EXPECT_TRUE(TestServer::Eventually([&] { return server.metrics.connections_lingering == 1; }));
  first = Channel(UniqueFd());
  second = Channel(UniqueFd());
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.connections_lingering == 0; }));
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(SlowReaders, WhoHasReadAllIsToldBusyAndNotClosed) {
  TestServerOptions options;
  options.server.descriptors = 4;  // 3 of them shared
  options.server.stall_time = std::chrono::milliseconds(300);
  TestServer server(options);
  ASSERT_TRUE(server.Get(kKernel));
  std::vector<Channel> slow;
  for (int pid = 1; pid <= 4; ++pid) {
    slow.push_back(server.Connect({1000, pid}));
    AskFor(slow.back().fd(), 1, 1);
    ASSERT_TRUE(TestServer::Eventually([&] { return DescriptorsQueued(slow.back().fd()) == 1; })) << pid;
  }
  Channel honest = server.Connect({1000, 5});
  AskFor(honest.fd(), 1, 1);
  Result<ReceivedFrame> answer = honest.Receive(Soon());
  ASSERT_TRUE(answer) << answer.error().Text();
  ASSERT_EQ(answer->header.type, MessageType::kError);
  EXPECT_EQ(DecodeBody<ErrorReply>(answer->body)->kind, ErrorKind::kBusy);
  EXPECT_EQ(server.metrics.connections_dropped, 0u);
  slow.pop_back();
  AskFor(honest.fd(), 2, 1);
  ExpectAnswers(honest, 2, 1);
}

// It asks for more than honed keeps for it, and takes longer to read that than a request may take to arrive: requests
// that honed has not looked at yet have arrived long ago.
TEST(SlowReaders, WhoReadsSteadilyIsNotTakenForOneWhoSendsSlowly) {
  constexpr uint64_t kAsked = 4000;
  TestServerOptions options;
  options.server.frame_time = std::chrono::milliseconds(500);
  TestServer server(options);
  ASSERT_TRUE(server.Get(kKernel));
  Channel slow = server.Connect();
  std::string frames;
  for (uint64_t id = 1; id <= kAsked; ++id)
    frames += EncodeFrame(id, GetRequest{.kernel = kKernel, .no_artifact = true});
  std::jthread asking([&] { send(slow.fd(), frames.data(), frames.size(), MSG_NOSIGNAL); });
  for (uint64_t id = 1; id <= kAsked; ++id) {
    if (id % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(80));
    Result<ReceivedFrame> answer = slow.Receive(Soon());
    ASSERT_TRUE(answer) << id << ": " << answer.error().Text();
    ASSERT_EQ(answer->header.request_id, id);
  }
  EXPECT_EQ(server.metrics.connections_dropped, 0u);
}

}  // namespace
}  // namespace hone
