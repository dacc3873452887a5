// What searches leave behind: the log of their trials, and the models that learnt from it.
#include <algorithm>
#include <tuple>

#include "base/bytes.h"
#include "base/envelope.h"
#include "cache/cache_impl.h"
#include "cache/keys.h"

namespace hone {
namespace {

constexpr uint8_t kStateVersion = 1;
constexpr uint8_t kMarkedVersion = 1;

// Of a model under that name: only who has the key can make it.
Digest256 MarkOfModel(std::string_view name, std::string_view sealed, const SecretKey& key) {
  std::string text = "model ";
  text.append(name).push_back('\0');
  return Mac256(key, text.append(sealed));
}

Result<std::string> OpenMarked(std::string_view name, std::string_view value, const SecretKey& key) {
  const std::string_view body = HONE_TRY(Unseal(ValueType::kMarked, kMarkedVersion, value));
  const Digest256 mark = HONE_TRY(ByteReader(body).Array<std::tuple_size_v<Digest256>>());
  const std::string_view sealed = body.substr(mark.size());
  if (mark != MarkOfModel(name, sealed, key)) return Error{ErrorKind::kInvalid, "its mark is not this cache's", ""};
  return std::string(sealed);
}

// meta: what the cache keeps about itself.
const std::string& NewestTrialKey() {
  static const std::string key = "snewest_trial";
  return key;
}

}  // namespace

// Microseconds of the wall clock, or the next number where that stands still or goes back, across restarts, too: the
// newest number is kept beside them.
Result<void> CacheImpl::AppendTrials(const CacheKey& key, std::span<const TrialRecord> trials,
                                     std::optional<WallTime> created) {
  const std::string prefix = RecordKey(key);
  const WallTime now = options_.clock->WallNow();
  MutexLock lock(store_->write_mutex());
  if (created) HONE_TRY(CheckIsThere(key, *created));
  if (newest_trial_ == 0) {
    store_->Read(Family::kMeta, NewestTrialKey(), [&](std::string_view, std::string_view value, CacheLayer layer) {
      Result<std::string_view> body = Unseal(ValueType::kMeta, kStateVersion, value);
      if (body && layer != CacheLayer::kSystem) newest_trial_ = ByteReader(*body).Varint().value_or(0);
      return Take::kTaken;
    });
  }
  StoreBatch batch;
  for (const TrialRecord& trial : trials) {
    newest_trial_ = std::max(newest_trial_ + 1, static_cast<uint64_t>(now.time_since_epoch().count()) * 1000);
    TrialRecord stamped = trial;
    stamped.at = now;
    batch.Put(Family::kTrials, TrialKey(prefix, newest_trial_), EncodeTrial(stamped));
  }
  if (trials.empty()) return {};
  ByteWriter newest;
  newest.Varint(newest_trial_);
  batch.Put(Family::kMeta, NewestTrialKey(), Seal(ValueType::kMeta, kStateVersion, newest.view()));
  return store_->Write(batch, Durability::kSoon);
}

Result<void> CacheImpl::ForEachTrial(const CacheKey& key, const std::function<bool(const TrialRecord&)>& visit) {
  store_->Scan(Family::kTrials, RecordKey(key), [&](std::string_view entry, std::string_view value, CacheLayer layer) {
    Result<TrialRecord> trial = DecodeTrial(value);
    if (trial) {
      if (!visit(*trial)) return Take::kStop;
    } else if (trial.error().kind != ErrorKind::kUnsupported) {
      SetAside(Family::kTrials, entry, value, layer, trial.error());
    }
    return Take::kTaken;
  });
  return {};
}

// Of a record, or of all of a kernel's. Returns how many.
uint64_t CacheImpl::DeleteTrials(std::string_view key_prefix, StoreBatch& batch) {
  uint64_t deleted = 0;
  store_->Scan(Family::kTrials, std::string(key_prefix), [&](std::string_view key, std::string_view, CacheLayer layer) {
    if (layer == CacheLayer::kSystem) return Take::kTaken;
    batch.Delete(Family::kTrials, std::string(key));
    ++deleted;
    return Take::kTaken;
  });
  return deleted;
}

// XGBoost looks at what it loads no closer than a program at its code: so models are taken from nowhere else either.
Result<std::optional<std::string>> CacheImpl::GetModel(std::string_view name) {
  Result<std::optional<std::string>> found;
  store_->Read(Family::kModels, std::string(name), [&](std::string_view, std::string_view value, CacheLayer layer) {
    if (layer == CacheLayer::kSystem) return Take::kTaken;
    if (Result<std::string> sealed = OpenMarked(name, value, key_))
      found = *std::move(sealed);
    else
      found = Error{ErrorKind::kInvalid, "this cache did not make it: " + sealed.error().message, ""};
    return Take::kTaken;
  });
  return found;
}

Result<void> CacheImpl::PutModel(std::string_view name, std::string_view sealed) {
  const Digest256 mark = MarkOfModel(name, sealed, key_);
  std::string body(reinterpret_cast<const char*>(mark.data()), mark.size());
  StoreBatch batch;
  batch.Put(Family::kModels, std::string(name), Seal(ValueType::kMarked, kMarkedVersion, body.append(sealed)));
  MutexLock lock(store_->write_mutex());
  return store_->Write(batch, Durability::kSoon);
}

}  // namespace hone
