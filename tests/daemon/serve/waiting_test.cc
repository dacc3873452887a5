// Whom a request waits for: several clients at once, budgets, work that nobody wants any more.
#include <gtest/gtest.h>

#include <chrono>
#include <new>

#include "tests/daemon/test_server.h"
#include "tests/support/versions.h"

namespace hone::waiting_test {
namespace {

using std::chrono::seconds;
using testing::Soon;
using testing::TestServer;
using testing::TestServerOptions;

constexpr ClientId kAnn{1000, 1};
constexpr ClientId kBob{1001, 2};

std::string Add(int n) { return "add(M=1,N=" + std::to_string(n) + ")"; }
std::string Long(int n) { return "add(M=7654321,N=" + std::to_string(n) + ")"; }
constexpr const char* kOfLong = "7654321";

Result<GetReply> GetAs(TestServer& server, const ClientId& client, GetRequest request) {
  Channel channel = server.Connect(client);
  return channel.Call(request, Soon());
}

TEST(Waiting, AMissWaitsForASliceOfOthersLongBuilds) {
  TestServer server;
  server.pools.Hold(kOfLong);
  std::vector<Channel> ann;
  std::vector<uint64_t> ids;
  for (int n = 1; n <= 5; ++n) {
    ann.push_back(server.Connect(kAnn));
    ids.push_back(*ann.back().Ask(GetRequest{.kernel = Long(n)}, Soon()));
  }
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_queued == 4; }));
  for (int n = 1; n <= 2; ++n) {
    Result<GetReply> reply = GetAs(server, kBob, {.kernel = Add(n)});
    ASSERT_TRUE(reply) << reply.error().Text();
  }
  EXPECT_GE(server.metrics.displaced, 1u);
  // What made room is done all the same, from the beginning.
  server.pools.Release();
  for (size_t i = 0; i < ids.size(); ++i) {
    Result<GetReply> reply = ann[i].Await<GetReply>(ids[i], Soon());
    EXPECT_TRUE(reply) << reply.error().Text();
  }
}

TEST(Waiting, ALongBuildIsDoneThoughOthersGoOnAsking) {
  TestServer server;
  server.pools.Hold(kOfLong);
  Channel ann = server.Connect(kAnn);
  uint64_t id = *ann.Ask(GetRequest{.kernel = Long(1)}, Soon());
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_running == 1; }));
  // Displaced once; then its slice is two seconds long, and it is let go within them.
  ASSERT_TRUE(GetAs(server, kBob, {.kernel = Add(1)}));
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_running == 1; }));
  Channel bob = server.Connect(kBob);
  uint64_t next = *bob.Ask(GetRequest{.kernel = Add(2)}, Soon());
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  EXPECT_EQ(server.metrics.displaced, 1u);
  server.pools.Release();
  EXPECT_TRUE(ann.Await<GetReply>(id, Soon()));
  EXPECT_TRUE(bob.Await<GetReply>(next, Soon()));
}

TEST(Waiting, WhatIsAbandonedMakesRoomAtOnce) {
  TestServer server;
  server.pools.Hold(kOfLong);
  {
    Channel ann = server.Connect(kAnn);
    std::vector<uint64_t> ids;
    for (int n = 1; n <= 12; ++n) ids.push_back(*ann.Ask(GetRequest{.kernel = Long(n), .budget_us = 1}, Soon()));
    for (uint64_t id : ids) EXPECT_EQ(ann.Await<GetReply>(id, Soon()).error().kind, ErrorKind::kTimeout);
    ASSERT_TRUE(TestServer::Eventually(
        [&] { return server.metrics.builds_running == 1 && server.metrics.lookups_queued == 0; }));
  }
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_queued == 0; }));  // none that counts
  // Even the same client's next kernel goes first.
  ASSERT_TRUE(GetAs(server, kAnn, {.kernel = Add(1)}));
  // What its asker was told to ask for again is made when nothing else waits.
  server.pools.Release();
  ASSERT_TRUE(TestServer::Eventually(
      [&] { return GetAs(server, kBob, {.kernel = Long(12), .no_compile = true}).has_value(); }));
}

TEST(Waiting, AFullQueueIsFullForWhoFilledIt) {
  TestServerOptions options;
  options.misses.queue = 3;
  TestServer server(options);
  server.pools.Hold();
  Channel ann = server.Connect(kAnn);
  std::vector<uint64_t> ids;
  for (int n = 1; n <= 4; ++n) {
    ids.push_back(*ann.Ask(GetRequest{.kernel = Add(n)}, Soon()));
    uint32_t queued = static_cast<uint32_t>(n - 1);
    ASSERT_TRUE(TestServer::Eventually(
        [&] { return server.metrics.builds_running == 1 && server.metrics.builds_queued == queued; }));
  }
  Channel bob = server.Connect(kBob);
  uint64_t id = *bob.Ask(GetRequest{.kernel = Add(100)}, Soon());
  uint32_t retry_ms = 0;
  Result<GetReply> dropped = ann.Await<GetReply>(ids.back(), Soon(), nullptr, &retry_ms);
  ASSERT_FALSE(dropped);
  EXPECT_EQ(dropped.error().kind, ErrorKind::kBusy);
  EXPECT_GT(retry_ms, 0u);
  server.pools.Release();
  EXPECT_TRUE(bob.Await<GetReply>(id, Soon()));
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_TRUE(ann.Await<GetReply>(ids[i], Soon()));
}

// Lets the one kernel that is asked for be compiled.
void ReleaseOne(TestServer& server) {
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.lookups_queued == 0; }));
  server.pools.Release();
  size_t compiled = 0;
  ASSERT_TRUE(TestServer::Eventually([&] {
    server.Do([&] { compiled = server.hot->entries(); });
    return compiled == 1;
  }));
}

TEST(Waiting, OfTheTextsThatAskForAKernelWhileItIsCompiledFewAreKept) {
  TestServer server;
  server.pools.Hold();
  Channel ann = server.Connect(kAnn);
  std::vector<std::string> names;
  for (int n = 0; n < 40; ++n) {
    const GetRequest request{.kernel = "# " + std::to_string(n) + std::string(60'000, 'x') + "\n" + Add(1),
                             .budget_us = 1};
    names.push_back(RequestName(request));
    EXPECT_EQ(ann.Call(request, Soon()).error().kind, ErrorKind::kTimeout);
  }
  ReleaseOne(server);
  size_t bytes = 0;
  server.Do([&] {
    for (const std::string& name : names) bytes += server.hot->Find(name) != nullptr ? name.size() : 0;
  });
  EXPECT_GE(bytes, 60'000u);
  EXPECT_LE(bytes, 200'000u);
}

TEST(Waiting, ATextThatAsksAgainAndAgainIsKeptOnce) {
  TestServer server;
  server.pools.Hold();
  Channel ann = server.Connect(kAnn);
  for (int n = 0; n < 2'000; ++n)
    EXPECT_EQ(ann.Call(GetRequest{.kernel = Add(1), .budget_us = 1}, Soon()).error().kind, ErrorKind::kTimeout);
  const GetRequest last{.kernel = "# \n" + Add(1), .budget_us = 1};
  EXPECT_EQ(ann.Call(last, Soon()).error().kind, ErrorKind::kTimeout);
  ReleaseOne(server);
  server.Do([&] { EXPECT_NE(server.hot->Find(RequestName(last)), nullptr); });
}

// Is told errors, and nothing else happens.
class DeafPeer : public Peer {
 public:
  using Peer::Peer;
  void Reply(uint64_t, MessageType, std::string) override { ++told; }
  void ReplyPart(uint64_t, MessageType, std::string) override {}
  void ReplyHit(uint64_t, const HotCodePtr&) override {}
  void ReplyWithCode(uint64_t, std::string, HotCodePtr) override {}
  std::atomic<int> told{0};
};

TEST(Waiting, WhoWasToldToAskAgainIsKeptOnceHoweverOftenHeAsks) {
  constexpr int kTimes = 2'000;
  TestServer server;
  server.pools.Hold();
  auto peer = std::make_shared<DeafPeer>(kAnn);
  const GetRequest request{.kernel = Add(1), .budget_us = 1};
  for (int n = 0; n < kTimes; ++n)
    server.Do([&] { server.misses->Ask(peer, static_cast<uint64_t>(n), request, RequestName(request), Stopwatch()); });
  ASSERT_TRUE(TestServer::Eventually([&] { return peer->told == kTimes && server.metrics.lookups_queued == 0; }));
  long held = 0;
  server.Do([&] { held = peer.use_count(); });
  EXPECT_LT(held, 100);
  // The work that was promised goes on when nobody else is there.
  server.Do([&] { server.misses->Forget(*peer); });
  server.Do([&] { held = peer.use_count(); });
  EXPECT_EQ(held, 1);
  server.pools.Release();
  EXPECT_TRUE(
      TestServer::Eventually([&] { return GetAs(server, kBob, {.kernel = Add(1), .no_compile = true}).has_value(); }));
}

TEST(Waiting, WhatRunsOutOfMemoryCostsItsRequest) {
  TestServer server;
  server.pools.make_code = [](const std::string&) -> std::vector<std::byte> { throw std::bad_alloc(); };
  Result<GetReply> reply = server.Get(Add(1));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::kLimit);
  server.pools.make_code = nullptr;
  EXPECT_TRUE(server.Get(Add(2)));
}

TEST(Waiting, AStreamOfChangesDoesNotKeepALookupFromItsAnswer) {
  TestServerOptions options;
  testing::ScratchFolder folder;
  options.cache = folder.path() + "/cache";
  TestServer server(options);
  Result<GetReply> known = server.Get(Add(1));
  ASSERT_TRUE(known);
  const Fingerprint fingerprint = server.path->Identify({Add(1), "", 0})->key.fingerprint;
  std::atomic<bool> over{false};
  std::thread changes([&] {
    while (!over) server.Do([&] { server.hot->Forget(fingerprint); });
  });
  for (int i = 0; i < 20; ++i) {
    Result<GetReply> reply = server.Get(Add(1));
    EXPECT_TRUE(reply) << reply.error().Text();
  }
  over = true;
  changes.join();
}

// Searches that end when the test says so.
class HeldSearches : public Searcher {
 public:
  void Handle(const PeerPtr&, uint64_t, const TuneRequest&, AttachedDevicePtr) override {
    ADD_FAILURE() << "nobody asks for one";
  }
  bool Stop(const Peer&, uint64_t) override { return false; }
  void OnGone(const Peer&) override {}
  Id Search(const KernelRequest& ask, std::chrono::milliseconds time, const ClientId& client,
            std::function<void()> done) override {
    EXPECT_GT(time.count(), 1000);
    EXPECT_EQ(client, kAnn);
    EXPECT_EQ(ask.kernel, Add(1));
    done_ = std::move(done);
    ++begun;
    return 1;
  }
  void GiveUp(Id search) override {
    EXPECT_EQ(search, 1u);
    ++given_up;
  }
  void End() { done_(); }
  std::atomic<int> begun{0}, given_up{0};

 private:
  std::function<void()> done_;
};

TEST(Waiting, WhoHasSecondsIsServedWhatASearchFound) {
  HeldSearches searches;
  TestServer server;
  server.Do([&] { server.misses->SetSearcher(&searches); });
  Channel ann = server.Connect(kAnn);
  uint64_t id = *ann.Ask(GetRequest{.kernel = Add(1), .budget_us = 60'000'000}, Soon());
  ASSERT_TRUE(TestServer::Eventually([&] { return searches.begun == 1; }));
  // Nobody else waits for that search: neither for the same kernel nor for another.
  EXPECT_TRUE(GetAs(server, kBob, {.kernel = Add(1)})->hit);
  EXPECT_TRUE(GetAs(server, kBob, {.kernel = Add(2)}));
  const std::string canonical = server.path->Identify({Add(1), "", 0})->key.canonical;
  server.Promote(Add(1), testing::VersionBytes(testing::Layout::kPlain, 1, canonical));
  server.Do([&] { searches.End(); });
  Result<GetReply> reply = ann.Await<GetReply>(id, Soon());
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(reply->origin, "tuned");
  EXPECT_FALSE(reply->hit);
  EXPECT_EQ(reply->steps.back().step, "search");
  EXPECT_EQ(searches.given_up, 0);
}

TEST(Waiting, TheEndOfABudgetIsTheEndOfItsSearchAndThereIsCode) {
  HeldSearches searches;
  TestServer server;
  server.Do([&] { server.misses->SetSearcher(&searches); });
  Result<GetReply> reply = GetAs(server, kAnn, {.kernel = Add(1), .budget_us = 4'000'000});
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(searches.begun, 1);
  EXPECT_TRUE(TestServer::Eventually([&] { return searches.given_up == 1; }));
  EXPECT_FALSE(reply->hit);
  EXPECT_EQ(server.metrics.over_budget, 0u);
}

TEST(Waiting, WhoHasCodeGetsItThoughTheSearchCannotBeLookedAt) {
  HeldSearches searches;
  TestServer server;
  server.Do([&] { server.misses->SetSearcher(&searches); });
  Channel ann = server.Connect(kAnn);
  uint64_t id = *ann.Ask(GetRequest{.kernel = Add(1), .budget_us = 60'000'000}, Soon());
  ASSERT_TRUE(TestServer::Eventually([&] { return searches.begun == 1; }));
  server.Do([&] {
    searches.End();
    server.misses->Close();  // what would be looked up now is not any more
  });
  Result<GetReply> reply = ann.Await<GetReply>(id, Soon());
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(reply->origin, "default");
}

TEST(Waiting, ASearchEndsWithWhoWantedIt) {
  HeldSearches searches;
  TestServer server;
  server.Do([&] { server.misses->SetSearcher(&searches); });
  {
    Channel ann = server.Connect(kAnn);
    ASSERT_TRUE(ann.Ask(GetRequest{.kernel = Add(1), .budget_us = 60'000'000}, Soon()));
    ASSERT_TRUE(TestServer::Eventually([&] { return searches.begun == 1; }));
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return searches.given_up == 1; }));
}

TEST(Waiting, ASearchThatCannotBeMadeIsNoReasonNotToServe) {
  TestServer server;  // whose pools has nothing to search with
  Result<GetReply> reply = GetAs(server, kAnn, {.kernel = Add(1), .budget_us = 60'000'000});
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(reply->origin, "default");
  EXPECT_FALSE(reply->hit);
}

}  // namespace
}  // namespace hone::waiting_test
