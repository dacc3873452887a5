// Clients that misbehave, one at a time and all at once.
#include "daemon/serve/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>
#include <filesystem>
#include <new>
#include <thread>

#include "base/bytes.h"
#include "tests/daemon/test_server.h"
#include "tests/support/send_descriptors.h"

namespace hone {
namespace {

using testing::Soon;
using testing::TestServer;
using testing::TestServerOptions;

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

void SendRaw(int fd, std::string_view bytes) {
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// True once the other side has closed; what it said before is dropped.
bool Closed(int fd) {
  char bytes[4096];
  for (;;) {
    pollfd poll{fd, POLLIN, 0};
    if (::poll(&poll, 1, 10'000) <= 0) return false;
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    if (got <= 0) return true;
  }
}

// What every misbehaviour must leave untouched.
void ExpectHonestClientsAreServed(TestServer& server) {
  Result<GetReply> reply = server.Get("add(M=1,N=1)");
  ASSERT_TRUE(reply) << reply.error().Text();
}

// The end of a connection is reported, but the connection is closed before the report is heard and another takes its
// place in the reactor: the report is not meant for that one.
TEST(Connection, TheEndOfOneIsNotTakenForTheEndOfTheNext) {
  TestServer server;
  for (int i = 0; i < 20; ++i) {
    UniqueFd old = server.Dial();
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    Channel next((UniqueFd(ends[0])));
    server.Do([&] {  // the reactor looks behind this, the posted work comes before what it sees
      old.Reset();
      server.Post([&] { server.server->Drain(std::chrono::milliseconds(0), [] {}); });
      server.Post([&] { server.server->Adopt(UniqueFd(ends[1])); });
    });
    Result<StatusReply> status = next.Call(StatusRequest{}, Soon());
    ASSERT_TRUE(status) << status.error().Text();
  }
}

TEST(Connection, GarbageIsAnsweredAndClosed) {
  TestServer server;
  for (std::string garbage :
       {std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), std::string(5000, '\xff'), std::string(24, '\0')}) {
    Channel channel = server.Connect();
    SendRaw(channel.fd(), garbage);
    Result<ReceivedFrame> frame = channel.Receive(Soon());
    ASSERT_TRUE(frame) << frame.error().Text();
    EXPECT_EQ(frame->header.type, MessageType::kError);
    EXPECT_EQ(DecodeBody<ErrorReply>(frame->body)->kind, ErrorKind::kCorrupt);
    EXPECT_TRUE(Closed(channel.fd()));
  }
  EXPECT_EQ(server.metrics.bad_frames, 3u);
  ExpectHonestClientsAreServed(server);
}

TEST(Connection, ALengthOf4GiBIsRefusedBeforeItIsRead) {
  TestServer server;
  for (uint64_t length : {uint64_t{kRequestLimit} + 1, uint64_t{1} << 32, ~uint64_t{0}}) {
    Channel channel = server.Connect();
    std::byte header[kFrameHeaderBytes];
    EncodeHeader({kProtocolMax, MessageType::kGet, 1, length}, header);
    SendRaw(channel.fd(), AsText(header));
    Result<ReceivedFrame> frame = channel.Receive(Soon());
    ASSERT_TRUE(frame);
    EXPECT_EQ(DecodeBody<ErrorReply>(frame->body)->kind, ErrorKind::kLimit);
    EXPECT_TRUE(Closed(channel.fd()));
  }
  ExpectHonestClientsAreServed(server);
}

TEST(Connection, AnotherVersionIsToldWhichOnesThereAre) {
  TestServer server;
  Channel channel = server.Connect();
  std::string frame = EncodeFrame(5, StatusRequest{});
  frame[4] = 77;
  SendRaw(channel.fd(), frame);
  Result<ReceivedFrame> answer = channel.Receive(Soon());
  ASSERT_TRUE(answer);
  EXPECT_EQ(DecodeBody<ErrorReply>(answer->body)->kind, ErrorKind::kUnsupported);
}

TEST(Connection, ABadBodyCostsOneRequestAndNotTheConnection) {
  TestServer server;
  Channel channel = server.Connect();
  std::string frame = EncodeFrame(1, GetRequest{.kernel = "add(M=1,N=1)"});
  std::memset(frame.data() + kFrameHeaderBytes, 0xff, 4);  // the text's length
  SendRaw(channel.fd(), frame);
  Result<ReceivedFrame> answer = channel.Receive(Soon());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.request_id, 1u);
  EXPECT_EQ(DecodeBody<ErrorReply>(answer->body)->kind, ErrorKind::kCorrupt);
  std::byte unknown[kFrameHeaderBytes];
  EncodeHeader({kProtocolMax, static_cast<MessageType>(999), 2, 0}, unknown);
  SendRaw(channel.fd(), AsText(unknown));
  answer = channel.Receive(Soon());
  ASSERT_TRUE(answer);
  EXPECT_EQ(DecodeBody<ErrorReply>(answer->body)->kind, ErrorKind::kUnsupported);
  EXPECT_TRUE(channel.Call(StatusRequest{}, Soon()));
}

TEST(Connection, FramesMayComeByteByByteOrManyAtOnce) {
  TestServer server;
  ASSERT_TRUE(server.Get("add(M=1,N=1)"));
  Channel channel = server.Connect();
  std::string frame = EncodeFrame(1, GetRequest{.kernel = "add(M=1,N=1)"});
  for (char byte : frame) SendRaw(channel.fd(), std::string_view(&byte, 1));
  EXPECT_TRUE(channel.Await<GetReply>(1, Soon()));
  std::string many;
  for (uint64_t id = 10; id < 310; ++id) many += EncodeFrame(id, GetRequest{.kernel = "add(M=1,N=1)"});
  SendRaw(channel.fd(), many);
  for (uint64_t id = 10; id < 310; ++id) {
    Result<ReceivedFrame> answer = channel.Receive(Soon());
    ASSERT_TRUE(answer) << id;
    EXPECT_EQ(answer->header.request_id, id);
    EXPECT_TRUE(answer->descriptor);
  }
}

TEST(Connection, ManyMissesOnOneConnectionAreAllAnswered) {
  TestServerOptions options;
  options.server.requests = 3;
  TestServer server(options);
  Channel channel = server.Connect();
  std::string many;
  for (uint64_t id = 1; id <= 20; ++id) {
    many += EncodeFrame(id, GetRequest{.kernel = "add(M=" + std::to_string(id % 4 + 1) + ",N=1)"});
  }
  SendRaw(channel.fd(), many);
  std::vector<bool> answered(21);
  for (int i = 0; i < 20; ++i) {
    Result<ReceivedFrame> answer = channel.Receive(Soon());
    ASSERT_TRUE(answer) << i;
    EXPECT_EQ(answer->header.type, MessageType::kGetReply);
    EXPECT_FALSE(answered[answer->header.request_id]);
    answered[answer->header.request_id] = true;
  }
}

TEST(Connection, UninvitedDescriptorsAreClosed) {
  TestServer server;
  ExpectHonestClientsAreServed(server);
  Channel channel = server.Connect();
  ASSERT_TRUE(channel.Call(StatusRequest{}, Soon()));
  size_t before = OpenDescriptors();
  for (uint64_t id = 100; id < 120; ++id) {
    int pipe_ends[2];
    ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
    testing::SendWithDescriptors(channel.fd(), EncodeFrame(id, StatusRequest{}), {pipe_ends[0], pipe_ends[1]});
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    ASSERT_TRUE(channel.Await<StatusReply>(id, Soon()));
  }
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_EQ(server.metrics.uninvited_descriptors, 20u);
}

TEST(Connection, AClientThatStopsReadingIsBoundedAndClosed) {
  TestServerOptions options;
  options.server.stall_time = std::chrono::milliseconds(600);
  TestServer server(options);
  ASSERT_TRUE(server.Get("add(M=1,N=1)"));
  UniqueFd socket = server.Dial();
  fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  std::string frame = EncodeFrame(1, GetRequest{.kernel = "add(M=1,N=1)"});
  size_t sent = 0;
  bool closed = false;
  for (int i = 0; i < 5000 && !closed; ++i) {
    for (;;) {
      ssize_t size =
          send(socket.get(), frame.data() + sent % frame.size(), frame.size() - sent % frame.size(), MSG_NOSIGNAL);
      if (size <= 0) {
        closed = errno == EPIPE || errno == ECONNRESET;
        break;
      }
      sent += static_cast<size_t>(size);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(closed);
  EXPECT_LT(sent, size_t{16} << 20);
  EXPECT_EQ(server.metrics.connections_dropped, 1u);
  ExpectHonestClientsAreServed(server);
}

TEST(Connection, ARequestThatTakesTooLongIsClosed) {
  TestServerOptions options;
  options.server.frame_time = std::chrono::milliseconds(300);
  TestServer server(options);
  Channel idle = server.Connect(), slow = server.Connect();
  SendRaw(slow.fd(), EncodeFrame(1, StatusRequest{}).substr(0, 10));
  EXPECT_TRUE(Closed(slow.fd()));
  EXPECT_TRUE(idle.Call(StatusRequest{}, Soon()));  // saying nothing at all is fine
}

TEST(Connection, TruncatedFramesAndDeadClientsLeaveNothingBehind) {
  TestServer server;
  ExpectHonestClientsAreServed(server);
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 0; }));
  size_t before = OpenDescriptors();
  std::string frame = EncodeFrame(1, GetRequest{.kernel = "add(M=1,N=1)"});
  for (size_t size = 0; size < frame.size(); ++size) {
    UniqueFd socket = server.Dial();
    SendRaw(socket.get(), frame.substr(0, size));
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 0; }));
  EXPECT_EQ(OpenDescriptors(), before);
  ExpectHonestClientsAreServed(server);
}

TEST(Connection, AHalfClosedClientStillGetsItsAnswers) {
  TestServer server;
  server.pools.Hold();
  Channel channel = server.Connect();
  SendRaw(channel.fd(), EncodeFrame(1, GetRequest{.kernel = "add(M=2,N=2)"}) + EncodeFrame(2, StatusRequest{}));
  shutdown(channel.fd(), SHUT_WR);
  EXPECT_TRUE(channel.Await<StatusReply>(2, Soon()));
  server.pools.Release();
  EXPECT_TRUE(channel.Await<GetReply>(1, Soon()));
  EXPECT_TRUE(Closed(channel.fd()));
}

// More answers than the socket holds are made when it ends its side, and none is being made.
TEST(Connection, AHalfClosedClientGetsAnswersThatWaitUntilItReads) {
  TestServer server;
  ASSERT_TRUE(server.Get("add(M=1,N=1)"));
  Channel channel = server.Connect();
  std::string many;
  for (uint64_t id = 1; id <= 1200; ++id)
    many += EncodeFrame(id, GetRequest{.kernel = "add(M=1,N=1)", .no_artifact = true});
  SendRaw(channel.fd(), many);
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.hits_memory == 1200; }));
  shutdown(channel.fd(), SHUT_WR);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // honed sees that end
  for (uint64_t id = 1; id <= 1200; ++id) {
    Result<ReceivedFrame> answer = channel.Receive(Soon());
    ASSERT_TRUE(answer) << id << ": " << answer.error().Text();
    ASSERT_EQ(answer->header.request_id, id);
  }
  EXPECT_TRUE(Closed(channel.fd()));
}

// The bad frame has been read with the one before it, and is looked at when that is answered.
TEST(Connection, GarbageBehindARequestIsAnsweredAndClosedOnceTheRequestIs) {
  TestServerOptions options;
  options.server.requests = 1;
  TestServer server(options);
  server.pools.Hold();
  Channel channel = server.Connect();
  SendRaw(channel.fd(), EncodeFrame(1, GetRequest{.kernel = "add(M=1,N=1)"}) + std::string(24, '\xff'));
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_running == 1; }));
  server.pools.Release();
  EXPECT_TRUE(channel.Await<GetReply>(1, Soon()));
  Result<ReceivedFrame> refusal = channel.Receive(Soon());
  ASSERT_TRUE(refusal) << refusal.error().Text();
  EXPECT_EQ(DecodeBody<ErrorReply>(refusal->body)->kind, ErrorKind::kCorrupt);
  EXPECT_TRUE(Closed(channel.fd()));
}

TEST(Connection, AThousandConnectionsAreServedAndLeave) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 2500) GTEST_SKIP() << "[SKIP] no 2,500 descriptors";
  TestServer server;
  ASSERT_TRUE(server.Get("add(M=1,N=1)"));
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 0; }));
  size_t before = OpenDescriptors();
  {
    std::vector<Channel> channels;
    for (int i = 0; i < 1000; ++i) channels.push_back(server.Connect({1000, 1 + i % 2}));  // less than half, each
    std::vector<pollfd> polls;
    for (Channel& channel : channels) {
      ASSERT_TRUE(channel.Ask(GetRequest{.kernel = "add(M=1,N=1)"}, Soon()));
      polls.push_back({channel.fd(), POLLIN, 0});
    }
    // Whichever comes: those that are not read keep others from being sent.
    for (size_t left = channels.size(); left > 0;) {
      ASSERT_GT(::poll(polls.data(), polls.size(), 10'000), 0) << left;
      for (size_t i = 0; i < polls.size(); ++i) {
        if (polls[i].revents == 0) continue;
        ASSERT_TRUE(channels[i].Await<GetReply>(1, Soon())) << i;
        polls[i].fd = -1;
        --left;
      }
    }
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 0; }));
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(Connection, OneClientsConnectionsLeaveRoomForOthers) {
  TestServerOptions options;
  options.server.connections = 8;  // 6 of them shared
  TestServer server(options);
  Channel other = server.Connect({1000, 2});
  ASSERT_TRUE(other.Call(StatusRequest{}, Soon()));
  std::vector<Channel> greedy;
  for (int i = 0; i < 5; ++i) {
    greedy.push_back(server.Connect({1000, 1}));
    ASSERT_TRUE(greedy.back().Call(StatusRequest{}, Soon()));
  }
  EXPECT_EQ(server.metrics.connections, 4u);
  EXPECT_TRUE(Closed(greedy[0].fd()));  // its own that was idle longest made room
  EXPECT_TRUE(Closed(greedy[1].fd()));
  // None of them is idle: the next one has to wait.
  server.pools.Hold();
  std::vector<uint64_t> ids;
  for (int i = 2; i < 5; ++i) {
    ids.push_back(*greedy[i].Ask(GetRequest{.kernel = "add(M=1,N=" + std::to_string(i) + ")"}, Soon()));
  }
  ASSERT_TRUE(TestServer::Eventually(
      [&] { return server.metrics.builds_running + server.metrics.builds_queued == ids.size(); }));
  Channel refused = server.Connect({1000, 1});
  Result<ReceivedFrame> answer = refused.Receive(Soon());
  ASSERT_TRUE(answer) << answer.error().Text();
  EXPECT_EQ(answer->header.request_id, 0u);
  EXPECT_EQ(DecodeBody<ErrorReply>(answer->body)->kind, ErrorKind::kBusy);
  EXPECT_TRUE(other.Call(StatusRequest{}, Soon()));
  EXPECT_TRUE(server.Connect({1000, 3}).Call(StatusRequest{}, Soon()));
  server.pools.Release();
  for (int i = 2; i < 5; ++i) EXPECT_TRUE(greedy[i].Await<GetReply>(ids[i - 2], Soon())) << i;
}

TEST(Connection, OneClientsUnfinishedFramesLeaveRoomForOthers) {
  TestServerOptions options;
  options.server.frame_bytes = 16 << 20;  // 12 MiB of them shared, 6 for who is alone
  TestServer server(options);
  const std::string frame = EncodeFrame(1, GetRequest{.kernel = std::string(1000 << 10, ' ')});
  std::vector<Channel> greedy;
  for (int i = 0; i < 8; ++i) {
    greedy.push_back(server.Connect({1000, 1}));
    const std::string_view most = std::string_view(frame).substr(0, frame.size() - 1);
    ASSERT_TRUE(greedy.back().Send(most, Soon()) || i >= 6);
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return server.metrics.connections_dropped == 2; }));
  Channel other = server.Connect({1000, 2});
  ASSERT_TRUE(other.Send(frame, Soon()));
  Result<ReceivedFrame> answer = other.Receive(Soon());
  ASSERT_TRUE(answer) << answer.error().Text();
  EXPECT_EQ(DecodeBody<ErrorReply>(answer->body)->kind, ErrorKind::kInvalid);  // it was read and found empty
  greedy.clear();
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 1; }));
  Channel again = server.Connect({1000, 1});
  ASSERT_TRUE(again.Send(frame, Soon()));
  EXPECT_EQ(DecodeBody<ErrorReply>(again.Receive(Soon())->body)->kind, ErrorKind::kInvalid);
}

TEST(Connection, BytesOfRequestsCountUntilTheyAreAnswered) {
  TestServerOptions options;
  options.server.frame_bytes = 8 << 20;  // 6 MiB of them shared, 3 for who is alone
  TestServer server(options);
  server.pools.Hold();
  Channel greedy = server.Connect({1000, 1}), second = server.Connect({1000, 1}), other = server.Connect({1000, 2});
  // The same kernel in another spelling each, so that one build answers all.
  auto ask = [](Channel& channel, uint64_t id) {
    const std::string text = "add(M=1,N=1)" + std::string((400 << 10) + id, ' ');
    EXPECT_TRUE(channel.Send(EncodeFrame(id, GetRequest{.kernel = text}), Soon())) << id;
  };
  std::jthread asking([&] {
    for (uint64_t id = 1; id <= 30; ++id) ask(greedy, id);
  });
  EXPECT_TRUE(TestServer::Eventually([&] { return server.metrics.joined >= 4; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LE(server.metrics.joined, 7u);  // no more of them are read
  EXPECT_FALSE(second.Send(EncodeFrame(1, GetRequest{.kernel = std::string(900 << 10, ' ')}), Soon()));
  Result<ReceivedFrame> answer = second.Receive(Soon());
  ASSERT_TRUE(answer) << answer.error().Text();
  EXPECT_EQ(DecodeBody<ErrorReply>(answer->body)->kind, ErrorKind::kBusy);
  ask(other, 1);
  EXPECT_TRUE(TestServer::Eventually([&] { return server.metrics.lookups_queued == 0; }));
  server.pools.Release();
  for (int i = 0; i < 30; ++i) {
    answer = greedy.Receive(Soon());
    ASSERT_TRUE(answer) << answer.error().Text();
    EXPECT_EQ(answer->header.type, MessageType::kGetReply) << i;
  }
  EXPECT_EQ(other.Receive(Soon())->header.type, MessageType::kGetReply);
}

// Out of memory for what it does itself, or for its own answer's.
class NoMemory : public FrameHandler {
 public:
  void OnRequest(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte>) override {
    if (header.type == MessageType::kGet) throw std::bad_alloc();
    peer->Reply(header.request_id, StatsReply{});
    if (header.type == MessageType::kStatus) throw std::bad_alloc();
  }
  void OnTaken(const Peer&) override {}
  void OnGone(const Peer&) override {}
};

TEST(Connection, OutOfMemoryCostsTheRequest) {
  NoMemory handler;
  Metrics metrics;
  testing::LoopThread loop;
  std::unique_ptr<Server> server;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  loop.Do([&] {
    server = std::make_unique<Server>(loop.loop, handler, metrics, ServerLimits{});
    server->Adopt(UniqueFd(ends[1]));
  });
  Channel channel((UniqueFd(ends[0])));
  loop.loop.Post([] { throw std::bad_alloc(); });
  for (uint64_t id = 1; id < 100; id += 3) {
    ASSERT_TRUE(channel.Send(EncodeFrame(id, GetRequest{.kernel = "x"}) + EncodeFrame(id + 1, StatusRequest{}) +
                                 EncodeFrame(id + 2, StatsRequest{}),
                             Soon()));
    Result<ReceivedFrame> answer = channel.Receive(Soon());
    ASSERT_TRUE(answer) << answer.error().Text();
    EXPECT_EQ(answer->header.request_id, id);
    EXPECT_EQ(DecodeBody<ErrorReply>(answer->body)->kind, ErrorKind::kBusy);
    for (uint64_t next : {id + 1, id + 2}) {  // once each, though one failed after its answer
      answer = channel.Receive(Soon());
      ASSERT_TRUE(answer) << answer.error().Text();
      EXPECT_EQ(answer->header.request_id, next);
      EXPECT_EQ(answer->header.type, MessageType::kStatsReply);
    }
  }
  loop.Do([&] { server.reset(); });
}

}  // namespace
}  // namespace hone
