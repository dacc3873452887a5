// hone predict: how long a kernel will take, as the cost model sees it, without compiling anything.
#include <fmt/format.h>

#include "client/cli/command.h"
#include "client/cli/context.h"

namespace hone::cli {
namespace {

Json EstimateJson(const Estimate& estimate) {
  Json json;
  json.Set("expected_us", estimate.expected_us).Set("low_us", estimate.low_us).Set("high_us", estimate.high_us);
  return json;
}

std::string EstimateText(const Estimate& estimate, double flops) {
  std::string rate = flops > 0 ? fmt::format(", {:.1f} GFLOP/s", flops / estimate.expected_us / 1e3) : "";
  return fmt::format("{} ({} … {}){}", TimeText(estimate.expected_us), TimeText(estimate.low_us),
                     TimeText(estimate.high_us), rate);
}

int RunPredict(Context& context, const Arguments& arguments) {
  Result<int> threads = ReadThreads(arguments);
  if (!threads) return context.WrongUsage(threads.error());
  Result<std::vector<NamedKernel>> kernels = ReadKernels(arguments.Text("KERNEL"));
  if (!kernels) return context.Fail(kernels.error());
  int status = kDone;
  for (const NamedKernel& kernel : *kernels) {
    Result<PredictReply> reply = context.Call(PredictRequest{kernel.text, static_cast<uint32_t>(*threads)});
    if (reply && !reply->why_none.empty()) reply = Error{ErrorKind::kNotFound, reply->why_none, "model"};
    if (!reply) {
      status = context.Fail(AtPlace(reply.error(), kernel));
      continue;
    }
    if (context.json()) {
      Json json;
      json.Set("kernel", kernel.text)
          .Set("fingerprint", reply->fingerprint)
          .Set("class", reply->class_name)
          .Set("default", EstimateJson(reply->by_default))
          .Set("flops", reply->flops);
      if (!reply->origin.empty()) json.Set("origin", reply->origin).Set("measured_us", reply->measured_us);
      if (reply->served.expected_us > 0) json.Set("served", EstimateJson(reply->served));
      Print(json.Dump() + "\n");
      continue;
    }
    std::vector<std::pair<std::string, std::string>> facts = {
        {"kernel", kernel.text}, {"default", EstimateText(reply->by_default, reply->flops)}};
    if (reply->served.expected_us > 0 && reply->origin != "default")
      facts.emplace_back(reply->origin, EstimateText(reply->served, reply->flops));
    if (reply->measured_us > 0) facts.emplace_back("measured", TimeText(reply->measured_us));
    Print(FactsText(facts));
  }
  return status;
}

}  // namespace

Command PredictCommand() {
  return {
      .name = "predict",
      .summary = "predict how long a kernel will take, without compiling it",
      .details =
          R"(The cost model learns from every search on this machine. In validation, four of five kernels that it had not seen lay
within the range in parentheses. The model needs a few hundred trials first: `hone tune` some kernels, or leave the
machine idle for a while.

Examples:
  hone predict 'matmul(M=512,N=512,K=512,const=1)'
  hone predict models/bert_128.kernels --json)",
      .positionals = {{"KERNEL", "a kernel, NAME.kernels or NAME.hone"}},
      .options = {kThreadsOption},
      .run = RunPredict};
}

}  // namespace hone::cli
