// A bundle's bytes: what is written is read; what is cut, changed or a lie is refused, whether it is signed or not.
#include "cache/bundle/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/envelope.h"
#include "base/file.h"
#include "base/rng.h"
#include "tests/support/sample_bundles.h"
#include "tests/support/temporary_directory.h"

namespace hone::bundle_test {
namespace {

using ::testing::HasSubstr;

const std::optional<SigningSeed> kNobody;

ErrorKind KindOf(std::string_view bytes) {
  Result<std::vector<BundleEntry>> read = ReadAllOf(bytes);
  EXPECT_FALSE(read.has_value());
  if (!read) { EXPECT_FALSE(read.error().message.empty()); }
  return read ? ErrorKind::kInternal : read.error().kind;
}

std::string MessageOf(std::string_view bytes) {
  Result<std::vector<BundleEntry>> read = ReadAllOf(bytes);
  return read ? "" : read.error().message;
}

// A bundle of these frames behind a head and a manifest that fit: what somebody writes who wants to lie about the rest.
std::string Forge(BundleManifest manifest, const std::vector<std::string>& frames) {
  std::string bytes;
  for (const std::string& frame : frames) bytes += frame;
  const std::string described = EncodeBundleManifest(manifest);
  ByteWriter out;
  out.Raw("hone.bdl");
  out.U16(1);
  out.U16(0);
  out.U32(static_cast<uint32_t>(described.size()));
  out.U64(bytes.size());
  out.Raw(std::span<const uint8_t>(HeadCheck(out.view(), described)));
  out.Raw(described);
  out.Raw(bytes);
  return out.Take();
}

BundleFrame FrameOf(FrameKind kind, const std::string& stored, uint64_t unpacked, Packing packing) {
  BundleFrame frame;
  frame.kind = kind;
  frame.packing = packing;
  frame.stored = stored.size();
  frame.unpacked = unpacked;
  frame.digest = Hash256(stored);
  return frame;
}

// One frame of records, as they are.
std::string ForgeRecords(const std::vector<BundleEntry>& entries, uint64_t said) {
  std::string frame;
  for (const BundleEntry& entry : entries) frame += EncodeEntry(entry);
  BundleManifest manifest = SampleBundle(0).manifest;
  manifest.targets = {kSampleTarget};
  manifest.records = said;
  manifest.frames = {FrameOf(FrameKind::kRecords, frame, frame.size(), Packing::kNone)};
  return Forge(manifest, {frame});
}

TEST(Bundle, WhatIsWrittenIsRead) {
  for (const std::optional<SigningSeed>& seed : {kNobody, std::optional(kSampleSeed)}) {
    const BundleSample sample = SampleBundle(300);
    const std::string bytes = *sample.Write(seed);
    Result<Bundle> bundle = Bundle::Open(AsBytes(bytes));
    ASSERT_TRUE(bundle.has_value()) << bundle.error().Text();
    EXPECT_EQ(bundle->manifest().name, "sample");
    EXPECT_EQ(bundle->manifest().version, 3u);
    EXPECT_EQ(bundle->manifest().by, "nobody, on paper");
    EXPECT_EQ(bundle->manifest().targets, std::vector<std::string>{kSampleTarget});
    EXPECT_EQ(bundle->manifest().records, 300u);
    EXPECT_EQ(bundle->signer().has_value(), seed.has_value());
    if (seed) { EXPECT_EQ(*bundle->signer(), PublicKeyOf(*seed)); }
    std::map<std::string, const BundleEntry*> wanted;
    for (const BundleEntry& entry : sample.entries) wanted[entry.record.key.canonical] = &entry;
    Result<std::vector<BundleEntry>> read = ReadAllOf(bytes);
    ASSERT_TRUE(read.has_value()) << read.error().Text();
    ASSERT_EQ(read->size(), 300u);
    for (const BundleEntry& entry : *read) {
      const BundleEntry& same = *wanted.at(entry.record.key.canonical);
      EXPECT_EQ(entry.record, same.record);
      EXPECT_EQ(entry.class_text, same.class_text);
      EXPECT_EQ(entry.calls, same.calls);
      if (entry.record.artifact_digest) {
        EXPECT_EQ(*bundle->Artifact(*entry.record.artifact_digest), sample.code.at(*entry.record.artifact_digest));
      }
    }
    EXPECT_EQ(bundle->Artifact(Hash256("nothing")).error().kind, ErrorKind::kNotFound);
  }
}

TEST(Bundle, EqualContentIsEqualBytesInWhateverOrderItComes) {
  BundleSample sample = SampleBundle(50), other = sample;
  std::reverse(other.entries.begin(), other.entries.end());
  other.entries[0].record.pinned = true;  // the cache's own affair
  EXPECT_EQ(*sample.Write(kSampleSeed), *other.Write(kSampleSeed));
  other.entries[0].calls += 1;
  EXPECT_NE(*sample.Write(kSampleSeed), *other.Write(kSampleSeed));
}

// tests/bundle_reader.py was written from the document alone.
TEST(Bundle, AReaderThatKnowsTheDocumentAloneReadsIt) {
  TemporaryDirectory directory;
  const std::string path = directory / "sample.bundle", command = "python3 " HONE_SOURCE_DIR "/tests/bundle_reader.py ";
  for (const std::optional<SigningSeed>& seed : {kNobody, std::optional(kSampleSeed)}) {
    std::string bytes = *SampleBundle(20).Write(seed);
    ASSERT_TRUE(WriteFileAtomically(path, bytes).has_value());
    EXPECT_EQ(system((command + path + " | grep -c '\"class\\|\"kernel\"' | grep -qx 20").c_str()), 0);
    bytes[bytes.size() / 2] ^= 4;
    ASSERT_TRUE(WriteFileAtomically(path, bytes).has_value());
    EXPECT_NE(system((command + path + " > /dev/null 2>&1").c_str()), 0);
  }
}

TEST(Bundle, AnEmptyOneIsSound) { EXPECT_TRUE(ReadAllOf(*SampleBundle(0).Write(kNobody))->empty()); }

TEST(Bundle, EveryCutIsRefused) {
  for (const std::optional<SigningSeed>& seed : {kNobody, std::optional(kSampleSeed)}) {
    const std::string bytes = *SampleBundle(40).Write(seed);
    ASSERT_GT(bytes.size(), 40'000u);
    auto cut = [&](size_t size) {
      SCOPED_TRACE(size);
      EXPECT_EQ(KindOf(bytes.substr(0, size)), ErrorKind::kCorrupt);
    };
    for (size_t size = 0; size <= kBundleHeadBytes; ++size) cut(size);
    for (size_t size = 4096; size < bytes.size(); size += 4096) cut(size);
    for (size_t size = bytes.size() - kBundleSignatureBytes - 1; size < bytes.size(); ++size) cut(size);
    EXPECT_EQ(KindOf(bytes + "x"), ErrorKind::kCorrupt);
    EXPECT_NE(MessageOf(bytes.substr(0, 5000)).find("cut: 5000 of its"), std::string::npos);
  }
}

TEST(Bundle, OfAFileNoMoreIsReadThanItsHeadSays) {
  TemporaryDirectory folder;
  const std::string path = folder.path() + "/a.bundle", whole = *SampleBundle(3).Write(kNobody);
  auto read = [&](const std::string& bytes) {
    EXPECT_TRUE(WriteFileAtomically(path, bytes));
    return ReadBundleFile(path);
  };
  EXPECT_EQ(*read(whole), whole);
  EXPECT_EQ(*read(whole.substr(0, whole.size() - 1)), whole.substr(0, whole.size() - 1));  // Open says what is missing
  EXPECT_THAT(read(whole + "x").error().Text(), HasSubstr("more bytes follow the bundle's"));
  EXPECT_THAT(read("").error().Text(), HasSubstr("the bundle is cut: 0 bytes of its head's 32"));
  for (const char* endless : {"/dev/zero", "/dev/urandom"}) {
    Result<std::string> bytes = ReadBundleFile(endless);
    ASSERT_FALSE(bytes);
    EXPECT_EQ(bytes.error().where, endless);
    EXPECT_THAT(bytes.error().message, HasSubstr("no bundle"));
  }
  EXPECT_EQ(ReadBundleFile(folder.path()).error().kind, ErrorKind::kIo);
  EXPECT_EQ(ReadBundleFile(folder.path() + "/none").error().kind, ErrorKind::kNotFound);
}

TEST(Bundle, EveryFlippedBitIsRefused) {
  for (const std::optional<SigningSeed>& seed : {kNobody, std::optional(kSampleSeed)}) {
    const std::string bytes = *SampleBundle(12).Write(seed);
    const BundleManifest manifest = Bundle::Open(AsBytes(bytes))->manifest();
    Rng rng(21);
    auto flip = [&](size_t begin, size_t size, int times) {
      for (int i = 0; i < times; ++i) {
        std::string damaged = bytes;
        const size_t at = begin + rng.Below(size);
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << rng.Below(8)));
        SCOPED_TRACE(at);
        EXPECT_FALSE(ReadAllOf(damaged).has_value());
      }
    };
    for (size_t at = 0; at < kBundleHeadBytes; ++at) flip(at, 1, 8);
    flip(kBundleHeadBytes, manifest.frames[0].offset - kBundleHeadBytes, 200);
    for (const BundleFrame& frame : manifest.frames) flip(frame.offset, frame.stored, 20);
    if (seed) flip(bytes.size() - kBundleSignatureBytes, kBundleSignatureBytes, 200);
  }
}

TEST(Bundle, NothingIsDecodedBeforeTheSignatureFits) {
  std::string bytes = *SampleBundle(4).Write(kSampleSeed);
  bytes[kBundleHeadBytes + 1] ^= 1;  // the manifest's name, and its checksum with it
  const uint32_t manifest_bytes = static_cast<uint32_t>(
      Bundle::Open(AsBytes(*SampleBundle(4).Write(kSampleSeed)))->manifest().frames[0].offset - kBundleHeadBytes);
  const Digest64 check = HeadCheck(bytes.substr(0, 24), bytes.substr(kBundleHeadBytes, manifest_bytes));
  bytes.replace(24, 8, reinterpret_cast<const char*>(check.data()), 8);
  EXPECT_EQ(KindOf(bytes), ErrorKind::kInvalid);
  EXPECT_NE(MessageOf(bytes).find("signature"), std::string::npos);
}

TEST(Bundle, PartsOfTwoAreRefused) {
  const std::string one = *SampleBundle(12).Write(kSampleSeed), two = *SampleBundle(12, 1).Write(kSampleSeed);
  const Bundle first = *Bundle::Open(AsBytes(one)), second = *Bundle::Open(AsBytes(two));
  for (size_t i = 0; i < first.manifest().frames.size(); ++i) {
    const BundleFrame& a = first.manifest().frames[i];
    const BundleFrame& b = second.manifest().frames[i];
    if (a.digest == b.digest || a.stored != b.stored) continue;
    std::string mixed = one;
    mixed.replace(a.offset, a.stored, two, b.offset, b.stored);
    EXPECT_EQ(KindOf(mixed), ErrorKind::kInvalid);
  }
  std::string mixed =
      one.substr(0, one.size() - kBundleSignatureBytes) + two.substr(two.size() - kBundleSignatureBytes);
  EXPECT_EQ(KindOf(mixed), ErrorKind::kInvalid);
}

TEST(Bundle, OneOfALaterHoneIsSaidToBe) {
  std::string bytes = *SampleBundle(4).Write(kSampleSeed);
  bytes[8] = 2;
  EXPECT_EQ(KindOf(bytes), ErrorKind::kUnsupported);
  EXPECT_NE(MessageOf(bytes).find("newer hone"), std::string::npos);
  bytes[8] = 1;
  bytes[10] = 3;  // a flag that nobody has today
  EXPECT_EQ(KindOf(bytes), ErrorKind::kUnsupported);
}

TEST(Bundle, PartsOfALaterHoneArePassedOver) {
  const std::string frame = EncodeEntry(SampleBundle(2).entries[1]), unknown = "what is this";
  BundleManifest manifest = SampleBundle(0).manifest;
  manifest.targets = {kSampleTarget};
  manifest.records = 1;
  manifest.frames = {FrameOf(FrameKind::kRecords, frame, frame.size(), Packing::kNone),
                     FrameOf(static_cast<FrameKind>(77), unknown, unknown.size(), Packing::kNone)};
  EXPECT_EQ(ReadAllOf(Forge(manifest, {frame, unknown}))->size(), 1u);
}

TEST(Bundle, ABombIsRefusedBeforeItIsUnpacked) {
  const std::string zeros(size_t{8} << 20, '\0');
  Packed packed = Pack(zeros);
  EXPECT_EQ(packed.packing, Packing::kNone);  // what we write never looks like one
  // A zstd frame of a single byte that is repeated: 64 MiB of zeros in some kilobytes.
  std::string bomb("\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x04", 9);
  for (int block = 0; block < 512; ++block) {
    const uint32_t head = (uint32_t{128 << 10} << 3) | (1 << 1) | (block == 511);
    bomb.append({static_cast<char>(head), static_cast<char>(head >> 8), static_cast<char>(head >> 16), '\0'});
  }
  BundleManifest manifest = SampleBundle(0).manifest;
  manifest.records = 1;
  manifest.frames = {FrameOf(FrameKind::kRecords, bomb, uint64_t{64} << 20, Packing::kZstd)};
  EXPECT_EQ(KindOf(Forge(manifest, {bomb})), ErrorKind::kLimit);
  // One that says less than comes out.
  manifest.frames[0].unpacked = 1000;
  EXPECT_EQ(KindOf(Forge(manifest, {bomb})), ErrorKind::kCorrupt);
  // And one that is larger than anything sound.
  manifest.frames[0].unpacked = uint64_t{1} << 40;
  EXPECT_EQ(KindOf(Forge(manifest, {bomb})), ErrorKind::kLimit);
}

TEST(Bundle, AManifestThatLiesAboutSizesIsRefused) {
  const std::string bytes = *SampleBundle(4).Write(kNobody);
  const Bundle bundle = *Bundle::Open(AsBytes(bytes));
  std::vector<std::string> frames;
  for (const BundleFrame& frame : bundle.manifest().frames) frames.push_back(bytes.substr(frame.offset, frame.stored));
  ASSERT_EQ(ReadAllOf(Forge(bundle.manifest(), frames))->size(), 4u);
  for (size_t i = 0; i < frames.size(); ++i) {
    SCOPED_TRACE(i);
    for (int64_t by : {-1, 1}) {
      BundleManifest lie = bundle.manifest();
      lie.frames[i].unpacked = static_cast<uint64_t>(static_cast<int64_t>(lie.frames[i].unpacked) + by);
      EXPECT_EQ(KindOf(Forge(lie, frames)), ErrorKind::kCorrupt);
      lie = bundle.manifest();
      lie.frames[i].stored = static_cast<uint64_t>(static_cast<int64_t>(lie.frames[i].stored) + by);
      EXPECT_EQ(KindOf(Forge(lie, frames)), ErrorKind::kCorrupt);
    }
    BundleManifest lie = bundle.manifest();
    lie.frames[i].stored = ~uint64_t{0};
    EXPECT_FALSE(ReadAllOf(Forge(lie, frames)).has_value());
  }
  for (uint64_t records : {0, 3, 5}) {
    BundleManifest lie = bundle.manifest();
    lie.records = records;
    EXPECT_EQ(KindOf(Forge(lie, frames)), ErrorKind::kCorrupt);
  }
  BundleManifest lie = bundle.manifest();
  lie.targets = {"another"};
  EXPECT_EQ(KindOf(Forge(lie, frames)), ErrorKind::kCorrupt);
}

TEST(Bundle, DuplicateKeysAreRefused) {
  const BundleEntry entry = SampleBundle(2).entries[1];
  EXPECT_EQ(ReadAllOf(ForgeRecords({entry}, 1))->size(), 1u);
  EXPECT_EQ(KindOf(ForgeRecords({entry, entry}, 2)), ErrorKind::kCorrupt);
  BundleSample twice = SampleBundle(2);
  twice.entries.push_back(twice.entries[1]);
  EXPECT_EQ(twice.Write(kNobody).error().kind, ErrorKind::kInvalid);
  // Code that is there twice.
  const std::string bytes = *SampleBundle(1).Write(kNobody);
  BundleManifest manifest = Bundle::Open(AsBytes(bytes))->manifest();
  std::vector<std::string> frames;
  for (const BundleFrame& frame : manifest.frames) frames.push_back(bytes.substr(frame.offset, frame.stored));
  frames.push_back(frames.back());
  manifest.frames.push_back(manifest.frames.back());
  EXPECT_EQ(KindOf(Forge(manifest, frames)), ErrorKind::kCorrupt);
}

TEST(Bundle, CodeAndItsRecordsBelongTogether) {
  const std::string bytes = *SampleBundle(1).Write(kNobody);
  const BundleManifest sound = Bundle::Open(AsBytes(bytes))->manifest();
  const std::string records = bytes.substr(sound.frames[0].offset, sound.frames[0].stored);
  const std::string code = bytes.substr(sound.frames[1].offset, sound.frames[1].stored);
  BundleManifest without = sound;
  without.frames.pop_back();
  EXPECT_NE(MessageOf(Forge(without, {records})).find("not in the bundle"), std::string::npos);
  // Other code under the digest that the record names.
  BundleManifest other = sound;
  const std::string planted(3000, 'x');
  other.frames[1] = FrameOf(FrameKind::kArtifact, planted, planted.size(), Packing::kNone);
  other.frames[1].content = sound.frames[1].content;
  EXPECT_NE(MessageOf(Forge(other, {records, planted})).find("its digest is another"), std::string::npos);
  // Code for nobody.
  BundleManifest more = sound;
  more.frames.push_back(FrameOf(FrameKind::kArtifact, code, sound.frames[1].unpacked, sound.frames[1].packing));
  more.frames.back().content = Hash256("nobody's");
  std::sort(more.frames.begin() + 1, more.frames.end(), [](auto& a, auto& b) { return a.content < b.content; });
  EXPECT_NE(MessageOf(Forge(more, {records, code, code})).find("no record names"), std::string::npos);
}

TEST(Bundle, AMarkOrAPinOfSomebodysCacheIsRefused) {
  BundleEntry marked = SampleBundle(2).entries[1];
  Mark(marked.record, Hash256("somebody's key"));
  EXPECT_EQ(KindOf(ForgeRecords({marked}, 1)), ErrorKind::kCorrupt);
  BundleEntry pinned = SampleBundle(2).entries[1];
  pinned.record.pinned = true;
  EXPECT_EQ(KindOf(ForgeRecords({pinned}, 1)), ErrorKind::kCorrupt);
}

TEST(Bundle, PathTricksInNamesAreRefused) {
  for (const char* name : {"", "..", "../x", "a/b", ".hidden", "a b", "a\n", "caf\xc3\xa9", "-\x1b[31m"}) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(IsBundleName(name));
    BundleManifest manifest = SampleBundle(0).manifest;
    manifest.name = name;
    EXPECT_EQ(KindOf(Forge(manifest, {})), ErrorKind::kCorrupt);
  }
  EXPECT_TRUE(IsBundleName(std::string(64, 'a')));
  EXPECT_FALSE(IsBundleName(std::string(65, 'a')));
  for (const char* name : {"a", "resnet18", "conv2d+bias", "v1.2_x-y"}) EXPECT_TRUE(IsBundleName(name));
  BundleManifest manifest = SampleBundle(0).manifest;
  manifest.by = "\x1b]0;owned\a";
  EXPECT_EQ(KindOf(Forge(manifest, {})), ErrorKind::kCorrupt);
}

TEST(Bundle, DamagedManifestsUnderRightChecksumsNeverCrash) {
  const std::string bytes = *SampleBundle(6).Write(kNobody);
  const size_t frames = Bundle::Open(AsBytes(bytes))->manifest().frames[0].offset;
  Rng rng(5);
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = bytes;
    for (uint64_t hits = 1 + rng.Below(3); hits > 0; --hits)
      damaged[kBundleHeadBytes + rng.Below(frames - kBundleHeadBytes)] = static_cast<char>(rng.Next());
    const Digest64 check =
        HeadCheck(damaged.substr(0, 24), damaged.substr(kBundleHeadBytes, frames - kBundleHeadBytes));
    damaged.replace(24, 8, reinterpret_cast<const char*>(check.data()), 8);
    accepted += ReadAllOf(damaged).has_value();
  }
  EXPECT_LT(accepted, 1000);  // the version, the stamp, letters of texts
}

}  // namespace
}  // namespace hone::bundle_test
