// Serving a kernel that nobody has tuned from the schedules of those that are: fits of its neighbours' schedules, step
// by step (ir/schedule/fit_schedule.h) and decision by decision, ranked by the cost model among each other and the
// default. Nothing is compiled or measured here: milliseconds.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cache/neighbours.h"
#include "ir/schedule/fit_schedule.h"
#include "tuner/cost_model.h"
#include "tuner/space.h"

namespace hone {

// How a donor's schedule was brought to the kernel.
enum class FitWay : uint8_t {
  kDefault,    // no donor: the kernel's own default
  kSteps,      // FitToShape
  kDecisions,  // the rules again, every decision as near to the donor's as there is an option
  kDeviations  // the rules again, deciding otherwise than they would where the donor did
};
std::string_view FitWayName(FitWay way);  // "default", "steps", "decisions", "deviations"

struct Transfer {
  FitWay way = FitWay::kDefault;
  std::shared_ptr<const Donor> donor;  // nullptr: the default
  bool is_same_class = false;
  double distance = 0;
  Candidate candidate;             // what is built; `choices` is empty if way is kSteps
  std::vector<FitNote> notes;      // what became of each step, or of each decision ("t5.rows=14")
  std::optional<float> predicted;  // gain over the default that the cost model sees, log2; nullopt: none to ask
  double gain = 0;                // what is expected of it, log2: that as far as it is trusted, and what donors promise
  std::string refused;            // why it is no candidate; then `candidate` is empty
  std::optional<size_t> same_as;  // an earlier one that is the same program: no candidate of its own

  bool IsCandidate() const { return refused.empty() && !same_as; }
};

// A donor's decisions, all of them: its schedule's choices repeated on its own kernel. kInvalid: they do not lead to a
// schedule any more.
Result<std::vector<Choice>> DecisionsOf(const Donor& donor, const Target& target);

// Makes a chooser of a donor's decisions, and tells in `notes` what became of each of them. A decision is found by its
// site or, across classes, as the n-th of its kind. `notes` outlives the chooser.
Chooser FollowDecisions(std::vector<Choice> decisions, FitWay way, bool is_same_class, std::vector<FitNote>* notes);

struct TransferOptions {
  FitMode mode = FitMode::kFitted;
  int workers = 1;
  size_t most = 32;  // fits that are made, nearest donors first
  int threads = 1;   // that make them
  // From then on, or once a stop is requested, no more fits are made; those begun are refused.
  MonotonicTime deadline = MonotonicTime::max();
  std::stop_token stop = {};

  bool IsOver() const { return stop.stop_requested() || std::chrono::steady_clock::now() >= deadline; }
};

// The default first, then every fit of every neighbour in order, refused ones too.
std::vector<Transfer> MakeTransfers(const Space& space, const std::vector<Neighbour>& neighbours,
                                    const TransferOptions& options);

// Says what gain is to be expected of each candidate and returns their indices, best first. Without a model that has
// learnt: fits of near donors of the class, the default, the rest.
std::vector<size_t> RankTransfers(std::vector<Transfer>& transfers, const CostModel* model);

}  // namespace hone
