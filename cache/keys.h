// The keys of the store. Grammar: docs/record_format.md.
//
//   records, artifacts   class:16 kernel:16 timing:8     a class lies together, in it a kernel, in it its targets
//   kernels              'k' kernel:16                   use counts; also the index from a kernel to its class
//                        'c' class:16                    what a class is
//   trials               class:16 kernel:16 timing:8 number:8, big-endian: in the order in which they were made
//   models               name
//   meta                 'v' name                        values by name
//                        'n' class:16 kernel:16 timing:8 name    what belongs to a record
//                        'q' family:u8 key               damaged values, set aside
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/record.h"
#include "cache/store.h"

namespace hone {

inline constexpr size_t kRecordKeyBytes = 40;
inline constexpr char kUseTag = 'k', kClassTag = 'c', kMetaTag = 'v', kNoteTag = 'n', kQuarantineTag = 'q';

// timing: BLAKE2b-64 of the target's text (a CPU's without its kind, as it was written once), a zero byte and the
// number of threads in decimal.
std::string RecordKey(const CacheKey& key);
std::string ClassPrefix(const Fingerprint& class_fingerprint);
std::string KernelPrefix(const Fingerprint& class_fingerprint, const Fingerprint& fingerprint);

struct RecordKeyParts {
  Fingerprint class_fingerprint, fingerprint;
};
std::optional<RecordKeyParts> SplitRecordKey(std::string_view key);  // nullopt: not a record's key

std::string TrialKey(std::string_view record_key, uint64_t number);

std::string UseKey(const Fingerprint& fingerprint);
std::string ClassKey(const Fingerprint& class_fingerprint);
std::string MetaKey(std::string_view name);
std::string NotePrefix(std::string_view record_key);
std::string QuarantineKey(Family family, std::string_view key);
// The fingerprint in a use or class key; nullopt if it is neither.
std::optional<Fingerprint> TaggedFingerprint(char tag, std::string_view key);

}  // namespace hone
