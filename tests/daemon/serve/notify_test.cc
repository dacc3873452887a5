// Who is told of better code, and what clients may do to those who tell them.
#include "daemon/serve/notify.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/bytes.h"
#include "tests/daemon/test_server.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/versions.h"

namespace hone::notify_test {
namespace {

using testing::Layout;
using testing::Soon;
using testing::TestServer;
using testing::TestServerOptions;
using testing::VersionBytes;

constexpr const char* kKernel = "matmul(M=4,N=4,K=4)";

WatchRequest WatchOf(const GetReply& reply) { return {true, reply.fingerprint, reply.target, reply.digest}; }

Result<WatchReply> Watch(Channel& channel, uint64_t id, const WatchRequest& request) {
  HONE_TRY(channel.Send(EncodeFrame(id, request), Soon()));
  return channel.Await<WatchReply>(id, Soon());
}

bool IsQuiet(Channel& channel) {
  pollfd poll{channel.fd(), POLLIN, 0};
  return ::poll(&poll, 1, 100) == 0;
}

std::string CanonicalOf(TestServer& server, const std::string& kernel) {
  return server.path->Identify({kernel, "", 0})->key.canonical;
}

TEST(Notify, WhoHoldsTheCodeIsToldOfTheBetterOne) {
  TestServer server;
  GetReply reply = *server.Get(kKernel);
  GetReply other = *server.Get("add(M=1,N=1)");
  Channel holder = server.Connect(), stranger = server.Connect();
  ASSERT_TRUE(Watch(holder, 6, WatchOf(reply))->is_current);
  ASSERT_TRUE(Watch(holder, 8, WatchOf(reply))->is_current);
  ASSERT_TRUE(Watch(stranger, 6, WatchOf(other))->is_current);
  EXPECT_EQ(server.metrics.watchers, 2u);
  EXPECT_EQ(server.metrics.watches, 3u);
  std::vector<std::byte> better = VersionBytes(Layout::kPlain, 1, CanonicalOf(server, kKernel));
  server.Promote(kKernel, better);
  Digest256 digest = Hash256(better);
  for (uint64_t id : {6, 8}) {
    Result<NewerNotice> notice = holder.Await<NewerNotice>(id, Soon());
    ASSERT_TRUE(notice) << notice.error().Text();
    EXPECT_EQ(notice->fingerprint, reply.fingerprint);
    EXPECT_EQ(notice->target, reply.target);
    EXPECT_EQ(notice->digest, AsText(std::as_bytes(std::span(digest))));
  }
  EXPECT_TRUE(IsQuiet(stranger));
  EXPECT_EQ(server.metrics.notices, 2u);
  EXPECT_EQ(server.Get(kKernel)->digest, AsText(std::as_bytes(std::span(digest))));  // what it finds when it asks
}

TEST(Notify, TellsAtOnceWhetherTheCodeIsCurrent) {
  TestServer server;
  GetReply reply = *server.Get(kKernel);
  Channel channel = server.Connect();
  WatchRequest request = WatchOf(reply);
  EXPECT_TRUE(Watch(channel, 2, request)->is_current);
  request.digest[0] ^= 1;
  EXPECT_FALSE(Watch(channel, 4, request)->is_current);
  request = WatchOf(reply);
  request.target = "another";
  EXPECT_FALSE(Watch(channel, 6, request)->is_current);
  server.Do([&] { server.hot->Forget(*ParseFingerprint(reply.fingerprint)); });
  EXPECT_FALSE(Watch(channel, 8, WatchOf(reply))->is_current);  // on disk, maybe: it cannot tell at once
}

TEST(Notify, TellsOnceOfTheSameCodeAndNotWhoHasIt) {
  TestServer server;
  GetReply reply = *server.Get(kKernel);
  Channel channel = server.Connect();
  std::vector<std::byte> better = VersionBytes(Layout::kPlain, 1, CanonicalOf(server, kKernel));
  ASSERT_TRUE(Watch(channel, 2, WatchOf(reply)));
  server.Promote(kKernel, better);
  ASSERT_TRUE(channel.Await<NewerNotice>(2, Soon()));
  server.Promote(kKernel, better);
  EXPECT_TRUE(IsQuiet(channel));
  server.Promote(kKernel, VersionBytes(Layout::kPlain, 2, CanonicalOf(server, kKernel)));
  EXPECT_TRUE(channel.Await<NewerNotice>(2, Soon()));
  server.Promote(kKernel, better);  // and back
  EXPECT_TRUE(channel.Await<NewerNotice>(2, Soon()));
}

TEST(Notify, AWatchEndsWhenItIsEndedOrReplacedOrItsConnectionIsGone) {
  TestServer server;
  GetReply reply = *server.Get(kKernel), other = *server.Get("add(M=1,N=1)");
  Channel channel = server.Connect();
  ASSERT_TRUE(Watch(channel, 2, WatchOf(reply)));
  ASSERT_TRUE(Watch(channel, 2, {.watch = false, .fingerprint = "", .target = "", .digest = ""}));
  EXPECT_EQ(server.metrics.watches, 0u);
  EXPECT_EQ(server.metrics.watchers, 0u);
  ASSERT_TRUE(Watch(channel, 2, WatchOf(reply)));
  ASSERT_TRUE(Watch(channel, 2, WatchOf(other)));
  EXPECT_EQ(server.metrics.watches, 1u);
  server.Promote(kKernel, VersionBytes(Layout::kPlain, 1, CanonicalOf(server, kKernel)));
  EXPECT_TRUE(IsQuiet(channel));
  {
    Channel gone = server.Connect();
    for (uint64_t id = 2; id < 40; id += 2) ASSERT_TRUE(Watch(gone, id, WatchOf(reply)));
    EXPECT_EQ(server.metrics.watches, 20u);
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return server.metrics.watches == 1; }));
  EXPECT_EQ(server.metrics.watchers, 1u);
  server.Promote(kKernel, VersionBytes(Layout::kPlain, 2, CanonicalOf(server, kKernel)));
  EXPECT_EQ(server.metrics.notices, 0u);
}

// As somebody whose device is attached, too: each of both is a reason to keep the connection.
TEST(Notify, TheEndOfTheWatchesLeavesOtherReasonsToKeepAConnection) {
  class KeptPeer : public Peer {
   public:
    KeptPeer() : Peer({1, 1}) {}
    void Reply(uint64_t, MessageType, std::string) override {}
    void ReplyPart(uint64_t, MessageType, std::string) override {}
    void ReplyHit(uint64_t, const HotCodePtr&) override {}
    void ReplyWithCode(uint64_t, std::string, HotCodePtr) override {}
  };
  TestServer server;
  GetReply reply = *server.Get(kKernel);
  server.Do([&] {
    auto peer = std::make_shared<KeptPeer>();
    for (uint64_t id : {2, 4}) server.notifier->OnWatch(peer, id, WatchOf(reply));
    EXPECT_TRUE(peer->is_kept());
    peer->Keep();
    for (uint64_t id : {2, 4})
      server.notifier->OnWatch(peer, id, {.watch = false, .fingerprint = "", .target = "", .digest = ""});
    EXPECT_TRUE(peer->is_kept());
    peer->KeepNoLonger();
    EXPECT_FALSE(peer->is_kept());
  });
}

TEST(Notify, WatchesAreLimitedInNumber) {
  TestServerOptions options;
  options.notify = {.connections = 2, .watches = 8, .watches_of_one = 2};
  TestServer server(options);
  GetReply reply = *server.Get(kKernel);
  Channel first = server.Connect({1000, 1}), second = server.Connect({1000, 2}), third = server.Connect({1000, 3});
  for (uint64_t id : {1, 2}) ASSERT_TRUE(Watch(first, id, WatchOf(reply)));
  EXPECT_EQ(Watch(first, 3, WatchOf(reply)).error().kind, ErrorKind::kBusy);
  EXPECT_TRUE(Watch(first, 2, WatchOf(reply)));  // in place of one that there is
  ASSERT_TRUE(Watch(second, 1, WatchOf(reply)));
  EXPECT_EQ(Watch(third, 1, WatchOf(reply)).error().kind, ErrorKind::kBusy);  // a third connection
  EXPECT_EQ(server.metrics.watches, 3u);
  ASSERT_TRUE(Watch(second, 1, {.watch = false, .fingerprint = "", .target = "", .digest = ""}));
  EXPECT_TRUE(Watch(third, 1, WatchOf(reply)));
  EXPECT_TRUE(server.Get(kKernel));
}

TEST(Notify, OneClientsWatchesLeaveRoomForOthers) {
  TestServerOptions options;
  options.notify = {.connections = 8, .watches = 64, .watches_of_one = 16};  // 6 and 48 of them shared
  TestServer server(options);
  GetReply reply = *server.Get(kKernel);
  std::vector<Channel> greedy;
  for (int i = 0; i < 4; ++i) greedy.push_back(server.Connect({1000, 1}));
  uint64_t watches = 0;
  for (Channel& channel : greedy) {
    for (uint64_t id = 1; id <= 20; ++id) watches += Watch(channel, id, WatchOf(reply)).has_value();
  }
  EXPECT_EQ(watches, 24u);
  EXPECT_EQ(Watch(greedy[3], 1, WatchOf(reply)).error().kind, ErrorKind::kBusy);
  Channel other = server.Connect({1000, 2});
  for (uint64_t id = 1; id <= 12; ++id) EXPECT_TRUE(Watch(other, id, WatchOf(reply))) << id;
  EXPECT_EQ(server.metrics.watches, 36u);
  greedy.clear();
  EXPECT_TRUE(TestServer::Eventually([&] { return server.metrics.watches == 12; }));
  Channel again = server.Connect({1000, 1});
  EXPECT_TRUE(Watch(again, 1, WatchOf(reply)));
}

TEST(Notify, RefusesWhatCannotBe) {
  TestServer server;
  GetReply reply = *server.Get(kKernel);
  Channel channel = server.Connect();
  for (std::string fingerprint : {std::string(), std::string("12"), std::string(32, 'g'), std::string(5000, 'a')}) {
    WatchRequest request = WatchOf(reply);
    request.fingerprint = fingerprint;
    EXPECT_EQ(Watch(channel, 2, request).error().kind, ErrorKind::kInvalid);
  }
  WatchRequest request = WatchOf(reply);
  request.target = std::string(100'000, 'x');
  EXPECT_EQ(Watch(channel, 2, request).error().kind, ErrorKind::kInvalid);
  request = WatchOf(reply);
  request.digest = std::string(65, 'x');
  EXPECT_EQ(Watch(channel, 2, request).error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(server.metrics.watches, 0u);
  CallsRequest calls;
  calls.counts.resize(5000);
  uint64_t id = *channel.Ask(calls, Soon());
  EXPECT_EQ(channel.Await<CallsReply>(id, Soon()).error().kind, ErrorKind::kLimit);
}

TEST(Notify, CallsAddToTheKernelsUse) {
  TestServer server;
  GetReply reply = *server.Get(kKernel);
  Fingerprint fingerprint = *ParseFingerprint(reply.fingerprint);
  Channel channel = server.Connect(), stranger = server.Connect();
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(Watch(channel, 2, WatchOf(reply)));
  uint64_t before = server.cache->UseOf(fingerprint)->calls;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  uint64_t id = *channel.Ask(CallsRequest{{{2, 1000}, {77, 5}, {2, 1}}}, Soon());
  ASSERT_TRUE(channel.Await<CallsReply>(id, Soon()));
  id = *stranger.Ask(CallsRequest{{{2, 9999}}}, Soon());  // watches nothing: its ids are nobody's
  ASSERT_TRUE(stranger.Await<CallsReply>(id, Soon()));
  EXPECT_EQ(server.cache->UseOf(fingerprint)->calls, before + 1001);
  EXPECT_EQ(server.metrics.calls_reported, 1001u);
  EXPECT_EQ(server.cache->UseOf(fingerprint)->class_fingerprint,
            server.path->Identify({kKernel, "", 0})->key.class_fingerprint);

  // More than all processors can have made since the watch began is cut, however often it is said.
  for (int i = 0; i < 20; ++i) {
    id = *channel.Ask(CallsRequest{{{2, ~uint64_t{0}}, {2, ~uint64_t{0}}}}, Soon());
    ASSERT_TRUE(channel.Await<CallsReply>(id, Soon()));
  }
  EXPECT_GT(server.metrics.calls_reported, 1001u);
  const double call_us = std::max(0.01, reply.expected_us / 16), processors = std::thread::hardware_concurrency();
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(static_cast<double>(server.metrics.calls_reported), passed.count() * processors / call_us + 1001);
}

TEST(Notify, AConnectionThatWatchesIsNotClosedToMakeRoom) {
  TemporaryDirectory directory;
  TestServerOptions options;
  options.server.connections = 3;
  TestServer server(options);
  server.Listen(directory / "sock");
  Channel watching = *Channel::Connect(directory / "sock", Soon());
  GetReply reply;
  {
    uint64_t id = *watching.Ask(GetRequest{.kernel = kKernel}, Soon());
    reply = *watching.Await<GetReply>(id, Soon());
  }
  ASSERT_TRUE(Watch(watching, 2, WatchOf(reply)));
  std::vector<Channel> idle;
  for (int i = 0; i < 10; ++i) {
    idle.push_back(*Channel::Connect(directory / "sock", Soon()));
    ASSERT_TRUE(idle.back().Call(StatusRequest{}, Soon())) << i;
  }
  EXPECT_GE(server.metrics.connections_dropped, 8u);
  server.Promote(kKernel, VersionBytes(Layout::kPlain, 1, CanonicalOf(server, kKernel)));
  EXPECT_TRUE(watching.Await<NewerNotice>(2, Soon()));
  // Once it watches nothing any more it is like any other.
  ASSERT_TRUE(Watch(watching, 2, {.watch = false, .fingerprint = "", .target = "", .digest = ""}));
  for (int i = 0; i < 4; ++i) {
    idle.push_back(*Channel::Connect(directory / "sock", Soon()));
    ASSERT_TRUE(idle.back().Call(StatusRequest{}, Soon()));
  }
  EXPECT_FALSE(watching.Call(StatusRequest{}, Soon()));
}

TEST(Notify, AWatcherThatNeverReadsIsClosedAndDropped) {
  TestServerOptions options;
  options.server.stall_time = std::chrono::milliseconds(600);
  TestServer server(options);
  GetReply reply = *server.Get(kKernel);
  Channel deaf = server.Connect();
  std::string frames;
  for (uint64_t id = 1; id <= 4000; ++id) frames += EncodeFrame(id, WatchOf(reply));
  ASSERT_TRUE(deaf.Send(frames, Soon()));
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.watches > 0; }));
  std::string canonical = CanonicalOf(server, kKernel);
  for (int i = 0; i < 4; ++i) server.Promote(kKernel, VersionBytes(Layout::kPlain, 1 + i % 2, canonical));
  EXPECT_TRUE(TestServer::Eventually([&] { return server.metrics.watches == 0; }));
  EXPECT_EQ(server.metrics.connections_dropped, 1u);
  EXPECT_TRUE(server.Get(kKernel));
}

}  // namespace
}  // namespace hone::notify_test
