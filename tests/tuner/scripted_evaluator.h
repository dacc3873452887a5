// A device that the test makes up: a candidate's time follows from its schedule's text, and whatever can go wrong goes
// wrong where the test says so.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/bytes.h"
#include "base/hash.h"
#include "tuner/evaluator.h"
#include "tuner/space.h"

namespace hone::testing {

// Of a kernel on a processor whatever this one is.
inline Space OpenSpace(const std::string& kernel = "matmul(M=64,N=96,K=80)") {
  CpuTarget target;
  target.cpu = "haswell";
  Result<Space> space = Space::Open(kernel, target);
  EXPECT_TRUE(space) << space.error().Text();
  return *std::move(space);
}

class ScriptedEvaluator : public Evaluator {
 public:
  // What happens to the nth build, check or timing (from 0); nullopt: all is well.
  using Script = std::function<std::optional<Error>(int n)>;
  Script on_build, on_check, on_time;
  std::function<double(const std::string& schedule)> time_of = [](const std::string& schedule) {
    return 100.0 + static_cast<double>(static_cast<uint8_t>(Hash64(schedule)[0]));
  };
  std::vector<std::string> timed;      // schedules, in order
  std::vector<std::string> rehearsed;  // the same
  // Why the nth that is rehearsed failed.
  Script on_rehearse;
  int count = 1;   // builders
  FakeClock time;  // stands still, but for what the test does

  int builders() const override { return count; }
  const Clock& clock() const override { return time; }

  Result<BuiltArtifact> Build(const std::string& schedule) override {
    std::lock_guard lock(mutex_);
    if (auto error = Happens(on_build, builds_++)) return *error;
    BuiltArtifact built;
    built.schedule = schedule;
    built.object = HONE_TRY(SealedMemfd::Create(AsBytes(schedule)));
    return built;
  }
  std::vector<std::optional<Error>> Rehearse(std::span<const SealedMemfd* const> artifacts,
                                             const CheckOptions&) override {
    std::vector<std::optional<Error>> failures;
    for (const SealedMemfd* artifact : artifacts) {
      failures.push_back(Happens(on_rehearse, static_cast<int>(rehearsed.size())));
      rehearsed.emplace_back(AsText(artifact->Map()->bytes()));
    }
    return failures;
  }
  Result<CheckReport> Check(const SealedMemfd&, const CheckOptions&) override {
    CheckReport report;
    if (auto error = Happens(on_check, checks_++)) {
      if (error->kind == ErrorKind::kUnavailable) return *error;
      report.failure = *error;
    }
    return report;
  }
  Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions&) override {
    if (auto error = Happens(on_time, times_++)) return *error;
    ReadOnlyMapping bytes = HONE_TRY(artifact.Map());
    timed.emplace_back(AsText(bytes.bytes()));
    RunTiming timing;
    timing.median_us = timing.min_us = time_of(timed.back());
    timing.samples = 9;
    return timing;
  }

 private:
  static std::optional<Error> Happens(const Script& script, int n) { return script ? script(n) : std::nullopt; }

  std::mutex mutex_;
  int builds_ = 0, checks_ = 0, times_ = 0;
};

}  // namespace hone::testing
