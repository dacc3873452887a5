// What a runner makes of a candidate that was ended, or kept from starting, by what it has not done itself. A launcher
// that is scripted stands for the one that forks.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>

#include <deque>
#include <functional>
#include <limits>

#include "backends/runner/runner_check.h"
#include "tests/backends/runner/hand_made.h"
#include "tests/backends/runner_fixture.h"

namespace hone::lost_candidate_test {
namespace {

using ::testing::HasSubstr;
using testing::kRelu;
using testing::ManifestOf;

using Attempt = std::function<Result<LaunchOutcome>(const CandidateSpec& spec, CandidateStatus& status, int arena_fd)>;

class ScriptedLauncher : public Launcher {
 public:
  explicit ScriptedLauncher(std::deque<Attempt> script) : script_(std::move(script)) {}

  Result<Manifest> Admit(const SealedMemfd&) const override { return ManifestOf(kRelu); }
  Result<LaunchOutcome> Run(const CandidateSpec& spec, const SealedMemfd&, int arena_fd) override {
    ++runs;
    if (script_.empty()) return Error{ErrorKind::kInternal, "the script is over", ""};
    const auto run = std::move(script_.front());
    script_.pop_front();
    BufferPlan plan;
    plan.bytes = kStatusBytes;
    plan.writable = true;
    MappedBuffer shared = HONE_TRY(MapBuffer(plan, arena_fd, true));
    Result<LaunchOutcome> outcome = run(spec, *reinterpret_cast<CandidateStatus*>(shared.data), arena_fd);
    ::munmap(shared.base, shared.size);
    return outcome;
  }
  const Confinement& confinement() const override { return confinement_; }

  int runs = 0;

 private:
  std::deque<Attempt> script_;
  Confinement confinement_;
};

Attempt EndsBy(int signal) {
  return [signal](const CandidateSpec&, CandidateStatus&, int) { return LaunchOutcome{.status = {.signal = signal}}; };
}

Attempt EndsAt(int code, const char* why = "") {
  return [=](const CandidateSpec&, CandidateStatus& status, int) {
    std::snprintf(status.setup_error, sizeof status.setup_error, "%s", why);
    return LaunchOutcome{.status = {.code = code}};
  };
}

Result<LaunchOutcome> CannotFork(const CandidateSpec&, CandidateStatus&, int) {
  return Error{ErrorKind::kBusy, "fork: no process is free", ""};
}

// As right code would end; `tell` may add what it says of itself.
Attempt Computes(const std::function<void(CandidateStatus&)>& tell = [](CandidateStatus&) {}) {
  return [tell](const CandidateSpec& spec, CandidateStatus& status, int arena_fd) -> Result<LaunchOutcome> {
    MappedBuffer x = HONE_TRY(MapBuffer(spec.operands[0], arena_fd, true));
    MappedBuffer y = HONE_TRY(MapBuffer(spec.operands[1], arena_fd, true));
    const auto* in = reinterpret_cast<const float*>(x.data);
    auto* out = reinterpret_cast<float*>(y.data);
    for (int i = 0; i < 5003; ++i) out[i] = in[i] > 0 ? in[i] : 0;
    ::munmap(x.base, x.size), ::munmap(y.base, y.size);
    status.stage = RunStage::kDone;
    tell(status);
    return LaunchOutcome{};
  };
}

class LostCandidate : public ::testing::Test {
 protected:
  Result<CheckReport> Check(std::deque<Attempt> script, const CheckOptions& options = {}) {
    ScriptedLauncher launcher(std::move(script));
    Arena arena = *Arena::Create();
    std::unique_ptr<Workload> workload = *Workload::Open(kRelu, {}, arena, Placement::kAtGuards);
    EXPECT_TRUE(workload->ComputeReference({}));
    Result<CheckReport> report = CheckCandidate(*workload, arena, launcher, code_, options);
    runs_ = launcher.runs;
    return report;
  }

  Result<RunTiming> Time(std::deque<Attempt> script) {
    ScriptedLauncher launcher(std::move(script));
    Arena arena = *Arena::Create();
    std::unique_ptr<Workload> workload = *Workload::Open(kRelu, {}, arena, Placement::kAligned);
    Result<RunTiming> timing = TimeCandidate(*workload, arena, launcher, code_, {});
    runs_ = launcher.runs;
    return timing;
  }

  const SealedMemfd code_ = *SealedMemfd::Create(AsBytes("nobody runs this"));
  int runs_ = 0;
};

TEST_F(LostCandidate, IsRunAgain) {
  for (const Attempt& lost :
       {EndsBy(SIGKILL), EndsAt(kExitSetup, "starting threads: none is free"), Attempt(CannotFork)}) {
    Result<CheckReport> report = Check({lost, Computes()});
    ASSERT_TRUE(report) << report.error().Text();
    EXPECT_TRUE(report->verified()) << report->failure->Text();
    EXPECT_EQ(runs_, 2);
    // Its second run is like any first: what is wrong is found.
    report = Check({lost, EndsBy(SIGSYS)});
    ASSERT_TRUE(report) << report.error().Text();
    ASSERT_TRUE(report->failure);
    EXPECT_EQ(report->failure->kind, ErrorKind::kRunFailed);
  }
}

// Nothing is known of the code then, so there is no report on it.
TEST_F(LostCandidate, TwiceIsNotToBlame) {
  const std::pair<Attempt, const char*> kinds[] = {
      {EndsBy(SIGKILL), "killed from outside"}, {EndsAt(kExitSetup, "threads"), "threads"}, {CannotFork, "fork"}};
  for (const auto& [lost, why] : kinds) {
    Result<CheckReport> report = Check({lost, lost, Computes()});
    ASSERT_FALSE(report) << (report->failure ? report->failure->Text() : "verified");
    EXPECT_EQ(report.error().kind, ErrorKind::kBusy);
    EXPECT_THAT(report.error().Text(), HasSubstr(why));
    EXPECT_EQ(runs_, 2);
    Result<RunTiming> timing = Time({lost, lost, Computes()});
    ASSERT_FALSE(timing);
    EXPECT_EQ(timing.error().kind, ErrorKind::kBusy) << timing.error().Text();
    EXPECT_EQ(runs_, 2);
  }
}

TEST_F(LostCandidate, WhatTheCodeDidIsFoundOutInOneRun) {
  const Attempt timed_out = [](const CandidateSpec&, CandidateStatus&, int) {
    return LaunchOutcome{.timed_out = true, .status = {.signal = SIGKILL}};
  };
  for (const Attempt& misdeed : {EndsBy(SIGSYS), EndsBy(SIGXCPU), EndsAt(kExitFault), EndsAt(kExitMisdeed, "it did"),
                                 EndsAt(kExitLimit, "memory"), EndsAt(17), timed_out}) {
    Result<CheckReport> report = Check({misdeed, Computes()});
    ASSERT_TRUE(report) << report.error().Text();
    EXPECT_TRUE(report->failure);
    EXPECT_EQ(runs_, 1);
  }
}

// It can write there like anywhere else in its process.
TEST_F(LostCandidate, TimesThatItScribbledAreTimesAllTheSame) {
  const double day = 86'400e6;
  for (int64_t ns : {std::numeric_limits<int64_t>::min(), int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    Result<CheckReport> report =
        Check({Computes([&](CandidateStatus& s) { s.first_ns = s.best_ns = s.pack_ns = ns; })}, {.timed_runs = 3});
    ASSERT_TRUE(report) << report.error().Text();
    for (double us : {report->first_run_us, report->time_us, report->pack_us}) {
      EXPECT_GE(us, 0);
      EXPECT_LE(us, day);
    }
  }
  Result<RunTiming> timing = Time({Computes([](CandidateStatus& s) {
    s.samples = s.disturbed = s.calls_per_sample = std::numeric_limits<int32_t>::max();
    for (double& ns : s.sample_ns) ns = 1e300;
  })});
  EXPECT_TRUE(!timing || timing->median_us <= day);
}

}  // namespace
}  // namespace hone::lost_candidate_test
