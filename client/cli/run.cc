// hone run: get kernels, run them on random inputs, check and time them; or whole networks.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "client/api/device_code.h"
#include "client/cli/best_target.h"
#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/device_run.h"
#include "client/cli/model_file.h"
#include "client/cli/report/kernel_markup.h"
#include "client/cli/run_model.h"
#include "client/cli/run_sizes.h"
#include "client/cli/trial_run.h"

namespace hone::cli {
namespace {

struct Outcome {
  ServedFacts facts;
  RunReport report;
};

Result<Outcome> RunOne(Client& client, const NamedKernel& kernel, const GetOptions& options, int samples) {
  if (!options.target.empty()) {
    Stopwatch stopwatch;
    Served served = HONE_TRY(client.Fetch(kernel.text, options));
    const double served_us = stopwatch.Microseconds();
    if (IsForDevice(served)) {
      RunReport report = HONE_TRY(RunOnDevice(served, samples));
      return Outcome{{std::move(served.reply), std::move(served.source), served_us}, std::move(report)};
    }
  }
  std::unique_ptr<KernelHandle> handle = HONE_TRY(client.Get(kernel.text, options));
  RunReport report = HONE_TRY(TrialRun(*handle, samples));
  return Outcome{handle->facts(), std::move(report)};
}

Json ToJson(const NamedKernel& kernel, const Result<Outcome>& outcome, bool is_list) {
  Json json;
  if (is_list) json.Set("kernel", kernel.text).Set("count", kernel.count);
  if (!outcome) return json.Set("verified", false).Set("error", ErrorJson(outcome.error()));
  json.Append(ServedJson(outcome->facts.reply, outcome->facts.served_us));
  const RunReport& report = outcome->report;
  json.Set("time_us", report.time_us)
      .Set("gflops", report.gflops)
      .Set("max_rel_err", report.comparison.max_rel_err)
      .Set("verified", !report.comparison.failure.has_value());
  if (report.comparison.failure) json.Set("error", ErrorJson(*report.comparison.failure));
  return json;
}

int RunKernelOrModel(Context& context, const Arguments& arguments) {
  Result<GetOptions> options = ReadGetOptions(arguments);
  if (!options) return context.WrongUsage(options.error());
  Result<int64_t> samples = arguments.Number("--repeat", 15, 1, 1'000'000);
  if (!samples) return context.WrongUsage(samples.error());
  Result<int64_t> seed = arguments.Number("--seed", 1, 0, INT64_MAX);
  if (!seed) return context.WrongUsage(seed.error());
  Result<ImportOptions> import = ReadImportOptions(arguments);
  if (!import) return context.WrongUsage(import.error());
  std::vector<std::string> named = arguments.Texts("KERNEL");
  if (std::any_of(named.begin(), named.end(), NamesModel)) {
    if (options->target == kBestTarget)
      return context.WrongUsage({ErrorKind::kInvalid, "best is for one kernel; name the model's device", "--target"});
    if (named.size() > 1) {
      return context.WrongUsage(
          {ErrorKind::kInvalid, "a model is run on its own, and several things were named", "KERNEL"});
    }
    return RunModel(context, named[0],
                    {*options, *import, static_cast<int>(*samples), static_cast<uint64_t>(*seed),
                     !arguments.Has("--no-check"), arguments.Text("--export"), arguments.Text("--against")});
  }
  for (const char* option : {"--shape", "--data", "--accuracy", "--no-check", "--against", "--export"})
    if (arguments.Has(option))
      return context.WrongUsage({ErrorKind::kInvalid, "is for models; no model is run", option});
  std::vector<NamedKernel> kernels;
  for (const std::string& argument : named) {
    Result<std::vector<NamedKernel>> some = ReadKernels(argument);
    if (!some) return context.Fail(some.error());
    std::move(some->begin(), some->end(), std::back_inserter(kernels));
  }
  if (options->target == kBestTarget && (kernels.size() != 1 || HasDynamicSizes(kernels[0].text)))
    return context.WrongUsage({ErrorKind::kInvalid, "best is for one kernel of fixed sizes", "--target"});
  if (kernels.size() == 1 && HasDynamicSizes(kernels[0].text))
    return RunAtSizes(context, kernels[0], *options, static_cast<int>(*samples), arguments);
  for (const char* option : {"--sizes", "--tune-each"})
    if (arguments.Has(option))
      return context.WrongUsage({ErrorKind::kInvalid, "is for one kernel with a range of sizes, as M=1..64", option});
  Result<Client*> client = context.Daemon(options->threads);
  if (!client) return context.Fail(client.error());
  std::optional<BestTarget> best;
  if (options->target == kBestTarget) {
    Result<BestTarget> found = FindBestTarget(**client, *options, [&](const GetOptions& on) -> Result<GetReply> {
      return HONE_TRY((*client)->Fetch(kernels[0].text, on)).reply;
    });
    if (!found) return context.Fail(AtPlace(found.error(), kernels[0]));
    options->target = found->name();
    best = *std::move(found);
  }
  bool is_list = kernels.size() > 1 || !kernels[0].place.empty();
  size_t failed = 0;
  Table table({{"kernel"},
               {"origin"},
               {"served", Table::Align::kRight},
               {"time", Table::Align::kRight},
               {"GFLOP/s", Table::Align::kRight},
               {"error", Table::Align::kRight},
               {"verified"}});
  ProgressBar bar(kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    bar.Show(i, kernels[i].text);
    Result<Outcome> outcome = RunOne(**client, kernels[i], *options, static_cast<int>(*samples));
    if (!outcome) outcome = AtPlace(outcome.error(), kernels[i]);
    const Error* error = !outcome                                         ? &outcome.error()
                         : outcome->report.comparison.failure.has_value() ? &*outcome->report.comparison.failure
                                                                          : nullptr;
    if (error != nullptr) {
      ++failed;
      bar.Clear();
      // A single kernel's error is the command's; a list goes on.
      PrintError(*error, context.json() && !is_list && !outcome);
    }
    if (context.json()) {
      Json json = ToJson(kernels[i], outcome, is_list);
      if (best) json.Set("candidates", OffersJson(*best));
      if (is_list || outcome) Print(json.Dump() + "\n");
    } else if (outcome) {
      const GetReply& reply = outcome->facts.reply;
      const RunReport& report = outcome->report;
      table.Add({kernels[i].place.ends_with(".hone") ? reply.class_name : kernels[i].text,
                 reply.hit ? reply.origin + ", cache" : reply.origin, TimeText(outcome->facts.served_us),
                 TimeText(report.time_us), fmt::format("{:.1f}", report.gflops),
                 ErrorText(report.comparison.max_rel_err), error == nullptr ? "yes" : "NO"});
    } else {
      table.Add({kernels[i].text, std::string(ErrorKindName(error->kind)), "-", "-", "-", "-", "NO"});
    }
  }
  bar.Clear();
  if (!context.json()) {
    if (best) Print(OffersText(*best));
    Print(table.Text());
    if (is_list) Print(fmt::format("{}, {} verified\n", Plural(kernels.size(), "kernel"), kernels.size() - failed));
  }
  return failed == 0 ? kDone : kFailed;
}

}  // namespace

Command RunCommand() {
  return {
      .name = "run",
      .summary = "get kernels, run them on random inputs, check and time them",
      .details =
          R"(Compares outputs with a reference in double precision. If a kernel is not verified, the exit status is 1.
A kernel with a range of sizes runs at many sizes, in turns with the kernel for each size alone; in a list, it runs at its
largest sizes. For a model (ONNX), runs the whole network: shows its time, shows which kernels take that time, and compares
its outputs with the network in double precision. Weights that the file lacks are random (--seed), scaled by their fan-in.
A model that runs in parts, because values that it computes decide shapes, is timed and compared as a whole.

Examples:
  hone run 'softmax(M=3072,N=256)'
  hone run 'matmul(M=4096,N=4096,K=4096)' --target best
  hone run models/resnet18.kernels --threads 1
  hone run scores.hone --json
  hone run 'dense(M=1..512,N=768,K=768,const=1)' --sizes M=1,7,64
  hone run resnet50.onnx --threads 2 --repeat 50)",
      .positionals = {{"KERNEL", "kernels, NAME.kernels, NAME.hone, or one NAME.onnx", true, true}},
      .options = {kBudgetOption,
                  kTargetOrBestOption,
                  kThreadsOption,
                  {"--repeat", "N", "times to measure; the median is printed (default 15)"},
                  kSizesOption,
                  kTuneEachOption,
                  kNoCompileOption,
                  kShapeOption,
                  kDataOption,
                  kAccuracyOption,
                  {"--seed", "N", "seed for a model's inputs and for weights that its file lacks (default 1)"},
                  {"--no-check", "", "time a model without checking its outputs"},
                  {"--against", "FILE",
                   "show where a model's layers differ from those of this model, as before it was quantised"},
                  {"--export", "DIR", "write a model with its weights, inputs and outputs to this directory"}},
      .run = RunKernelOrModel};
}

}  // namespace hone::cli
