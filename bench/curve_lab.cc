// curve_lab: one long search, and how far it was after each trial. bench/curves.py runs it for every strategy and seed
// and compares.
//
//   curve_lab [--trials N] [--seed N] [--threads N] [--strategy model|evolution|random] [--again N] [--record FILE]
//             KERNEL
//   curve_lab --replay FILE|CACHE [--by-choices] [the same] KERNEL
//   curve_lab --replay FILE|CACHE --list
//
// The fastest of thousands of noisy times is fast by luck, too. So every candidate that was the best when it was timed
// is built and timed again after the search, N times (9) in turns with the others and the default; the curve is the
// best of these medians so far. A line of JSON:
//   {"kernel","strategy","seed","threads","flops","made","timed","elapsed_s","stopped","default_us",
//    "curve":[[trial, seconds, µs as the search saw it, µs timed again],…], "costs_s":{…}, "candidate_us":{…}}
// costs_s is the search's own account; candidate_us what a candidate costs before it is built, step by step, measured
// on candidates of this search.
//
// --record adds the search to FILE. --replay searches among recorded trials (tuner/replay.h): their times are what they
// are, so none is taken again, and the line has "recorded":{"programs","best_us","left_out"} as well. --list prints a
// line of JSON for every kernel that was recorded: {"kernel","threads","trials"}.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backends/cpu/host_target.h"
#include "backends/processes/process_evaluator.h"
#include "base/clock.h"
#include "base/hash.h"
#include "codegen/rules/default_schedule.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"
#include "tuner/features.h"
#include "tuner/recording.h"
#include "tuner/replay.h"
#include "tuner/search.h"
#include "tuner/xgb_model.h"

namespace hone {
namespace {

constexpr size_t kTakenApart = 256;  // candidates whose steps are timed
constexpr size_t kMostAgain = 48;    // candidates that are timed again

struct Lab {
  SearchOptions options;
  std::string strategy = "model";
  int threads = 1;
  int rounds = 9;
  std::string kernel;
  std::string record, replay;
  ReplayOptions replay_options;
  bool list = false;
};

// A candidate that was the best when it was timed.
struct Best {
  int trial = 0;
  double seconds = 0;
  double seen_us = 0;
  std::string schedule;
  std::vector<double> again_us;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Builds them all, then times them in turns. What cannot be timed any more keeps an empty list.
Result<void> TimeAgain(Evaluator& evaluator, int threads, int rounds, std::vector<Best>& bests) {
  std::vector<BuiltArtifact> codes;
  for (const Best& best : bests) codes.push_back(HONE_TRY(evaluator.Build(best.schedule)));
  TimeOptions options;
  options.workers = threads;
  options.samples = 7;
  options.max_samples = 40;
  options.min_sample = std::chrono::microseconds(500);
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < codes.size(); ++i) {
      size_t turn = (i + static_cast<size_t>(round)) % codes.size();
      Result<RunTiming> timing = evaluator.Time(codes[turn].object, options);
      if (timing) bests[turn].again_us.push_back(timing->median_us);
    }
  }
  return {};
}

// Microseconds of each step from a list of choices to a candidate, the middle one over the lists.
std::vector<std::pair<std::string, double>> TakeApart(const Space& space, const std::vector<std::string>& choices) {
  std::map<std::string, std::vector<double>> times;
  for (const std::string& text : choices) {
    Result<Chooser> chooser = ParseChoices(text);
    if (!chooser) continue;
    Stopwatch watch;
    auto lap = [&](const char* step) {
      times[step].push_back(watch.Microseconds());
      watch.Restart();
    };
    Result<Plan> plan = PlanSchedule(space.kernel(), space.target(), *chooser);
    if (!plan) continue;
    lap("plan");
    Result<ScheduledKernel> scheduled = ApplySchedule(space.kernel(), plan->schedule);
    if (!scheduled) continue;
    lap("apply");
    Result<LoopProgram> program = Lower(*scheduled);
    if (!program) continue;
    lap("lower");
    (void)Hash64(PrintProgram(*program));
    lap("hash");
    (void)ExtractFeatures(*program, space.target());
    lap("features");
  }
  std::vector<std::pair<std::string, double>> medians;
  for (const char* step : {"plan", "apply", "lower", "hash", "features"})
    medians.emplace_back(step, Median(times[step]));
  return medians;
}

// What is searched, and where: the machine or a recording. Parts that the evaluator does not need stay empty.
struct Place {
  std::string kernel;
  int threads = 1;
  std::unique_ptr<BuilderPool> builders;
  std::unique_ptr<RunnerPool> runners;
  std::unique_ptr<Evaluator> evaluator;
  std::optional<Space> space;
  Replay* replay = nullptr;  // the evaluator, if it is one
};

Result<Place> OpenMachine(const Lab& lab) {
  Place place;
  Kernel kernel = HONE_TRY(ParseKernel(lab.kernel));
  kernel.options.threads = place.threads = lab.threads;
  place.kernel = Canonicalize(kernel).text;
  Target target = HONE_TRY(HostTarget());
  place.space = HONE_TRY(Space::Open(place.kernel, target));
  BuilderPoolOptions builder_options;
  builder_options.builders = 2;
  place.builders = HONE_TRY(BuilderPool::Start(builder_options));
  place.runners = HONE_TRY(RunnerPool::Start({}));
  place.evaluator = HONE_TRY(MakeProcessEvaluator(*place.builders, *place.runners, 2, place.kernel, target));
  return place;
}

Result<Place> OpenReplay(const Lab& lab) {
  for (const Recording& recording : HONE_TRY(ReadRecordings(lab.replay))) {
    if (recording.name != lab.kernel) continue;
    Place place;
    place.kernel = recording.kernel;
    place.threads = recording.threads;
    std::unique_ptr<Replay> replay = HONE_TRY(Replay::Open(recording, lab.replay_options));
    place.space = replay->space();
    place.replay = replay.get();
    place.evaluator = std::move(replay);
    return place;
  }
  return Error{ErrorKind::kNotFound, "this kernel was not recorded; --list says which were", lab.kernel};
}

Result<void> List(const Lab& lab) {
  for (const Recording& recording : HONE_TRY(ReadRecordings(lab.replay)))
    fmt::print("{{\"kernel\":\"{}\",\"threads\":{},\"trials\":{}}}\n", recording.name, recording.threads,
               recording.trials.size());
  return {};
}

Result<void> Run(Lab& lab) {
  if (lab.list) return List(lab);
  Place place = HONE_TRY(lab.replay.empty() ? OpenMachine(lab) : OpenReplay(lab));
  const Space& space = *place.space;
  std::unique_ptr<CostModel> model = MakeXgbModel();

  std::vector<Best> bests;
  std::vector<std::string> choices;
  Recording recording{lab.kernel, place.kernel, PrintTarget(space.target()), place.threads, {}};
  Stopwatch watch;
  int trials = 0;
  double best_us = 0;
  SearchWatcher watcher;
  watcher.on_trial = [&](const Trial& trial) {
    ++trials;
    recording.trials.push_back(RecordOf(trial));
    if (choices.size() < kTakenApart) choices.push_back(recording.trials.back().choices);
    if (trial.verdict != Verdict::kTimed || (best_us > 0 && trial.time_us >= best_us)) return;
    best_us = trial.time_us;
    bests.push_back({trials, watch.Microseconds() / 1e6, trial.time_us, trial.candidate.schedule, {}});
    if (place.replay != nullptr) bests.back().again_us = {trial.time_us};
    // The first is the default, or nearly; the others leave the earliest behind.
    if (bests.size() > kMostAgain) bests.erase(bests.begin() + 1);
  };
  lab.options.workers = place.threads;
  lab.options.group = std::hash<std::string>()(place.kernel);
  if (place.replay != nullptr)
    lab.options.instead = [&](const Candidate& wanted, const std::unordered_set<uint64_t>& taken) {
      return place.replay->Nearest(wanted, taken);
    };
  SearchResult result = HONE_TRY(Search(space, *place.evaluator, model.get(), lab.options, watcher, {}));
  const SearchProgress& p = result.progress;
  if (!lab.record.empty()) HONE_TRY(AppendRecording(lab.record, recording));
  if (place.replay == nullptr) HONE_TRY(TimeAgain(*place.evaluator, place.threads, lab.rounds, bests));

  fmt::print(
      "{{\"kernel\":\"{}\",\"strategy\":\"{}\",\"seed\":{},\"threads\":{},\"flops\":{},\"made\":{},\"timed\":{},"
      "\"elapsed_s\":{:.3f},\"stopped\":\"{}\",\"space\":{:.3g},\"default_us\":{:.3f},\"curve\":[",
      lab.kernel, lab.strategy, lab.options.seed, place.threads, space.flops(), p.trials, p.valid, p.elapsed_s,
      result.stopped, space.Size(), bests.empty() ? 0.0 : Median(bests[0].again_us));
  const char* comma = "";
  for (const Best& best : bests) {
    if (best.again_us.empty()) continue;
    fmt::print("{}[{},{:.3f},{:.3f},{:.3f}]", comma, best.trial, best.seconds, best.seen_us, Median(best.again_us));
    comma = ",";
  }
  const SearchCosts& costs = result.costs;
  fmt::print(
      "],\"costs_s\":{{\"think\":{:.3f},\"learn\":{:.3f},\"measure\":{:.3f},\"build\":{:.3f},\"check\":{:.3f},"
      "\"time\":{:.3f}}},\"candidate_us\":{{",
      costs.think, costs.learn, costs.measure, costs.build, costs.check, costs.time);
  comma = "";
  for (const auto& [step, us] : TakeApart(space, choices)) {
    fmt::print("{}\"{}\":{:.2f}", comma, step, us);
    comma = ",";
  }
  fmt::print("}}");
  if (place.replay != nullptr)
    fmt::print(",\"recorded\":{{\"programs\":{},\"best_us\":{:.3f},\"left_out\":{}}}", place.replay->size(),
               place.replay->best_us(), place.replay->left_out());
  fmt::print("}}\n");
  return {};
}

int Main(int argc, char** argv) {
  Lab lab;
  lab.options.trials = 2000;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    auto number = [&] { return i + 1 < argc ? std::atoll(argv[++i]) : 0; };
    if (word == "--trials") {
      lab.options.trials = static_cast<int>(number());
    } else if (word == "--seed") {
      lab.options.seed = static_cast<uint64_t>(number());
    } else if (word == "--threads") {
      lab.threads = static_cast<int>(number());
    } else if (word == "--again") {
      lab.rounds = static_cast<int>(number());
    } else if (word == "--record" && i + 1 < argc) {
      lab.record = argv[++i];
    } else if (word == "--replay" && i + 1 < argc) {
      lab.replay = argv[++i];
    } else if (word == "--by-choices") {
      lab.replay_options.by_choices = true;
    } else if (word == "--list") {
      lab.list = true;
    } else if (word == "--strategy" && i + 1 < argc) {
      lab.strategy = argv[++i];
    } else {
      lab.kernel = word;
    }
  }
  const std::map<std::string, Strategy> strategies = {
      {"model", Strategy::kModel}, {"evolution", Strategy::kEvolution}, {"random", Strategy::kRandom}};
  auto strategy = strategies.find(lab.strategy);
  if (strategy == strategies.end() || (lab.list ? lab.replay.empty() : lab.kernel.empty())) {
    fmt::print(stderr,
               "usage: curve_lab [--trials N] [--seed N] [--threads N] [--strategy model|evolution|random] "
               "[--again N] [--record FILE | --replay FILE|CACHE [--by-choices]] KERNEL\n"
               "       curve_lab --replay FILE|CACHE --list\n");
    return 2;
  }
  lab.options.strategy = strategy->second;
  Result<void> done = Run(lab);
  if (done) return 0;
  fmt::print(stderr, "curve_lab: {}\n", done.error().Text());
  return 1;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) { return hone::Main(argc, argv); }
