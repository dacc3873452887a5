// hone ls: what the cache holds.
#include <fmt/format.h>

#include <algorithm>

#include "client/cli/command.h"
#include "client/cli/context.h"
#include "ir/target.h"

namespace hone::cli {
namespace {

Json ToJson(const RecordRow& row) {
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
      .Set("last_used", row.last_used_s);
  return json;
}

// A kernel on one line, cut in the middle if it is long.
std::string Short(std::string text) {
  constexpr size_t kLongest = 72;
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() <= kLongest) return text;
  return text.substr(0, kLongest / 2 - 2) + " … " + text.substr(text.size() - kLongest / 2 + 1);
}

int RunLs(Context& context, const Arguments& arguments) {
  Result<Channel> channel = context.Ask();
  if (!channel) return context.Fail(channel.error());
  Result<uint64_t> id = channel->Ask(ListRequest{arguments.Text("CLASS")}, Context::Patience());
  if (!id) return context.Fail(id.error());
  Table table({{"fingerprint"},
               {"class"},
               {"origin"},
               {"expected", Table::Align::kRight},
               {"code", Table::Align::kRight},
               {"requests", Table::Align::kRight},
               {"used", Table::Align::kRight},
               {"kernel"}});
  for (bool more = true; more;) {
    Result<ListReply> part = channel->Await<ListReply>(*id, Context::Patience());
    if (!part) return context.Fail(part.error());
    more = part->more;
    std::string lines;
    for (const RecordRow& row : part->rows) {
      if (context.json()) {
        lines += ToJson(row).Dump() + "\n";
        continue;
      }
      table.Add(
          {row.fingerprint.substr(0, 12), row.class_name,
           row.origin + (row.pinned ? ", pinned" : "") + (UncheckedName(row.target).empty() ? "" : ", unverified"),
           TimeText(row.expected_us), BytesText(static_cast<double>(row.artifact_bytes)), std::to_string(row.requests),
           AgeText(row.last_used_s), Short(row.kernel)});
    }
    Print(lines);
  }
  if (!context.json()) Print(table.size() ? table.Text() : "no kernels\n");
  return kDone;
}

}  // namespace

Command ListCommand() {
  return {.name = "ls",
          .summary = "list the kernels in the cache",
          .details = R"(With --json, prints one object per line.

Examples:
  hone ls
  hone ls conv2d
  hone --cache /var/lib/hone ls --json)",
          .positionals = {{"CLASS", "only classes that start so, such as conv2d or dense+bias", false}},
          .options = {},
          .run = RunLs};
}

}  // namespace hone::cli
