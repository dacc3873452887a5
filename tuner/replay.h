// A device made of recorded trials: it answers a candidate's build, check and timing with what became of the same
// program when it was recorded. No noise and no clock: the same recording, options and seed give the same search.
//
// What was not recorded has no answer, and none is made up: a fitted time would flatter the cost model, which fits the
// same features. So a replayed search tries recorded candidates only. Each one that it thinks up, by its own draws,
// mutations and crossings in the whole space, is replaced by the nearest recorded one that it has not tried yet. That
// keeps strategies apart: a draw at random seldom lands where a good search has left many recorded trials close
// together, since each of those is nearest to a small part of the space.
//
// What follows from that: numbers of trials are those of a space of as many programs as were recorded. They compare
// strategies; they do not replace a search of the whole space.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tuner/cost_model.h"
#include "tuner/measure.h"
#include "tuner/recording.h"
#include "tuner/space.h"

namespace hone {

struct ReplayOptions {
  // A trial counts while its choices still lead to the program that was measured. true: it stands for whatever they
  // lead to now. No longer a measurement, but still a landscape to compare strategies in when the rules have changed.
  bool by_choices = false;
};

// Immutable once open; thread-safe.
class Replay : public Evaluator {
 public:
  // kInvalid, kUnsupported: the kernel or target cannot be read; kNotFound: no trial is left that counts, with how many
  // there were.
  static Result<std::unique_ptr<Replay>> Open(const Recording& recording, const ReplayOptions& options = {});

  const Space& space() const { return space_; }
  size_t size() const { return outcomes_.size(); }  // programs
  int left_out() const { return left_out_; }        // trials whose choices lead elsewhere now
  double best_us() const { return best_us_; }       // of the fastest; 0: none was timed

  // For SearchOptions::instead. Must not outlive this.
  std::optional<Candidate> Nearest(const Candidate& wanted, const std::unordered_set<uint64_t>& taken) const;

  // What a cost model may learn from it: the timed ones, in the order of their first trials, group 0.
  std::vector<Sample> Samples() const;

  int builders() const override { return 1; }
  const Clock& clock() const override { return clock_; }
  // kBuildFailed as recorded; kNotFound: the program was not.
  Result<BuiltArtifact> Build(const std::string& schedule) override;
  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options) override;
  Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options) override;

 private:
  // A decision of a recorded candidate: which, and its option counted from the smallest.
  struct Decision {
    int site = 0;
    int64_t value = 0;
    int rank = 0;
  };
  struct Outcome {
    Candidate candidate;
    std::vector<Decision> decisions;  // by site
    Verdict verdict = Verdict::kDisturbed;
    double time_us = 0, noise_us = 0;
  };

  explicit Replay(Space space) : space_(std::move(space)) {}
  std::vector<Decision> DecisionsOf(const Candidate& candidate) const;
  Result<const Outcome*> OutcomeOf(const SealedMemfd& artifact) const;

  const Space space_;
  std::unordered_map<std::string, int> sites_;
  std::vector<Outcome> outcomes_;  // in the order in which they were first tried
  std::unordered_map<uint64_t, size_t> by_program_;
  std::unordered_map<std::string, size_t> by_schedule_;  // of the candidates; other texts are lowered first
  int left_out_ = 0;
  double best_us_ = 0;
  const FakeClock clock_;  // what was recorded does not age
};

}  // namespace hone
