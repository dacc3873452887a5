// hone export: records and code of the cache in a file that other machines take.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/bytes.h"
#include "base/file.h"
#include "cache/bundle/bundle.h"
#include "cache/bundle/key_file.h"
#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/gather_records.h"
#include "client/cli/oci_layout.h"
#include "client/cli/report/kernel_markup.h"
#include "client/cli/write_output.h"

namespace hone::cli {
namespace {

Result<uint64_t> ReadSize(const std::string& text) {
  uint64_t value = 0;
  auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : unit.empty() ? 0 : -1;
  if (code != std::errc() || shift < 0 || value == 0 || value > BundleLimits::kBytes >> shift)
    return Error{ErrorKind::kInvalid, fmt::format("saw \"{}\", wanted a size such as 500K, 20M or 1G", text),
                 "--max-size"};
  return value << shift;
}

// The words of the manifest that the command line gives. The time of issue is that of the content, so that equal caches
// give equal files.
Result<BundleManifest> Describe(const Arguments& arguments) {
  BundleManifest manifest;
  manifest.producer = "hone " HONE_VERSION;
  manifest.by = arguments.Text("--by");
  auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (manifest.by.size() > BundleLimits::kText || std::ranges::any_of(manifest.by, is_control))
    return Error{ErrorKind::kInvalid, "wanted at most 256 bytes on one line", "--by"};
  manifest.name = arguments.Text("--name");
  if (!arguments.Has("--name")) {
    // Bundles of one key and name follow one another, so different selections have different names.
    manifest.name = "kernels";
    for (const std::string& word : arguments.Texts("SELECTION")) manifest.name += "-" + word;
    for (const std::string& word : arguments.Texts("--target")) manifest.name += "-" + word.substr(0, word.find(' '));
    std::ranges::replace(manifest.name, ':', '-');  // cpu:neoverse-n1
    if (!IsBundleName(manifest.name))
      return Error{ErrorKind::kInvalid, "say --name NAME with this selection", "--name"};
  }
  if (!IsBundleName(manifest.name))
    return Error{ErrorKind::kInvalid, "wanted 1 to 64 letters, digits or \"._+-\", the first no dot", "--name"};
  if (arguments.Has("--expires"))
    manifest.expires = HONE_TRY(ParseExpiry(arguments.Text("--expires"), std::chrono::system_clock::now()));
  manifest.version =
      static_cast<uint64_t>(HONE_TRY(arguments.Number("--bundle-version", 0, 1, std::numeric_limits<int64_t>::max())));
  return manifest;
}

// What a kernel is worth to whoever gets it: the time that is spent in it.
double WorthOf(const BundleEntry& entry) {
  const Record& record = entry.record;
  const auto time = record.measured ? record.measured->time : record.expected.value_or(std::chrono::nanoseconds(0));
  return (static_cast<double>(entry.calls) + 1) * (static_cast<double>(time.count()) + 1);
}

// Keeps what is worth most and fits: what a record takes alone is at least what it takes beside others.
void KeepWithin(uint64_t bytes, std::vector<BundleEntry>& entries, const GatheredRecords::Code& code) {
  constexpr uint64_t kRow = 96;  // at most, in the manifest
  std::stable_sort(entries.begin(), entries.end(),
                   [](const BundleEntry& a, const BundleEntry& b) { return WorthOf(a) > WorthOf(b); });
  uint64_t taken = 4096;
  std::erase_if(entries, [&](const BundleEntry& entry) {
    uint64_t more = Pack(EncodeEntry(entry)).stored.size() + kRow;
    if (entry.record.artifact_digest) {
      const std::vector<std::byte>& own = code.at(*entry.record.artifact_digest);
      more += Pack(AsText(own)).stored.size() + kRow;
    }
    if (taken + more > bytes) return true;
    taken += more;
    return false;
  });
}

int RunExport(Context& context, const Arguments& arguments) {
  Result<BundleManifest> manifest = Describe(arguments);
  if (!manifest) return context.WrongUsage(manifest.error());
  if (!arguments.Has("--out") && !arguments.Has("--oci"))
    return context.WrongUsage({ErrorKind::kInvalid, "which file? Say -o FILE, or --oci DIR", "--out"});
  Result<uint64_t> most = arguments.Has("--max-size") ? ReadSize(arguments.Text("--max-size")) : BundleLimits::kBytes;
  if (!most) return context.WrongUsage(most.error());
  const bool to_standard_output = IsStandardOutput(arguments.Text("--out"));
  if (to_standard_output && context.json())
    return context.WrongUsage(
        {ErrorKind::kInvalid, "the bundle and --json cannot both go to standard output; name a file", "--out"});
  std::string file;
  if (arguments.Has("--out")) {
    Result<std::string> found = OutputFile(arguments.Text("--out"));
    if (!found) return context.Fail(found.error());
    file = *std::move(found);
  }
  std::optional<SigningSeed> seed;
  if (arguments.Has("--key")) {
    Result<ReadKey> key = ReadKeyFile(arguments.Text("--key"));
    if (!key) return context.Fail(key.error());
    if (!key->file.seed)
      return context.Fail(
          {ErrorKind::kInvalid, "is a public key; wanted the secret one, NAME.key", arguments.Text("--key")});
    if (!key->warning.empty()) PrintWarning(key->warning);
    seed = key->file.seed;
  }
  if (!seed && arguments.Has("--artifacts"))
    PrintWarning("without --key nobody takes the code of this bundle, only its schedules");

  Result<GatheredRecords> gathered =
      GatherRecords(context, {arguments.Texts("SELECTION"), arguments.Texts("--target"), arguments.Has("--artifacts")});
  if (!gathered) return context.Fail(gathered.error());
  if (gathered->entries.empty())
    return context.Fail({ErrorKind::kNotFound, "no record is selected; `hone ls` lists those there are", ""});
  const size_t all = gathered->entries.size();
  if (arguments.Has("--max-size")) KeepWithin(*most, gathered->entries, gathered->code);
  if (gathered->entries.empty())
    return context.Fail({ErrorKind::kLimit, fmt::format("none of {} records fits; give more room", all), "--max-size"});
  for (const BundleEntry& entry : gathered->entries)
    manifest->issued = std::max(manifest->issued, entry.record.updated);
  if (manifest->version == 0)
    manifest->version = static_cast<uint64_t>(std::max<int64_t>(1, manifest->issued.time_since_epoch().count()));
  const size_t kept = gathered->entries.size();
  const auto with_code = std::ranges::count_if(
      gathered->entries, [](const BundleEntry& entry) { return entry.record.artifact_digest.has_value(); });
  auto source = [&](const Digest256& digest) -> Result<std::vector<std::byte>> { return gathered->code.at(digest); };
  Result<std::string> bytes = WriteBundle(*manifest, std::move(gathered->entries), source, seed);
  if (!bytes) return context.Fail(bytes.error());
  const std::string path = arguments.Text(arguments.Has("--out") ? "--out" : "--oci");
  if (arguments.Has("--out"))
    if (Result<void> written = WriteOutput(file, *bytes); !written) return context.Fail(written.error());
  if (arguments.Has("--oci"))
    if (Result<void> written = WriteOciLayout(arguments.Text("--oci"), *manifest, *bytes); !written)
      return context.Fail(written.error());
  if (to_standard_output) return kDone;
  if (context.json()) {
    Json json;
    json.Set("file", path).Set("name", manifest->name).Set("version", manifest->version).Set("records", kept);
    json.Set("artifacts", static_cast<uint64_t>(with_code)).Set("left_out", all - kept).Set("bytes", bytes->size());
    json.Set("signed", seed.has_value());
    Print(json.Dump() + "\n");
  } else {
    Print(fmt::format("{}: {} version {}, {}, {} with code, {}{}{}\n", path, manifest->name, manifest->version,
                      Plural(kept, "kernel"), with_code, BytesText(static_cast<double>(bytes->size())),
                      seed ? ", signed" : "",
                      all > kept ? fmt::format("; {} left out for --max-size", all - kept) : ""));
  }
  return kDone;
}

}  // namespace

Command ExportCommand() {
  return {.name = "export",
          .summary = "write kernels of the cache into a bundle for other machines",
          .details = R"(A bundle holds schedules, which anybody can take: they are compiled and checked there. With
--artifacts it also holds the code, which is taken only from a key that is trusted there (hone keygen). Pinned or not,
all records of the selection are written; equal caches give equal files. --oci writes what registries of container images take: an
image layout with the bundle as its only layer, and its version as the tag.

Examples:
  hone export -o all.bundle
  hone export -o conv.bundle conv2d depthwise --max-size 20M
  hone export -o fleet.bundle --artifacts --key fleet.key --name fleet
  hone export --oci fleet --artifacts --key fleet.key --name fleet --bundle-version 7
  skopeo copy oci:fleet:7 docker://registry.example/fleet:7
  oras pull registry.example/fleet:7, and then: hone import fleet.bundle)",
          .positionals = {{"SELECTION", "classes' or fingerprints' beginnings (default: all)", false, true}},
          .options = {{"--out", "FILE", "the file to write, or - for standard output", "-o"},
                      {"--oci", "DIR", "write an OCI image layout there, for a registry"},
                      {"--artifacts", "", "also the code that was checked on this machine"},
                      {"--target", "T", "only this device's: avx2, cpu:neoverse-n1; may be repeated", "", true},
                      {"--max-size", "SIZE", "the kernels in which most time is spent, as many as fit, such as 20M"},
                      {"--key", "FILE", "sign with this secret key"},
                      {"--name", "NAME", "the bundle's name (default: kernels, and the selection)"},
                      {"--bundle-version", "N",
                       "its version: machines take no older one of this name and key (default: "
                       "the time of its newest record)"},
                      {"--expires", "DATE", "to be refused from this day on, such as 2030-12-31"},
                      {"--by", "TEXT", "who measured this, and where"}},
          .run = RunExport};
}

}  // namespace hone::cli
