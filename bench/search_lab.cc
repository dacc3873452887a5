// search_lab: searches for schedules of kernels with builder and runner processes of its own, without a daemon. For
// work on the space, the strategies and the model; bench/search compares with other systems.
//
//   search_lab [--trials N] [--seed N] [--threads N] [--strategy model|evolution|random] [--curve] KERNEL…
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/host_target.h"
#include "ir/canonical.h"
#include "ir/parse.h"
#include "tuner/pool_rig.h"
#include "tuner/search.h"
#include "tuner/xgb_model.h"

namespace hone {
namespace {

struct Lab {
  SearchOptions options;
  int threads = 1;
  bool curve = false;
  bool list = false;
};

Result<void> Run(const Lab& lab, const std::string& text, BuilderPool& builders, RunnerPool& runners,
                 CostModel* model) {
  Kernel kernel = HONE_TRY(ParseKernel(text));
  kernel.options.threads = lab.threads;
  std::string canonical = Canonicalize(kernel).text;
  Target target = HONE_TRY(HostTarget());
  Space space = HONE_TRY(Space::Open(canonical, target));
  std::unique_ptr<Rig> rig = HONE_TRY(MakePoolRig(builders, runners, 2, canonical, target));
  fmt::print("{}\n  about {:.3g} schedules\n", text, space.Size());
  if (lab.list)
    for (const Choice& choice : HONE_TRY(space.Default()).choices)
      fmt::print("  {} = {} of {}\n", choice.site, choice.preferred, fmt::join(choice.options, " "));
  SearchWatcher watcher;
  watcher.on_trial = [&](const Trial& trial) {
    if (!lab.curve) return;
    fmt::print("  {:<10} {:>9.1f} us  {}{}\n", VerdictName(trial.verdict), trial.time_us,
               PrintChoices(trial.candidate.choices), trial.why.empty() ? "" : "  # " + trial.why.substr(0, 200));
  };
  SearchOptions options = lab.options;
  options.workers = lab.threads;
  options.group = std::hash<std::string>()(canonical);
  SearchResult result = HONE_TRY(Search(space, *rig, model, options, watcher, {}));
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

int Main(int argc, char** argv) {
  Lab lab;
  std::vector<std::string> kernels;
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
    else if (word == "--strategy" && i + 1 < argc) {
      std::string name = argv[++i];
      lab.options.strategy = name == "random"      ? Strategy::kRandom
                             : name == "evolution" ? Strategy::kEvolution
                                                   : Strategy::kModel;
    } else {
      kernels.push_back(word);
    }
  }
  BuilderPoolOptions builder_options;
  builder_options.builders = 2;
  auto builders = BuilderPool::Start(builder_options);
  auto runners = RunnerPool::Start({});
  if (!builders || !runners) {
    fmt::print(stderr, "search_lab: {}\n", (builders ? runners.error() : builders.error()).Text());
    return 1;
  }
  std::unique_ptr<CostModel> model = MakeXgbModel();
  int status = 0;
  for (const std::string& kernel : kernels) {
    Result<void> done = Run(lab, kernel, **builders, **runners, model.get());
    if (done) continue;
    fmt::print(stderr, "search_lab: {}: {}\n", kernel, done.error().Text());
    status = 1;
  }
  return status;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) { return hone::Main(argc, argv); }
