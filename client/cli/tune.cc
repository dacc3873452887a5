// hone tune: refine kernels now.
#include <fmt/format.h>

#include <chrono>

#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/model_file.h"

namespace hone::cli {
namespace {

double Speedup(double before_us, double after_us) { return before_us > 0 && after_us > 0 ? before_us / after_us : 0; }

void ShowRound(const TuneReply& round, const std::string& kernel, bool json, ProgressBar& bar) {
  if (json) {
    Json line;
    line.Set("trials", round.trials).Set("elapsed_s", round.elapsed_s).Set("best_us", round.best_us);
    return Print(line.Dump() + "\n");
  }
  double rate = round.elapsed_s > 0 ? round.trials / round.elapsed_s : 0;
  double left_s = rate > 0 ? (round.wanted - round.trials) / rate : 0;
  bar.Show(round.trials, fmt::format("best {} ({:.2f}x), {:.0f} trials/s, {} left  {}", TimeText(round.best_us),
                                     Speedup(round.start_us, round.best_us), rate, TimeText(left_s * 1e6), kernel));
}

void ShowEnd(const TuneReply& end, const std::string& kernel, bool json) {
  if (json) {
    Json line;
    line.Set("kernel", kernel)
        .Set("fingerprint", end.fingerprint)
        .Set("trials", end.trials)
        .Set("valid", end.valid)
        .Set("elapsed_s", end.elapsed_s)
        .Set("start_us", end.start_us)
        .Set("best_us", end.best_us)
        .Set("origin", end.origin)
        .Set("ratio", end.ratio)
        .Set("stopped", end.stopped);
    return Print(line.Dump() + "\n");
  }
  std::string outcome = end.ratio > 0
                            ? fmt::format("{} -> {}, {:.2f}x faster; served from now on", TimeText(end.served_us),
                                          TimeText(end.served_us / end.ratio), end.ratio)
                            : fmt::format("nothing faster than what is served ({})", end.origin);
  Print(fmt::format("{}  {}: {}\n  {} trials in {}, {} of them timed; ended after {}\n", end.fingerprint.substr(0, 12),
                    kernel, outcome, end.trials, TimeText(end.elapsed_s * 1e6), end.valid, end.stopped));
}

// Reads rounds until the last. The search ends when the connection does, and what it found by then is kept.
Result<TuneReply> Follow(Channel& channel, const TuneRequest& request, const std::string& kernel, bool json) {
  auto limit = std::chrono::steady_clock::now() + std::chrono::hours(24 * 8);
  uint64_t id = HONE_TRY(channel.Ask(request, limit));
  ProgressBar bar(request.trials > 0 ? request.trials : 256, !json);
  for (;;) {
    TuneReply reply = HONE_TRY(channel.Await<TuneReply>(id, limit));
    if (!reply.more) return reply;
    ShowRound(reply, kernel, json, bar);
  }
}

// What of a model was left out makes the command's status.
Result<std::vector<NamedKernel>> ReadKernelsOf(const std::string& argument, const ImportOptions& import, int* status) {
  if (!NamesModel(argument)) return ReadKernels(argument);
  ModelFile model = HONE_TRY(ReadModel(argument, import));
  PrintLeftOut(model);
  if (!model.network.left_out.empty()) *status = kFailed;
  return model.Kernels();
}

int Run(Context& context, const Arguments& arguments) {
  Result<int64_t> trials = arguments.Number("--trials", 0, 1, 100'000);
  if (!trials) return context.WrongUsage(trials.error());
  Result<std::chrono::microseconds> time = arguments.Duration("--time", std::chrono::microseconds(0));
  if (!time) return context.WrongUsage(time.error());
  Result<int64_t> seed = arguments.Number("--seed", 0, 0, INT64_MAX);
  if (!seed) return context.WrongUsage(seed.error());
  Result<int> threads = ReadThreads(arguments);
  if (!threads) return context.WrongUsage(threads.error());
  Result<ImportOptions> import = ReadImportOptions(arguments);
  if (!import) return context.WrongUsage(import.error());
  int status = kDone;
  Result<std::vector<NamedKernel>> kernels = ReadKernelsOf(arguments.Text("KERNEL"), *import, &status);
  if (!kernels) return context.Fail(kernels.error());
  for (const NamedKernel& kernel : *kernels) {
    TuneRequest request{kernel.text,
                        static_cast<uint32_t>(*threads),
                        static_cast<uint32_t>(*trials),
                        static_cast<uint64_t>(time->count()),
                        static_cast<uint64_t>(*seed),
                        arguments.Text("--target")};
    Result<Channel> channel = context.Ask();
    if (!channel) return context.Fail(channel.error());
    Result<TuneReply> end = Follow(*channel, request, kernel.shown(), context.json());
    if (!end) {
      status = context.Fail(AtPlace(end.error(), kernel));
      continue;
    }
    ShowEnd(*end, context.json() ? kernel.text : kernel.shown(), context.json());
  }
  return status;
}

}  // namespace

Command TuneCommand() {
  return {
      .name = "tune",
      .summary = "search for faster schedules now, and serve what is found",
      .details =
          R"(Searches for schedules that are faster on this machine than the one that is served. A new schedule replaces the old one
only if all of its output matches the reference, and if it is faster by more than the noise when both are timed in turns.
Ctrl-C ends the search and keeps what it has found. Without --trials and --time, a search ends when it has found nothing
better for a while.

Examples:
  hone tune 'conv2d(C=64,H=56,W=56,O=64,R=3,S=3,stride=1,pad=1,const=1)+bias+relu'
  hone tune models/resnet18.kernels --trials 128
  hone tune resnet50.onnx --trials 128 --threads 1
  hone tune scores.hone --time 60s --seed 7)",
      .positionals = {{"KERNEL", "a kernel, NAME.kernels, NAME.hone or NAME.onnx"}},
      .options = {{"--trials", "N", "try at most this many candidates"},
                  {"--time", "TIME", "search at most this long, such as 60s"},
                  {"--seed", "N", "seed of the search, to repeat it"},
                  kTargetOption,
                  kThreadsOption,
                  kShapeOption,
                  kDataOption},
      .run = Run};
}

}  // namespace hone::cli
