// Batches on a made-up device: how times are told.
#include "tuner/measure.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/tuner/scripted_evaluator.h"

namespace hone {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OpenSpace;
using testing::ScriptedEvaluator;

// That differ from each other and from the default.
std::vector<Candidate> SomeOf(const Space& space, size_t count) {
  std::vector<Candidate> some;
  std::vector<uint64_t> taken{space.Default()->program};
  for (Rng rng(5); some.size() < count;) {
    Result<Plan> plan = space.Sample(rng);
    Result<Candidate> made = plan ? space.Complete(*std::move(plan)) : Result<Candidate>(plan.error());
    if (!made || std::ranges::find(taken, made->program) != taken.end()) continue;
    taken.push_back(made->program);
    some.push_back(*std::move(made));
  }
  return some;
}

// A machine that takes 1.5 times as long from some moment on: everything is told at the pace of the beginning.
TEST(MeasureBatch, TimesAreToldAtTheDriftReferencesPace) {
  const Space space = OpenSpace();
  const Candidate standard = *space.Default();
  const std::vector<Candidate> others = SomeOf(space, 3);
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

TEST(MeasureBatch, WhatFailsInItsRehearsalIsNotRun) {
  const std::vector<Candidate> batch = SomeOf(OpenSpace(), 3);
  ScriptedEvaluator evaluator;
  evaluator.on_rehearse = [&](int n) {
    EXPECT_TRUE(evaluator.timed.empty());  // nothing runs beside what is measured
    return n == 1 ? std::optional(Error{ErrorKind::kRunFailed, "killed by signal 11", ""}) : std::nullopt;
  };
  Result<std::vector<Trial>> trials = MeasureBatch(evaluator, batch, {}, {});
  ASSERT_TRUE(trials) << trials.error().Text();
  EXPECT_THAT(evaluator.rehearsed, ElementsAre(batch[0].schedule, batch[1].schedule, batch[2].schedule));
  EXPECT_EQ(trials->at(1).verdict, Verdict::kCrashed);
  EXPECT_THAT(trials->at(1).why, HasSubstr("killed by signal 11"));
  EXPECT_EQ(trials->at(2).verdict, Verdict::kTimed);
  EXPECT_THAT(evaluator.timed, ::testing::Not(::testing::Contains(batch[1].schedule)));
}

// Beside others it may have taken longer: it is checked, unless it was given twenty times what the best takes.
TEST(MeasureBatch, WhatTakesLongInItsRehearsalHasLostToABetterOne) {
  const std::vector<Candidate> batch = SomeOf(OpenSpace(), 3);
  for (const bool is_slow : {false, true}) {
    ScriptedEvaluator evaluator;
    evaluator.on_rehearse = [](int n) {
      return n != 1 ? std::optional(Error{ErrorKind::kTimeout, "still running", ""}) : std::nullopt;
    };
    evaluator.time_of = [&](const std::string&) { return is_slow ? 100'000.0 : 200.0; };
    Result<std::vector<Trial>> trials = MeasureBatch(evaluator, batch, {}, {});
    ASSERT_TRUE(trials) << trials.error().Text();
    EXPECT_EQ(trials->at(0).verdict, Verdict::kTimed);  // nothing was known yet
    EXPECT_EQ(trials->at(1).verdict, Verdict::kTimed);
    EXPECT_EQ(trials->at(2).verdict, is_slow ? Verdict::kTimed : Verdict::kTimedOut);
  }
}

TEST(MeasureBatch, RehearsesWhatWasBuiltIfThatIsMoreThanOne) {
  const std::vector<Candidate> batch = SomeOf(OpenSpace(), 3);
  for (const int built : {1, 2}) {
    ScriptedEvaluator evaluator;
    evaluator.on_build = [&](int n) {
      return n >= built ? std::optional(Error{ErrorKind::kBuildFailed, "scripted", ""}) : std::nullopt;
    };
    Result<std::vector<Trial>> trials = MeasureBatch(evaluator, batch, {}, {});
    ASSERT_TRUE(trials) << trials.error().Text();
    EXPECT_EQ(evaluator.rehearsed.size(), built == 1 ? 0u : 2u);
    EXPECT_EQ(trials->at(2).verdict, Verdict::kNotBuilt);
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
