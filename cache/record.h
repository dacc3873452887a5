// What the cache knows about one kernel on one target, and the byte form of every value it stores.
// Grammar: docs/record_format.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/result.h"
#include "ir/language/fingerprint.h"
#include "ir/target.h"

namespace hone {

// Why this code was served. Stored and sent: never reuse a number.
enum class Origin : uint8_t { kTuned = 1, kTransferred = 2, kDefault = 3, kImported = 4 };
std::string_view OriginName(Origin origin);  // "tuned", "transferred", "default", "imported"

// Stored: never reuse a number.
enum class CacheTemperature : uint8_t { kWarm = 1, kCold = 2 };
enum class TimeStatistic : uint8_t { kMedian = 1, kMinimum = 2, kMean = 3 };

// A time with its protocol: meaningless without it.
struct Timing {
  std::chrono::nanoseconds time{0};
  std::chrono::nanoseconds noise{0};  // spread of the repeats; a better record has to beat it
  CacheTemperature temperature = CacheTemperature::kWarm;
  TimeStatistic statistic = TimeStatistic::kMedian;
  int32_t threads = 1;
  int32_t repeats = 0;
  bool operator==(const Timing&) const = default;
};

// How the output compared with the reference (design: |y − r| / A).
struct CheckSummary {
  double max_rel_err = 0;
  int64_t samples = 0;  // elements compared
  bool full = false;    // every element, as "tuned" and export demand
  bool operator==(const CheckSummary&) const = default;
};

// Names a record. The parts go stale one by one: the schedule key (kernel) never does, the timing key (target, threads)
// with the device, the code key with the compiler. A record of another target is another record; a record of another
// compiler keeps its schedule and loses its artifact.
struct CacheKey {
  Fingerprint class_fingerprint;
  Fingerprint fingerprint;
  std::string canonical;  // compared on lookup: a collision of fingerprints is a miss
  std::string target;     // timing key: PrintTarget, in the words of today …
  int32_t threads = 1;    // … and how many the code was made for; both compared on lookup
  std::string code;       // code key: compiler, ABI, ISA; see CodeKey
  bool operator==(const CacheKey&) const = default;
};

// "llvm-19.1.7 abi=1 avx512 cpu=znver5 features=…": artifacts made under another text are rebuilt from their schedule.
std::string CodeKey(std::string_view compiler, uint32_t abi_version, const Target& target);
CacheKey MakeCacheKey(const Canonical& canonical, const Target& target, int32_t threads, std::string code);

// Of a record that came in a bundle: from whom.
struct RecordSource {
  std::string bundle;                // its name
  uint64_t version = 0;              // and version
  std::optional<Digest256> key;      // the trusted key that signed it; nullopt: nobody who is known here
  Origin origin = Origin::kDefault;  // of the schedule where it was measured
  // `measured` and `expected` are those of another machine: good for nothing but to order what is to be measured here.
  bool times_elsewhere = false;
  bool operator==(const RecordSource&) const = default;
};

struct Record {
  CacheKey key;                // `code` is the key that the artifact was made under
  std::vector<int64_t> shape;  // Canonical::shape, for finding neighbours of the class
  std::string request;         // as the user wrote it, without comments
  std::string label;           // the kernel's name: "conv2d+bias+relu"
  std::string schedule;        // text form
  Origin origin = Origin::kDefault;
  std::optional<Timing> measured;
  std::optional<std::chrono::nanoseconds> expected;  // predicted, when not measured
  CheckSummary check;
  std::optional<Digest256> artifact_digest;  // nullopt: schedule only, as after an eviction
  uint64_t artifact_bytes = 0;
  std::optional<Fingerprint> donor;    // whose schedule was transferred
  bool pinned = false;                 // never evicted, refined or replaced
  WallTime created{};                  // stamped by the cache when 0
  WallTime updated{};                  // stamped by the cache
  std::optional<RecordSource> source;  // nullopt: made here
  std::optional<Digest256> mark;       // of who checked the artifact, as stored: see IsMarkedBy
  bool operator==(const Record&) const = default;
};

// A record's mark is a code over all of it, the artifact's digest included, that only who has the key can make: it says
// that its artifact was checked here.
void Mark(Record& record, const Digest256& key);
bool IsMarkedBy(const Record& record, const Digest256& key);
// Another one says that its artifact came from somebody who is trusted, and has still to be checked here.
void MarkToCheck(Record& record, const Digest256& key);
bool IsMarkedToCheckBy(const Record& record, const Digest256& key);

// How often a kernel is asked for. Kept apart from records, so that a hit rewrites nothing large.
struct KernelUse {
  Fingerprint class_fingerprint;
  uint64_t calls = 0;
  WallTime last_used{};
  bool operator==(const KernelUse&) const = default;
};

// One row per class; its records lie together under the class fingerprint.
struct ClassInfo {
  Fingerprint fingerprint;  // the row's key
  std::string label;        // of the first kernel seen
  std::string class_text;   // Canonical::class_text
  bool operator==(const ClassInfo&) const = default;
};

// Values are wrapped by base/envelope.h; each type counts its versions on its own.
// 1: without a mark; 2: without a source; 3: with a source; before 4: targets without a kind.
inline constexpr uint8_t kRecordVersion = 4;
inline constexpr uint8_t kKernelUseVersion = 1;
inline constexpr uint8_t kClassVersion = 1;

// Decoders give kCorrupt for what does not decode and kUnsupported for what a newer hone wrote.
// kLimit if a text is longer than what DecodeRecord accepts (1 MiB; 4 KiB for target, code key and label); kInvalid for
// negative times, counts and errors, and an error that is no number.
Result<void> CheckRecord(const Record& record);
// REQUIRES: CheckRecord.
std::string EncodeRecord(const Record& record);
Result<Record> DecodeRecord(std::string_view value);
std::string EncodeKernelUse(const KernelUse& use);
Result<KernelUse> DecodeKernelUse(std::string_view value);
std::string EncodeClass(const ClassInfo& info);
Result<ClassInfo> DecodeClass(std::string_view value);  // `fingerprint` is left to the caller: it is the key

}  // namespace hone
