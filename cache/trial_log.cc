// What searches leave behind: the log of their trials, and the models that learnt from it.
#include <algorithm>

#include "base/check.h"
#include "cache/cache_impl.h"
#include "cache/keys.h"

namespace hone {

Result<void> CacheImpl::AppendTrials(const CacheKey& key, std::span<const TrialRecord> trials) {
  const std::string prefix = RecordKey(key);
  StoreBatch batch;
  WallTime now = options_.clock->WallNow();
  for (const TrialRecord& trial : trials) {
    // Microseconds of the wall clock, or the next number where that stands still or goes back.
    uint64_t number = static_cast<uint64_t>(now.time_since_epoch().count()) * 1000;
    uint64_t last = last_trial_;
    while (!last_trial_.compare_exchange_weak(last, std::max(number, last + 1))) {
    }
    TrialRecord stamped = trial;
    stamped.at = now;
    batch.Put(Family::kTrials, TrialKey(prefix, std::max(number, last + 1)), EncodeTrial(stamped));
  }
  MutexLock lock(store_->write_mutex());
  return store_->Write(batch, Durability::kSoon);
}

Result<void> CacheImpl::ForEachTrial(const CacheKey& key, const std::function<bool(const TrialRecord&)>& visit) {
  bool go_on = true;
  store_->Scan(Family::kTrials, RecordKey(key), [&](std::string_view entry, std::string_view value, CacheLayer layer) {
    if (!go_on) return Take::kTaken;
    Result<TrialRecord> trial = DecodeTrial(value);
    if (trial) {
      go_on = visit(*trial);
    } else if (trial.error().kind != ErrorKind::kUnsupported) {
      SetAside(Family::kTrials, entry, value, layer, trial.error());
    }
    return Take::kTaken;
  });
  return {};
}

Result<std::optional<std::string>> CacheImpl::GetModel(std::string_view name) {
  std::optional<std::string> found;
  store_->Read(Family::kModels, std::string(name), [&](std::string_view, std::string_view value, CacheLayer layer) {
    if (layer == CacheLayer::kSystem) return Take::kTaken;  // models are code's equals: not from elsewhere
    found = std::string(value);
    return Take::kTaken;
  });
  return found;
}

Result<void> CacheImpl::PutModel(std::string_view name, std::string_view sealed) {
  StoreBatch batch;
  batch.Put(Family::kModels, std::string(name), std::string(sealed));
  MutexLock lock(store_->write_mutex());
  return store_->Write(batch, Durability::kSoon);
}

}  // namespace hone
