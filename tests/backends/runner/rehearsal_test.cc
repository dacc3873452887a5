// What a runner makes of how rehearsals ended, in which nobody is to blame for what others did to him.
#include <gmock/gmock.h>
#include <signal.h>

#include <string>
#include <vector>

#include "backends/runner/runner_check.h"
#include "tests/backends/runner/hand_made.h"
#include "tests/backends/runner_fixture.h"

namespace hone::rehearsal_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kRelu;
using testing::ManifestOf;

uint64_t plenty() { return uint64_t{1} << 40; }
uint64_t little() { return uint64_t{600} << 20; }

class ScriptedLauncher : public Launcher {
 public:
  Result<Manifest> Admit(const SealedMemfd& artifact) const override {
    if (artifact.size() == 0) return Error{ErrorKind::kCorrupt, "no artifact", ""};
    return ManifestOf(kRelu);
  }
  Result<LaunchOutcome> Run(const CandidateSpec&, const SealedMemfd&, int) override {
    return Error{ErrorKind::kInternal, "nothing is run", ""};
  }
  Result<Rehearsals> Rehearse(std::span<const CandidateSpec> specs, std::span<const SealedMemfd> artifacts, int,
                              int at_once) override {
    EXPECT_EQ(specs.size(), artifacts.size());
    for (const CandidateSpec& spec : specs) EXPECT_EQ(spec.mode, RunMode::kRehearse);
    at_once_ = at_once;
    return script;
  }
  const Confinement& confinement() const override { return confinement_; }

  Rehearsals script;
  int at_once_ = 0;

 private:
  Confinement confinement_;
};

std::vector<std::string> Rehearse(ScriptedLauncher& launcher, const std::vector<std::string>& artifacts,
                                  uint64_t (*available)()) {
  Arena arena = *Arena::Create({.available = available});
  std::unique_ptr<Workload> workload = *Workload::Open(kRelu, {}, arena, Placement::kAtGuards);
  std::vector<SealedMemfd> files;
  for (const std::string& artifact : artifacts) files.push_back(*SealedMemfd::Create(AsBytes(artifact)));
  const auto failures = RehearseCandidates(*workload, arena, launcher, std::move(files), {}, 2);
  EXPECT_TRUE(failures) << failures.error().Text();
  std::vector<std::string> told;
  for (const std::optional<Error>& failure : *failures) told.push_back(failure ? failure->Text() : "");
  return told;
}

TEST(Rehearsal, OnlyWhatACandidateDidItselfCountsAgainstIt) {
  ScriptedLauncher launcher;
  const LaunchOutcome done, killed{.status = {.signal = SIGKILL}}, crashed{.status = {.signal = SIGSEGV}};
  launcher.script = {
      Rehearsal{done, RunStage::kDone, ""},
      Rehearsal{crashed, RunStage::kEntry, ""},
      Rehearsal{crashed, RunStage::kSetup, ""},                                        // its compiler
      Rehearsal{{.status = {.code = kExitRefused}}, RunStage::kSetup, "a log"},        // the same
      Rehearsal{{.status = {.code = kExitMisdeed}}, RunStage::kEntry, "stray write"},  //
      std::nullopt,                                                                    // there was no time
      Rehearsal{{.timed_out = true, .status = {.signal = SIGKILL}}, RunStage::kEntry, ""},
      Rehearsal{killed, RunStage::kEntry, ""},
      Rehearsal{{.status = {.code = kExitSetup}}, RunStage::kSetup, "no memory"},
  };
  EXPECT_THAT(Rehearse(launcher, std::vector<std::string>(launcher.script.size(), "code"), plenty),
              ElementsAre("", AllOf(HasSubstr("signal 11"), HasSubstr("in hone_entry")),
                          AllOf(HasSubstr("signal 11"), HasSubstr("before the first call")), HasSubstr("a log"),
                          HasSubstr("stray write"), "", HasSubstr("still running"), "", ""));
  EXPECT_EQ(launcher.at_once_, 2);
}

TEST(Rehearsal, WhatIsNoArtifactIsNotRehearsed) {
  ScriptedLauncher launcher;
  launcher.script = {std::nullopt, Rehearsal{{.status = {.signal = SIGSEGV}}, RunStage::kEntry, ""}};
  EXPECT_THAT(Rehearse(launcher, {"code", "", "code"}, plenty),
              ElementsAre("", HasSubstr("no artifact"), HasSubstr("signal 11")));
}

TEST(Rehearsal, TakesNoMemoryThatIsShort) {
  ScriptedLauncher launcher;
  EXPECT_THAT(Rehearse(launcher, {"code", "code"}, little), ElementsAre("", ""));
  EXPECT_EQ(launcher.at_once_, 0);
}

}  // namespace
}  // namespace hone::rehearsal_test
