// What becomes of a search whose kernel changes meanwhile.
#include "daemon/refine/tuning.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>

#include "client/protocol/inspect_messages.h"
#include "tests/daemon/test_server.h"

namespace hone::tuning_test {
namespace {

using testing::FakeWorkerPools;
using ::testing::HasSubstr;
using testing::Soon;
using testing::TestServer;

constexpr const char* kKernel = "matmul(M=24,N=40,K=16)";
constexpr const char* kDevice = "scripted:0";

class TuningTest : public ::testing::Test {
 protected:
  void Ask() { ASSERT_TRUE(server_.Get(kKernel, {.kernel = "", .target = kDevice})); }

  CacheKey Key() { return server_.path->Identify({kKernel, kDevice, 0})->key; }
  std::optional<Record> Stored() {
    Result<std::optional<CacheHit>> hit = server_.cache->Lookup(Key(), Counting::kNot);
    if (hit && *hit) return std::move((*hit)->record);
    return std::nullopt;
  }
  int TrialsInLog() {
    int trials = 0;
    EXPECT_TRUE(server_.cache->ForEachTrial(Key(), [&](const TrialRecord&) { return ++trials > 0; }));
    return trials;
  }
  void Remove() { ASSERT_TRUE(server_.cache->Remove(Key().fingerprint)); }

  // A search that finds something, and what happens after its third trial.
  Tuning::Outcome Search(const std::function<void()>& meanwhile, int trials = 48) {
    SearchWatcher watcher;
    watcher.on_trial = [&, tried = 0](const Trial&) mutable {
      if (++tried == 3) meanwhile();
    };
    FakeWorkerPools pools;
    SearchOptions options;
    options.trials = trials;
    options.seed = 7;
    Result<Tuning::Outcome> outcome =
        server_.tuning->Refine({kKernel, kDevice, 0}, options, pools, watcher, {}, std::nullopt);
    EXPECT_TRUE(outcome) << outcome.error().Text();
    return outcome ? *outcome : Tuning::Outcome();
  }

  TestServer server_;
};

TEST_F(TuningTest, KeepsWhatItFinds) {
  Ask();
  EXPECT_GT(Search([] {}).ratio, 1);
  EXPECT_EQ(Stored()->origin, Origin::kTuned);
  EXPECT_EQ(TrialsInLog(), 48);
}

TEST_F(TuningTest, WhatWasRemovedMeanwhileStaysRemoved) {
  Ask();
  const Tuning::Outcome outcome = Search([&] { Remove(); });
  EXPECT_EQ(outcome.ratio, 0);
  EXPECT_EQ(outcome.origin, Origin::kDefault);
  EXPECT_THAT(outcome.search.stopped, HasSubstr("removed meanwhile"));
  EXPECT_FALSE(Stored());
  EXPECT_EQ(TrialsInLog(), 0);
  EXPECT_FALSE(server_.cache->GetNote(Key(), "won")->has_value());
}

TEST_F(TuningTest, WhatWasRemovedAndAskedForAgainIsAnother) {
  Ask();
  const Tuning::Outcome outcome = Search([&] {
    Remove();
    server_.Do([&] { server_.hot->Forget(Key().fingerprint); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // times of records are milliseconds
    Ask();
  });
  EXPECT_EQ(outcome.ratio, 0);
  EXPECT_EQ(Stored()->origin, Origin::kDefault);
  EXPECT_EQ(TrialsInLog(), 0);
}

TEST_F(TuningTest, WhatTookItsPlaceMeanwhileStays) {
  Ask();
  Record other = *Stored();
  other.origin = Origin::kImported;
  other.schedule += "# of another machine\n";
  const Tuning::Outcome outcome = Search(
      [&] { ASSERT_TRUE(server_.cache->Put({.record = other, .class_text = "", .artifact = {}}, Durability::kSoon)); });
  EXPECT_EQ(outcome.ratio, 0);
  EXPECT_THAT(outcome.search.stopped, HasSubstr("took its place meanwhile"));
  EXPECT_EQ(Stored()->schedule, other.schedule);
  EXPECT_EQ(Stored()->origin, Origin::kImported);
}

TEST_F(TuningTest, WhoRemovesOrPinsAKernelEndsItsSearch) {
  for (EditAction action : {EditAction::kRemove, EditAction::kPin}) {
    Ask();
    Channel channel = server_.Connect();
    const Tuning::Outcome outcome =
        Search([&] { ASSERT_TRUE(channel.Call(EditRequest{action, Key().fingerprint.Hex()}, Soon())); }, 10'000);
    EXPECT_LT(outcome.search.progress.trials, 1'000);
    EXPECT_EQ(outcome.ratio, 0);
    EXPECT_EQ(Stored().has_value(), action == EditAction::kPin);
    server_.Do([&] { server_.hot->Forget(Key().fingerprint); });
  }
}

// The answer to the last of the rounds.
Result<TuneReply> LastReply(Channel& channel, const TuneRequest& request) {
  const uint64_t id = HONE_TRY(channel.Ask(request, Soon()));
  for (;;) {
    TuneReply reply = HONE_TRY(channel.Await<TuneReply>(id, Soon()));
    if (!reply.more) return reply;
  }
}

TuneRequest RequestFor(const char* kernel, uint32_t trials) {
  TuneRequest request;
  request.kernel = kernel;
  request.target = kDevice;
  request.trials = trials;
  request.seed = 7;
  return request;
}

// Programs that were tried, in order.
std::vector<uint64_t> TriedFor(TestServer& server, const char* kernel) {
  std::vector<uint64_t> tried;
  const CacheKey key = server.path->Identify({kernel, kDevice, 0})->key;
  EXPECT_TRUE(server.cache->ForEachTrial(key, [&](const TrialRecord& trial) {
    tried.push_back(trial.program);
    return true;
  }));
  return tried;
}

// What a search alone tries, and what it tries beside another client's with turns so short that each is interrupted
// again and again.
TEST(TuningTurns, ASearchGoesOnWhereItWasInterrupted) {
  constexpr const char* kKernels[] = {kKernel, "matmul(M=40,N=24,K=8)"};
  std::vector<uint64_t> alone[2];
  for (int i = 0; i < 2; ++i) {
    TestServer server;
    Channel channel = server.Connect();
    ASSERT_TRUE(LastReply(channel, RequestFor(kKernels[i], 96)));
    alone[i] = TriedFor(server, kKernels[i]);
    EXPECT_EQ(alone[i].size(), 96u);
  }
  TestServer server;
  server.Do([&] { server.tuning->SetTurn(std::chrono::milliseconds(60)); });
  Channel channels[] = {server.Connect({geteuid(), 1}), server.Connect({geteuid(), 2})};
  Result<TuneReply> replies[2];
  std::thread clients[2];
  for (int i = 0; i < 2; ++i)
    clients[i] = std::thread([&, i] { replies[i] = LastReply(channels[i], RequestFor(kKernels[i], 96)); });
  for (std::thread& client : clients) client.join();
  EXPECT_GE(server.metrics.displaced, 4u);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(replies[i]) << replies[i].error().Text();
    EXPECT_EQ(replies[i]->trials, 96u);
    EXPECT_EQ(replies[i]->stopped, "96 trials");
    EXPECT_GT(replies[i]->ratio, 1);
    EXPECT_GT(replies[i]->start_us, replies[i]->best_us);
    const std::vector<uint64_t> tried = TriedFor(server, kKernels[i]);
    EXPECT_EQ(std::set<uint64_t>(tried.begin(), tried.end()).size(), 96u);
    // The model, which both teach, has a say in the rest.
    ASSERT_GE(tried.size(), 16u);
    EXPECT_TRUE(std::equal(tried.begin(), tried.begin() + 16, alone[i].begin()));
  }
}

TEST(TuningTurns, ASearchOfARangeOfSizesGoesOnWhereItWasInterrupted) {
  TestServer server;
  server.Do([&] { server.tuning->SetTurn(std::chrono::milliseconds(60)); });
  constexpr const char* kKernels[] = {"matmul(M=1..7,N=16,K=16)", "matmul(M=1..9,N=32,K=16)"};
  uint32_t alone[2];
  for (int i = 0; i < 2; ++i) {
    TestServer one;
    Channel channel = one.Connect();
    Result<TuneReply> reply = LastReply(channel, RequestFor(kKernels[i], 200));
    ASSERT_TRUE(reply) << reply.error().Text();
    alone[i] = reply->trials;
    EXPECT_GT(alone[i], 100u) << reply->stopped;
  }
  Channel channels[] = {server.Connect({geteuid(), 1}), server.Connect({geteuid(), 2})};
  Result<TuneReply> replies[2];
  std::thread clients[2];
  for (int i = 0; i < 2; ++i)
    clients[i] = std::thread([&, i] { replies[i] = LastReply(channels[i], RequestFor(kKernels[i], 200)); });
  for (std::thread& client : clients) client.join();
  EXPECT_GE(server.metrics.displaced, 2u);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(replies[i]) << replies[i].error().Text();
    EXPECT_EQ(replies[i]->trials, alone[i]) << replies[i]->stopped;
    EXPECT_GT(replies[i]->start_us, 0);
  }
}

TEST(TuningLimits, ARangeOfSizesHasAsManyTrialsAsAnyKernel) {
  for (uint32_t trials : {1u, 12u, 64u, 100u}) {
    TestServer server;
    Channel channel = server.Connect();
    Result<TuneReply> reply = LastReply(channel, RequestFor("matmul(M=1..7,N=16,K=16)", trials));
    ASSERT_TRUE(reply) << reply.error().Text();
    EXPECT_EQ(reply->trials, trials);
  }
}

TEST(TuningLimits, ATimeBelowAMillisecondIsALimit) {
  TestServer server;
  Channel channel = server.Connect();
  TuneRequest request = RequestFor(kKernel, 2'000);
  request.time_us = 1;
  Result<TuneReply> reply = LastReply(channel, request);
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_LT(reply->trials, 100u);
  EXPECT_THAT(reply->stopped, ::testing::MatchesRegex("[0-9]+ s"));  // that it took, however slow the machine
}

}  // namespace
}  // namespace hone::tuning_test
