// Batches on a made-up device: how times are told.
#include "tuner/measure.h"

#include <gtest/gtest.h>

#include "tests/tuner/scripted_evaluator.h"

namespace hone {
namespace {

using testing::OpenSpace;
using testing::ScriptedEvaluator;

// A machine that takes 1.5 times as long from some moment on: everything is told at the pace of the beginning.
TEST(MeasureBatch, TimesAreToldAtTheDriftReferencesPace) {
  const Space space = OpenSpace();
  const Candidate standard = *space.Default();
  std::vector<Candidate> others;
  for (Rng rng(5); others.size() < 3;) {
    Result<Plan> plan = space.Sample(rng);
    Result<Candidate> made = plan ? space.Complete(*std::move(plan)) : Result<Candidate>(plan.error());
    if (made && made->program != standard.program) others.push_back(*std::move(made));
  }
  ScriptedEvaluator evaluator;
  double slower = 1;
  evaluator.time_of = [&](const std::string& text) { return slower * (text == standard.schedule ? 200.0 : 100.0); };
  DriftReference drift_reference(standard.program);
  MeasureOptions options;
  options.drift_reference = &drift_reference;
  auto time_of = [&](const Candidate& candidate) {
    Result<std::vector<Trial>> trials = MeasureBatch(evaluator, {candidate}, options, {});
    EXPECT_TRUE(trials) << trials.error().Text();
    return trials ? trials->at(0).time_us : 0;
  };
  EXPECT_DOUBLE_EQ(time_of(others[0]), 100);  // no drift_reference yet
  EXPECT_DOUBLE_EQ(time_of(standard), 200);
  slower = 1.5;
  EXPECT_DOUBLE_EQ(time_of(others[1]), 150);  // its pace is held to be that of a moment ago
  evaluator.time.Advance(std::chrono::seconds(1));
  EXPECT_DOUBLE_EQ(time_of(others[2]), 100);
  EXPECT_DOUBLE_EQ(*drift_reference.Pace(evaluator, 1), 1.5);
  slower = 1;
  evaluator.time.Advance(std::chrono::seconds(1));
  EXPECT_DOUBLE_EQ(time_of(others[1]), 100);
  EXPECT_EQ(drift_reference.program(), standard.program);
}

// While the drift_reference is timed, and only then, somebody else has the processor: nothing is the fastest by that.
TEST(MeasureBatch, ASlowMomentOfTheDriftReferenceMakesNoBest) {
  const Space space = OpenSpace();
  const Candidate standard = *space.Default();
  Rng rng(5);
  Candidate other = standard;
  while (other.program == standard.program)
    if (Result<Plan> plan = space.Sample(rng))
      if (Result<Candidate> made = space.Complete(*std::move(plan))) other = *std::move(made);
  for (int moments : {1, 2}) {  // of the drift_reference's timings that are disturbed, one after the other
    ScriptedEvaluator evaluator;
    int left = 0;
    evaluator.time_of = [&](const std::string& text) {
      return text == standard.schedule ? left-- > 0 ? 300.0 : 200.0 : 210.0;
    };
    DriftReference drift_reference(standard.program);
    MeasureOptions options;
    options.drift_reference = &drift_reference;
    ASSERT_TRUE(MeasureBatch(evaluator, {standard}, options, {}));
    options.best_us = 200;
    left = moments;
    evaluator.time.Advance(std::chrono::seconds(1));
    Result<std::vector<Trial>> trials = MeasureBatch(evaluator, {other}, options, {});
    ASSERT_TRUE(trials) << trials.error().Text();
    EXPECT_DOUBLE_EQ(trials->at(0).time_us, 210);
  }
}

TEST(MeasureBatch, WhatIsFastestOnceMustBeSoTwice) {
  const Candidate standard = *OpenSpace().Default();
  auto told = [&](double first_us, double second_us) {
    ScriptedEvaluator evaluator;
    evaluator.time_of = [&](const std::string&) { return evaluator.timed.size() == 1 ? first_us : second_us; };
    MeasureOptions options;
    options.best_us = 200;
    Result<std::vector<Trial>> trials = MeasureBatch(evaluator, {standard}, options, {});
    EXPECT_TRUE(trials) << trials.error().Text();
    return trials ? trials->at(0).time_us : 0;
  };
  EXPECT_DOUBLE_EQ(told(150, 190), 190);
  EXPECT_DOUBLE_EQ(told(190, 150), 190);
  EXPECT_DOUBLE_EQ(told(150, 230), 230);
  EXPECT_DOUBLE_EQ(told(210, 100), 210);  // is not timed again
}

TEST(MeasureBatch, WhatFailsTheSecondTimeHasFailed) {
  const Candidate standard = *OpenSpace().Default();
  for (auto [kind, verdict] :
       {std::pair{ErrorKind::kRunFailed, Verdict::kCrashed}, {ErrorKind::kBusy, Verdict::kTimed}}) {
    ScriptedEvaluator evaluator;
    evaluator.time_of = [](const std::string&) { return 150.0; };
    evaluator.on_time = [kind](int n) {
      return n == 1 ? std::optional(Error{kind, "the second time", ""}) : std::nullopt;
    };
    MeasureOptions options;
    options.best_us = 200;
    Result<std::vector<Trial>> trials = MeasureBatch(evaluator, {standard}, options, {});
    ASSERT_TRUE(trials) << trials.error().Text();
    EXPECT_EQ(trials->at(0).verdict, verdict);
    EXPECT_DOUBLE_EQ(trials->at(0).time_us, verdict == Verdict::kTimed ? 150 : 0);
  }
}

TEST(MeasureBatch, TheDriftReferenceIsTimedWarm) {
  const Candidate standard = *OpenSpace().Default();
  ScriptedEvaluator evaluator;
  evaluator.time_of = [&](const std::string&) { return evaluator.timed.size() == 1 ? 300.0 : 200.0; };
  DriftReference drift_reference(standard.program);
  MeasureOptions options;
  options.drift_reference = &drift_reference;
  Result<std::vector<Trial>> trials = MeasureBatch(evaluator, {standard}, options, {});
  ASSERT_TRUE(trials) << trials.error().Text();
  EXPECT_DOUBLE_EQ(trials->at(0).time_us, 200);
}

// Two threads that share a processor throughout a timing are no slower machine: everything would be told too slow.
TEST(MeasureBatch, TheDriftReferenceIsTimedUntilTwoTimingsAgree) {
  const Candidate standard = *OpenSpace().Default();
  ScriptedEvaluator evaluator;
  const std::vector<double> times{310, 300, 180, 360, 182, 300};
  evaluator.time_of = [&](const std::string&) { return times[std::min(evaluator.timed.size(), times.size()) - 1]; };
  DriftReference drift_reference(standard.program);
  MeasureOptions options;
  options.drift_reference = &drift_reference;
  Result<std::vector<Trial>> trials = MeasureBatch(evaluator, {standard}, options, {});
  ASSERT_TRUE(trials) << trials.error().Text();
  EXPECT_DOUBLE_EQ(trials->at(0).time_us, 180);
  EXPECT_EQ(evaluator.timed.size(), 5u);
}

// An drift_reference that could not be timed keeps the pace that it had; a device that is gone is told.
TEST(MeasureBatch, AnDriftReferenceThatIsDisturbedCostsNothing) {
  const Candidate standard = *OpenSpace().Default();
  for (ErrorKind kind : {ErrorKind::kBusy, ErrorKind::kRunFailed}) {
    std::optional<Error> error = Error{kind, "disturbed", "time"};
    ScriptedEvaluator one;
    one.on_time = [&](int n) { return n > 0 ? error : std::nullopt; };
    one.time_of = [](const std::string&) { return 200.0; };
    DriftReference drift_reference(standard.program);
    MeasureOptions options;
    options.drift_reference = &drift_reference;
    Result<std::vector<Trial>> trials = MeasureBatch(one, {standard}, options, {});
    ASSERT_TRUE(trials) << trials.error().Text();
    EXPECT_DOUBLE_EQ(trials->at(0).time_us, 200);
    one.time.Advance(std::chrono::seconds(1));
    EXPECT_DOUBLE_EQ(*drift_reference.Pace(one, 1), 1);
    error = Error{ErrorKind::kUnavailable, "the runner is gone", "runner"};
    one.time.Advance(std::chrono::seconds(1));
    EXPECT_FALSE(drift_reference.Pace(one, 1));
  }
}

}  // namespace
}  // namespace hone
