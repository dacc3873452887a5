// What a bundle says of itself, and the form of its entries.
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "cache/bundle/bundle.h"

namespace hone {
namespace {

// Least bytes of a frame's row: kind, packing, two sizes, a digest.
constexpr size_t kFrameRow = 36;

Error Damaged(std::string_view what) {
  return {ErrorKind::kCorrupt, fmt::format("the bundle's manifest {}", what), ""};
}

Result<WallTime> ReadStamp(ByteReader& in) { return WallTime(std::chrono::milliseconds(HONE_TRY(in.SignedVarint()))); }

bool IsPlain(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

Result<BundleFrame> ReadFrame(ByteReader& in) {
  BundleFrame frame;
  frame.kind = static_cast<FrameKind>(HONE_TRY(in.U8()));
  frame.packing = HONE_TRY(in.Enumerator(Packing::kNone, Packing::kZstd));
  frame.stored = HONE_TRY(in.Varint());
  frame.unpacked = HONE_TRY(in.Varint());
  frame.digest = HONE_TRY(in.Array<32>());
  if (frame.kind == FrameKind::kArtifact) frame.content = HONE_TRY(in.Array<32>());
  if (frame.unpacked > BundleLimits::kFrame)
    return Error{ErrorKind::kLimit,
                 fmt::format("a part of the bundle has {} bytes when unpacked, hone takes at most {}", frame.unpacked,
                             BundleLimits::kFrame),
                 ""};
  HONE_TRY(CheckGrowth(frame.packing, frame.stored, frame.unpacked));
  return frame;
}

// Records first, then code by its digest, then the rest: one order, and nothing twice.
bool IsInOrder(const BundleFrame& before, const BundleFrame& after) {
  if (before.kind != after.kind) return before.kind < after.kind;
  return before.kind != FrameKind::kArtifact || before.content < after.content;
}

}  // namespace

bool IsBundleName(std::string_view name) {
  auto is_taken = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '+' || c == '-';
  };
  return !name.empty() && name.size() <= BundleLimits::kName && name[0] != '.' && std::ranges::all_of(name, is_taken);
}

Digest64 HeadCheck(std::string_view head, std::string_view manifest) {
  Hasher64 hasher;
  hasher.Update(head);
  hasher.Update(manifest);
  return hasher.Finish();
}

std::string SignedText(const Digest256& digest) {
  std::string text = "hone bundle signature 1\n";
  text.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  return text;
}

std::string EncodeBundleManifest(const BundleManifest& manifest) {
  ByteWriter out;
  out.String(manifest.name);
  out.Varint(manifest.version);
  out.SignedVarint(manifest.issued.time_since_epoch().count());
  out.Bool(manifest.expires.has_value());
  if (manifest.expires) out.SignedVarint(manifest.expires->time_since_epoch().count());
  out.String(manifest.producer);
  out.String(manifest.by);
  out.Varint(manifest.targets.size());
  for (const std::string& target : manifest.targets) out.String(target);
  out.Varint(manifest.records);
  out.Varint(manifest.frames.size());
  for (const BundleFrame& frame : manifest.frames) {
    out.U8(static_cast<uint8_t>(frame.kind));
    out.U8(static_cast<uint8_t>(frame.packing));
    out.Varint(frame.stored);
    out.Varint(frame.unpacked);
    out.Raw(std::span<const uint8_t>(frame.digest));
    if (frame.kind == FrameKind::kArtifact) out.Raw(std::span<const uint8_t>(frame.content));
  }
  return out.Take();
}

Result<BundleManifest> DecodeBundleManifest(std::string_view bytes, uint64_t frames_begin, uint64_t frame_bytes) {
  ByteReader in(bytes);
  BundleManifest manifest;
  manifest.name = HONE_TRY(in.String(BundleLimits::kName));
  if (!IsBundleName(manifest.name))
    return Damaged("has a name that is none: wanted letters, digits and \"._+-\", the first no dot");
  manifest.version = HONE_TRY(in.Varint());
  manifest.issued = HONE_TRY(ReadStamp(in));
  if (HONE_TRY(in.Bool())) manifest.expires = HONE_TRY(ReadStamp(in));
  manifest.producer = HONE_TRY(in.String(BundleLimits::kText));
  manifest.by = HONE_TRY(in.String(BundleLimits::kText));
  if (!IsPlain(manifest.producer) || !IsPlain(manifest.by)) return Damaged("has control characters in a text");
  manifest.targets.resize(HONE_TRY(in.Count(BundleLimits::kTargets)));
  for (size_t i = 0; i < manifest.targets.size(); ++i) {
    manifest.targets[i] = HONE_TRY(in.String(BundleLimits::kTarget));
    if (!IsPlain(manifest.targets[i])) return Damaged("has control characters in a target");
    if (i > 0 && manifest.targets[i] <= manifest.targets[i - 1]) return Damaged("has targets out of order");
  }
  manifest.records = HONE_TRY(in.Varint());
  const uint64_t frames = HONE_TRY(in.Count(BundleLimits::kFrames, kFrameRow));
  manifest.frames.reserve(frames);
  uint64_t offset = frames_begin, of_records = 0;
  for (uint64_t i = 0; i < frames; ++i) {
    BundleFrame frame = HONE_TRY(ReadFrame(in));
    frame.offset = offset;
    if (frame.stored > frames_begin + frame_bytes - offset) return Damaged("says more bytes than the file has");
    offset += frame.stored;
    if (frame.kind == FrameKind::kRecords) of_records += frame.unpacked;
    if (!manifest.frames.empty() && !IsInOrder(manifest.frames.back(), frame))
      return Damaged("has the same code twice, or parts out of order");
    manifest.frames.push_back(frame);
  }
  HONE_TRY(in.Finish());
  if (offset != frames_begin + frame_bytes) return Damaged("says fewer bytes than the file has");
  if (of_records > BundleLimits::kRecords || manifest.records > BundleLimits::kFrames)
    return Error{ErrorKind::kLimit, "the bundle has more records than hone takes at once; export it in parts", ""};
  return manifest;
}

std::string EncodeEntry(const BundleEntry& entry) {
  ByteWriter out;
  out.String(EncodeRecord(entry.record));
  out.String(entry.class_text);
  out.Varint(entry.calls);
  return out.Take();
}

}  // namespace hone
