#include "cache/keys.h"

#include <fmt/format.h>

#include <algorithm>

namespace hone {
namespace {

void Append(std::string& key, const Fingerprint& fingerprint) {
  key.append(reinterpret_cast<const char*>(fingerprint.bytes.data()), fingerprint.bytes.size());
}

Fingerprint FingerprintAt(std::string_view key, size_t offset) {
  Fingerprint fingerprint;
  std::copy_n(key.data() + offset, fingerprint.bytes.size(), fingerprint.bytes.begin());
  return fingerprint;
}

std::string Tagged(char tag, const Fingerprint& fingerprint) {
  std::string key(1, tag);
  Append(key, fingerprint);
  return key;
}

}  // namespace

std::string RecordKey(const CacheKey& key) {
  std::string bytes = KernelPrefix(key.class_fingerprint, key.fingerprint);
  Hasher64 timing;
  timing.Update(HashedTarget(key.target));
  timing.Update(std::string_view("\0", 1));
  timing.Update(fmt::format("{}", key.threads));
  Digest64 digest = timing.Finish();
  bytes.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  return bytes;
}

std::string ClassPrefix(const Fingerprint& class_fingerprint) {
  std::string prefix;
  prefix.reserve(kRecordKeyBytes);
  Append(prefix, class_fingerprint);
  return prefix;
}

std::string KernelPrefix(const Fingerprint& class_fingerprint, const Fingerprint& fingerprint) {
  std::string prefix = ClassPrefix(class_fingerprint);
  Append(prefix, fingerprint);
  return prefix;
}

std::optional<RecordKeyParts> SplitRecordKey(std::string_view key) {
  if (key.size() != kRecordKeyBytes) return std::nullopt;
  return RecordKeyParts{FingerprintAt(key, 0), FingerprintAt(key, 16)};
}

std::string TrialKey(std::string_view record_key, uint64_t number) {
  std::string key(record_key);
  for (int shift = 56; shift >= 0; shift -= 8) key += static_cast<char>(number >> shift);
  return key;
}

std::string UseKey(const Fingerprint& fingerprint) { return Tagged(kUseTag, fingerprint); }
std::string ClassKey(const Fingerprint& class_fingerprint) { return Tagged(kClassTag, class_fingerprint); }
std::string MetaKey(std::string_view name) { return std::string(1, kMetaTag).append(name); }
std::string NotePrefix(std::string_view record_key) { return std::string(1, kNoteTag).append(record_key); }

std::string QuarantineKey(Family family, std::string_view key) {
  return std::string({kQuarantineTag, static_cast<char>(family)}).append(key);
}

std::optional<Fingerprint> TaggedFingerprint(char tag, std::string_view key) {
  if (key.size() != 17 || key[0] != tag) return std::nullopt;
  return FingerprintAt(key, 1);
}

}  // namespace hone
