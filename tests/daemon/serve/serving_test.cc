// What a request gets, from the socket to the pools and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/language/canonical.h"
#include "tests/daemon/test_server.h"

namespace hone::serving_test {
namespace {

using ::testing::HasSubstr;
using testing::Soon;
using testing::TestServer;
using testing::TestServerOptions;

constexpr const char* kKernel = "matmul(M=4,N=4,K=4)";

TEST(Serving, AMissIsBuiltCheckedAndServedThenAHit) {
  TestServer server;
  Result<GetReply> miss = server.Get(kKernel);
  ASSERT_TRUE(miss) << miss.error().Text();
  EXPECT_FALSE(miss->hit);
  EXPECT_EQ(miss->class_name, "matmul");
  EXPECT_EQ(miss->origin, "default");
  EXPECT_EQ(miss->expected_us, 2);
  EXPECT_EQ(miss->fingerprint.size(), 32u);
  EXPECT_FALSE(miss->steps.empty());
  Result<GetReply> hit = server.Get(kKernel);
  ASSERT_TRUE(hit);
  EXPECT_TRUE(hit->hit);
  EXPECT_TRUE(hit->steps.empty());
  EXPECT_EQ(hit->fingerprint, miss->fingerprint);
  EXPECT_EQ(hit->digest, miss->digest);
  EXPECT_EQ(server.pools.builds, 1);
  EXPECT_EQ(server.metrics.hits_memory, 1u);
  EXPECT_EQ(server.metrics.misses, 1u);
}

TEST(Serving, CompilesForWhoAsked) {
  TestServer server;
  for (uid_t uid : {geteuid(), geteuid() + 7}) {
    Channel channel = server.Connect({uid, getpid()});
    GetRequest get;
    get.kernel = "add(M=1,N=" + std::to_string(uid + 1) + ")";
    ASSERT_TRUE(channel.Call(get, Soon()));
    EXPECT_EQ(server.pools.last_user, uid);
  }
}

TEST(Serving, ACompilationThatIsGivenUpEndsAtOnceAndLeavesNothing) {
  TestServer server;
  server.pools.Hold();
  Result<LookUpResult> found = server.path->LookUp({kKernel, "", 0});
  ASSERT_TRUE(found) << found.error().Text();
  std::stop_source stop;
  std::thread stopper([&] {
    while (server.pools.builds == 0) std::this_thread::yield();
    stop.request_stop();
  });
  Result<Compiled> compiled = server.path->Compile(*found, {.stop = stop.get_token()});
  stopper.join();
  ASSERT_FALSE(compiled);
  EXPECT_EQ(compiled.error().kind, ErrorKind::kUnavailable);
  EXPECT_FALSE(*server.cache->Lookup(found->identity.key));
  EXPECT_EQ(server.pools.builds, 1);
}

TEST(Serving, WhatIsCompiledDoesNotReplaceARecordThatCameMeanwhile) {
  TestServer server;
  Result<LookUpResult> found = server.path->LookUp({kKernel, "", 0});
  ASSERT_TRUE(found) << found.error().Text();
  // A bundle is imported, say.
  ASSERT_TRUE(server.Get(kKernel));
  Record better = (*server.cache->Lookup(found->identity.key))->record;
  better.origin = Origin::kImported;
  better.schedule = "split y.n 4\n";
  ASSERT_TRUE(server.cache->Put({.record = better, .class_text = found->identity.class_text, .artifact = {}},
                                Durability::kSoon));
  Result<Compiled> compiled = server.path->Compile(*found, {});
  ASSERT_TRUE(compiled) << compiled.error().Text();
  EXPECT_EQ((*server.cache->Lookup(found->identity.key))->record.schedule, better.schedule);
}

TEST(Serving, WhatIsRemovedWhileItIsCompiledStaysRemoved) {
  TestServer server;
  ASSERT_TRUE(server.Get(kKernel));
  const ResolvedKernel identity = *server.path->Identify({kKernel, "", 0});
  Record record = (*server.cache->Lookup(identity.key))->record;
  record.schedule = "split y.n 4\n";
  ASSERT_TRUE(
      server.cache->Put({.record = record, .class_text = identity.class_text, .artifact = {}}, Durability::kSoon));
  Result<LookUpResult> found = server.path->LookUp({kKernel, "", 0});
  ASSERT_TRUE(found && found->known && !found->code);
  ASSERT_TRUE(server.cache->Remove(identity.key.fingerprint));
  ASSERT_TRUE(server.path->Compile(*found, {}));
  EXPECT_FALSE(*server.cache->Lookup(identity.key));
}

// Its code is to be built again, and the candidate is killed from outside meanwhile.
TEST(Serving, ALostCandidateCostsNoTunedScheduleAndIsNotRemembered) {
  TestServer server;
  ASSERT_TRUE(server.Get(kKernel));
  const ResolvedKernel identity = *server.path->Identify({kKernel, "", 0});
  Record tuned = (*server.cache->Lookup(identity.key))->record;
  tuned.origin = Origin::kTuned;
  tuned.schedule = "split y.n 4\n";
  ASSERT_TRUE(
      server.cache->Put({.record = tuned, .class_text = identity.class_text, .artifact = {}}, Durability::kSoon));
  server.Do([&] { server.hot->Forget(identity.key.fingerprint); });
  server.pools.check_error = Error{ErrorKind::kBusy, "killed from outside", ""};
  Result<GetReply> reply = server.Get(kKernel);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::kBusy);
  server.pools.check_error.reset();
  reply = server.Get(kKernel);
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(server.pools.last_schedule, tuned.schedule);
  const Record kept = (*server.cache->Lookup(identity.key))->record;
  EXPECT_EQ(kept.schedule, tuned.schedule);
  EXPECT_EQ(kept.origin, Origin::kTuned);
}

TEST(Serving, CodeComesAsASealedDescriptorThatMatchesItsDigest) {
  TestServer server;
  for (bool hit : {false, true}) {
    Channel channel = server.Connect();
    Result<uint64_t> id = channel.Ask(GetRequest{.kernel = kKernel}, Soon());
    UniqueFd descriptor;
    Result<GetReply> reply = channel.Await<GetReply>(*id, Soon(), &descriptor);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->hit, hit);
    Result<SealedMemfd> code = SealedMemfd::Adopt(std::move(descriptor));
    ASSERT_TRUE(code) << code.error().Text();
    EXPECT_EQ(code->size(), reply->size);
    Digest256 digest = Hash256(code->Map()->bytes());
    EXPECT_EQ(reply->digest, std::string(reinterpret_cast<const char*>(digest.data()), digest.size()));
  }
}

TEST(Serving, WithoutArtifactNoDescriptorComes) {
  TestServer server;
  for (int i = 0; i < 2; ++i) {
    Channel channel = server.Connect();
    Result<uint64_t> id = channel.Ask(GetRequest{.kernel = kKernel, .no_artifact = true}, Soon());
    UniqueFd descriptor;
    ASSERT_TRUE(channel.Await<GetReply>(*id, Soon(), &descriptor));
    EXPECT_FALSE(descriptor);
  }
}

TEST(Serving, EqualMissesCompileOnce) {
  TestServer server;
  server.pools.Hold();
  std::vector<Channel> channels;
  std::vector<uint64_t> ids;
  const char* spellings[] = {kKernel, "matmul(K=4,M=4,N=4)", "matmul( M=4, N=4, K=4, ta=0 )"};
  for (int i = 0; i < 9; ++i) {
    channels.push_back(server.Connect());
    ids.push_back(*channels.back().Ask(GetRequest{.kernel = spellings[i % 3]}, Soon()));
  }
  // Of the first to be compiled, one to three came in together.
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.joined >= 6; }));
  server.pools.Release();
  std::string fingerprint;
  for (size_t i = 0; i < channels.size(); ++i) {
    Result<GetReply> reply = channels[i].Await<GetReply>(ids[i], Soon());
    ASSERT_TRUE(reply) << reply.error().Text();
    if (!fingerprint.empty()) { EXPECT_EQ(reply->fingerprint, fingerprint); }
    fingerprint = reply->fingerprint;
  }
  EXPECT_EQ(server.pools.builds, 1);
}

TEST(Serving, AllThreadsAndNoNumberOfThemAreOneKernel) {
  TestServerOptions options;
  options.cores = 2;
  TestServer server(options);
  GetRequest two{.kernel = kKernel};
  two.threads = 2;
  const std::string fingerprint = server.Get(kKernel)->fingerprint;
  EXPECT_EQ(server.Get(kKernel, two)->fingerprint, fingerprint);
  EXPECT_EQ(server.Get("matmul(M=4,N=4,K=4,threads=2)")->fingerprint, fingerprint);
  EXPECT_EQ(server.pools.builds, 1);
  std::vector<Record> records = *server.cache->RecordsOf(*ParseFingerprint(fingerprint));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].key.threads, 2);
  // One thread is another matter, and so are more than there are.
  for (uint32_t threads : {1u, 3u}) {
    GetRequest other{.kernel = kKernel};
    other.threads = threads;
    EXPECT_NE(server.Get(kKernel, other)->fingerprint, fingerprint) << threads;
  }
  EXPECT_EQ(server.pools.builds, 3);
}

TEST(Serving, OnOneCoreNoNumberOfThreadsIsOne) {
  TestServer server;
  GetRequest one{.kernel = kKernel};
  one.threads = 1;
  EXPECT_EQ(server.Get(kKernel)->fingerprint, server.Get(kKernel, one)->fingerprint);
  EXPECT_EQ(server.pools.builds, 1);
  EXPECT_EQ(ThreadsSaidBy(server.path->Identify({kKernel, "", 0})->key.canonical), 1);
}

TEST(Serving, AFullQueueSaysWhenToComeAgain) {
  TestServerOptions options;
  options.misses.queue = 2;
  TestServer server(options);
  server.pools.Hold();
  std::vector<Channel> waiting;
  for (int n = 1; n <= 3; ++n) {
    waiting.push_back(server.Connect());
    ASSERT_TRUE(waiting.back().Ask(GetRequest{.kernel = "add(M=1,N=" + std::to_string(n) + ")"}, Soon()));
    // The first leaves the queue for the only builder before others fill it.
    uint32_t queued = static_cast<uint32_t>(n - 1);
    ASSERT_TRUE(TestServer::Eventually(
        [&] { return server.metrics.builds_running == 1 && server.metrics.builds_queued == queued; }));
  }
  Channel late = server.Connect();
  uint64_t id = *late.Ask(GetRequest{.kernel = "add(M=1,N=9)"}, Soon());
  uint32_t retry_ms = 0;
  Result<GetReply> reply = late.Await<GetReply>(id, Soon(), nullptr, &retry_ms);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::kBusy);
  EXPECT_GT(retry_ms, 0u);
  EXPECT_NE(reply.error().message.find("retry in " + std::to_string(retry_ms) + " ms"), std::string::npos);
  server.pools.Release();
}

TEST(Serving, HitsDoNotWaitForCompilations) {
  testing::ScratchFolder folder;
  TestServerOptions options;
  options.cache = folder.path() + "/cache";
  options.hot.entries = 1;
  TestServer server(options);
  ASSERT_TRUE(server.Get("add(M=1,N=1)"));
  ASSERT_TRUE(server.Get("add(M=1,N=2)"));  // the first is on disk only now
  server.pools.Hold();
  Channel stuck = server.Connect();
  ASSERT_TRUE(stuck.Ask(GetRequest{.kernel = "add(M=1,N=3)"}, Soon()));
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_running == 1; }));
  for (int i = 0; i < 3; ++i) {
    Result<GetReply> memory = server.Get("add(M=1,N=2)"), disk = server.Get("add(M=1,N=1)");
    ASSERT_TRUE(memory && disk);
    EXPECT_TRUE(memory->hit && disk->hit);
  }
  EXPECT_GE(server.metrics.hits_disk, 1u);
  EXPECT_EQ(server.metrics.builds_running, 1u);
}

TEST(Serving, NoCompileIsAHitOrNotFound) {
  TestServer server;
  Result<GetReply> reply = server.Get(kKernel, {.no_compile = true});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(server.pools.builds, 0);
  ASSERT_TRUE(server.Get(kKernel));
  EXPECT_TRUE(server.Get(kKernel, {.no_compile = true}));
}

TEST(Serving, ABudgetThatPassesIsAnsweredAndTheWorkGoesOn) {
  TestServer server;
  server.pools.Hold();
  Result<GetReply> late = server.Get(kKernel, {.budget_us = 20'000});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::kTimeout);
  server.pools.Release();
  ASSERT_TRUE(TestServer::Eventually([&] { return server.Get(kKernel, {.no_compile = true}).has_value(); }));
  EXPECT_EQ(server.pools.builds, 1);
}

TEST(Serving, WorkThatOnlyDeadClientsWaitForIsDropped) {
  TestServer server;
  server.pools.Hold();
  Channel first = server.Connect();
  ASSERT_TRUE(first.Ask(GetRequest{.kernel = "add(M=1,N=1)"}, Soon()));
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_running == 1; }));
  {
    Channel dies = server.Connect();
    ASSERT_TRUE(dies.Ask(GetRequest{.kernel = "add(M=1,N=2)"}, Soon()));
    ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_queued == 1; }));
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_queued == 0; }));
  EXPECT_EQ(server.metrics.abandoned, 1u);
  server.pools.Release();
  ASSERT_TRUE(server.Get("add(M=1,N=3)"));
  EXPECT_EQ(server.pools.builds, 2);
}

TEST(Serving, WorkUnderWayForADeadClientIsKeptAndNotRepeated) {
  TestServer server;
  server.pools.Hold();
  {
    Channel dies = server.Connect();
    ASSERT_TRUE(dies.Ask(GetRequest{.kernel = kKernel}, Soon()));
    ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_running == 1; }));
  }
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.abandoned == 1; }));
  server.pools.Release();
  Result<GetReply> reply = server.Get(kKernel);
  ASSERT_TRUE(reply);
  EXPECT_EQ(server.pools.builds, 1);
}

TEST(Serving, WhatComputesSomethingElseIsNeitherServedNorKept) {
  TestServer server;
  server.pools.check_failure = Error{ErrorKind::kWrongResult, "element 3 is 7, wanted 8", ""};
  for (int i = 1; i <= 2; ++i) {
    Result<GetReply> reply = server.Get(kKernel);
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().kind, ErrorKind::kWrongResult);
    EXPECT_NE(reply.error().message.find("element 3 is 7"), std::string::npos);
    EXPECT_EQ(server.pools.builds, 1);  // it is remembered for a while
  }
  EXPECT_FALSE(server.Get(kKernel, {.no_compile = true}));
  server.pools.check_failure.reset();
  server.Do([&] { server.misses->SetLimits({}); });  // as when the configuration is read again
  EXPECT_TRUE(server.Get(kKernel));
}

TEST(Serving, ErrorsOfTheKernelAndOfTheBuilderComeAsTheyAre) {
  TestServer server;
  Result<GetReply> reply = server.Get("matmul(M=4,N=4");
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::kInvalid);
  EXPECT_NE(reply.error().where.find("kernel:1:"), std::string::npos);
  server.pools.build_error = Error{ErrorKind::kBuildFailed, "the builder died of SIGABRT", "build"};
  reply = server.Get(kKernel);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::kBuildFailed);
  EXPECT_EQ(server.metrics.refused, 1u);
  EXPECT_EQ(server.metrics.failed, 1u);
}

TEST(Serving, TargetsThatCannotBeCheckedHereAreRefused) {
  TestServer server;
#if defined(__x86_64__)
  Result<GetReply> reply = server.Get(kKernel, {.target = "neon"});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::kUnsupported);
  EXPECT_TRUE(server.Get(kKernel, {.target = "avx2"}));
#endif
  EXPECT_EQ(server.Get(kKernel, {.target = "pentium"}).error().kind, ErrorKind::kUnsupported);
}

TEST(Serving, ThreadsArePartOfTheKernel) {
  TestServer server;
  Result<GetReply> one = server.Get(kKernel, {.threads = 1}), two = server.Get(kKernel, {.threads = 2}),
                   same = server.Get("matmul(M=4,N=4,K=4,threads=2)", {.threads = 7});
  ASSERT_TRUE(one && two && same);
  EXPECT_NE(one->fingerprint, two->fingerprint);
  EXPECT_EQ(two->fingerprint, same->fingerprint);
  EXPECT_EQ(server.pools.builds, 2);
}

TEST(Serving, ARestartedDaemonCompilesNothing) {
  testing::ScratchFolder folder;
  TestServerOptions options;
  options.cache = folder.path() + "/cache";
  std::string digest;
  {
    TestServer server(options);
    Result<GetReply> reply = server.Get(kKernel);
    ASSERT_TRUE(reply);
    digest = reply->digest;
  }
  TestServer server(options);
  Result<GetReply> reply = server.Get(kKernel, {.no_compile = true});
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_TRUE(reply->hit);
  EXPECT_EQ(reply->digest, digest);
  EXPECT_EQ(server.pools.builds, 0);
}

TEST(Serving, AnotherCompilerBuildsTheKnownScheduleAgain) {
  testing::ScratchFolder folder;
  TestServerOptions options;
  options.cache = folder.path() + "/cache";
  {
    TestServer server(options);
    ASSERT_TRUE(server.Get(kKernel));
  }
  options.compiler = "cc 2";
  {
    TestServer server(options);
    ASSERT_TRUE(server.Get(kKernel));
    EXPECT_EQ(server.pools.builds, 1);
    EXPECT_EQ(server.pools.last_schedule, "the default");
    EXPECT_TRUE(server.Get(kKernel)->hit);
  }
  options.compiler = "cc 3";  // … and where that schedule does not build any more, a fresh default
  TestServer server(options);
  server.pools.fail_schedule = "the default";
  Result<GetReply> reply = server.Get(kKernel);
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(server.pools.builds, 2);
  EXPECT_EQ(server.pools.last_schedule, "");
}

// A loaded machine, after an update: the build takes longer than its limit.
TEST(Serving, AScheduleThatCouldNotBeBuiltInTimeStaysInTheCache) {
  for (const ErrorKind kind : {ErrorKind::kTimeout, ErrorKind::kIo, ErrorKind::kInternal, ErrorKind::kBuildFailed}) {
    TestServer server;
    const ResolvedKernel identity = *server.path->Identify({kKernel, "", 0});
    Record record;
    record.key = identity.key;
    record.shape = identity.shape;
    record.origin = Origin::kTuned;
    record.schedule = "fast";
    ASSERT_TRUE(
        server.cache->Put({.record = record, .class_text = identity.class_text, .artifact = {}}, Durability::kSoon));
    server.pools.fail_schedule = "fast";
    server.pools.fail_kind = kind;
    Result<GetReply> reply = server.Get(kKernel);
    ASSERT_TRUE(reply) << reply.error().Text();
    EXPECT_EQ(reply->origin, "default");
    const std::vector<Record> records = *server.cache->RecordsOf(identity.key.fingerprint);
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].schedule, kind == ErrorKind::kBuildFailed ? "the default" : "fast") << ErrorKindName(kind);
  }
}

TEST(Serving, AKnownKernelKeepsItsClassWhateverTextItIsCompiledBy) {
  TestServer server;
  const ResolvedKernel identity = *server.path->Identify({kKernel, "", 0});
  Record record;
  record.key = identity.key;
  record.shape = identity.shape;
  record.label = identity.label;
  record.request = kKernel;
  record.origin = Origin::kImported;
  record.schedule = "fast";
  ASSERT_TRUE(
      server.cache->Put({.record = record, .class_text = identity.class_text, .artifact = {}}, Durability::kSoon));
  ASSERT_TRUE(server.Get(identity.key.canonical));  // in which every kernel has the same name
  const std::vector<Record> records = *server.cache->RecordsOf(identity.key.fingerprint);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].schedule, "fast");
  EXPECT_EQ(records[0].label, identity.label);
}

TEST(Serving, TooManyThreadsAreRefusedByTheNumberThatWasGiven) {
  TestServer server;
  for (const uint32_t threads : {1025u, 100'000u, 4'000'000'000u}) {
    Result<GetReply> reply = server.Get(kKernel, {.threads = threads});
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().kind, ErrorKind::kInvalid);
    EXPECT_THAT(reply.error().Text(), HasSubstr("threads=" + std::to_string(threads)));
  }
}

TEST(Serving, StoppingAnswersWhoWaitsAndFinishesWhatIsUnderWay) {
  TestServer server;
  server.pools.Hold();
  Channel running = server.Connect(), queued = server.Connect();
  uint64_t running_id = *running.Ask(GetRequest{.kernel = "add(M=1,N=1)"}, Soon());
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_running == 1; }));
  uint64_t queued_id = *queued.Ask(GetRequest{.kernel = "add(M=1,N=2)"}, Soon());
  ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.builds_queued == 1; }));
  server.Do([&] { server.misses->Stop(); });
  Result<GetReply> reply = queued.Await<GetReply>(queued_id, Soon());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::kUnavailable);
  EXPECT_EQ(server.Get("add(M=1,N=3)").error().kind, ErrorKind::kUnavailable);
  server.pools.Release();
  EXPECT_TRUE(running.Await<GetReply>(running_id, Soon()));
}

TEST(Serving, HelloAgreesOnAVersionOrSaysWhyNot) {
  TestServer server;
  Channel channel = server.Connect();
  Result<HelloReply> reply = channel.Call(HelloRequest{1, 99, "test"}, Soon());
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->version, kProtocolMax);
  Result<HelloReply> refused = channel.Call(HelloRequest{7, 9, "from the future"}, Soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace hone::serving_test
