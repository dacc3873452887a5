// What is told of a kernel, from a cache with a scripted log of trials: every ratio here can be computed by hand.
#include "daemon/inspect/insight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cache/tuning_gain.h"
#include "tuner/measure.h"

namespace hone {
namespace {

constexpr char kKernel[] = "matmul(M=64,N=64,K=64,threads=1)";

Target Host() { return *ParseTarget("avx2 cpu=haswell l1=32768 l2=262144 l3=8388608 cores=2"); }

// Says what it was told of each feature vector.
class ScriptedModel : public CostModel {
 public:
  std::map<std::vector<float>, double> expected;

  Result<void> Add(std::span<const Sample>) override { return {}; }
  Result<void> Update(uint64_t) override { return {}; }
  Result<void> Retrain(const std::stop_token&) override { return {}; }
  Result<std::optional<std::vector<float>>> Score(uint64_t, std::span<const std::vector<float>>) const override {
    return std::optional<std::vector<float>>();
  }
  Result<std::optional<Gains>> Gain(const std::vector<float>&, std::span<const std::vector<float>>) const override {
    return std::optional<Gains>();
  }
  Result<std::optional<Latency>> Predict(const std::vector<float>& row) const override {
    auto found = expected.find(row);
    if (found == expected.end()) return std::optional<Latency>();
    return Latency{found->second, found->second / 2, found->second * 2};
  }
  size_t SampleCount() const override { return 0; }
  size_t NewSampleCount() const override { return 0; }
  Result<std::string> Save() const override { return std::string(); }
};

class InsightTest : public ::testing::Test {
 protected:
  InsightTest() : cache_(*ScheduleCache::Open(CacheOptions{})), space_(*Space::Open(kKernel, Host())) {
    record_.key.canonical = kKernel;
    record_.key.class_fingerprint = {Hash128("class")};
    record_.key.fingerprint = {Hash128(kKernel)};
    record_.key.target = PrintTarget(Host());
    record_.key.threads = 1;
    Serve("");
    record_.origin = Origin::kDefault;
  }

  Candidate Make(const std::string& choices) {
    Result<Candidate> made = space_.Parse(choices);
    EXPECT_TRUE(made) << choices << ": " << made.error().Text();
    EXPECT_EQ(PrintChoices(made->choices), choices);
    return *std::move(made);
  }
  // The record's schedule.
  void Serve(const std::string& choices) {
    record_.schedule = WithChoices(Make(choices).schedule, choices);
    record_.origin = Origin::kTuned;
  }
  void Try(const std::string& choices, double us, Verdict verdict = Verdict::kTimed, const std::string& why = "") {
    TrialRecord trial;
    trial.why = why;
    trial.choices = choices;
    trial.program = Make(choices).program;
    trial.verdict = static_cast<uint8_t>(verdict);
    trial.time = std::chrono::nanoseconds(static_cast<int64_t>(us * 1000));
    ASSERT_TRUE(cache_->AppendTrials(record_.key, {{trial}}));
  }
  Insight MakeInsight() {
    return Insight(*cache_, Devices::OfCpu(*Host().cpu(), "cc 1"), [this](const Target&, int threads) {
      ++measured_;
      EXPECT_LE(threads, Host().cores());
      return peaks_;
    });
  }
  ExplainReply Explain() {
    Insight insight = MakeInsight();
    insight.SetModel([this](std::string_view) -> Result<std::shared_ptr<const CostModel>> { return model_; });
    Result<ExplainReply> reply = insight.Explain(record_);
    EXPECT_TRUE(reply) << reply.error().Text();
    return reply ? *reply : ExplainReply{};
  }
  static const ChoiceRow& RowOf(const ExplainReply& reply, const std::string& decision) {
    auto found =
        std::ranges::find_if(reply.choices, [&](const ChoiceRow& row) { return row.site.ends_with(decision); });
    EXPECT_NE(found, reply.choices.end()) << decision;
    return *found;
  }

  std::unique_ptr<ScheduleCache> cache_;
  Space space_;
  Record record_;
  MachinePeaks peaks_{100, {400, 200, 100, 10}};
  int measured_ = 0;
  std::shared_ptr<ScriptedModel> model_ = std::make_shared<ScriptedModel>();
};

// In the words of once: ir/steps/old_words.h.
TEST_F(InsightTest, AScheduleInOldWordsIsStillWhatTheRulesMake) {
  Serve("");
  auto says_that_rules_changed = [&] {
    const ExplainReply reply = Explain();
    return std::ranges::any_of(reply.reasons, [](const Fact& fact) { return fact.name == "rules"; });
  };
  const std::string now = "rewrite cache_write", then = "rewrite separate";
  const size_t at = record_.schedule.find(now);
  ASSERT_NE(at, std::string::npos) << record_.schedule;
  record_.schedule.replace(at, now.size(), then);
  record_.origin = Origin::kDefault;
  EXPECT_FALSE(says_that_rules_changed());
  record_.schedule += "tail y.m shift\n";
  EXPECT_TRUE(says_that_rules_changed());
}

TEST_F(InsightTest, AFitOfStepsIsNotTakenForTheDefault) {
  Try("", 100);
  TrialRecord fit;  // without choices, as the default's
  fit.program = Make("").program + 1;
  fit.verdict = static_cast<uint8_t>(Verdict::kTimed);
  fit.time = std::chrono::microseconds(10);
  ASSERT_TRUE(cache_->AppendTrials(record_.key, {{fit, fit}}));
  ExplainReply reply = Explain();
  EXPECT_EQ(reply.default_us, 100);
  EXPECT_EQ(reply.trials, 3u);
}

TEST_F(InsightTest, OfTrialsThatFailedTheLatestReasonIsTold) {
  Try("", 100);
  Try("tile.direct=0", 0, Verdict::kNotBuilt, "log of the first");
  Try("y.rows=3", 0, Verdict::kNotBuilt, "error: out of registers");
  const ExplainReply reply = Explain();
  const auto told = std::ranges::find(reply.reasons, "not built", &Fact::name);
  ASSERT_NE(told, reply.reasons.end());
  EXPECT_EQ(told->value, "2 of 3 trials; the latest: error: out of registers");
}

TEST_F(InsightTest, HistoryIsTheBestSoFarOverAllTrials) {
  Try("", 100);
  Try("tile.direct=0", 120);
  Try("y.rows=3", 80);
  Try("tile.unroll=4", 0, Verdict::kWrong);
  Try("tile.copy_rows=1", 90);
  Try("tile.unroll=2", 60);
  Try("", 110);  // measured again by a later search
  Try("", 105);
  ExplainReply reply = Explain();
  EXPECT_EQ(reply.trials, 8u);
  ASSERT_EQ(reply.history.size(), 3u);
  EXPECT_EQ(std::pair(reply.history[0].trial, reply.history[0].best_us), std::pair(uint64_t{1}, 100.0));
  EXPECT_EQ(std::pair(reply.history[1].trial, reply.history[1].best_us), std::pair(uint64_t{3}, 80.0));
  EXPECT_EQ(std::pair(reply.history[2].trial, reply.history[2].best_us), std::pair(uint64_t{6}, 60.0));
  EXPECT_GT(reply.history[0].at_s, 0);
  EXPECT_DOUBLE_EQ(reply.default_us, 105);  // the median of three
  ASSERT_EQ(reply.verdicts.size(), 2u);
  EXPECT_EQ(reply.verdicts[0].name, "timed");
  EXPECT_EQ(reply.verdicts[0].value, 7);
  EXPECT_EQ(reply.verdicts[1].name, "wrong");
  EXPECT_EQ(reply.verdicts[1].value, 1);
}

TEST_F(InsightTest, EachChangedChoiceHasItsWorth) {
  const std::string both = "y.rows=3 tile.unroll=4";
  Serve(both);
  Try("", 90);
  Try(both, 50);
  Try("y.rows=3", 60);
  Try("tile.unroll=4", 75);
  model_->expected[Make(both).features] = 10;
  model_->expected[Make("y.rows=3").features] = 14;
  ExplainReply reply = Explain();
  const ChoiceRow& rows = RowOf(reply, ".rows");
  EXPECT_EQ(rows.value, 3);
  EXPECT_EQ(rows.preferred, space_.Default()->choices[3].value);
  EXPECT_DOUBLE_EQ(rows.measured_ratio, 1.5);  // tile.unroll alone took 75
  EXPECT_DOUBLE_EQ(rows.trials_ratio, 1.5);
  EXPECT_EQ(rows.trials_with, 2u);
  EXPECT_EQ(rows.trials_without, 2u);
  EXPECT_EQ(rows.model_ratio, 0);  // the model was not told of tile.unroll alone
  const ChoiceRow& unroll = RowOf(reply, "tile.unroll");
  EXPECT_DOUBLE_EQ(unroll.measured_ratio, 1.2);
  EXPECT_DOUBLE_EQ(unroll.trials_ratio, 1.2);
  EXPECT_DOUBLE_EQ(unroll.model_ratio, 1.4);
  EXPECT_EQ(unroll.meaning, "steps of the inner loop in one piece of code");
}

TEST_F(InsightTest, AChoiceOfAnotherStageIsNotMistakenForIt) {
  Serve("tile.unroll=4");
  Try("tile.unroll=4", 50);
  TrialRecord other;  // of other rules: the site's name ends alike, and the value begins alike
  other.choices = "y.tile.unroll=4 tile.unroll=48 tile.directly=1";
  other.program = 1;
  other.verdict = static_cast<uint8_t>(Verdict::kTimed);
  other.time = std::chrono::microseconds(40);
  ASSERT_TRUE(cache_->AppendTrials(record_.key, {{other}}));
  EXPECT_EQ(RowOf(Explain(), "tile.unroll").trials_with, 1u);
  EXPECT_EQ(RowOf(Explain(), "tile.direct").trials_with, 2u);
}

TEST_F(InsightTest, WhatTheRulesPreferIsComparedWithTheBestOtherOption) {
  Try("", 50);
  Try("tile.unroll=4", 60);
  Try("tile.unroll=2", 55);
  Try("y.rows=3 tile.unroll=8", 45);
  ExplainReply reply = Explain();
  const ChoiceRow& unroll = RowOf(reply, "tile.unroll");
  EXPECT_DOUBLE_EQ(unroll.measured_ratio, 1.1);
  EXPECT_DOUBLE_EQ(unroll.trials_ratio, 0.9);
  EXPECT_EQ(unroll.trials_with, 1u);
  EXPECT_EQ(unroll.trials_without, 3u);
  const ChoiceRow& direct = RowOf(reply, "tile.direct");  // nobody tried it otherwise
  EXPECT_EQ(direct.measured_ratio, 0);
  EXPECT_EQ(direct.trials_ratio, 0);
  EXPECT_TRUE(direct.is_flag);
}

TEST_F(InsightTest, TheSpaceIsAsLargeAsTheDefaultsDecisionsSay) {
  ExplainReply reply = Explain();
  double product = 1;
  for (const ChoiceRow& row : reply.choices) product *= static_cast<double>(row.options.size());
  EXPECT_GE(reply.choices.size(), 8u);
  EXPECT_DOUBLE_EQ(reply.space_size, product);
  ASSERT_FALSE(reply.rules.empty());
  EXPECT_TRUE(std::ranges::any_of(
      reply.rules, [](const RuleRow& row) { return row.rule == "contraction" && row.stage == "y" && row.applied; }));
  EXPECT_TRUE(
      std::ranges::any_of(reply.rules, [](const RuleRow& row) { return row.rule == "winograd" && !row.applied; }));
}

TEST_F(InsightTest, ATunedKernelsRulesAreThoseOfItsChoices) {
  Serve("y.rule=2");
  ExplainReply reply = Explain();
  EXPECT_TRUE(std::ranges::any_of(reply.rules, [](const RuleRow& row) { return row.rule == "rows" && row.applied; }));
  EXPECT_TRUE(std::ranges::none_of(reply.reasons, [](const Fact& fact) { return fact.name == "rules"; }));
}

TEST_F(InsightTest, ASchedulesRulesMayHaveChangedSince) {
  record_.schedule = "split y.i 4\n";
  ExplainReply reply = Explain();
  ASSERT_EQ(reply.reasons.size(), 1u);
  EXPECT_EQ(reply.reasons[0].name, "rules");
}

TEST_F(InsightTest, StepsThatWereFittedAreNoRulesAndHaveNotChanged) {
  for (Origin origin : {Origin::kTransferred, Origin::kTuned}) {
    record_.schedule = "split y.i 4\n";
    record_.origin = origin;
    ExplainReply reply = Explain();
    ASSERT_EQ(reply.reasons.size(), 1u);
    EXPECT_EQ(reply.reasons[0].name, "rules");
    EXPECT_NE(reply.reasons[0].value.find("another kernel's, fitted"), std::string::npos) << reply.reasons[0].value;
  }
}

TEST_F(InsightTest, TheRooflineIsOfTheLevelThatHoldsTheOperands) {
  record_.measured = Timing{.time = std::chrono::microseconds(10)};
  Roofline roofline = Explain().roofline;
  EXPECT_DOUBLE_EQ(roofline.flops, 2.0 * 64 * 64 * 64);
  EXPECT_DOUBLE_EQ(roofline.operand_bytes, 3.0 * 64 * 64 * 4);
  EXPECT_EQ(roofline.level, "L2");  // 48 KiB
  EXPECT_DOUBLE_EQ(roofline.read_gb_s, 200);
  EXPECT_DOUBLE_EQ(roofline.peak_gflops, 100);
  EXPECT_DOUBLE_EQ(roofline.time_us, 10);
  EXPECT_EQ(roofline.time_from, "measured");
}

TEST_F(InsightTest, AKernelThatWasNeverMeasuredHasNoTime) {
  Roofline roofline = Explain().roofline;
  EXPECT_EQ(roofline.time_us, 0);
  EXPECT_EQ(roofline.time_from, "");
  EXPECT_GT(roofline.peak_gflops, 0);
  Try("", 70);
  EXPECT_EQ(Explain().roofline.time_from, "best trial");
  record_.expected = std::chrono::microseconds(90);
  EXPECT_EQ(Explain().roofline.time_from, "first call");
}

TEST_F(InsightTest, AnotherMachinesRecordIsNotHeldAgainstThisOnesRoofs) {
  record_.key.target = "cpu avx512 cpu=sapphirerapids l1=49152 l2=2097152 l3=33554432 cores=8";
  ExplainReply reply = Explain();
  EXPECT_EQ(reply.roofline.peak_gflops, 0);
  EXPECT_EQ(reply.roofline.read_gb_s, 0);
  EXPECT_GT(reply.space_size, 1);
  EXPECT_EQ(measured_, 0);
}

TEST_F(InsightTest, RoofsAreMeasuredOnceAndKept) {
  {
    Insight insight = MakeInsight();
    ASSERT_TRUE(insight.Explain(record_));
    ASSERT_TRUE(insight.Explain(record_));
    EXPECT_EQ(measured_, 1);
  }
  // The next honed measures under load: what was seen before stands, each roof for itself.
  peaks_ = {70, {500, 90, 80, 5}};
  Roofline roofline = Explain().roofline;
  EXPECT_EQ(measured_, 2);
  EXPECT_DOUBLE_EQ(roofline.peak_gflops, 100);
  EXPECT_DOUBLE_EQ(roofline.read_gb_s, 200);
}

TEST_F(InsightTest, IntegersHaveNoRoofOfFloats) {
  record_.key.canonical = "matmul(M=64,N=64,K=64,dtype=i8,threads=1)";
  Roofline roofline = Explain().roofline;
  EXPECT_EQ(roofline.peak_gflops, 0);
  EXPECT_GT(roofline.read_gb_s, 0);
}

TEST_F(InsightTest, WhatCannotBeReadAnyMoreIsLeftOut) {
  Try("", 70);
  record_.key.target = "a machine of another age";
  ExplainReply reply = Explain();
  EXPECT_EQ(reply.space_size, 0);
  EXPECT_TRUE(reply.choices.empty());
  record_.key.target = PrintTarget(Host());
  std::string canonical = std::exchange(record_.key.canonical, "kernel of another age");
  EXPECT_EQ(Explain().space_size, 0);
  record_.key.canonical = canonical;
  record_.schedule = "# choices: of another age\n";
  reply = Explain();
  EXPECT_EQ(reply.trials, 1u);
  EXPECT_GT(reply.space_size, 1);
  EXPECT_TRUE(reply.choices.empty());
}

TEST_F(InsightTest, WhatSearchesWonAddsUp) {
  EXPECT_EQ(Explain().won_ratio, 0);
  record_.origin = Origin::kTuned;
  EXPECT_EQ(Explain().won_ratio, 0);  // tuned elsewhere, or before this was noted
  NoteTuningGain(*cache_, record_, false, 1.5, false);
  NoteTuningGain(*cache_, record_, true, 1.2, true);
  ExplainReply reply = Explain();
  EXPECT_DOUBLE_EQ(reply.won_ratio, 1.8);
  EXPECT_DOUBLE_EQ(reply.idle_ratio, 1.2);
  // Made anew: what was won before is gone.
  record_.origin = Origin::kDefault;
  EXPECT_EQ(Explain().won_ratio, 0);
  NoteTuningGain(*cache_, record_, false, 1.1, true);
  record_.origin = Origin::kTuned;
  EXPECT_DOUBLE_EQ(Explain().won_ratio, 1.1);
}

TEST(TuningGain, TextReadsBackAndDamageIsRefused) {
  TuningGain won{1.8, 1.2, 2};
  Result<TuningGain> read = ParseTuningGain(PrintTuningGain(won));
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, won);
  for (const char* text : {"", "1 1", "0 1 1", "1 -1 1", "nan 1 1", "1 inf 1", "1 1 -1", "1 1 1 1", "x"}) {
    Result<TuningGain> damaged = ParseTuningGain(text);
    ASSERT_FALSE(damaged) << text;
    EXPECT_EQ(damaged.error().kind, ErrorKind::kCorrupt);
  }
}

}  // namespace
}  // namespace hone
