#include "daemon/serve/own_record.h"

#include <chrono>
#include <string>
#include <utility>

#include "base/log.h"

namespace hone {
namespace {

constexpr std::string_view kOwnNote = "own";
constexpr double kBeyondNoise = 1.25;      // of the best of a few calls
constexpr double kBeyondNoiseOfFirst = 2;  // of a first call, which finds caches cold and pages unmapped

}  // namespace

bool HasRunHere(const Record& record) {
  return (record.measured || record.expected) && !(record.source && record.source->times_elsewhere);
}

void KeepOwnRecord(ScheduleCache& cache, Record own) {
  own.artifact_digest.reset();
  own.artifact_bytes = 0;
  own.mark.reset();
  own.pinned = false;
  Result<void> kept = cache.PutNote(own.key, kOwnNote, EncodeRecord(own), Durability::kSoon);
  if (!kept) LogWarn("own_record_not_kept", {{"kernel", own.key.fingerprint.Hex()}, {"why", kept.error().Text()}});
}

std::optional<Record> TakeOwnRecord(ScheduleCache& cache, const CacheKey& key) {
  const Result<std::optional<std::string>> note = cache.GetNote(key, kOwnNote);
  if (!note || !*note || (*note)->empty()) return std::nullopt;
  (void)cache.PutNote(key, kOwnNote, "", Durability::kSoon);
  Result<Record> own = DecodeRecord(**note);
  if (!own || own->key.canonical != key.canonical || own->key.target != key.target || own->key.threads != key.threads)
    return std::nullopt;
  return *std::move(own);
}

bool IsSlowerThanOwn(double us, const Record& own) {
  const auto time = own.measured ? own.measured->time : own.expected.value_or(std::chrono::nanoseconds(0));
  const double own_us = std::chrono::duration<double, std::micro>(time).count();
  return own_us > 0 && us > own_us * (own.measured ? kBeyondNoise : kBeyondNoiseOfFirst);
}

}  // namespace hone
