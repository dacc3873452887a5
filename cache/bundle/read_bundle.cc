#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/bytes.h"
#include "base/check.h"
#include "base/envelope.h"
#include "base/file.h"
#include "base/unique_fd.h"
#include "cache/bundle/bundle.h"
#include "cache/keys.h"

namespace hone {
namespace {

constexpr std::string_view kMagic = "hone.bdl";
constexpr uint16_t kSigned = 1;
constexpr size_t kTextLimit = 1 << 20;                          // a class's text
constexpr size_t kRecordLimit = (size_t{3} << 20) + (1 << 17);  // a stored record: three such texts, and the rest

struct Head {
  bool is_signed = false;
  uint64_t manifest_bytes = 0, frame_bytes = 0;
  Digest64 check{};

  uint64_t bundle_bytes() const {
    return kBundleHeadBytes + manifest_bytes + frame_bytes + (is_signed ? kBundleSignatureBytes : 0);
  }
};

Error Damaged(std::string what) { return {ErrorKind::kCorrupt, std::move(what), ""}; }

// Of the bundle's first bytes.
Result<Head> DecodeHead(std::string_view bytes) {
  const size_t known = std::min(bytes.size(), kMagic.size());
  if (bytes.substr(0, known) != kMagic.substr(0, known))
    return Damaged("this is no bundle: it does not begin like one");
  if (bytes.size() < kBundleHeadBytes)
    return Damaged(fmt::format("the bundle is cut: {} bytes of its head's {}", bytes.size(), kBundleHeadBytes));
  ByteReader in(bytes.substr(kMagic.size(), kBundleHeadBytes - kMagic.size()));
  const uint16_t version = HONE_TRY(in.U16()), flags = HONE_TRY(in.U16());
  if (version > kBundleVersion || (flags & ~kSigned) != 0)
    return Error{
        ErrorKind::kUnsupported,
        fmt::format("a newer hone wrote this bundle (format {}, flags {:#x}; this hone reads format {}): update "
                    "hone",
                    version, flags, kBundleVersion),
        ""};
  if (version == 0) return Damaged("the bundle's head has no version");
  Head head{(flags & kSigned) != 0, HONE_TRY(in.U32()), HONE_TRY(in.U64()), HONE_TRY(in.Array<8>())};
  if (head.manifest_bytes > BundleLimits::kManifest || head.frame_bytes > BundleLimits::kBytes)
    return Error{ErrorKind::kLimit,
                 fmt::format("the bundle's head says {} and {} bytes, hone takes at most {} and {}",
                             head.manifest_bytes, head.frame_bytes, BundleLimits::kManifest, BundleLimits::kBytes),
                 ""};
  return head;
}

Result<Head> ReadHead(std::string_view bytes) {
  const Head head = HONE_TRY(DecodeHead(bytes));
  const uint64_t wanted = head.bundle_bytes();
  if (bytes.size() < wanted)
    return Damaged(fmt::format("the bundle is cut: {} of its {} bytes are there", bytes.size(), wanted));
  if (bytes.size() > wanted)
    return Damaged(fmt::format("{} bytes follow the bundle's {}", bytes.size() - wanted, wanted));
  return head;
}

// A file's next bytes, as many as there are.
Result<std::string> ReadUpTo(int file, size_t most) {
  std::string bytes(most, '\0');
  size_t have = 0;
  for (ssize_t got = 1; got != 0 && have < most; have += static_cast<size_t>(std::max<ssize_t>(got, 0))) {
    got = ::read(file, bytes.data() + have, most - have);
    if (got < 0 && errno != EINTR) return ErrnoError(errno, "cannot read");
  }
  bytes.resize(have);
  return bytes;
}

Result<PublicKey> CheckSignature(std::string_view signature, const Digest256& digest) {
  ByteReader in(signature);
  const PublicKey key = HONE_TRY(in.Array<32>());
  const Signature made = HONE_TRY(in.Array<64>());
  if (IsSignedBy(key, made, SignedText(digest))) return key;
  return Error{
      ErrorKind::kInvalid,
      "the bundle's signature is not that of its bytes: it was damaged or changed after it was signed, or signed "
      "by another key than it says",
      ""};
}

Result<BundleEntry> ReadEntry(ByteReader& in) {
  BundleEntry entry;
  const std::string_view value = HONE_TRY(in.String(kRecordLimit));
  entry.record = HONE_TRY(DecodeRecord(value));
  const uint8_t version = SealedVersion(value);
  const bool is_plain = version == 1 || (version == kRecordVersion && !entry.record.mark && !entry.record.source);
  if (!is_plain || entry.record.pinned) return Damaged("a record of the bundle has what only a cache's has");
  entry.class_text = HONE_TRY(in.String(kTextLimit));
  entry.calls = HONE_TRY(in.Varint());
  return entry;
}

}  // namespace

Result<std::string> ReadBundleFile(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return ErrnoError(errno, "cannot open", path);
  auto read = [&]() -> Result<std::string> {
    std::string bytes = HONE_TRY(ReadUpTo(file.get(), kBundleHeadBytes));
    const uint64_t wanted = HONE_TRY(DecodeHead(bytes)).bundle_bytes();
    Result<std::string> rest = ReadAll(file.get(), wanted - kBundleHeadBytes);
    if (!rest && rest.error().kind == ErrorKind::kLimit)
      return Damaged(fmt::format("more bytes follow the bundle's {}", wanted));
    bytes += HONE_TRY(std::move(rest));
    return bytes;
  };
  Result<std::string> bytes = read();
  if (!bytes) bytes.error().where = path;
  return bytes;
}

Result<Bundle> Bundle::Open(std::span<const std::byte> bytes) {
  const std::string_view text = AsText(bytes);
  const Head head = HONE_TRY(ReadHead(text));
  Bundle bundle(bytes);
  const uint64_t frames = kBundleHeadBytes + head.manifest_bytes, end = frames + head.frame_bytes;
  bundle.digest_ = Hash256(text.substr(0, end));
  if (head.is_signed) bundle.signer_ = HONE_TRY(CheckSignature(text.substr(end), bundle.digest_));
  const std::string_view manifest = text.substr(kBundleHeadBytes, head.manifest_bytes);
  if (HeadCheck(text.substr(0, kBundleHeadBytes - head.check.size()), manifest) != head.check)
    return Damaged("the bundle's head or manifest is damaged: its checksum is another");
  bundle.manifest_ = HONE_TRY(DecodeBundleManifest(manifest, frames, head.frame_bytes));
  return bundle;
}

std::string_view Bundle::Stored(const BundleFrame& frame) const {
  return AsText(bytes_).substr(frame.offset, frame.stored);
}

const BundleFrame* Bundle::FindArtifact(const Digest256& content) const {
  const auto& frames = manifest_.frames;
  const BundleFrame wanted{.kind = FrameKind::kArtifact, .content = content};
  auto before = [](const BundleFrame& a, const BundleFrame& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.kind == FrameKind::kArtifact && a.content < b.content;
  };
  auto found = std::lower_bound(frames.begin(), frames.end(), wanted, before);
  if (found == frames.end() || found->kind != FrameKind::kArtifact || found->content != content) return nullptr;
  return &*found;
}

Result<void> Bundle::CheckFrames() const {
  for (size_t i = 0; i < manifest_.frames.size(); ++i)
    if (Hash256(Stored(manifest_.frames[i])) != manifest_.frames[i].digest)
      return Damaged(fmt::format("part {} of the bundle's {} is damaged: its digest is not the manifest's", i + 1,
                                 manifest_.frames.size()));
  return {};
}

Result<void> Bundle::ForEachEntry(const std::function<Result<void>(BundleEntry&&)>& visit) const {
  return ForEachPlacedEntry([&](BundleEntry&& entry, EntryPlace) { return visit(std::move(entry)); });
}

Result<void> Bundle::ForEachPlacedEntry(const std::function<Result<void>(BundleEntry&&, EntryPlace)>& visit) const {
  uint64_t records = 0;
  std::string last_key;
  std::set<Digest256> named;
  for (const BundleFrame& frame : manifest_.frames) {
    if (frame.kind != FrameKind::kRecords) continue;
    const std::string unpacked = HONE_TRY(Unpack(frame.packing, Stored(frame), frame.unpacked));
    for (ByteReader in(unpacked); in.left() > 0;) {
      const EntryPlace place{static_cast<uint32_t>(&frame - manifest_.frames.data()),
                             static_cast<uint32_t>(unpacked.size() - in.left())};
      BundleEntry entry = HONE_TRY(ReadEntry(in));
      std::string key = RecordKey(entry.record.key);
      if (records > 0 && key <= last_key)
        return Damaged(fmt::format("record {} of the bundle ({}) is there twice, or out of order", records + 1,
                                   entry.record.key.fingerprint.Hex()));
      last_key = std::move(key);
      if (++records > manifest_.records) break;
      if (const std::optional<Digest256>& digest = entry.record.artifact_digest) {
        const BundleFrame* code = FindArtifact(*digest);
        if (code == nullptr || code->unpacked != entry.record.artifact_bytes)
          return Damaged(
              fmt::format("record {} names code that is not in the bundle", entry.record.key.fingerprint.Hex()));
        named.insert(*digest);
      }
      // Bundles of before version 4 of records say a CPU's target without its kind.
      const std::string& target = entry.record.key.target;
      if (!std::ranges::binary_search(manifest_.targets, target) &&
          !std::ranges::binary_search(manifest_.targets, std::string(HashedTarget(target))))
        return Damaged("a record's target is not among those that the manifest says");
      HONE_TRY(visit(std::move(entry), place));
    }
  }
  if (records != manifest_.records)
    return Damaged(fmt::format("the manifest says {} records, the bundle has {}", manifest_.records,
                               records > manifest_.records ? "more" : std::to_string(records)));
  const auto codes = std::ranges::count(manifest_.frames, FrameKind::kArtifact, &BundleFrame::kind);
  if (static_cast<size_t>(codes) != named.size()) return Damaged("the bundle has code that no record names");
  return {};
}

Result<BundleEntry> Bundle::EntryAt(const EntryPlace& place) const {
  HONE_CHECK(place.frame < manifest_.frames.size());
  const BundleFrame& frame = manifest_.frames[place.frame];
  const std::string unpacked = HONE_TRY(Unpack(frame.packing, Stored(frame), frame.unpacked));
  if (place.offset >= unpacked.size()) return Damaged("a record of the bundle is not where it was");
  ByteReader in(std::string_view(unpacked).substr(place.offset));
  return ReadEntry(in);
}

Result<std::vector<std::byte>> Bundle::Artifact(const Digest256& content) const {
  const BundleFrame* frame = FindArtifact(content);
  if (frame == nullptr) return Error{ErrorKind::kNotFound, "no such code in the bundle", HexOf(content)};
  const std::string unpacked = HONE_TRY(Unpack(frame->packing, Stored(*frame), frame->unpacked));
  if (Hash256(unpacked) != content)
    return Damaged("code in the bundle is not what the manifest says: its digest is another");
  const std::span<const std::byte> bytes = AsBytes(unpacked);
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

}  // namespace hone
