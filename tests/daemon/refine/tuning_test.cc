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

}  // namespace
}  // namespace hone::tuning_test
