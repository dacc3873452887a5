#include "cache/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <limits>

#include "base/bytes.h"
#include "base/envelope.h"

namespace hone {
namespace {

constexpr size_t kTextLimit = 1 << 20;   // canonical text, schedule, request, class text
constexpr size_t kShortLimit = 1 << 12;  // target, code key, label
constexpr size_t kRankLimit = 1 << 12;   // sizes of a shape
constexpr Digest256 kNoMark{};           // in a record with a source

// Which optional parts of a record follow.
enum RecordFlags : uint8_t {
  kHasMeasured = 1,
  kHasExpected = 2,
  kHasArtifact = 4,
  kHasDonor = 8,
  kIsPinned = 16,
  kHasSource = 32,  // since version 3, where each has one
  kHasMark = 64,    // since version 4
  kAllFlags = 127,
};

void WriteFingerprint(ByteWriter& out, const Fingerprint& fingerprint) {
  out.Raw(std::span<const uint8_t>(fingerprint.bytes));
}

Result<Fingerprint> ReadFingerprint(ByteReader& in) { return Fingerprint{HONE_TRY(in.Array<16>())}; }

Result<int64_t> ReadNonNegative(ByteReader& in, int64_t limit) {
  return static_cast<int64_t>(HONE_TRY(in.Count(static_cast<uint64_t>(limit), 0)));
}

Result<std::chrono::nanoseconds> ReadDuration(ByteReader& in) {
  return std::chrono::nanoseconds(HONE_TRY(ReadNonNegative(in, std::numeric_limits<int64_t>::max())));
}

Result<int32_t> ReadInt32(ByteReader& in) {
  return static_cast<int32_t>(HONE_TRY(ReadNonNegative(in, std::numeric_limits<int32_t>::max())));
}

void WriteStamp(ByteWriter& out, WallTime stamp) { out.SignedVarint(stamp.time_since_epoch().count()); }

Result<WallTime> ReadStamp(ByteReader& in) { return WallTime(std::chrono::milliseconds(HONE_TRY(in.SignedVarint()))); }

void WriteTiming(ByteWriter& out, const Timing& timing) {
  out.Varint(static_cast<uint64_t>(timing.time.count()));
  out.Varint(static_cast<uint64_t>(timing.noise.count()));
  out.U8(static_cast<uint8_t>(timing.temperature));
  out.U8(static_cast<uint8_t>(timing.statistic));
  out.Varint(static_cast<uint64_t>(timing.threads));
  out.Varint(static_cast<uint64_t>(timing.repeats));
}

Result<Timing> ReadTiming(ByteReader& in) {
  Timing timing;
  timing.time = HONE_TRY(ReadDuration(in));
  timing.noise = HONE_TRY(ReadDuration(in));
  timing.temperature = HONE_TRY(in.Enumerator(CacheTemperature::kWarm, CacheTemperature::kCold));
  timing.statistic = HONE_TRY(in.Enumerator(TimeStatistic::kMedian, TimeStatistic::kMean));
  timing.threads = HONE_TRY(ReadInt32(in));
  timing.repeats = HONE_TRY(ReadInt32(in));
  return timing;
}

void WriteSource(ByteWriter& out, const RecordSource& source) {
  out.String(source.bundle);
  out.Varint(source.version);
  out.Bool(source.key.has_value());
  if (source.key) out.Raw(std::span<const uint8_t>(*source.key));
  out.U8(static_cast<uint8_t>(source.origin));
  out.Bool(source.times_elsewhere);
}

Result<RecordSource> ReadSource(ByteReader& in) {
  RecordSource source;
  source.bundle = HONE_TRY(in.String(kShortLimit));
  source.version = HONE_TRY(in.Varint());
  if (HONE_TRY(in.Bool())) source.key = HONE_TRY(in.Array<32>());
  source.origin = HONE_TRY(in.Enumerator(Origin::kTuned, Origin::kImported));
  source.times_elsewhere = HONE_TRY(in.Bool());
  return source;
}

Result<std::string> ReadString(ByteReader& in, size_t limit) { return std::string(HONE_TRY(in.String(limit))); }

Result<std::vector<int64_t>> ReadShape(ByteReader& in) {
  std::vector<int64_t> shape(HONE_TRY(in.Count(kRankLimit)));
  for (int64_t& size : shape) size = HONE_TRY(in.SignedVarint());
  return shape;
}

bool IsErrorMeasure(double error) { return error >= 0; }  // no NaN, which equals nothing

Error TooLong(std::string_view what, size_t seen, size_t limit) {
  return Error{ErrorKind::kLimit, fmt::format("{} has {}, the cache takes at most {}", what, seen, limit), ""};
}

}  // namespace

std::string_view OriginName(Origin origin) {
  static constexpr std::array<std::string_view, 5> kNames = {"?", "tuned", "transferred", "default", "imported"};
  size_t index = static_cast<size_t>(origin);
  return index < kNames.size() ? kNames[index] : kNames[0];
}

std::string CodeKey(std::string_view compiler, uint32_t abi_version, const Target& target) {
  // Of a CPU without its kind, as it was written before targets had kinds: what was built then is current still.
  if (const CpuTarget* cpu = target.cpu())
    return fmt::format("{} abi={} {} cpu={} features={}", compiler, abi_version, ArchitectureName(target), cpu->cpu,
                       fmt::join(cpu->features, ","));
  return fmt::format("{} abi={} {}", compiler, abi_version, PrintTarget(target));
}

CacheKey MakeCacheKey(const Canonical& canonical, const Target& target, int32_t threads, std::string code) {
  return {ClassFingerprintOf(canonical),
          FingerprintOf(canonical),
          canonical.text,
          PrintTarget(target),
          threads,
          std::move(code)};
}

Result<void> CheckRecord(const Record& record) {
  for (auto [what, text, limit] : {std::tuple{"canonical text", &record.key.canonical, kTextLimit},
                                   {"schedule", &record.schedule, kTextLimit},
                                   {"request", &record.request, kTextLimit},
                                   {"target", &record.key.target, kShortLimit},
                                   {"code key", &record.key.code, kShortLimit},
                                   {"label", &record.label, kShortLimit}})
    if (text->size() > limit) return TooLong(what, text->size(), limit);
  if (record.source && record.source->bundle.size() > kShortLimit)
    return TooLong("bundle's name", record.source->bundle.size(), kShortLimit);
  if (record.shape.size() > kRankLimit) return TooLong("shape", record.shape.size(), kRankLimit);
  constexpr std::chrono::nanoseconds kZero{0};
  bool negative = record.key.threads < 0 || record.check.samples < 0 || record.expected.value_or(kZero) < kZero;
  if (const auto& measured = record.measured)
    negative |= measured->time < kZero || measured->noise < kZero || measured->threads < 0 || measured->repeats < 0;
  if (negative) return Error{ErrorKind::kInvalid, "a record holds no negative times or counts", record.label};
  if (!IsErrorMeasure(record.check.max_rel_err))
    return Error{ErrorKind::kInvalid, fmt::format("a relative error of {}", record.check.max_rel_err), record.label};
  return {};
}

namespace {

// All but the mark. `flags`: further ones.
std::string RecordBody(const Record& record, std::string_view target, uint8_t flags) {
  ByteWriter out;
  out.Reserve(512 + record.key.canonical.size() + record.schedule.size() + record.request.size());
  WriteFingerprint(out, record.key.class_fingerprint);
  WriteFingerprint(out, record.key.fingerprint);
  out.U8(static_cast<uint8_t>((record.measured ? kHasMeasured : 0) | (record.expected ? kHasExpected : 0) |
                              (record.artifact_digest ? kHasArtifact : 0) | (record.donor ? kHasDonor : 0) |
                              (record.pinned ? kIsPinned : 0) | (record.source ? kHasSource : 0) | flags));
  out.U8(static_cast<uint8_t>(record.origin));
  out.String(target);
  out.Varint(static_cast<uint64_t>(record.key.threads));
  out.String(record.key.code);
  out.String(record.label);
  out.String(record.request);
  out.String(record.key.canonical);
  out.Varint(record.shape.size());
  for (int64_t size : record.shape) out.SignedVarint(size);
  out.String(record.schedule);
  if (record.measured) WriteTiming(out, *record.measured);
  if (record.expected) out.Varint(static_cast<uint64_t>(record.expected->count()));
  out.F64(record.check.max_rel_err);
  out.Varint(static_cast<uint64_t>(record.check.samples));
  out.Bool(record.check.full);
  if (record.artifact_digest) {
    out.Raw(std::span<const uint8_t>(*record.artifact_digest));
    out.Varint(record.artifact_bytes);
  }
  if (record.donor) WriteFingerprint(out, *record.donor);
  WriteStamp(out, record.created);
  WriteStamp(out, record.updated);
  if (record.source) WriteSource(out, *record.source);
  return out.Take();
}

// What a mark is over: a CPU's target without its kind, so that marks of what was checked before targets had kinds are
// good still.
std::string MarkedBody(const Record& record) { return RecordBody(record, HashedTarget(record.key.target), 0); }

Digest256 MarkOf(const Record& record, const Digest256& key) { return Mac256(key, "record " + MarkedBody(record)); }
Digest256 MarkToCheckOf(const Record& record, const Digest256& key) {
  return Mac256(key, "to check " + MarkedBody(record));
}

}  // namespace

void Mark(Record& record, const Digest256& key) { record.mark = MarkOf(record, key); }

bool IsMarkedBy(const Record& record, const Digest256& key) {
  return record.mark && *record.mark == MarkOf(record, key);
}

void MarkToCheck(Record& record, const Digest256& key) { record.mark = MarkToCheckOf(record, key); }

bool IsMarkedToCheckBy(const Record& record, const Digest256& key) {
  return record.mark && *record.mark == MarkToCheckOf(record, key);
}

std::string EncodeRecord(const Record& record) {
  std::string body = RecordBody(record, TargetInWordsOfToday(record.key.target), record.mark ? kHasMark : 0);
  if (record.mark) body.append(reinterpret_cast<const char*>(record.mark->data()), record.mark->size());
  return Seal(ValueType::kRecord, kRecordVersion, body);
}

Result<Record> DecodeRecord(std::string_view value) {
  ByteReader in(HONE_TRY(Unseal(ValueType::kRecord, kRecordVersion, value)));
  Record record;
  record.key.class_fingerprint = HONE_TRY(ReadFingerprint(in));
  record.key.fingerprint = HONE_TRY(ReadFingerprint(in));
  uint8_t flags = HONE_TRY(in.U8());
  const uint8_t version = SealedVersion(value);
  if (flags > (version < 3 ? kHasSource - 1 : version < 4 ? kHasMark - 1 : kAllFlags))
    return Error{ErrorKind::kCorrupt, fmt::format("unknown record flags {:#x}", flags), ""};
  record.origin = HONE_TRY(in.Enumerator(Origin::kTuned, Origin::kImported));
  const std::string target = HONE_TRY(ReadString(in, kShortLimit));
  record.key.target = TargetInWordsOfToday(target);
  if (version >= 4 && record.key.target != target) return Error{ErrorKind::kCorrupt, "a target without its kind", ""};
  if (record.key.target.size() > kShortLimit) return Error{ErrorKind::kCorrupt, "a target's text is too long", ""};
  record.key.threads = HONE_TRY(ReadInt32(in));
  record.key.code = HONE_TRY(ReadString(in, kShortLimit));
  record.label = HONE_TRY(ReadString(in, kShortLimit));
  record.request = HONE_TRY(ReadString(in, kTextLimit));
  record.key.canonical = HONE_TRY(ReadString(in, kTextLimit));
  record.shape = HONE_TRY(ReadShape(in));
  record.schedule = HONE_TRY(ReadString(in, kTextLimit));
  if (flags & kHasMeasured) record.measured = HONE_TRY(ReadTiming(in));
  if (flags & kHasExpected) record.expected = HONE_TRY(ReadDuration(in));
  record.check.max_rel_err = HONE_TRY(in.F64());
  if (!IsErrorMeasure(record.check.max_rel_err))
    return Error{ErrorKind::kCorrupt, fmt::format("a relative error of {}", record.check.max_rel_err), ""};
  record.check.samples = HONE_TRY(ReadNonNegative(in, std::numeric_limits<int64_t>::max()));
  record.check.full = HONE_TRY(in.Bool());
  if (flags & kHasArtifact) {
    record.artifact_digest = HONE_TRY(in.Array<32>());
    record.artifact_bytes = HONE_TRY(in.Varint());
  }
  if (flags & kHasDonor) record.donor = HONE_TRY(ReadFingerprint(in));
  record.pinned = (flags & kIsPinned) != 0;
  record.created = HONE_TRY(ReadStamp(in));
  record.updated = HONE_TRY(ReadStamp(in));
  if (version == 3 && (flags & kHasSource) == 0)
    return Error{ErrorKind::kCorrupt, "a record of version 3 has a source", ""};
  if (flags & kHasSource) record.source = HONE_TRY(ReadSource(in));
  if (version == 2 || version == 3 || (flags & kHasMark) != 0) record.mark = HONE_TRY(in.Array<32>());
  if (version == 3 && record.mark == kNoMark) record.mark.reset();
  HONE_TRY(in.Finish());
  return record;
}

std::string EncodeKernelUse(const KernelUse& use) {
  ByteWriter out;
  WriteFingerprint(out, use.class_fingerprint);
  out.Varint(use.calls);
  WriteStamp(out, use.last_used);
  return Seal(ValueType::kKernelUse, kKernelUseVersion, out.view());
}

Result<KernelUse> DecodeKernelUse(std::string_view value) {
  ByteReader in(HONE_TRY(Unseal(ValueType::kKernelUse, kKernelUseVersion, value)));
  KernelUse use;
  use.class_fingerprint = HONE_TRY(ReadFingerprint(in));
  use.calls = HONE_TRY(in.Varint());
  use.last_used = HONE_TRY(ReadStamp(in));
  HONE_TRY(in.Finish());
  return use;
}

std::string EncodeClass(const ClassInfo& info) {
  ByteWriter out;
  out.String(info.label);
  out.String(info.class_text);
  return Seal(ValueType::kClass, kClassVersion, out.view());
}

Result<ClassInfo> DecodeClass(std::string_view value) {
  ByteReader in(HONE_TRY(Unseal(ValueType::kClass, kClassVersion, value)));
  ClassInfo info;
  info.label = HONE_TRY(ReadString(in, kShortLimit));
  info.class_text = HONE_TRY(ReadString(in, kTextLimit));
  HONE_TRY(in.Finish());
  return info;
}

}  // namespace hone
