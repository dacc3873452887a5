// hone warm: note and serve every kernel of lists and models, so that applications find them in the cache.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/mutex.h"
#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/lent_device.h"
#include "client/cli/model_file.h"
#include "client/cli/report/kernel_markup.h"

namespace hone::cli {
namespace {

struct Outcome {
  Result<GetReply> reply = Error{};
  double served_us = 0;
  bool lost_device = false;
};

// Asks for kernels over several connections at once and hands the outcomes out in the list's order.
class Crew {
 public:
  Crew(Client& client, const std::vector<NamedKernel>& kernels, const GetOptions& options, int threads)
      : client_(client), kernels_(kernels), options_(options), outcomes_(kernels.size()), done_(kernels.size()) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~Crew() {
    for (std::thread& thread : threads_) thread.join();
  }

  // Nothing more is asked for.
  void Stop() { next_ = kernels_.size(); }

  const Outcome& Wait(size_t index) {
    MutexLock lock(mutex_);
    while (!done_[index]) changed_.Wait(mutex_);
    return outcomes_[index];
  }

 private:
  void Work() {
    for (size_t i; (i = next_.fetch_add(1)) < kernels_.size();) {
      Stopwatch stopwatch;
      Result<Served> served = client_.Fetch(kernels_[i].text, options_);
      Outcome outcome;
      outcome.served_us = stopwatch.Microseconds();
      if (served) {
        outcome.reply = std::move(served->reply);
      } else {
        outcome.lost_device = IsOfDevice(served.error());
        outcome.reply = AtPlace(served.error(), kernels_[i]);
      }
      MutexLock lock(mutex_);
      outcomes_[i] = std::move(outcome);
      done_[i] = true;
      changed_.NotifyAll();
    }
  }

  Client& client_;
  const std::vector<NamedKernel>& kernels_;
  const GetOptions options_;
  std::atomic<size_t> next_{0};
  Mutex mutex_;
  CondVar changed_;
  std::vector<Outcome> outcomes_ HONE_GUARDED_BY(mutex_);
  std::vector<bool> done_ HONE_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

struct Summary {
  size_t kernels = 0, hits = 0, compiled = 0, failed = 0;
  double elapsed_s = 0;
  int64_t calls = 0;
  double expected_us = 0;  // of all calls, of which `unknown` have no expected time
  int64_t unknown = 0;
  bool has_models = false;
  std::vector<Json> left_out;
  size_t later = 0;  // nodes that run when values decide their shapes

  void Count(const NamedKernel& kernel, const Outcome& outcome) {
    calls += kernel.count;
    double each = outcome.reply ? outcome.reply->expected_us : 0;
    expected_us += each * static_cast<double>(kernel.count);
    if (each <= 0) unknown += kernel.count;
    if (!outcome.reply) {
      ++failed;
    } else {
      ++(outcome.reply->hit ? hits : compiled);
    }
  }
};

Json ToJson(const NamedKernel& kernel, const Outcome& outcome) {
  Json json;
  json.Set("kernel", kernel.text).Set("count", kernel.count);
  if (!kernel.label.empty()) json.Set("label", kernel.label);
  if (!outcome.reply) return json.Set("error", ErrorJson(outcome.reply.error()));
  json.Append(ServedJson(*outcome.reply, outcome.served_us));
  return json;
}

// Applications are to find the kernels in the cache, so a disk that takes none of them is a failure.
Result<void> WaitUntilKept(Client& client) {
  constexpr int kPatienceMs = 3000, kStepMs = 100;
  double pending = 0;
  for (int waited_ms = 0; waited_ms <= kPatienceMs; waited_ms += kStepMs) {
    if (waited_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(kStepMs));
    pending = 0;
    const StatsReply stats = HONE_TRY(client.Call(StatsRequest{}, Context::Patience()));
    for (const Stat& stat : stats.stats)
      if (stat.name == "cache_pending_records") pending = stat.value;
    if (pending == 0) return {};
  }
  const StatusReply status = HONE_TRY(client.Call(StatusRequest{}, Context::Patience()));
  return Error{ErrorKind::kIo,
               fmt::format("{:.0f} kernels are in honed's memory and not on disk; {}", pending,
                           status.cache_problem.empty() ? "see `hone status`" : status.cache_problem),
               status.cache};
}

int Finish(Context& context, Client& client, const Summary& summary, const Table& table) {
  if (context.json()) {
    Json json;
    json.Set("kernels", summary.kernels)
        .Set("hits", summary.hits)
        .Set("compiled", summary.compiled)
        .Set("failed", summary.failed)
        .Set("elapsed_s", summary.elapsed_s)
        .Set("calls", summary.calls)
        .Set("expected_us", summary.expected_us);
    if (summary.unknown > 0) json.Set("calls_without_expected_time", summary.unknown);
    if (summary.has_models) json.Set("left_out", summary.left_out).Set("nodes_decided_later", summary.later);
    Print(json.Dump() + "\n");
  } else {
    Print(table.Text());
    Print(fmt::format("{} in {}: {} from the cache, {} compiled{}\n", Plural(summary.kernels, "kernel"),
                      TimeText(summary.elapsed_s * 1e6), summary.hits, summary.compiled,
                      summary.failed ? fmt::format(", {} failed", summary.failed) : ""));
    std::string without = summary.unknown > 0 ? fmt::format(", without {} whose time is not known",
                                                            Plural(static_cast<size_t>(summary.unknown), "call"))
                                              : "";
    Print(fmt::format("expected time {} for {}{}\n", TimeText(summary.expected_us),
                      Plural(static_cast<size_t>(summary.calls), "call"), without));
    if (const size_t left_out = summary.left_out.size(); left_out > 0)
      Print(fmt::format("{} left out, see above\n", left_out == 1 ? "1 node was" : Plural(left_out, "node") + " were"));
  }
  if (Result<void> kept = WaitUntilKept(client); !kept) return context.Fail(kept.error());
  return summary.failed > 0 || !summary.left_out.empty() ? kFailed : kDone;
}

int RunWarm(Context& context, const Arguments& arguments) {
  Result<GetOptions> options = ReadGetOptions(arguments);
  if (!options) return context.WrongUsage(options.error());
  Result<ImportOptions> import = ReadImportOptions(arguments);
  if (!import) return context.WrongUsage(import.error());
  if (const std::vector<std::string> files = arguments.Texts("FILE");
      arguments.Has("--accuracy") && std::ranges::none_of(files, NamesModel))
    return context.WrongUsage({ErrorKind::kInvalid, "is for models; a kernel's text says its own", "--accuracy"});
  if (Result<void> usage = CheckLentDevice(arguments); !usage) return context.WrongUsage(usage.error());
  std::vector<NamedKernel> kernels;
  Summary summary;
  for (const std::string& argument : arguments.Texts("FILE")) {
    if (NamesModel(argument)) {
      Result<ModelFile> model = ReadModel(argument, *import);
      if (!model) return context.Fail(model.error());
      PrintLeftOut(*model);
      summary.has_models = true;
      summary.later += model->network.rest.nodes.size();
      for (Json& left : LeftOutJson(*model)) summary.left_out.push_back(std::move(left));
      std::vector<NamedKernel> some = model->Kernels();
      std::move(some.begin(), some.end(), std::back_inserter(kernels));
      continue;
    }
    Result<std::vector<NamedKernel>> some = ReadKernels(argument);
    if (!some) return context.Fail(some.error());
    std::move(some->begin(), some->end(), std::back_inserter(kernels));
  }
  Result<Client*> client = context.Daemon();
  if (!client) return context.Fail(client.error());
  // Starts the daemon once, before many connections ask for it; and says at once if it cannot be reached.
  Result<StatusReply> status = (*client)->Call(StatusRequest{}, Context::Patience());
  if (!status) return context.Fail(status.error());
  Result<std::unique_ptr<LentDevice>> device = StartLentDevice(context, arguments);
  if (!device) return context.Fail(device.error());
  if (*device) options->target = (*device)->name();
  options->deadline = std::chrono::minutes(10);
  Stopwatch stopwatch;
  // One request more than there are builders keeps each of them at work.
  Crew crew(**client, kernels, *options, static_cast<int>(std::min<size_t>(kernels.size(), status->builders + 1)));
  summary.kernels = kernels.size();
  Table table({{"count", Table::Align::kRight},
               {"kernel"},
               {"fingerprint"},
               {"origin"},
               {"served", Table::Align::kRight},
               {"expected", Table::Align::kRight}});
  ProgressBar bar(kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    bar.Show(i, kernels[i].shown());
    const Outcome& outcome = crew.Wait(i);
    if (*device && outcome.lost_device) {
      crew.Stop();
      bar.Clear();
      Error lost = outcome.reply.error();
      lost.message += fmt::format("{}; {} of {} kernels are in the cache", (*device)->HowItEnded(),
                                  summary.hits + summary.compiled, kernels.size());
      return context.Fail(lost);
    }
    summary.Count(kernels[i], outcome);
    if (outcome.reply) {
      table.Add({std::to_string(kernels[i].count), kernels[i].shown(), outcome.reply->fingerprint.substr(0, 12),
                 outcome.reply->hit ? "cache, " + outcome.reply->origin : outcome.reply->origin,
                 TimeText(outcome.served_us), TimeText(outcome.reply->expected_us)});
    } else {
      bar.Clear();
      PrintError(outcome.reply.error(), false);
      table.Add({std::to_string(kernels[i].count), kernels[i].shown(), "-",
                 std::string(ErrorKindName(outcome.reply.error().kind)), "-", "-"});
    }
    if (context.json()) Print(ToJson(kernels[i], outcome).Dump() + "\n");
  }
  bar.Clear();
  summary.elapsed_s = stopwatch.Microseconds() / 1e6;
  return Finish(context, **client, summary, table);
}

}  // namespace

Command WarmCommand() {
  return {
      .name = "warm",
      .summary = "put every kernel of lists and models into the cache before applications need them",
      .details =
          R"(A list (NAME.kernels) has one kernel per line: how often it is called, then the kernel; # starts a comment. In a model
(ONNX, opsets 7 to 27), hone folds constants, fuses epilogues, and writes everything that is not a library operation in
the kernel language. It names the nodes that it cannot translate; then the exit status is 1. If a file has no values for
its weights, the inputs that stand for weights count as constants. The exit status is also 1 if the cache keeps nothing,
as on a full disk.

With --target, kernels are compiled for another machine: by name (cpu:x86-64-v3, cpu:neoverse-n1, cpu:cortex-a72,
cpu:armv8.2-a+dotprod) or by what `honed-edge --describe-target` prints there. Where this processor cannot run such code,
qemu-user and a hone-runner for that machine check it; times are not known then. With --on, they are compiled for the machine
that the command leads to, checked there, and stored under its target, for `hone export --target` and honed-edge.

Examples:
  hone warm models/resnet18.kernels
  hone warm missing.kernels --target cpu:neoverse-n1
  hone warm missing.kernels --on 'ssh board hone-runner --stdio'
  hone warm resnet50.onnx --shape input=1x3x224x224
  hone warm models/*.kernels --json)",
      .positionals = {{"FILE", "lists of kernels, models (ONNX), or kernels", true, true}},
      .options = {kBudgetOption, kTargetOption, kOnOption, kSilenceOption, kThreadsOption, kNoCompileOption,
                  kShapeOption, kDataOption, kAccuracyOption},
      .run = RunWarm};
}

}  // namespace hone::cli
