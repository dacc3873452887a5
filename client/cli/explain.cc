// hone explain: why a request gets the code it gets, how fast that is, and how the search came to it.
#include "client/cli/ask_for_text.h"
#include "client/cli/explain_text.h"
#include "client/cli/terminal.h"

namespace hone::cli {
namespace {

int RunExplain(Context& context, const Arguments& arguments) {
  Result<int> threads = ReadThreadsOfKernel(arguments);
  if (!threads) return context.WrongUsage(threads.error());
  Result<ExplainReply> reply = CallForKernel(context, arguments.Text("KERNEL"), *threads,
                                             [](KernelName name) { return ExplainRequest{std::move(name)}; });
  if (!reply) return context.Fail(reply.error());
  Print(context.json() ? ExplainJson(*reply).Dump() + "\n" : ExplainText(*reply, SizeOfTerminal().columns));
  return kDone;
}

}  // namespace

Command ExplainCommand() {
  return {
      .name = "explain",
      .summary = "why a kernel gets this code, how fast it is, and how the search came to it",
      .details =
          R"(Says where the code comes from; how near it is to what the machine can do (the roofs are measured here, when first
asked for; every operation counts as one, an exponential as well as a sum); the best time over the trials of all searches, and why some failed; which of the schedule's decisions differ from the default
and what each was worth; how large the space of schedules is, and which rules applied.
Text is as wide as the terminal, or $COLUMNS, or 80 columns.

Examples:
  hone explain 3f9c
  hone explain 'softmax(M=1024,N=256)' --threads 1
  hone explain 'softmax(M=1024,N=256)' --json)",
      .positionals = {{"KERNEL", "a fingerprint's first digits, a kernel or NAME.hone"}},
      .options = {kThreadsOption},
      .run = RunExplain};
}

}  // namespace hone::cli
