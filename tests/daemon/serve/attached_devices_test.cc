// Lending honed a device: the connection that becomes its channel, who may name it, and what is refused.
#include "daemon/serve/attached_devices.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "backends/processes/child_channel.h"
#include "backends/processes/remote_messages.h"
#include "tests/daemon/test_server.h"
#include "tests/support/no_threads.h"

namespace hone {
namespace {

using ::testing::HasSubstr;
using testing::Soon;
using testing::TestServer;

Target Board(const std::string& cpu = "board") {
  CpuTarget target;
  target.cpu = cpu;
  return target;
}

// Asks to lend a device; what the connection is from then on.
struct Lent {
  std::string name;
  ChildChannel channel;
};
Lent Lend(TestServer& server) {
  UniqueFd socket = server.Dial();
  UniqueFd kept(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 3));
  Channel channel(std::move(socket));
  Result<AttachReply> reply = channel.Call(AttachRequest{}, Soon());
  EXPECT_TRUE(reply) << reply.error().Text();
  return {reply ? reply->device : "", ChildChannel(std::move(kept))};
}

void SayHello(Lent& lent, const Target& target) {
  ASSERT_TRUE(lent.channel.Send(ChildMessage::kHello, 0, EncodeHello({"hone-runner 7", target}), {}, Soon()));
}

// On a connection that lasts: the first keeps the device.
Result<DeviceReply> AskFor(TestServer& server, const std::string& name, uid_t uid = geteuid()) {
  static std::vector<Channel> kept;
  kept.push_back(server.Connect({uid, getpid()}));
  return kept.back().Call(DeviceRequest{name}, Soon());
}

TEST(AttachedDevices, TheConnectionBecomesTheDevicesChannel) {
  TestServer server;
  Lent lent = Lend(server);
  EXPECT_EQ(lent.name, "on:1");
  Channel waits = server.Connect();
  const uint64_t id = *waits.Ask(DeviceRequest{lent.name}, Soon());
  // Until it has said what it is, nothing is asked of it.
  Result<GetReply> early = server.Get("add(M=1,N=2)", {.target = lent.name});
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().kind, ErrorKind::kBusy);
  SayHello(lent, Board());
  Result<DeviceReply> known = waits.Await<DeviceReply>(id, Soon());
  ASSERT_TRUE(known) << known.error().Text();
  EXPECT_EQ(known->target, PrintTarget(Board()));
  EXPECT_EQ(known->runner, "hone-runner 7");
  // What is asked for there is prepared there.
  Channel gets = server.Connect();
  GetRequest get;
  get.kernel = "add(M=1,N=2)";
  get.target = lent.name;
  ASSERT_TRUE(gets.Ask(get, Soon()));
  Result<ChildFrame> question = lent.channel.Receive(Soon());
  ASSERT_TRUE(question) << question.error().Text();
  EXPECT_EQ(question->type, ChildMessage::kPrepare);
}

TEST(AttachedDevices, OneThatHangsUpIsGoneAndSaidSo) {
  TestServer server;
  {
    Lent lent = Lend(server);
    SayHello(lent, Board());
    ASSERT_TRUE(AskFor(server, lent.name));
  }
  Result<GetReply> reply = server.Get("add(M=1,N=2)", {.target = "on:1"});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().Text(), "device: the device has hung up");
}

TEST(AttachedDevices, OneIsGivenBackWhenTheConnectionThatKeepsItEnds) {
  TestServer server;
  Lent lent = Lend(server);
  SayHello(lent, Board());
  {
    Channel keeper = server.Connect();
    ASSERT_TRUE(keeper.Call(DeviceRequest{lent.name}, Soon()));
    ASSERT_TRUE(AskFor(server, lent.name));  // another one's end changes nothing
    EXPECT_FALSE(lent.channel.Receive(std::chrono::steady_clock::now() + std::chrono::milliseconds(20)));
  }
  Result<ChildFrame> end = lent.channel.Receive(Soon());
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().kind, ErrorKind::kUnavailable);
  TuneRequest tune;
  tune.kernel = "add(M=1,N=2)";
  tune.target = lent.name;
  Result<TuneReply> tuned = server.Connect().Call(tune, Soon());
  ASSERT_FALSE(tuned);
  EXPECT_EQ(tuned.error().Text(), "device: the device was given back");
}

TEST(AttachedDevices, OnlyItsOwnUserAndRootMayNameOneAndOnlyTheDaemonsOwnMayLend) {
  TestServer server;
  const uid_t other = geteuid() + 1000;
  Lent lent = Lend(server);
  SayHello(lent, Board());
  EXPECT_TRUE(AskFor(server, lent.name));
  EXPECT_TRUE(AskFor(server, lent.name, 0));
  Result<DeviceReply> stranger = AskFor(server, lent.name, other);
  ASSERT_FALSE(stranger);
  EXPECT_EQ(stranger.error().kind, ErrorKind::kNotFound);
  GetRequest get;
  get.kernel = "add(M=1,N=2)";
  get.target = lent.name;
  Result<GetReply> served = server.Connect({other, getpid()}).Call(get, Soon());
  ASSERT_FALSE(served);
  EXPECT_THAT(served.error().Text(), HasSubstr("no device \"on:1\" is attached"));
  Result<AttachReply> lends = server.Connect({other, getpid()}).Call(AttachRequest{}, Soon());
  ASSERT_FALSE(lends);
  EXPECT_THAT(lends.error().Text(), HasSubstr("root may lend it devices"));
}

TEST(AttachedDevices, WhatWasServedByADevicesNameIsServedToNobodyElseByIt) {
  TestServer server;
  GetRequest get;
  get.kernel = "add(M=1,N=2)";
  {
    Lent lent = Lend(server);
    SayHello(lent, Board());
    ASSERT_TRUE(AskFor(server, lent.name));
    get.target = lent.name;
    AttachedDevicePtr on;
    server.Do([&] { on = *server.attached->Find(lent.name, {geteuid(), getpid()}); });
    const ResolvedKernel identity = *server.path->Identify({get.kernel, "", 0, on});
    const BuiltArtifact built = *server.pools.Build({identity.key.canonical, "", identity.target}, Soon(), {});
    const ReadOnlyMapping code = *built.object.Map();
    Record record;
    record.key = identity.key;
    record.shape = identity.shape;
    record.label = identity.label;
    record.artifact_digest = Hash256(code.bytes());
    record.artifact_bytes = code.bytes().size();
    ASSERT_TRUE(server.cache->Put({.record = record, .class_text = identity.class_text, .artifact = code.bytes()},
                                  Durability::kSoon));
    for (int i = 0; i < 2; ++i) {
      Result<GetReply> served = server.Connect().Call(get, Soon());
      ASSERT_TRUE(served) << served.error().Text();
      EXPECT_EQ(served->target, PrintTarget(Board()));
    }
    Result<GetReply> stranger = server.Connect({geteuid() + 1000, getpid()}).Call(get, Soon());
    ASSERT_FALSE(stranger);
    EXPECT_THAT(stranger.error().Text(), HasSubstr("no device \"on:1\" is attached"));
  }
  // Nor to its own user once it is known to be gone.
  EXPECT_TRUE(TestServer::Eventually([&] { return !server.Connect().Call(get, Soon()); }));
}

TEST(AttachedDevices, TheMachineItselfAndWhatNothingHereBuildsForAreRefused) {
  TestServer server;
  Lent same = Lend(server);
  CpuTarget host;
  host.cpu = "generic";
  SayHello(same, host);
  Result<DeviceReply> known = AskFor(server, same.name);
  ASSERT_FALSE(known);
  EXPECT_THAT(known.error().Text(), HasSubstr("says that it is what this machine is"));
  Lent strange = Lend(server);
  SayHello(strange, *ParseTarget("opencl model=x"));
  known = AskFor(server, strange.name);
  ASSERT_FALSE(known);
  EXPECT_THAT(known.error().Text(), HasSubstr("nothing here builds for what the device is"));
}

TEST(AttachedDevices, AConnectionOnWhichMoreIsAskedIsNotGivenAway) {
  TestServer server;
  Channel channel = server.Connect();
  // In one piece: the second request is there before the first is answered.
  ASSERT_TRUE(channel.Send(EncodeFrame(1, AttachRequest{}) + EncodeFrame(2, StatusRequest{}), Soon()));
  std::map<uint64_t, MessageType> answers;
  for (int i = 0; i < 2; ++i) {
    Result<ReceivedFrame> frame = channel.Receive(Soon());
    ASSERT_TRUE(frame) << frame.error().Text();
    answers[frame->header.request_id] = frame->header.type;
  }
  EXPECT_EQ(answers[1], MessageType::kError);
  EXPECT_EQ(answers[2], MessageType::kStatusReply);
}

TEST(AttachedDevices, AreAFewAtATimeAndThoseThatAreGoneMakeRoom) {
  TestServer server;
  std::vector<Lent> lent;
  for (int i = 0; i < 8; ++i) lent.push_back(Lend(server));
  Result<AttachReply> more = server.Connect().Call(AttachRequest{}, Soon());
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().kind, ErrorKind::kBusy);
  const std::string gone = lent.back().name;
  lent.pop_back();
  EXPECT_FALSE(AskFor(server, gone));  // once that is known
  EXPECT_EQ(Lend(server).name, "on:9");
}

TEST(AttachedDevices, OneThatThereIsNoThreadToListenToIsGivenBackAndSaidSo) {
  TestServer server;
  Lent lent;
  {
    testing::NoThreads none;
    lent = Lend(server);
    Result<DeviceReply> known = AskFor(server, lent.name);
    ASSERT_FALSE(known);
    EXPECT_EQ(known.error().kind, ErrorKind::kBusy);
    EXPECT_THAT(known.error().Text(), HasSubstr("no thread"));
  }
  EXPECT_EQ(lent.channel.Receive(Soon()).error().kind, ErrorKind::kUnavailable);
  Lent next = Lend(server);
  SayHello(next, Board());
  EXPECT_TRUE(AskFor(server, next.name));
}

}  // namespace
}  // namespace hone
