// hone get: ask for a kernel.
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "client/api/device_code.h"
#include "client/cli/best_target.h"
#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/write_output.h"
#include "ir/native_artifact.h"
#include "ir/target.h"

namespace hone::cli {
namespace {

Result<void> WriteArtifact(const SealedMemfd& artifact, const std::string& path) {
  ReadOnlyMapping bytes = HONE_TRY(artifact.Map());
  return WriteOutput(path, AsText(bytes.bytes()));
}

void PrintServed(const GetReply& reply, double served_us) {
  Print(FactsText(
      {{"fingerprint", reply.fingerprint},
       {"class", reply.class_name},
       {"target", reply.target},
       {"served", fmt::format("{} in {}, {}", reply.hit ? "from the cache" : "compiled now", TimeText(served_us),
                              BytesText(static_cast<double>(reply.size)))},
       {"origin", reply.origin + (reply.pinned ? ", pinned" : "") +
                      (reply.origin == "transferred" ? fmt::format(", confidence {:.2f}", reply.confidence) : "")},
       {"verified", UncheckedName(reply.target).empty() ? "yes" : "no: there is no such device here to run it on"},
       {"expected", reply.expected_us > 0 ? TimeText(reply.expected_us) + " a call" : "not measured yet"}}));
  if (reply.steps.empty()) return;
  std::string steps;
  for (const StepTime& step : reply.steps) {
    if (step.us >= 1) steps += (steps.empty() ? "" : ", ") + step.step + " " + TimeText(step.us);
  }
  Print(FactsText({{"time went", steps}}));
}

Json WithSteps(Json json, const GetReply& reply) {
  if (reply.steps.empty()) return json;
  Json steps;
  for (const StepTime& step : reply.steps) steps.Set(step.step, step.us);
  json.Set("steps_us", std::move(steps));
  return json;
}

// What was served: code that this process could call, or code for a device.
struct Got {
  ServedFacts facts;
  std::unique_ptr<KernelHandle> handle;
  SealedMemfd for_device;
  const SealedMemfd& artifact() const { return handle ? handle->artifact() : for_device; }
};

// Code for a processor that is not this machine's: looked at and handed on, never mapped.
bool IsForOtherProcessor(const Served& served) {
  const Result<ReadOnlyMapping> bytes = served.artifact.Map();
  const NativeExpectations here{.size = served.reply.size, .digest = served.reply.digest};
  NativeExpectations anywhere = here;
  anywhere.other_machine = true;
  return bytes && !OpenNativeArtifact(bytes->bytes(), here) && OpenNativeArtifact(bytes->bytes(), anywhere);
}

Result<Got> Get(Client& client, const std::string& kernel, const GetOptions& options) {
  if (!options.target.empty()) {
    Stopwatch stopwatch;
    Served served = HONE_TRY(client.Fetch(kernel, options));
    const bool is_for_device = IsForDevice(served);
    if (is_for_device) HONE_TRY(OpenDeviceCode(served));
    if (is_for_device || IsForOtherProcessor(served)) {
      return Got{{std::move(served.reply), std::move(served.source), stopwatch.Microseconds()},
                 nullptr,
                 std::move(served.artifact)};
    }
  }
  std::unique_ptr<KernelHandle> handle = HONE_TRY(client.Get(kernel, options));
  ServedFacts facts = handle->facts();
  return Got{std::move(facts), std::move(handle), {}};
}

// From the device where a call takes the least time.
Result<Got> GetBest(Client& client, const std::string& kernel, const GetOptions& options,
                    std::optional<BestTarget>& best) {
  std::vector<Result<Got>> got;
  best = HONE_TRY(FindBestTarget(client, options, [&](const GetOptions& on) -> Result<GetReply> {
    got.push_back(Get(client, kernel, on));
    if (!got.back()) return got.back().error();
    return got.back()->facts.reply;
  }));
  return std::move(got[best->taken]);
}

int RunGet(Context& context, const Arguments& arguments) {
  Result<GetOptions> options = ReadGetOptions(arguments);
  if (!options) return context.WrongUsage(options.error());
  Result<NamedKernel> kernel = ReadKernel(arguments.Text("KERNEL"));
  if (!kernel) return context.Fail(kernel.error());
  std::string file;
  if (arguments.Has("--out")) {
    Result<std::string> found = OutputFile(arguments.Text("--out"));
    if (!found) return context.Fail(found.error());
    file = *std::move(found);
  }
  const bool to_standard_output = IsStandardOutput(file);
  if (to_standard_output && context.json())
    return context.WrongUsage(
        {ErrorKind::kInvalid, "the code and --json cannot both go to standard output; name a file", "--out"});
  Result<Client*> client = context.Daemon();
  if (!client) return context.Fail(client.error());
  std::optional<BestTarget> best;
  Result<Got> got = options->target == kBestTarget ? GetBest(**client, kernel->text, *options, best)
                                                   : Get(**client, kernel->text, *options);
  if (!got) return context.Fail(AtPlace(got.error(), *kernel));
  const ServedFacts& facts = got->facts;
  if (!file.empty())
    if (Result<void> written = WriteArtifact(got->artifact(), file); !written) return context.Fail(written.error());
  if (to_standard_output) return kDone;
  if (context.json()) {
    Json json = WithSteps(ServedJson(facts.reply, facts.served_us), facts.reply);
    if (best) json.Set("candidates", OffersJson(*best));
    Print(json.Dump() + "\n");
  } else {
    if (best) Print(OffersText(*best));
    PrintServed(facts.reply, facts.served_us);
  }
  return kDone;
}

}  // namespace

Command GetCommand() {
  return {.name = "get",
          .summary = "get a kernel from the cache, or have it compiled and checked",
          .details = R"(Prints what honed served, and how long it took until the kernel could be called.
With --target best it asks for the kernel on every device that honed serves, and takes the one where a call is expected to take the
least time, counting what it takes to copy inputs there and outputs back; constants are copied once, and do not count.

Examples:
  hone get 'matmul(M=512,N=512,K=512)'
  hone get 'matmul(M=4096,N=4096,K=4096)' --target best
  hone get 'conv2d(C=64,H=56,W=56,O=64,R=3,S=3,pad=1,const=1)+bias+relu' --json
  hone get attention.hone --no-compile --out attention.so)",
          .positionals = {{"KERNEL", "a kernel, or NAME.hone"}},
          .options = {kBudgetOption,
                      kTargetOrBestOption,
                      kThreadsOption,
                      {"--out", "FILE", "write the code to this file, or - for standard output"},
                      kNoCompileOption},
          .run = RunGet};
}

}  // namespace hone::cli
