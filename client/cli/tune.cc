// hone tune: refine kernels now.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>

#include "base/clock.h"
#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/interrupt.h"
#include "client/cli/lent_device.h"
#include "client/cli/model_file.h"
#include "client/cli/report/kernel_markup.h"

namespace hone::cli {
namespace {

double Speedup(double before_us, double after_us) { return before_us > 0 && after_us > 0 ? before_us / after_us : 0; }

void ShowRound(const TuneReply& round, const TuneRequest& request, const std::string& kernel, bool json,
               ProgressBar& bar) {
  if (json) {
    Json line;
    line.Set("trials", round.trials).Set("elapsed_s", round.elapsed_s).Set("best_us", round.best_us);
    return Print(line.Dump() + "\n");
  }
  double rate = round.elapsed_s > 0 ? round.trials / round.elapsed_s : 0;
  double left_s = rate > 0 ? (round.wanted - round.trials) / rate : 0;
  if (request.time_us > 0)
    left_s = std::clamp(static_cast<double>(request.time_us) / 1e6 - round.elapsed_s, 0.0, left_s);
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
  const bool is_number = !end.stopped.empty() && isdigit(static_cast<unsigned char>(end.stopped[0])) != 0;
  Print(fmt::format("{}  {}: {}\n  {} in {}, {} of them timed; ended{} {}\n", end.fingerprint.substr(0, 12), kernel,
                    outcome, Plural(end.trials, "trial"), TimeText(end.elapsed_s * 1e6), end.valid,
                    is_number ? " after" : ":", end.stopped));
}

// Reads rounds until the last. After an interrupt the search is told to end, and says what it found.
Result<TuneReply> Follow(Channel& channel, const TuneRequest& request, const std::string& kernel, bool json,
                         const Interrupt& interrupt) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::hours(24 * 8);
  const uint64_t id = HONE_TRY(channel.Ask(request, limit));
  ProgressBar bar(request.trials > 0 ? request.trials : 256, !json);
  for (bool is_ending = false;;) {
    if (!is_ending && !interrupt.WaitReadable(channel.fd())) {
      is_ending = true;
      HONE_TRY(channel.Ask(StopRequest{id}, limit));
      bar.Show(0, "comparing what was found with what is served; Ctrl-C again leaves that to honed");
    }
    TuneReply reply = HONE_TRY(channel.Await<TuneReply>(id, limit));
    if (!reply.more) return reply;
    if (!is_ending) ShowRound(reply, request, kernel, json, bar);
  }
}

// A kernel of a list, and what the list's calls of it take; 0: not known.
struct Wanted {
  NamedKernel kernel;
  double calls_us = 0;
};

// The kernels of a list in the order of the time they take, those that are not known first. Serves what is missing.
std::vector<Wanted> ByTime(Client& client, std::vector<NamedKernel> kernels, const GetOptions& options,
                           ProgressBar& bar) {
  std::vector<Wanted> wanted;
  for (NamedKernel& kernel : kernels) {
    bar.Show(wanted.size(), kernel.shown());
    const Result<Served> served = client.Fetch(kernel.text, options);
    const double each =
        served ? served->reply.expected_us : 0;  // what fails here fails when it is searched, and is said
    const double all = each * static_cast<double>(kernel.count);
    wanted.push_back({std::move(kernel), all});
  }
  std::stable_sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
    return (a.calls_us > 0 ? a.calls_us : HUGE_VAL) > (b.calls_us > 0 ? b.calls_us : HUGE_VAL);
  });
  return wanted;
}

// How many of them make up all of the time but a hundredth.
size_t CountWorthwhile(const std::vector<Wanted>& wanted) {
  double total = 0, rest = 0;
  for (const Wanted& each : wanted) total += each.calls_us;
  size_t count = wanted.size();
  while (count > 0 && wanted[count - 1].calls_us > 0 && rest + wanted[count - 1].calls_us < total / 100)
    rest += wanted[--count].calls_us;
  return count;
}

// What the searches of a list come to.
struct Total {
  size_t kernels = 0, searched = 0;
  double before_us = 0, after_us = 0;
  uint64_t trials = 0;

  void Count(const Wanted& wanted, const TuneReply& end) {
    ++searched;
    trials += end.trials;
    after_us += wanted.calls_us / (end.ratio > 0 ? end.ratio : 1) - wanted.calls_us;
  }
  void Show(double elapsed_us, bool was_interrupted, bool json) const {
    if (json) {
      Json line;
      line.Set("kernels", kernels)
          .Set("searched", searched)
          .Set("trials", trials)
          .Set("elapsed_s", elapsed_us / 1e6)
          .Set("before_us", before_us)
          .Set("after_us", after_us)
          .Set("interrupted", was_interrupted);
      return Print(line.Dump() + "\n");
    }
    const std::string gain = before_us > 0
                                 ? fmt::format(": {} -> {} for all calls, {:.2f}x faster", TimeText(before_us),
                                               TimeText(after_us), Speedup(before_us, after_us))
                                 : "";
    Print(fmt::format("{} of {} kernels searched in {}, {} trials{}{}\n", searched, kernels, TimeText(elapsed_us),
                      trials, gain, was_interrupted ? "; interrupted" : ""));
  }
};

// What of a model was left out makes the command's status.
Result<std::vector<NamedKernel>> ReadKernelsOf(const std::string& argument, const ImportOptions& import, int* status) {
  if (!NamesModel(argument)) return ReadKernels(argument);
  ModelFile model = HONE_TRY(ReadModel(argument, import));
  PrintLeftOut(model);
  if (!model.network.left_out.empty()) *status = kFailed;
  return model.Kernels();
}

// All of a list, or what is worth it; said where something is not.
Result<std::vector<Wanted>> Choose(Context& context, std::vector<NamedKernel> kernels, const GetOptions& options,
                                   bool all, Total* total) {
  total->kernels = kernels.size();
  if (kernels.size() == 1) return std::vector<Wanted>{{std::move(kernels[0]), 0}};
  ProgressBar bar(kernels.size(), !context.json());
  std::vector<Wanted> wanted = ByTime(*HONE_TRY(context.Daemon()), std::move(kernels), options, bar);
  bar.Clear();
  for (const Wanted& each : wanted) total->before_us += each.calls_us;
  total->after_us = total->before_us;
  const size_t worthwhile = all ? wanted.size() : CountWorthwhile(wanted);
  double left_us = 0;
  for (size_t i = worthwhile; i < wanted.size(); ++i) left_us += wanted[i].calls_us;
  if (worthwhile < wanted.size() && !context.json()) {
    Print(fmt::format("{} of {} kernels take {:.1f} % of the time and are left out; --all searches them, too\n",
                      wanted.size() - worthwhile, wanted.size(), 100 * left_us / total->before_us));
  }
  wanted.resize(worthwhile);
  return wanted;
}

int RunTune(Context& context, const Arguments& arguments) {
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
  if (arguments.Has("--accuracy") && !NamesModel(arguments.Text("KERNEL")))
    return context.WrongUsage({ErrorKind::kInvalid, "is for models; a kernel's text says its own", "--accuracy"});
  if (Result<void> usage = CheckLentDevice(arguments); !usage) return context.WrongUsage(usage.error());
  int status = kDone;
  Result<std::vector<NamedKernel>> kernels = ReadKernelsOf(arguments.Text("KERNEL"), *import, &status);
  if (!kernels) return context.Fail(kernels.error());
  Stopwatch stopwatch;
  Total total;
  Result<std::unique_ptr<LentDevice>> device = StartLentDevice(context, arguments);
  if (!device) return context.Fail(device.error());
  GetOptions options;
  options.target = *device ? (*device)->name() : arguments.Text("--target");
  options.threads = *threads;
  options.deadline = std::chrono::minutes(10);
  Result<std::vector<Wanted>> wanted = Choose(context, *std::move(kernels), options, arguments.Has("--all"), &total);
  if (!wanted) return context.Fail(wanted.error());
  const Interrupt interrupt;
  for (const Wanted& each : *wanted) {
    if (interrupt.came()) break;
    const NamedKernel& kernel = each.kernel;
    TuneRequest request{kernel.text,
                        static_cast<uint32_t>(*threads),
                        static_cast<uint32_t>(*trials),
                        static_cast<uint64_t>(time->count()),
                        static_cast<uint64_t>(*seed),
                        options.target};
    Result<Channel> channel = context.Ask();
    if (!channel) return context.Fail(channel.error());
    Result<TuneReply> end = Follow(*channel, request, kernel.shown(), context.json(), interrupt);
    if (!end && *device && IsOfDevice(end.error())) {
      Error lost = end.error();
      lost.message += (*device)->HowItEnded() + "; what was measured until then is kept";
      status = context.Fail(lost);
      break;
    }
    if (!end) {
      status = context.Fail(AtPlace(end.error(), kernel));
      continue;
    }
    total.Count(each, *end);
    ShowEnd(*end, context.json() ? kernel.text : kernel.shown(), context.json());
  }
  if (total.kernels > 1) total.Show(stopwatch.Microseconds(), interrupt.came(), context.json());
  device->reset();
  if (interrupt.came()) interrupt.End();
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
Ctrl-C ends the search, keeps what it has found, and says what that is. Without --trials and --time, a search ends when it
has found nothing better for a while.

With --on, code is built here, and checked and timed on another machine, whose hone-runner the command reaches: over ssh, or
however you like. It runs with your rights, and needs nothing else there: no compiler, no daemon, no open port. What is found
is stored under the device's target, for `hone export --target` and honed-edge. The same hone has to be on both machines.

Kernels of lists and models are searched in the order of the time that their calls take; those that take a hundredth of it
together are left out. The last line tells what the searches come to.

Examples:
  hone tune 'conv2d(C=64,H=56,W=56,O=64,R=3,S=3,stride=1,pad=1,const=1)+bias+relu'
  hone tune models/resnet18.kernels --trials 128
  hone tune resnet50.onnx --trials 128 --threads 1
  hone tune resnet50.onnx --trials 64 --on 'ssh board hone-runner --stdio'
  hone tune scores.hone --time 60s --seed 7)",
      .positionals = {{"KERNEL", "a kernel, NAME.kernels, NAME.hone or NAME.onnx"}},
      .options = {{"--trials", "N", "try at most this many candidates of each kernel"},
                  {"--time", "TIME", "search each kernel at most this long, such as 60s"},
                  {"--seed", "N", "seed of the search, to repeat it"},
                  {"--all", "", "of a list or model, search the kernels that take hardly any time as well"},
                  kTargetOption,
                  kOnOption,
                  kSilenceOption,
                  kThreadsOption,
                  kShapeOption,
                  kDataOption,
                  kAccuracyOption},
      .run = RunTune};
}

}  // namespace hone::cli
