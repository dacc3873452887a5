// hone verify: is everything in the cache as it was written, and right.
#include <fmt/format.h>

#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/report/kernel_markup.h"

namespace hone::cli {
namespace {

Json ToJson(const VerifyRow& row) {
  Json json;
  json.Set("fingerprint", row.fingerprint).Set("class", row.class_name).Set("target", row.target).Set("ok", row.ok);
  if (row.ran) json.Set("max_rel_err", row.max_rel_err);
  if (!row.ok) json.Set("problem", row.problem);
  return json;
}

int RunVerify(Context& context, const Arguments& arguments) {
  bool run = arguments.Has("--run");
  Result<Channel> channel = context.Ask();
  if (!channel) return context.Fail(channel.error());
  Result<uint64_t> id = channel->Ask(VerifyRequest{run}, Context::Patience());
  if (!id) return context.Fail(id.error());
  std::optional<ProgressBar> bar;
  uint64_t checked = 0, bad = 0, without_artifact = 0, not_run = 0;
  double worst = 0;
  for (bool more = true; more;) {
    Result<VerifyReply> part = channel->Await<VerifyReply>(*id, Context::Patience());
    if (!part) return context.Fail(part.error());
    if (!bar) bar.emplace(part->total);
    more = part->more;
    without_artifact = part->without_artifact;
    for (const VerifyRow& row : part->rows) {
      ++checked;
      worst = std::max(worst, row.max_rel_err);
      if (context.json()) Print(ToJson(row).Dump() + "\n");
      if (row.ok && run && !row.ran) ++not_run;
      if (row.ok) continue;
      ++bad;
      bar->Clear();
      Error error{ErrorKind::kCorrupt, row.problem,
                  row.fingerprint.empty() ? "cache" : row.fingerprint + " " + row.class_name};
      PrintError(error, false);
    }
    if (!part->rows.empty()) bar->Show(checked, part->rows.back().class_name);
  }
  bar.reset();
  if (context.json()) {
    Json json;
    json.Set("checked", checked).Set("bad", bad).Set("without_artifact", without_artifact).Set("ran", run);
    if (run) json.Set("not_run", not_run);
    Print(json.Dump() + "\n");
  } else {
    std::string note = run && checked > 0 ? ", largest error " + ErrorText(worst) : "";
    if (not_run > 0) note += fmt::format(", {} for devices that are not here were not run", not_run);
    if (without_artifact > 0) note += fmt::format(", {} more with a schedule only", without_artifact);
    Print(bad == 0 ? fmt::format("{} checked, all sound{}\n", Plural(checked, "kernel"), note)
                   : fmt::format("{} checked, {} not sound{}\n", Plural(checked, "kernel"), bad, note));
  }
  return bad == 0 ? kDone : kFailed;
}

}  // namespace

Command VerifyCommand() {
  return {.name = "verify",
          .summary = "check every record's checksum and code; with --run, also its results",
          .details = R"(Sets damaged records aside; their kernels are compiled again at the next request.

Examples:
  hone verify
  hone verify --run
  hone --cache ~/.cache/hone verify --json)",
          .positionals = {},
          .options = {{"--run", "", "also run every kernel and compare it with the reference"}},
          .run = RunVerify};
}

}  // namespace hone::cli
