// hone contribute: schedules and times for a pool that everybody gives to and takes from.
#include "client/cli/contribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <utility>

#include "base/bytes.h"
#include "base/file.h"
#include "base/hash.h"
#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/gather_records.h"
#include "client/cli/model_file.h"
#include "client/cli/write_output.h"
#include "ir/language/canonical.h"
#include "ir/language/fingerprint.h"
#include "ir/language/instance_sizes.h"
#include "ir/language/ops.h"
#include "ir/language/parse.h"

namespace hone::cli {
namespace {

// A library operation with its epilogues: "dense+bias+relu". What else a kernel is called, somebody has called it.
bool IsOurName(std::string_view label) {
  const std::string_view operation = label.substr(0, label.find('+'));
  const std::vector<std::string_view> names = OperationNames();
  return std::ranges::find(names, operation) != names.end() && std::ranges::all_of(label, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '_';
         });
}

WallTime ToTheDay(WallTime time) {
  return std::chrono::time_point_cast<WallTime::duration>(std::chrono::floor<std::chrono::days>(time));
}

// What a class's name or a fingerprint can begin with. All else is a kernel or a file, or a mistake that has to be
// said: what it was to keep back would be given away.
bool IsBeginning(const std::string& word) {
  return !word.empty() && !NamesModel(word) && std::ranges::all_of(word, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '+';
  });
}

// A kernel for a range of sizes at the least of them; others as they are.
Canonical AtLeastSizes(Kernel kernel) {
  for (Size& size : kernel.sizes) size.hi = size.lo;
  return Canonicalize(kernel);
}

bool BeginsWith(const Record& record, const std::string& beginning) {
  return record.label.starts_with(beginning) || record.key.fingerprint.Hex().starts_with(beginning);
}

int RunContribute(Context& context, const Arguments& arguments) {
  if (!arguments.Has("--out")) return context.WrongUsage({ErrorKind::kInvalid, "which file? Say -o FILE", "--out"});
  const std::string path = arguments.Text("--out");
  const bool to_standard_output = IsStandardOutput(path);
  if (to_standard_output && context.json())
    return context.WrongUsage(
        {ErrorKind::kInvalid, "the bundle and --json cannot both go to standard output; name a file", "--out"});
  Result<std::string> file = OutputFile(path);
  if (!file) return context.Fail(file.error());
  Result<Exclusions> exclusions = Exclusions::Read(arguments.Texts("--without"));
  if (!exclusions) return context.WrongUsage(exclusions.error());
  Result<GatheredRecords> gathered = GatherRecords(context, {arguments.Texts("SELECTION"), {}, false});
  if (!gathered) return context.Fail(gathered.error());
  const size_t all = gathered->entries.size();
  for (const std::string& word : exclusions->WithoutEffect(gathered->entries))
    PrintWarning(fmt::format("--without {} keeps nothing back: no class or fingerprint here begins so", word));
  std::vector<BundleEntry> entries = ForEverybody(std::move(gathered->entries), *exclusions);
  if (entries.empty())
    return context.Fail({ErrorKind::kNotFound,
                         fmt::format("nothing to give: of {} kernels none was tuned here, or all are excluded; `hone "
                                     "tune` or idle time finds schedules",
                                     all),
                         ""});
  BundleManifest manifest;
  manifest.producer = "hone " HONE_VERSION;
  std::string content;
  for (const BundleEntry& entry : entries) {
    manifest.issued = std::max(manifest.issued, entry.record.updated);
    content += EncodeEntry(entry);
  }
  manifest.version = static_cast<uint64_t>(std::max<int64_t>(1, manifest.issued.time_since_epoch().count()));
  // Named by what is in it: contributions of many do not follow one another.
  manifest.name = "pool-" + HexOf(Hash64(content));
  const size_t given = entries.size();
  auto no_code = [](const Digest256&) -> Result<std::vector<std::byte>> {
    return Error{ErrorKind::kInternal, "contributions have no code", ""};
  };
  Result<std::string> bytes = WriteBundle(manifest, std::move(entries), no_code, std::nullopt);
  if (!bytes) return context.Fail(bytes.error());
  if (Result<void> written = WriteOutput(*file, *bytes); !written) return context.Fail(written.error());
  if (to_standard_output) return kDone;
  if (context.json()) {
    Json json;
    json.Set("file", path).Set("name", manifest.name).Set("records", given).Set("left_out", all - given);
    json.Set("bytes", bytes->size());
    Print(json.Dump() + "\n");
  } else {
    Print(fmt::format("{}: {} of {} kernels, {}; hone bundle show {} lists what everybody will know\n", path, given,
                      all, BytesText(static_cast<double>(bytes->size())), path));
  }
  return kDone;
}

}  // namespace

Result<Exclusions> Exclusions::Read(const std::vector<std::string>& words) {
  Exclusions exclusions;
  for (const std::string& word : words) {
    if (IsBeginning(word)) {
      exclusions.beginnings_.push_back(word);
      continue;
    }
    for (const NamedKernel& named : HONE_TRY(ReadKernels(word))) {
      Result<Kernel> kernel = ParseKernel(named.text);
      if (!kernel) return AtPlace(kernel.error(), named);
      kernel->options.threads = 0;
      exclusions.kernels_.push_back(Canonicalize(*kernel).text);
      if (!IsStatic(*kernel))
        exclusions.ranges_.push_back({ClassFingerprintOf(AtLeastSizes(*kernel)), exclusions.kernels_.back()});
    }
  }
  return exclusions;
}

bool Exclusions::Has(const Record& record) const {
  if (std::ranges::any_of(beginnings_, [&](const std::string& word) { return BeginsWith(record, word); })) return true;
  if (std::ranges::find(kernels_, WithThreads(record.key.canonical, 0)) != kernels_.end()) return true;
  const Result<Kernel> kernel = ParseKernel(ranges_.empty() ? "" : record.key.canonical);
  if (!kernel) return false;
  const Canonical at_least = AtLeastSizes(*kernel);
  const Fingerprint class_fingerprint = ClassFingerprintOf(at_least);
  return std::ranges::any_of(ranges_, [&](const Range& range) {
    return range.class_fingerprint == class_fingerprint && InstanceSizes(at_least.text, range.kernel);
  });
}

std::vector<std::string> Exclusions::WithoutEffect(const std::vector<BundleEntry>& entries) const {
  std::vector<std::string> words;
  for (const std::string& word : beginnings_)
    if (std::ranges::none_of(entries, [&](const BundleEntry& entry) { return BeginsWith(entry.record, word); }))
      words.push_back(word);
  return words;
}

std::vector<BundleEntry> ForEverybody(std::vector<BundleEntry> entries, const Exclusions& exclusions) {
  // Others' are theirs to give; a default or a guess anybody's hone makes by itself.
  std::erase_if(entries, [&](const BundleEntry& entry) {
    const Record& record = entry.record;
    return record.origin != Origin::kTuned || !record.measured || exclusions.Has(record);
  });
  for (BundleEntry& entry : entries) {
    Record& record = entry.record;
    record.request = record.key.canonical;
    if (!IsOurName(record.label)) record.label = "kernel";
    record.artifact_digest.reset();
    record.artifact_bytes = 0;
    record.donor.reset();
    record.created = record.updated = ToTheDay(record.updated);
    entry.calls = 0;
  }
  return entries;
}

Command ContributeCommand() {
  return {
      .name = "contribute",
      .summary = "write what was tuned here, without what is yours, for a pool of many",
      .details =
          R"(Writes a bundle of the schedules that were tuned on this machine and how fast they were: nothing that names you,
your files, your machine but for its processor, or how often and when but for the day. Kernels appear in canonical form: what
they compute, and their sizes. --without keeps some to yourself. Nothing is sent anywhere; look at the file with `hone bundle
show`, then give it to whom you like. Whoever imports it compiles and checks every schedule on his own machine.

Examples:
  hone contribute -o mine.bundle
  hone contribute -o mine.bundle conv2d --without secret.onnx --without 'matmul(M=77,N=77,K=77)' --without softmax
  hone import pool/*.bundle)",
      .positionals = {{"SELECTION", "classes' or fingerprints' beginnings (default: all)", false, true}},
      .options = {{"--out", "FILE", "the file to write, or - for standard output", "-o"},
                  {"--without", "WHAT",
                   "a kernel, all those of a list or model, or a class's or fingerprint's beginning; may be repeated",
                   "", true}},
      .run = RunContribute};
}

}  // namespace hone::cli
