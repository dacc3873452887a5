#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "cache/bundle/bundle.h"
#include "cache/keys.h"

namespace hone {
namespace {

// Collects the frames behind the manifest.
class Frames {
 public:
  void Add(FrameKind kind, std::string_view bytes, const Digest256& content = {}) {
    Packed packed = Pack(bytes);
    BundleFrame row;
    row.kind = kind;
    row.packing = packed.packing;
    row.stored = packed.stored.size();
    row.unpacked = bytes.size();
    row.digest = Hash256(packed.stored);
    row.content = content;
    rows_.push_back(row);
    bytes_ += packed.stored;
  }
  std::vector<BundleFrame> TakeRows() { return std::move(rows_); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::vector<BundleFrame> rows_;
  std::string bytes_;
};

void AddRecords(const std::vector<std::pair<std::string, const BundleEntry*>>& entries, Frames& frames) {
  std::string frame;
  for (const auto& [_, entry] : entries) {
    const std::string encoded = EncodeEntry(*entry);
    if (!frame.empty() && frame.size() + encoded.size() > BundleLimits::kFilled)
      frames.Add(FrameKind::kRecords, std::exchange(frame, {}));
    frame += encoded;
  }
  if (!frame.empty()) frames.Add(FrameKind::kRecords, frame);
}

}  // namespace

Result<std::string> WriteBundle(BundleManifest manifest, std::vector<BundleEntry> entries,
                                const ArtifactSource& artifact, const std::optional<SigningSeed>& seed) {
  HONE_CHECK(IsBundleName(manifest.name));
  std::vector<std::pair<std::string, const BundleEntry*>> ordered;
  std::set<std::string> targets;
  std::set<Digest256> digests;
  for (BundleEntry& entry : entries) {
    entry.record.mark.reset();
    entry.record.pinned = false;
    if (!entry.record.artifact_digest) entry.record.artifact_bytes = 0;
    ordered.emplace_back(RecordKey(entry.record.key), &entry);
    targets.insert(entry.record.key.target);
    if (entry.record.artifact_digest) digests.insert(*entry.record.artifact_digest);
  }
  std::sort(ordered.begin(), ordered.end());
  for (size_t i = 1; i < ordered.size(); ++i)
    if (ordered[i].first == ordered[i - 1].first)
      return Error{ErrorKind::kInvalid, "two records of one kernel, target and number of threads",
                   ordered[i].second->record.label};

  Frames frames;
  AddRecords(ordered, frames);
  for (const Digest256& digest : digests) {
    const std::vector<std::byte> code = HONE_TRY(artifact(digest));
    HONE_CHECK(Hash256(code) == digest);
    frames.Add(FrameKind::kArtifact, AsText(code), digest);
  }
  manifest.targets.assign(targets.begin(), targets.end());
  manifest.records = entries.size();
  manifest.frames = frames.TakeRows();

  const std::string described = EncodeBundleManifest(manifest);
  ByteWriter out;
  out.Raw("hone.bdl");
  out.U16(kBundleVersion);
  out.U16(seed ? 1 : 0);
  out.U32(static_cast<uint32_t>(described.size()));
  out.U64(frames.bytes().size());
  out.Raw(std::span<const uint8_t>(HeadCheck(out.view(), described)));
  out.Raw(described);
  out.Raw(frames.bytes());
  const uint64_t bytes = out.size() + (seed ? kBundleSignatureBytes : 0);
  if (described.size() > BundleLimits::kManifest || bytes > BundleLimits::kBytes ||
      entries.size() > BundleLimits::kFrames)
    return Error{ErrorKind::kLimit,
                 fmt::format("the bundle would have {} bytes, {} are the limit; export a selection, or --max-size",
                             bytes, BundleLimits::kBytes),
                 ""};
  if (seed) {
    const Signature signature = Sign(*seed, SignedText(Hash256(out.view())));
    out.Raw(std::span<const uint8_t>(PublicKeyOf(*seed)));
    out.Raw(std::span<const uint8_t>(signature));
  }
  return out.Take();
}

}  // namespace hone
