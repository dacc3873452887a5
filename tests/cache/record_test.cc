// The byte form of records: round trips, every truncation, every flipped bit, and a stored example that must stay
// readable for ever.
#include "cache/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/bytes.h"
#include "base/envelope.h"
#include "base/rng.h"
#include "cache/keys.h"
#include "tests/support/sample_records.h"

namespace hone {
namespace {

Record FullRecord() {
  Record record = SampleRecord(3);
  record.origin = Origin::kTuned;
  record.expected = std::chrono::nanoseconds(77);
  record.artifact_digest = Hash256("artifact");
  record.artifact_bytes = 20'000;
  record.donor = Fingerprint{Hash128("donor")};
  record.pinned = true;
  record.created = WallTime(std::chrono::milliseconds(1'700'000'000'123));
  record.updated = WallTime(std::chrono::milliseconds(1'700'000'000'456));
  return record;
}

// Any record that CheckRecord accepts.
Record RandomRecord(Rng& rng) {
  auto text = [&](size_t limit) {
    std::string bytes(rng.Below(rng.Chance(0.05) ? limit : std::min<size_t>(limit, 100)) + 1, '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng.Next());
    return bytes;
  };
  auto fingerprint = [&] { return Fingerprint{Hash128(text(20))}; };
  Record record;
  record.key = {fingerprint(), fingerprint(), text(1 << 20), text(4096), static_cast<int32_t>(rng.Below(1u << 31)),
                text(4096)};
  for (uint64_t rank = rng.Below(20); rank > 0; --rank) record.shape.push_back(static_cast<int64_t>(rng.Next()));
  record.request = text(1 << 20);
  record.label = text(4096);
  record.schedule = text(1 << 20);
  record.origin = static_cast<Origin>(1 + rng.Below(4));
  if (rng.Chance(0.5))
    record.measured =
        Timing{std::chrono::nanoseconds(rng.Next() >> 1),       std::chrono::nanoseconds(rng.Next() >> 1),
               static_cast<CacheTemperature>(1 + rng.Below(2)), static_cast<TimeStatistic>(1 + rng.Below(3)),
               static_cast<int32_t>(rng.Below(1u << 31)),       static_cast<int32_t>(rng.Below(1u << 31))};
  if (rng.Chance(0.5)) record.expected = std::chrono::nanoseconds(rng.Next() >> 1);
  record.check = {std::abs(rng.Normal()), static_cast<int64_t>(rng.Next() >> 1), rng.Chance(0.5)};
  if (rng.Chance(0.5)) {
    record.artifact_digest = Hash256(text(20));
    record.artifact_bytes = rng.Next();
  }
  if (rng.Chance(0.5)) record.donor = fingerprint();
  record.pinned = rng.Chance(0.5);
  record.created = WallTime(std::chrono::milliseconds(static_cast<int64_t>(rng.Next())));
  record.updated = WallTime(std::chrono::milliseconds(static_cast<int64_t>(rng.Next())));
  if (rng.Chance(0.5)) {
    record.source = RecordSource{text(64), rng.Next(), std::nullopt, Origin::kTuned, rng.Chance(0.5)};
    if (rng.Chance(0.5)) record.source->key = Hash256(text(20));
  }
  if (rng.Chance(0.5)) Mark(record, Hash256(text(20)));
  return record;
}

TEST(Record, RoundTrips) {
  for (const Record& record : {Record(), SampleRecord(1), FullRecord()}) {
    Result<Record> decoded = DecodeRecord(EncodeRecord(record));
    ASSERT_TRUE(decoded.has_value()) << decoded.error().Text();
    EXPECT_EQ(*decoded, record);
  }
  Rng rng(11);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    Record record = RandomRecord(rng);
    ASSERT_TRUE(CheckRecord(record).has_value());
    Result<Record> decoded = DecodeRecord(EncodeRecord(record));
    ASSERT_TRUE(decoded.has_value()) << decoded.error().Text();
    EXPECT_EQ(*decoded, record);
  }
}

TEST(Record, AMarkIsOfOneKeyAndOneRecord) {
  const Digest256 key = Hash256("a key"), other = Hash256("another");
  Record record = FullRecord();
  EXPECT_FALSE(IsMarkedBy(record, key));
  Mark(record, key);
  EXPECT_TRUE(IsMarkedBy(*DecodeRecord(EncodeRecord(record)), key));
  EXPECT_FALSE(IsMarkedBy(record, other));
  for (auto change :
       {+[](Record& changed) { changed.pinned = false; }, +[](Record& changed) { changed.schedule += "\n"; },
        +[](Record& changed) { (*changed.artifact_digest)[31] ^= 1; },
        +[](Record& changed) { changed.key.code += "x"; }, +[](Record& changed) { (*changed.mark)[0] ^= 1; },
        +[](Record& changed) { changed.mark.reset(); }}) {
    Record changed = record;
    change(changed);
    EXPECT_FALSE(IsMarkedBy(changed, key));
  }
}

TEST(Record, CodeThatIsToBeCheckedHasAnotherMark) {
  const Digest256 key = Hash256("a key");
  Record record = FullRecord();
  record.source = RecordSource{"fleet", 3, Hash256("signer"), Origin::kTuned, true};
  MarkToCheck(record, key);
  const Record read = *DecodeRecord(EncodeRecord(record));
  EXPECT_EQ(read, record);
  EXPECT_TRUE(IsMarkedToCheckBy(read, key));
  EXPECT_FALSE(IsMarkedBy(read, key));
  EXPECT_FALSE(IsMarkedToCheckBy(read, Hash256("another")));
  record.source->key.reset();  // the mark covers where it came from
  EXPECT_FALSE(IsMarkedToCheckBy(record, key));
}

TEST(Record, RefusesEveryTruncation) {
  std::string value = EncodeRecord(FullRecord());
  for (size_t size = 0; size < value.size(); ++size)
    EXPECT_EQ(DecodeRecord(value.substr(0, size)).error().kind, ErrorKind::kCorrupt) << size;
}

TEST(Record, RefusesTruncatedBodiesInSoundEnvelopes) {
  std::string value = EncodeRecord(FullRecord());
  std::string body(*Unseal(ValueType::kRecord, kRecordVersion, value));
  for (size_t size = 0; size < body.size(); ++size)
    EXPECT_FALSE(DecodeRecord(Seal(ValueType::kRecord, kRecordVersion, body.substr(0, size))).has_value()) << size;
  EXPECT_FALSE(DecodeRecord(Seal(ValueType::kRecord, kRecordVersion, body + '\0')).has_value());
}

TEST(Record, DamagedBodiesInSoundEnvelopesNeverCrashAndRoundTripIfAccepted) {
  std::string body(*Unseal(ValueType::kRecord, kRecordVersion, EncodeRecord(FullRecord())));
  Rng rng(5);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = body;
    for (uint64_t hits = 1 + rng.Below(3); hits > 0; --hits)
      damaged[rng.Below(damaged.size())] = static_cast<char>(rng.Next());
    std::string value = Seal(ValueType::kRecord, kRecordVersion, damaged);
    Result<Record> decoded = DecodeRecord(value);
    if (!decoded) continue;
    ++accepted;
    EXPECT_EQ(EncodeRecord(*decoded), value);  // one spelling per record
  }
  EXPECT_GT(accepted, 1000);
}

std::string BytesOfHex(std::string_view hex) {
  std::string bytes(hex.size() / 2, '\0');
  EXPECT_TRUE(ParseHex(hex, std::span(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size())));
  return bytes;
}

TEST(Record, StoredExampleStaysReadable) {
  // Written by formats 4 and 1. If this fails, the format changed without a new version.
  Record record;
  record.key = {Fingerprint{Hash128("class")}, Fingerprint{Hash128("kernel")}, "canonical", "target", 2, "code"};
  record.shape = {1, -2, 300};
  record.request = "request";
  record.label = "label";
  record.schedule = "schedule";
  record.origin = Origin::kTransferred;
  record.measured = Timing{std::chrono::nanoseconds(1000),
                           std::chrono::nanoseconds(10),
                           CacheTemperature::kWarm,
                           TimeStatistic::kMedian,
                           2,
                           9};
  record.check = {1e-7, 300, true};
  record.pinned = true;
  record.created = WallTime(std::chrono::milliseconds(1));
  record.updated = WallTime(std::chrono::milliseconds(2));
  const std::string body =
      "69e9cc73bea1eb4ae9efbc8a10f70cfb7d3d6675cde25173ae6386edbcc2d4c7951102067461726765740204636f6465056c6162656c0772"
      "6571756573740963616e6f6e6963616c030203d804087363686564756c65e8070a0101020948afbc9af2d77a3eac02010204";
  EXPECT_EQ(HexOf(EncodeRecord(record)), "686f6e650401" + body + "2ef88013af254ddc");
  EXPECT_EQ(*DecodeRecord(BytesOfHex("686f6e650101" + body + "03fb40a29bd4861c")), record);  // format 1
}

// Before version 4 a CPU's target had no kind. What was stored then has the same key, and is as if written today.
TEST(Record, ATargetWithoutAKindIsACpus) {
  const Digest256 key = Hash256("a key");
  Record today = FullRecord(), once = today;
  ASSERT_TRUE(today.key.target.starts_with("cpu avx512 "));
  once.key.target = today.key.target.substr(4);
  EXPECT_EQ(RecordKey(once.key), RecordKey(today.key));
  Mark(today, key);
  Mark(once, key);
  EXPECT_EQ(once.mark, today.mark);  // code that was checked then is served
  // As version 2 wrote it: without the mark's flag, behind which the mark stands all the same.
  std::string body(*Unseal(ValueType::kRecord, kRecordVersion, EncodeRecord(today)));
  const size_t at = body.find(today.key.target);
  ASSERT_NE(at, std::string::npos);
  ASSERT_LT(today.key.target.size(), 128u);
  body.replace(at - 1, today.key.target.size() + 1,
               std::string(1, static_cast<char>(once.key.target.size())) + once.key.target);
  body[32] = static_cast<char>(body[32] & 31);
  Result<Record> read = DecodeRecord(Seal(ValueType::kRecord, 2, body));
  ASSERT_TRUE(read) << read.error().Text();
  EXPECT_EQ(*read, today);
  EXPECT_TRUE(IsMarkedBy(*read, key));
  EXPECT_FALSE(DecodeRecord(Seal(ValueType::kRecord, kRecordVersion, body)));  // there is one spelling today
}

// Whatever is read can be written: the kind in front counts for the length as well.
TEST(Record, ATargetIsNotTooLongForTodaysWords) {
  Record record = FullRecord();
  record.key.target = "cpu avx512 " + std::string(4096 - 11, 'x');
  ASSERT_TRUE(DecodeRecord(EncodeRecord(record)));
  std::string body(*Unseal(ValueType::kRecord, kRecordVersion, EncodeRecord(record)));
  body.replace(body.find("cpu avx512"), 10, "avx512 xxx");  // as long, without its kind
  body[32] = static_cast<char>(body[32] & 31);
  EXPECT_EQ(DecodeRecord(Seal(ValueType::kRecord, 2, body)).error().message, "a target's text is too long");
}

// An error that is no number would equal nothing, itself included, and be within no bound.
TEST(Record, HoldsNoErrorThatIsNoNumber) {
  for (double error : {std::numeric_limits<double>::quiet_NaN(), -1e-7}) {
    Record record = FullRecord();
    record.check.max_rel_err = error;
    EXPECT_EQ(CheckRecord(record).error().kind, ErrorKind::kInvalid);
    EXPECT_EQ(DecodeRecord(EncodeRecord(record)).error().kind, ErrorKind::kCorrupt);
  }
}

TEST(Record, NewerVersionSaysSo) {
  std::string value = Seal(ValueType::kRecord, kRecordVersion + 1, "anything");
  EXPECT_EQ(DecodeRecord(value).error().kind, ErrorKind::kUnsupported);
}

TEST(Record, UsesAndClassesRoundTrip) {
  KernelUse use{Fingerprint{Hash128("c")}, 123'456, WallTime(std::chrono::milliseconds(-5))};
  EXPECT_EQ(*DecodeKernelUse(EncodeKernelUse(use)), use);
  ClassInfo info{Fingerprint{}, "conv2d+relu", "kernel k(…)"};
  EXPECT_EQ(*DecodeClass(EncodeClass(info)), info);
  for (const std::string& value : {EncodeKernelUse(use), EncodeClass(info)})
    for (size_t size = 0; size < value.size(); ++size) {
      EXPECT_FALSE(DecodeKernelUse(value.substr(0, size)).has_value());
      EXPECT_FALSE(DecodeClass(value.substr(0, size)).has_value());
    }
  EXPECT_FALSE(DecodeRecord(EncodeKernelUse(use)).has_value());
}

TEST(Record, KeysSeparateKernelsTargetsAndThreads) {
  CacheKey key = SampleKey(1);
  std::string bytes = RecordKey(key);
  EXPECT_EQ(bytes.size(), kRecordKeyBytes);
  EXPECT_TRUE(bytes.starts_with(KernelPrefix(key.class_fingerprint, key.fingerprint)));
  EXPECT_TRUE(bytes.starts_with(ClassPrefix(key.class_fingerprint)));
  CacheKey other = key;
  other.threads = 12;
  EXPECT_NE(RecordKey(other), bytes);
  other = key;
  other.target += "0";
  EXPECT_NE(RecordKey(other), bytes);
  other = key;
  other.code = "another compiler";  // no part of the key: the record stays, its artifact goes
  other.canonical = "";             // compared, not hashed here
  EXPECT_EQ(RecordKey(other), bytes);
  EXPECT_EQ(SplitRecordKey(bytes)->fingerprint, key.fingerprint);
  EXPECT_EQ(SplitRecordKey(bytes)->class_fingerprint, key.class_fingerprint);
  EXPECT_FALSE(SplitRecordKey(bytes.substr(1)).has_value());
}

TEST(Record, CodeKeyNamesWhatCompiledCodeDependsOn) {
  CpuTarget target;
  target.isa = Isa::kAvx512;
  target.cpu = "znver5";
  target.features = {"avx512bf16", "avx512vnni"};
  EXPECT_EQ(CodeKey("llvm-19.1.7", 1, target), "llvm-19.1.7 abi=1 avx512 cpu=znver5 features=avx512bf16,avx512vnni");
  CpuTarget other = target;
  other.cores = 64;  // concerns timings, not code
  EXPECT_EQ(CodeKey("llvm-19.1.7", 1, other), CodeKey("llvm-19.1.7", 1, target));
}

}  // namespace
}  // namespace hone
