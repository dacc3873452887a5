// search_lab: searches for schedules of kernels with builder and runner processes of its own, without a daemon. For
// work on the space, the strategies and the model; bench/search compares with other systems.
//
//   search_lab [--trials N] [--seed N] [--threads N] [--strategy model|evolution|random] [--curve] [--record FILE]
//              KERNEL…
//   search_lab --replay FILE|CACHE [--by-choices] [the same] [KERNEL…]
//   search_lab --export FILE FILE|CACHE…
//
// --record adds every search to FILE (tuner/recording.h). --replay searches among recorded trials, of FILE or of what a
// daemon's searches left in its cache's directory, instead of measuring (tuner/replay.h); KERNEL is a name as it was
// recorded, none is all of them. --by-choices takes trials whose program is another one by now, too. --export adds
// recordings, such as a cache's, to FILE.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "backends/cpu/host_target.h"
#include "backends/processes/process_evaluator.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "tuner/recording.h"
#include "tuner/replay.h"
#include "tuner/search.h"
#include "tuner/xgb_model.h"

namespace hone {
namespace {

struct Lab {
  SearchOptions options;
  int threads = 1;
  bool curve = false;
  bool list = false;
  std::string record;  // file to add to, or ""
  std::string replay;  // file or cache, or ""
  ReplayOptions replay_options;
};

// Searches, tells what came of it, and records it under this name if that is wanted.
Result<void> Run(const Lab& lab, SearchOptions options, const std::string& name, const std::string& kernel,
                 const Space& space, Evaluator& evaluator, CostModel* model) {
  fmt::print("{}\n  about {:.3g} schedules\n", name, space.Size());
  if (lab.list)
    for (const Choice& choice : HONE_TRY(space.Default()).choices)
      fmt::print("  {} = {} of {}\n", choice.site, choice.preferred, fmt::join(choice.options, " "));
  Recording recording{name, kernel, PrintTarget(space.target()), options.workers, {}};
  SearchWatcher watcher;
  watcher.on_trial = [&](const Trial& trial) {
    recording.trials.push_back(RecordOf(trial));
    if (!lab.curve) return;
    fmt::print("  {:<10} {:>9.1f} us  {}{}\n", VerdictName(trial.verdict), trial.time_us,
               PrintChoices(trial.candidate.choices), trial.why.empty() ? "" : "  # " + trial.why.substr(0, 200));
  };
  options.group = std::hash<std::string>()(kernel);
  Result<SearchResult> searched = Search(space, evaluator, model, options, watcher, {});
  if (!lab.record.empty() && !recording.trials.empty()) HONE_TRY(AppendRecording(lab.record, recording));
  SearchResult result = HONE_TRY(std::move(searched));
  const SearchProgress& p = result.progress;
  fmt::print("  {} trials, {} timed, {:.1f} s ({:.1f}/s): {:.1f} -> {:.1f} us ({:.3f}x), {:.1f} GFLOP/s; {}\n",
             p.trials, p.valid, p.elapsed_s, p.trials / p.elapsed_s, p.start_us, p.best_us, p.start_us / p.best_us,
             space.flops() / p.best_us / 1e3, result.stopped);
  fmt::print("  think {:.2f} s, learn {:.2f} s, measure {:.2f} s (build {:.2f}, check {:.2f}, time {:.2f})\n",
             result.costs.think, result.costs.learn, result.costs.measure, result.costs.build, result.costs.check,
             result.costs.time);
  for (size_t v = 1; v < result.verdicts.size(); ++v)
    if (result.verdicts[v] > 0) fmt::print("  {} {}", result.verdicts[v], VerdictName(static_cast<Verdict>(v)));
  fmt::print("\n");
  if (!result.top.empty()) fmt::print("  {}\n", PrintChoices(result.top[0].candidate.choices));
  return {};
}

Result<void> RunHere(const Lab& lab, const std::string& text, BuilderPool& builders, RunnerPool& runners,
                     CostModel* model) {
  Kernel kernel = HONE_TRY(ParseKernel(text));
  kernel.options.threads = lab.threads;
  std::string canonical = Canonicalize(kernel).text;
  Target target = HONE_TRY(HostTarget());
  Space space = HONE_TRY(Space::Open(canonical, target));
  std::unique_ptr<Evaluator> evaluator = HONE_TRY(MakeProcessEvaluator(builders, runners, 2, canonical, target));
  SearchOptions options = lab.options;
  options.workers = lab.threads;
  return Run(lab, options, text, canonical, space, *evaluator, model);
}

Result<void> RunReplay(const Lab& lab, const Recording& recording, CostModel* model) {
  std::unique_ptr<Replay> replay = HONE_TRY(Replay::Open(recording, lab.replay_options));
  SearchOptions options = lab.options;
  options.workers = recording.threads;
  options.instead = [&](const Candidate& wanted, const std::unordered_set<uint64_t>& taken) {
    return replay->Nearest(wanted, taken);
  };
  fmt::print("{} recorded trials: {} programs, best {:.1f} us; {} lead elsewhere now\n", recording.trials.size(),
             replay->size(), replay->best_us(), replay->left_out());
  return Run(lab, options, recording.name, recording.kernel, replay->space(), *replay, model);
}

int Fail(const std::string& what, const Error& error) {
  fmt::print(stderr, "search_lab: {}: {}\n", what, error.Text());
  return 1;
}

int Export(const std::string& file, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    Result<std::vector<Recording>> recordings = ReadRecordings(path);
    if (!recordings) return Fail(path, recordings.error());
    for (const Recording& recording : *recordings) {
      if (Result<void> added = AppendRecording(file, recording); !added) return Fail(file, added.error());
      fmt::print("{:6} trials  {}\n", recording.trials.size(), recording.name);
    }
  }
  return 0;
}

int ReplayAll(const Lab& lab, const std::vector<std::string>& names, CostModel* model) {
  Result<std::vector<Recording>> recordings = ReadRecordings(lab.replay);
  if (!recordings) return Fail(lab.replay, recordings.error());
  int status = 0;
  size_t found = 0;
  for (const Recording& recording : *recordings) {
    if (!names.empty() && std::find(names.begin(), names.end(), recording.name) == names.end()) continue;
    ++found;
    Result<void> done = RunReplay(lab, recording, model);
    if (!done) status = Fail(recording.name, done.error());
  }
  if (found < names.size()) {
    fmt::print(stderr, "search_lab: {}: not all of these were recorded; there are:\n", lab.replay);
    for (const Recording& recording : *recordings) fmt::print(stderr, "  {}\n", recording.name);
    return 1;
  }
  return status;
}

int Main(int argc, char** argv) {
  Lab lab;
  std::vector<std::string> kernels;
  std::string export_to;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    auto number = [&] { return i + 1 < argc ? atoll(argv[++i]) : 0; };
    if (word == "--trials")
      lab.options.trials = static_cast<int>(number());
    else if (word == "--seed")
      lab.options.seed = static_cast<uint64_t>(number());
    else if (word == "--threads")
      lab.threads = static_cast<int>(number());
    else if (word == "--curve")
      lab.curve = true;
    else if (word == "--list")
      lab.list = true;
    else if (word == "--by-choices")
      lab.replay_options.by_choices = true;
    else if (word == "--record" && i + 1 < argc)
      lab.record = argv[++i];
    else if (word == "--replay" && i + 1 < argc)
      lab.replay = argv[++i];
    else if (word == "--export" && i + 1 < argc)
      export_to = argv[++i];
    else if (word == "--strategy" && i + 1 < argc) {
      std::string name = argv[++i];
      lab.options.strategy = name == "random"      ? Strategy::kRandom
                             : name == "evolution" ? Strategy::kEvolution
                                                   : Strategy::kModel;
    } else {
      kernels.push_back(word);
    }
  }
  if (!export_to.empty()) return Export(export_to, kernels);
  std::unique_ptr<CostModel> model = MakeXgbModel();
  if (!lab.replay.empty()) return ReplayAll(lab, kernels, model.get());
  BuilderPoolOptions builder_options;
  builder_options.builders = 2;
  auto builders = BuilderPool::Start(builder_options);
  auto runners = RunnerPool::Start({});
  if (!builders || !runners) {
    fmt::print(stderr, "search_lab: {}\n", (builders ? runners.error() : builders.error()).Text());
    return 1;
  }
  int status = 0;
  for (const std::string& kernel : kernels) {
    Result<void> done = RunHere(lab, kernel, **builders, **runners, model.get());
    if (!done) status = Fail(kernel, done.error());
  }
  return status;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) { return hone::Main(argc, argv); }
