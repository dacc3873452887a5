// hone show: everything known of one record.
#include "client/cli/command.h"
#include "client/cli/context.h"
#include "ir/target.h"

namespace hone::cli {
namespace {

int RunShow(Context& context, const Arguments& arguments) {
  Result<ShowReply> reply = context.Call(ShowRequest{arguments.Text("FP")});
  if (!reply) return context.Fail(reply.error());
  const RecordRow& row = reply->row;
  if (context.json()) {
    Json facts;
    for (const Fact& fact : reply->facts) facts.Set(fact.name, fact.value);
    Json json;
    json.Set("fingerprint", row.fingerprint)
        .Set("class", row.class_name)
        .Set("kernel", row.kernel)
        .Set("target", row.target)
        .Set("origin", row.origin)
        .Set("verified", UncheckedName(row.target).empty())
        .Set("pinned", row.pinned)
        .Set("expected_us", row.expected_us)
        .Set("artifact_bytes", row.artifact_bytes)
        .Set("requests", row.requests)
        .Set("last_used", row.last_used_s)
        .Set("canonical", reply->canonical)
        .Set("schedule", reply->schedule)
        .Set("facts", std::move(facts));
    Print(json.Dump() + "\n");
    return kDone;
  }
  std::vector<std::pair<std::string, std::string>> facts = {
      {"fingerprint", row.fingerprint}, {"kernel", row.kernel}, {"class", row.class_name}};
  for (const Fact& fact : reply->facts) facts.emplace_back(fact.name, fact.value);
  facts.emplace_back("requests", std::to_string(row.requests) + ", last " + AgeText(row.last_used_s));
  Print(FactsText(facts));
  Print("\n" + reply->canonical + (reply->canonical.ends_with('\n') ? "" : "\n"));
  return kDone;
}

}  // namespace

Command ShowCommand() {
  return {.name = "show",
          .summary = "show everything that is known about a kernel",
          .details = "Example: hone show 3f9c",
          .positionals = {{"FP", "a fingerprint's first digits"}},
          .options = {},
          .run = RunShow};
}

}  // namespace hone::cli
