// hone bundle: what is in a bundle, whether it is sound, and what another one has that it has not. Without a daemon.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/file.h"
#include "cache/bundle/bundle.h"
#include "cache/bundle/trusted_keys.h"
#include "cache/keys.h"
#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/plain_text.h"
#include "client/cli/report/kernel_markup.h"
#include "client/cli/text_layout.h"

namespace hone::cli {
namespace {

// A bundle and all that it says, its signature and digests checked.
struct Opened {
  std::string bytes;
  std::optional<Bundle> bundle;
  std::vector<BundleEntry> entries;
};

Result<void> Open(const std::string& path, bool with_code, Opened& opened) {
  auto at_path = [&](Error error) {
    if (error.where.empty()) error.where = path;
    return error;
  };
  opened.bytes = HONE_TRY(ReadBundleFile(path));
  Result<Bundle> bundle = Bundle::Open(AsBytes(opened.bytes));
  if (!bundle) return at_path(bundle.error());
  opened.bundle = *std::move(bundle);
  if (Result<void> sound = opened.bundle->CheckFrames(); !sound) return at_path(sound.error());
  Result<void> read = opened.bundle->ForEachEntry([&](BundleEntry&& entry) -> Result<void> {
    if (with_code && entry.record.artifact_digest) HONE_TRY(opened.bundle->Artifact(*entry.record.artifact_digest));
    opened.entries.push_back(std::move(entry));
    return {};
  });
  if (!read) return at_path(read.error());
  return {};
}

std::string Short(const std::string& text) {
  constexpr size_t kLongest = 60;
  const std::string line = PlainLine(text);
  return Width(line) <= kLongest ? line : First(line, kLongest - 1) + "…";
}

double Us(const Record& record) {
  return record.measured ? std::chrono::duration<double, std::micro>(record.measured->time).count() : 0;
}

Json ManifestJson(const Bundle& bundle) {
  const BundleManifest& manifest = bundle.manifest();
  Json json;
  json.Set("name", manifest.name).Set("version", manifest.version).Set("issued", DateText(manifest.issued));
  json.Set("expires", manifest.expires ? DateText(*manifest.expires) : "never");
  json.Set("producer", manifest.producer).Set("by", manifest.by).Set("targets", manifest.targets);
  json.Set("records", manifest.records).Set("bytes", bundle.bytes());
  json.Set("artifacts",
           static_cast<uint64_t>(std::ranges::count(manifest.frames, FrameKind::kArtifact, &BundleFrame::kind)));
  json.Set("signer", bundle.signer() ? HexOf(*bundle.signer()) : "");
  return json;
}

Json EntryJson(const BundleEntry& entry) {
  Json json;
  json.Set("fingerprint", entry.record.key.fingerprint.Hex()).Set("class", entry.record.label);
  json.Set("kernel", entry.record.request).Set("target", entry.record.key.target);
  json.Set("origin", OriginName(entry.record.origin)).Set("measured_us", Us(entry.record)).Set("calls", entry.calls);
  json.Set("artifact_bytes", entry.record.artifact_bytes);
  return json;
}

std::string SignerText(const Bundle& bundle) {
  return bundle.signer() ? HexOf(*bundle.signer()) : "nobody: it is not signed";
}

int Show(Context& context, const Arguments& arguments) {
  Opened opened;
  if (Result<void> read = Open(arguments.Text("FILE"), false, opened); !read) return context.Fail(read.error());
  const BundleManifest& manifest = opened.bundle->manifest();
  if (context.json()) {
    std::string lines = ManifestJson(*opened.bundle).Dump() + "\n";
    for (const BundleEntry& entry : opened.entries) lines += EntryJson(entry).Dump() + "\n";
    Print(lines);
    return kDone;
  }
  std::vector<std::pair<std::string, std::string>> facts = {
      {"name", fmt::format("{} version {}", manifest.name, manifest.version)},
      {"issued", DateText(manifest.issued) + (manifest.expires ? ", expires " + DateText(*manifest.expires) : "")},
      {"signed by", SignerText(*opened.bundle)},
      {"written by", PlainLine(manifest.producer)}};
  if (!manifest.by.empty()) facts.emplace_back("measured by", PlainLine(manifest.by));
  for (const std::string& target : manifest.targets) facts.emplace_back("target", Short(target));
  Print(FactsText(facts));
  Table table({{"fingerprint"},
               {"class"},
               {"origin"},
               {"measured", Table::Align::kRight},
               {"code", Table::Align::kRight},
               {"calls", Table::Align::kRight},
               {"kernel"}});
  for (const BundleEntry& entry : opened.entries)
    table.Add({entry.record.key.fingerprint.Hex().substr(0, 12), Short(entry.record.label),
               std::string(OriginName(entry.record.origin)), TimeText(Us(entry.record)),
               BytesText(static_cast<double>(entry.record.artifact_bytes)), std::to_string(entry.calls),
               Short(entry.record.request)});
  Print(table.size() ? table.Text() : "no kernels\n");
  return kDone;
}

int Verify(Context& context, const Arguments& arguments) {
  Opened opened;
  const std::string path = arguments.Text("FILE");
  if (Result<void> read = Open(path, true, opened); !read) return context.Fail(read.error());
  Result<TrustedKeys> keys = TrustedKeys::Read(TrustedKeys::StandardDirectories());
  if (!keys) return context.Fail(keys.error());
  if (arguments.Has("--trust")) {
    Result<ReadKey> key = ReadKeyFile(arguments.Text("--trust"));
    if (!key) return context.Fail(key.error());
    keys->Add(key->file);
  }
  Result<Judgement> judged = keys->Judge(*opened.bundle, Clock::Real().WallNow());
  if (!judged) {
    Error error = judged.error();
    error.where = path;
    return context.Fail(error);
  }
  if (context.json()) {
    Json json = ManifestJson(*opened.bundle);
    json.Set("vouched", judged->vouched == Vouched::kKnown ? "known"
                        : opened.bundle->signer()          ? "unknown"
                                                           : "unsigned");
    if (judged->key) json.Set("key", judged->key->name).Set("roles", RolesText(judged->key->roles));
    Print(json.Dump() + "\n");
    return kDone;
  }
  const std::string who =
      judged->key
          ? fmt::format("signed by {}, which is trusted with {}", judged->key->name, RolesText(judged->key->roles))
      : opened.bundle->signer()
          ? fmt::format("signed by {}, which is not trusted here: only schedules are taken", SignerText(*opened.bundle))
          : "not signed: only schedules are taken";
  Print(fmt::format("{}: sound, {}; {}\n", path, Plural(opened.entries.size(), "kernel"), who));
  return kDone;
}

// A line for each record that only one of them has, or that differs.
int Diff(Context& context, const Arguments& arguments) {
  if (!arguments.Has("OTHER")) return context.WrongUsage({ErrorKind::kInvalid, "wanted two bundles", "OTHER"});
  Opened sides[2];
  const std::string paths[2] = {arguments.Text("FILE"), arguments.Text("OTHER")};
  std::map<std::string, std::pair<const BundleEntry*, const BundleEntry*>> both;
  for (int i = 0; i < 2; ++i) {
    if (Result<void> read = Open(paths[i], false, sides[i]); !read) return context.Fail(read.error());
    for (const BundleEntry& entry : sides[i].entries) {
      auto& pair = both[RecordKey(entry.record.key)];
      (i == 0 ? pair.first : pair.second) = &entry;
    }
  }
  uint64_t differences = 0;
  for (const auto& [_, pair] : both) {
    const auto& [left, right] = pair;
    std::vector<std::string> what;
    if (left != nullptr && right != nullptr) {
      if (left->record.schedule != right->record.schedule) what.emplace_back("schedule");
      if (left->record.artifact_digest != right->record.artifact_digest) what.emplace_back("code");
      if (left->record.measured != right->record.measured) what.emplace_back("time");
      if (what.empty()) continue;
    }
    ++differences;
    const BundleEntry& one = left != nullptr ? *left : *right;
    const std::string_view change = right == nullptr ? "removed" : left == nullptr ? "added" : "changed";
    if (context.json()) {
      Json json = EntryJson(one);
      json.Set("change", change).Set("what", what);
      Print(json.Dump() + "\n");
    } else {
      Print(fmt::format("{:8} {}  {}{}{}\n", change, one.record.key.fingerprint.Hex().substr(0, 12),
                        Short(one.record.request), what.empty() ? "" : ": ", fmt::join(what, ", ")));
    }
  }
  if (!context.json()) Print(fmt::format("{} differences\n", differences));
  return kDone;
}

int RunBundle(Context& context, const Arguments& arguments) {
  const std::string action = arguments.Text("ACTION");
  if (action != "show" && action != "verify" && action != "diff")
    return context.WrongUsage(
        {ErrorKind::kInvalid, fmt::format("saw \"{}\", wanted show, verify or diff", action), "ACTION"});
  if (action != "diff" && arguments.Has("OTHER"))
    return context.WrongUsage({ErrorKind::kInvalid, "diff alone takes two bundles", "OTHER"});
  if (action != "verify" && arguments.Has("--trust"))
    return context.WrongUsage({ErrorKind::kInvalid, "verify alone asks who is trusted", "--trust"});
  if (action == "show") return Show(context, arguments);
  return action == "verify" ? Verify(context, arguments) : Diff(context, arguments);
}

}  // namespace

Command BundleCommand() {
  return {
      .name = "bundle",
      .summary = "show, verify or compare bundles",
      .details = R"(show: what a bundle says of itself, and its kernels. verify: whether it is as it was written, and
who vouches for it. diff: which kernels another bundle added, removed or changed. No daemon is asked.

Examples:
  hone bundle show fleet.bundle
  hone bundle verify fleet.bundle --trust fleet.pub
  hone bundle diff old.bundle new.bundle)",
      .positionals = {{"ACTION", "show, verify or diff"}, {"FILE", "a bundle"}, {"OTHER", "diff: another", false}},
      .options = {{"--trust", "KEY", "verify: trust this public key file"}},
      .run = RunBundle};
}

}  // namespace hone::cli
