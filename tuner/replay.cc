#include "tuner/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>

#include "ir/target.h"

namespace hone {
namespace {

// How far two values of one decision are apart, in whole numbers: the same on every machine. A decision that only one
// of the two had to make is as far as any.
constexpr int kFarthest = 4;

// Several trials of one program: the middle time if it was ever timed, else the first verdict that tells of the program
// and not of the machine.
struct Merged {
  Candidate candidate;
  Verdict verdict = Verdict::kDisturbed;
  std::vector<std::pair<double, double>> times;  // time, noise

  void Add(const TrialRecord& trial) {
    auto of = static_cast<Verdict>(trial.verdict);
    if (of == Verdict::kTimed)
      times.emplace_back(static_cast<double>(trial.time.count()) / 1e3, static_cast<double>(trial.noise.count()) / 1e3);
    if (of == Verdict::kTimed || verdict == Verdict::kDisturbed) verdict = of;
  }
};

Error AsRecorded(ErrorKind kind, std::string_view what) {
  return {kind, fmt::format("{}, as recorded", what), "replay"};
}

}  // namespace

Result<std::unique_ptr<Replay>> Replay::Open(const Recording& recording, const ReplayOptions& options) {
  Target target = HONE_TRY(ParseTarget(recording.target));
  std::unique_ptr<Replay> replay(new Replay(HONE_TRY(Space::Open(recording.kernel, target))));
  std::vector<Merged> merged;
  for (const TrialRecord& trial : recording.trials) {
    Result<Candidate> candidate =
        trial.choices.empty() ? replay->space_.Default() : replay->space_.Parse(trial.choices);
    if (!candidate || (candidate->program != trial.program && !options.by_choices)) {
      ++replay->left_out_;
      continue;
    }
    auto [known, is_new] = replay->by_program_.try_emplace(candidate->program, merged.size());
    if (is_new) merged.push_back({*std::move(candidate), Verdict::kDisturbed, {}});
    merged[known->second].Add(trial);
  }
  if (merged.empty())
    return Error{
        ErrorKind::kNotFound,
        fmt::format("none of {} recorded trials leads to the program that was measured: the rules have changed "
                    "since; record it anew",
                    recording.trials.size()),
        recording.name};
  for (Merged& one : merged) {
    Outcome outcome;
    outcome.candidate = std::move(one.candidate);
    outcome.verdict = one.verdict;
    if (!one.times.empty()) {
      auto middle = one.times.begin() + static_cast<int64_t>((one.times.size() - 1) / 2);
      std::nth_element(one.times.begin(), middle, one.times.end());
      std::tie(outcome.time_us, outcome.noise_us) = *middle;
      if (replay->best_us_ == 0 || outcome.time_us < replay->best_us_) replay->best_us_ = outcome.time_us;
    }
    for (const Choice& choice : outcome.candidate.choices)
      replay->sites_.try_emplace(choice.site, static_cast<int>(replay->sites_.size()));
    outcome.decisions = replay->DecisionsOf(outcome.candidate);
    replay->by_schedule_.try_emplace(outcome.candidate.schedule, replay->outcomes_.size());
    replay->outcomes_.push_back(std::move(outcome));
  }
  return replay;
}

// Sites that no recorded candidate has are left out: they are as far from each of them.
std::vector<Replay::Decision> Replay::DecisionsOf(const Candidate& candidate) const {
  std::vector<Decision> decisions;
  for (const Choice& choice : candidate.choices) {
    auto site = sites_.find(choice.site);
    if (site == sites_.end()) continue;
    auto option = std::lower_bound(choice.options.begin(), choice.options.end(), choice.value);
    decisions.push_back({site->second, choice.value, static_cast<int>(option - choice.options.begin())});
  }
  std::sort(decisions.begin(), decisions.end(), [](const Decision& a, const Decision& b) { return a.site < b.site; });
  return decisions;
}

std::optional<Candidate> Replay::Nearest(const Candidate& wanted, const std::unordered_set<uint64_t>& taken) const {
  if (auto same = by_program_.find(wanted.program); same != by_program_.end() && !taken.contains(wanted.program))
    return outcomes_[same->second].candidate;
  const std::vector<Decision> of_wanted = DecisionsOf(wanted);
  const Outcome* nearest = nullptr;
  int least = std::numeric_limits<int>::max();
  for (const Outcome& outcome : outcomes_) {
    if (taken.contains(outcome.candidate.program)) continue;
    int distance = 0;
    auto a = of_wanted.begin(), b = outcome.decisions.begin();
    while (a != of_wanted.end() || b != outcome.decisions.end()) {
      const bool has_a = a != of_wanted.end() && (b == outcome.decisions.end() || a->site <= b->site);
      const bool has_b = b != outcome.decisions.end() && (a == of_wanted.end() || b->site <= a->site);
      if (has_a != has_b)
        distance += kFarthest;
      else if (a->value != b->value)
        distance += std::min(kFarthest, 1 + std::abs(a->rank - b->rank));
      a += has_a, b += has_b;
    }
    if (distance < least) nearest = &outcome, least = distance;  // of equals the one that was recorded first
  }
  if (nearest == nullptr) return std::nullopt;
  return nearest->candidate;
}

std::vector<Sample> Replay::Samples() const {
  std::vector<Sample> samples;
  for (const Outcome& outcome : outcomes_)
    if (outcome.verdict == Verdict::kTimed) samples.push_back({outcome.candidate.features, outcome.time_us, 0});
  return samples;
}

// The artifact is the outcome's number.
Result<BuiltArtifact> Replay::Build(const std::string& schedule) {
  size_t index = 0;
  if (auto known = by_schedule_.find(schedule); known != by_schedule_.end()) {
    index = known->second;
  } else {
    auto same = by_program_.find(HONE_TRY(space_.ProgramOf(schedule)));
    if (same == by_program_.end())
      return Error{ErrorKind::kNotFound, "this program was not recorded, and a replay makes up no times", "replay"};
    index = same->second;
  }
  if (outcomes_[index].verdict == Verdict::kNotBuilt) return AsRecorded(ErrorKind::kBuildFailed, "not built");
  BuiltArtifact built;
  built.schedule = schedule;
  const auto number = static_cast<uint64_t>(index);
  built.object = HONE_TRY(SealedMemfd::Create(std::as_bytes(std::span(&number, 1))));
  return built;
}

Result<const Replay::Outcome*> Replay::OutcomeOf(const SealedMemfd& artifact) const {
  ReadOnlyMapping bytes = HONE_TRY(artifact.Map());
  uint64_t number = std::numeric_limits<uint64_t>::max();
  if (bytes.bytes().size() == sizeof number) std::memcpy(&number, bytes.bytes().data(), sizeof number);
  if (number >= outcomes_.size()) return Error{ErrorKind::kInvalid, "an artifact that no replay built", "replay"};
  return &outcomes_[number];
}

Result<CheckReport> Replay::Check(const SealedMemfd& artifact, const CheckOptions&) {
  const Outcome* outcome = HONE_TRY(OutcomeOf(artifact));
  CheckReport report;
  switch (outcome->verdict) {
    case Verdict::kCrashed: report.failure = AsRecorded(ErrorKind::kRunFailed, "crashed"); break;
    case Verdict::kTimedOut: report.failure = AsRecorded(ErrorKind::kTimeout, "timed out"); break;
    case Verdict::kWrong: report.failure = AsRecorded(ErrorKind::kWrongResult, "wrong"); break;
    default: break;
  }
  return report;
}

Result<RunTiming> Replay::Time(const SealedMemfd& artifact, const TimeOptions& options) {
  const Outcome* outcome = HONE_TRY(OutcomeOf(artifact));
  if (outcome->verdict != Verdict::kTimed) return AsRecorded(ErrorKind::kBusy, "never quiet");
  RunTiming timing;
  timing.median_us = timing.min_us = outcome->time_us;
  timing.spread_us = outcome->noise_us;
  timing.samples = 1;
  timing.calls_per_sample = 1;
  timing.workers = options.workers;
  timing.protocol = "replayed";
  return timing;
}

}  // namespace hone
