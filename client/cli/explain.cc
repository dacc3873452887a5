// hone explain: why a request gets the code it gets.
#include "client/cli/command.h"
#include "client/cli/context.h"

namespace hone::cli {
namespace {

int Run(Context& context, const Arguments& arguments) {
  Result<ShowReply> reply = context.Call<ShowReply>(ShowRequest{arguments.Text("FP")});
  if (!reply) return context.Fail(reply.error());
  if (context.json()) {
    Json reasons;
    for (const Fact& reason : reply->reasons) reasons.Set(reason.name, reason.value);
    Json json;
    json.Set("fingerprint", reply->row.fingerprint)
        .Set("class", reply->row.class_name)
        .Set("origin", reply->row.origin)
        .Set("reasons", std::move(reasons));
    Print(json.Dump() + "\n");
    return kDone;
  }
  std::vector<std::pair<std::string, std::string>> reasons = {{"kernel", reply->row.kernel}};
  for (const Fact& reason : reply->reasons) reasons.emplace_back(reason.name, reason.value);
  Print(FactsText(reasons));
  return kDone;
}

}  // namespace

Command ExplainCommand() {
  return {.name = "explain",
          .summary = "why a request for this kernel gets this code",
          .details = "Example: hone explain 3f9c",
          .positionals = {{"FP", "a fingerprint's first digits"}},
          .options = {},
          .run = Run};
}

}  // namespace hone::cli
