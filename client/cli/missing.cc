// hone missing: what a device without a compiler was asked for and does not have.
#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/protocol/missing_text.h"

namespace hone::cli {
namespace {

int RunMissing(Context& context, const Arguments&) {
  Result<MissingReply> reply = context.Call(MissingRequest{});
  if (!reply) return context.Fail(reply.error());
  if (!context.json()) {
    Print(MissingText(*reply));
    return kDone;
  }
  std::vector<Json> rows;
  for (const MissingRow& row : reply->rows)
    rows.push_back(Json().Set("kernel", row.kernel).Set("requests", row.requests));
  Json json;
  json.Set("target", reply->target).Set("kernels", rows).Set("forgotten", reply->forgotten);
  Print(json.Dump() + "\n");
  return kDone;
}

}  // namespace

Command MissingCommand() {
  return {
      .name = "missing",
      .summary = "list what a device without a compiler was asked for and does not have",
      .details =
          R"(honed-edge serves what signed bundles hold. It remembers, until it ends, the kernels that it was asked for and had no
code for; this prints them as a list that `hone warm` takes on a machine with a compiler, most wanted first. The comment
in its first line is the device's target.

Examples:
  hone --socket /run/hone/honed.sock missing > missing.kernels
  ssh board honed-edge --missing > missing.kernels)",
      .positionals = {},
      .options = {},
      .run = RunMissing};
}

}  // namespace hone::cli
