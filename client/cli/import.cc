// hone import: takes up what another machine exported.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "cache/bundle/bundle.h"
#include "cache/bundle/key_file.h"
#include "client/cli/command.h"
#include "client/cli/context.h"

namespace hone::cli {
namespace {

constexpr size_t kPiece = size_t{512} << 10;

Result<uint64_t> Upload(Channel& channel, const std::string& bytes) {
  UploadReply reply;
  do {
    UploadRequest request{reply.upload, bytes.size(), reply.received, bytes.substr(reply.received, kPiece)};
    reply = HONE_TRY(channel.Call(request, Context::Patience()));
  } while (reply.received < bytes.size());
  return reply.upload;
}

Json ToJson(const ImportRow& row) {
  Json json;
  json.Set("fingerprint", row.fingerprint).Set("class", row.class_name).Set("target", row.target).Set("fate", row.fate);
  if (!row.why.empty()) json.Set("why", row.why);
  return json;
}

std::string VouchedText(const ImportReply& reply) {
  if (reply.vouched == "known") return "signed by " + reply.key;
  return reply.vouched == "unknown" ? "signed by a key that is not trusted here" : "not signed";
}

int ImportOne(Context& context, const std::string& path, const std::string& trust) {
  auto at_file = [&](Error error) {
    if (error.where.empty()) error.where = path;
    return context.Fail(error);
  };
  Result<std::string> bytes = ReadBundleFile(path);
  if (!bytes) return context.Fail(bytes.error());
  Result<Channel> channel = context.Ask();
  if (!channel) return context.Fail(channel.error());
  Result<uint64_t> upload = Upload(*channel, *bytes);
  if (!upload) return at_file(upload.error());
  Result<uint64_t> id = channel->Ask(ImportRequest{*upload, trust}, Context::Patience());
  if (!id) return at_file(id.error());
  ImportReply last;
  std::map<std::string, uint64_t> fates;
  for (last.more = true; last.more;) {
    Result<ImportReply> part = channel->Await<ImportReply>(*id, Context::Patience());
    if (!part) return at_file(part.error());
    last = *std::move(part);
    for (const ImportRow& row : last.rows) {
      ++fates[row.fate];
      if (context.json()) Print(ToJson(row).Dump() + "\n");
      if (row.fate == "refused" && !context.json())
        PrintError({ErrorKind::kInvalid, "refused: " + row.why, row.fingerprint + " " + row.class_name}, false);
    }
  }
  if (context.json()) {
    Json json;
    json.Set("bundle", last.bundle)
        .Set("version", last.version)
        .Set("vouched", last.vouched)
        .Set("records", last.total);
    for (const char* fate : {"added", "replaced", "kept", "refused"}) json.Set(fate, fates[fate]);
    json.Set("artifacts", last.artifacts).Set("artifacts_left", last.artifacts_left);
    if (!last.why_left.empty()) json.Set("why_left", last.why_left);
    Print(json.Dump() + "\n");
  } else {
    Print(fmt::format("{} version {}, {}: {} kernels added, {} replaced, {} kept, {} refused\n", last.bundle,
                      last.version, VouchedText(last), fates["added"], fates["replaced"], fates["kept"],
                      fates["refused"]));
    if (last.artifacts > 0)
      Print(fmt::format("{} come with code; it is checked now, and before it is first served\n", last.artifacts));
    if (last.artifacts_left > 0)
      Print(fmt::format("the code of {} was left out ({}): their schedules are compiled and checked here\n",
                        last.artifacts_left, last.why_left));
  }
  return fates["refused"] == 0 ? kDone : kFailed;
}

// One after the other: what is wrong with one keeps none of the others out.
int RunImport(Context& context, const Arguments& arguments) {
  std::string trust;
  if (arguments.Has("--trust")) {
    Result<ReadKey> key = ReadKeyFile(arguments.Text("--trust"));
    if (!key) return context.Fail(key.error());
    key->file.seed.reset();  // a secret key's file stands for its public half, and stays here
    trust = EncodeKeyFile(key->file);
  }
  int status = kDone;
  for (const std::string& path : arguments.Texts("FILE")) status = std::max(status, ImportOne(context, path, trust));
  return status;
}

}  // namespace

Command ImportCommand() {
  return {.name = "import",
          .summary = "take up kernels that another machine exported",
          .details =
              R"(Schedules are taken from anybody, and compiled and checked here. Code is taken from trusted keys alone
(~/.config/hone/keys, /etc/hone/keys, or --trust), and checked here once before it is served. honed does both after the
import, while nobody waits for anything else, what is worth most first; what is wanted before is made ready at once.
What was tuned here, or is pinned, stays; times of another machine replace none of this one, and what turns out to be
slower here than what was served before gives way to that again. An import that ended early goes on when it is repeated.
Of several unsigned files the fastest schedule of each kernel is taken, as far as their times tell, until it has run
here.

Examples:
  hone import all.bundle
  hone import pool/*.bundle
  hone import fleet.bundle --trust fleet.pub)",
          .positionals = {{"FILE", "the bundle, or several", true, true}},
          .options = {{"--trust", "KEY", "trust this public key file for this import"}},
          .run = RunImport};
}

}  // namespace hone::cli
