// A bundle: records, and maybe the code that belongs to them, in one file that may be signed. Grammar:
// docs/bundle_format.md.
//
//   bundle    ::= head manifest frame* [signature]
//   head      ::= "hone.bdl" version:u16 flags:u16 manifest_bytes:u32 frame_bytes:u64 check:8
//   signature ::= key:32 ed25519:64
//
// The head says where everything lies, so that the signature can be checked before anything else is looked at.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/result.h"
#include "cache/bundle/ed25519.h"
#include "cache/bundle/pack.h"
#include "cache/record.h"

namespace hone {

inline constexpr uint16_t kBundleVersion = 1;
inline constexpr size_t kBundleHeadBytes = 32;
inline constexpr size_t kBundleSignatureBytes = 96;

struct BundleLimits {
  static constexpr uint64_t kBytes = uint64_t{1} << 30;      // of a bundle
  static constexpr uint64_t kManifest = uint64_t{64} << 20;  // bytes
  static constexpr uint64_t kFrames = uint64_t{1} << 20;     // in number, and records in all
  static constexpr uint64_t kFrame = uint64_t{64} << 20;     // unpacked bytes of one
  static constexpr uint64_t kRecords = uint64_t{512} << 20;  // unpacked bytes of all records
  static constexpr uint64_t kFilled = uint64_t{256} << 10;   // a frame of records ends when it has this many
  static constexpr size_t kName = 64, kText = 256, kTarget = 4096, kTargets = 4096;
};

// Stored: never reuse a number. Others are passed over: what a later hone adds.
enum class FrameKind : uint8_t { kRecords = 1, kArtifact = 2, kCostModel = 3 };

struct BundleFrame {
  FrameKind kind = FrameKind::kRecords;
  Packing packing = Packing::kNone;
  uint64_t stored = 0, unpacked = 0;  // bytes
  Digest256 digest{};                 // of the bytes as stored
  Digest256 content{};                // of the unpacked bytes: how records name their artifact
  uint64_t offset = 0;                // in the file; not stored
};

// What a bundle says of itself.
struct BundleManifest {
  std::string name;  // IsBundleName; bundles of one key and name follow one another
  uint64_t version = 0;
  WallTime issued{};
  std::optional<WallTime> expires;   // to be refused from then on
  std::string producer;              // "hone 0.1.0"
  std::string by;                    // who measured and where, in the issuer's words; may be ""
  std::vector<std::string> targets;  // of the records, sorted, each once
  uint64_t records = 0;
  std::vector<BundleFrame> frames;
};

struct BundleEntry {
  Record record;           // without mark and source, not pinned
  std::string class_text;  // Canonical::class_text
  uint64_t calls = 0;      // how often the kernel was asked for where this comes from
};

// Where an entry lies: by it one can be read without the others.
struct EntryPlace {
  uint32_t frame = 0;   // of the manifest's
  uint32_t offset = 0;  // in its unpacked bytes
};

// 1 to 64 letters, digits and "._+-", the first no dot: it names no path, and is shown as it is.
bool IsBundleName(std::string_view name);

// Of equal arguments equal bytes. REQUIRES: IsBundleName(manifest.name); CheckRecord of each record.
// `manifest.targets`, `records` and `frames` are made here. `artifact` gives the code of a digest that a record names;
// its error is returned. kInvalid if two records have one key; kLimit.
using ArtifactSource = std::function<Result<std::vector<std::byte>>(const Digest256& digest)>;
Result<std::string> WriteBundle(BundleManifest manifest, std::vector<BundleEntry> entries,
                                const ArtifactSource& artifact, const std::optional<SigningSeed>& seed);

// The bytes of a bundle's file, which may be anything: no more is read than the head says, and nothing where it is not
// a bundle's. Errors of Bundle::Open's about the head and the sizes, kIo, kNotFound; with the path.
Result<std::string> ReadBundleFile(const std::string& path);

// A bundle that is read. Borrows the bytes. Thread-compatible.
class Bundle {
 public:
  // Looks at the sizes, then at the signature, then at the manifest; unpacks nothing. kCorrupt: cut, damaged, or no
  // bundle; kUnsupported: a newer hone's; kInvalid: the signature is not that of these bytes; kLimit.
  static Result<Bundle> Open(std::span<const std::byte> bytes);

  const BundleManifest& manifest() const { return manifest_; }
  const std::optional<PublicKey>& signer() const { return signer_; }  // nullopt: not signed
  const Digest256& digest() const { return digest_; }                 // of all bytes before the signature
  uint64_t bytes() const { return bytes_.size(); }

  // Every frame is as the manifest says: digests, nothing unpacked. kCorrupt with the frame's number.
  Result<void> CheckFrames() const;
  // The records, in the order of their keys, until `visit` fails. kCorrupt, kLimit, or the error of `visit`. That each
  // artifact is named by a record, and each that is named is there, is known when it succeeds.
  Result<void> ForEachEntry(const std::function<Result<void>(BundleEntry&&)>& visit) const;
  Result<void> ForEachPlacedEntry(const std::function<Result<void>(BundleEntry&&, EntryPlace)>& visit) const;
  // One that ForEachPlacedEntry visited. kCorrupt.
  Result<BundleEntry> EntryAt(const EntryPlace& place) const;
  // Unpacked, its digest checked. kNotFound if there is none.
  Result<std::vector<std::byte>> Artifact(const Digest256& content) const;
  bool HasArtifact(const Digest256& content) const { return FindArtifact(content) != nullptr; }

 private:
  explicit Bundle(std::span<const std::byte> bytes) : bytes_(bytes) {}
  const BundleFrame* FindArtifact(const Digest256& content) const;
  std::string_view Stored(const BundleFrame& frame) const;

  std::span<const std::byte> bytes_;
  std::optional<PublicKey> signer_;
  Digest256 digest_{};
  BundleManifest manifest_;
};

// The head's checksum: of what comes before it, and the manifest.
Digest64 HeadCheck(std::string_view head, std::string_view manifest);
// What is signed: a prefix that no other signature of hone's has, and the digest of the bytes.
std::string SignedText(const Digest256& digest);
std::string EncodeBundleManifest(const BundleManifest& manifest);
// `frames_begin`: where the first frame lies, `frame_bytes`: how long they are together.
Result<BundleManifest> DecodeBundleManifest(std::string_view bytes, uint64_t frames_begin, uint64_t frame_bytes);
std::string EncodeEntry(const BundleEntry& entry);

}  // namespace hone
