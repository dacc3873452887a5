// hone tune: refine a kernel now.
#include "client/cli/command.h"
#include "client/cli/context.h"

namespace hone::cli {
namespace {

int Run(Context& context, const Arguments& arguments) {
  Result<int64_t> trials = arguments.Number("--trials", 0, 1, 10'000'000);
  if (!trials) return context.WrongUsage(trials.error());
  Result<std::chrono::microseconds> time = arguments.Duration("--time", std::chrono::microseconds(0));
  if (!time) return context.WrongUsage(time.error());
  Result<int64_t> seed = arguments.Number("--seed", 0, 0, INT64_MAX);
  if (!seed) return context.WrongUsage(seed.error());
  Result<std::vector<NamedKernel>> kernels = ReadKernels(arguments.Text("KERNEL"));
  if (!kernels) return context.Fail(kernels.error());
  for (const NamedKernel& kernel : *kernels) {
    TuneRequest request{kernel.text, static_cast<uint32_t>(*trials), static_cast<uint64_t>(time->count()),
                        static_cast<uint64_t>(*seed)};
    Result<TuneReply> reply = context.Call<TuneReply>(request);
    if (!reply) return context.Fail(AtPlace(reply.error(), kernel));
  }
  return kDone;
}

}  // namespace

Command TuneCommand() {
  return {.name = "tune",
          .summary = "refine a kernel now (not in this version yet)",
          .details = "Kernels are served with the default schedule until tuning is there.",
          .positionals = {{"KERNEL", "a kernel, NAME.kernels or NAME.hone"}},
          .options = {{"--trials", "N", "candidates to try at most"},
                      {"--time", "TIME", "how long to search at most, such as 60s"},
                      {"--seed", "N", "of the search, to repeat it"}},
          .run = Run};
}

}  // namespace hone::cli
