// Upkeep of an open cache, on a thread of its own: unsynced writes reach the disk, use counts are written in batches,
// damaged values are moved away, damaged tables salvaged, the size cap enforced.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/bytes.h"
#include "base/envelope.h"
#include "base/file.h"
#include "base/log.h"
#include "cache/cache_impl.h"
#include "ir/language/canonical.h"
#include "ir/language/fingerprint.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

constexpr uint8_t kStateVersion = 1;
constexpr uint8_t kQuarantinedVersion = 1;
constexpr size_t kKeptOfDamaged = 4096;  // bytes of a damaged value that stay for whoever looks into it
constexpr size_t kMostKept = 1000;       // damaged values kept; later ones are only counted
constexpr size_t kMostLosses = 16;       // told by the next Verify, the last ones
constexpr size_t kMostLossText = 1024;
constexpr double kEvictTo = 0.9;  // of the cap, so that evictions come in batches
constexpr std::chrono::seconds kSizeInterval{30};
constexpr uint64_t kSizeStep = 64;  // and whenever a 64th of the cap was written

// meta: what the cache keeps about itself.
const std::string& QuarantineCountKey() {
  static const std::string key = "squarantined";
  return key;
}

// "": what the record says is not canonical today; then the class has a text again with its next new record.
std::string ClassTextFor(const Record& record) {
  const Result<Kernel> kernel = ParseKernel(record.key.canonical);
  if (!kernel) return "";
  Canonical canonical = Canonicalize(*kernel);
  const bool is_of_the_class = ClassFingerprintOf(canonical) == record.key.class_fingerprint;
  return is_of_the_class ? std::move(canonical.class_text) : "";
}

const std::string& LossesKey() {
  static const std::string key = "slosses";
  return key;
}

}  // namespace

void CacheImpl::Upkeep(std::stop_token stop) {
  Mutex mutex;
  CondVar wake;
  MonotonicTime uses_written = std::chrono::steady_clock::now(), size_seen = uses_written;
  uint64_t bytes_seen = 0;
  if (!store_->repaired().empty()) RebuildIndex(stop);
  while (!stop.stop_requested()) {
    {
      MutexLock lock(mutex);
      wake.WaitFor(mutex, options_.flush_interval, stop);
    }
    store_->Sync();
    // First what can be had back, then what cannot be read still.
    const bool repaired = store_->RepairIfDamaged(stop);
    if (repaired) {
      KeepLosses();
      MutexLock lock(store_->write_mutex());
      pinned_bytes_.reset();
    }
    (void)MoveDamaged();
    if (repaired || rebuild_index_.exchange(false)) RebuildIndex(stop);
    MonotonicTime now = std::chrono::steady_clock::now();
    if (now - uses_written >= options_.use_interval) {
      (void)WriteUses();
      uses_written = now;
    }
    uint64_t bytes = store_->bytes_written();
    bool look = now - size_seen >= kSizeInterval || bytes - bytes_seen > options_.size_cap / kSizeStep;
    if (options_.size_cap == 0 || options_.directory.empty() || !look) continue;
    size_seen = now;
    bytes_seen = bytes;
    if (CacheBytes(options_.directory) <= options_.size_cap) continue;
    Result<EvictionReport> evicted =
        EvictTo(static_cast<uint64_t>(static_cast<double>(options_.size_cap) * kEvictTo), stop);
    if (!evicted) LogWarn("cache_evict", {{"error", evicted.error().Text()}});
  }
}

Result<void> CacheImpl::WriteUses() {
  UseCounts::Map uses = uses_.Take();
  if (uses.empty()) return {};
  MutexLock lock(store_->write_mutex());
  StoreBatch batch;
  for (auto& [fingerprint, use] : uses) {
    std::optional<KernelUse> stored = StoredUse(fingerprint);
    if (!stored && HasNewer(Family::kKernels, UseKey(fingerprint))) continue;
    if (stored) UseCounts::Merge(use, *stored);
    batch.Put(Family::kKernels, UseKey(fingerprint), EncodeKernelUse(use));
  }
  return store_->Write(batch, Durability::kSoon);
}

uint64_t CacheImpl::StoredQuarantineCount() {
  uint64_t count = 0;
  store_->Read(Family::kMeta, QuarantineCountKey(), [&](std::string_view, std::string_view value, CacheLayer layer) {
    Result<std::string_view> body = Unseal(ValueType::kMeta, kStateVersion, value);
    if (body && layer != CacheLayer::kSystem) count = ByteReader(*body).Varint().value_or(0);
    return Take::kTaken;
  });
  return count;
}

void CacheImpl::ReadLosses() {
  store_->Read(Family::kMeta, LossesKey(), [&](std::string_view, std::string_view value, CacheLayer layer) {
    Result<std::string_view> body = Unseal(ValueType::kMeta, kStateVersion, value);
    if (!body || layer == CacheLayer::kSystem) return Take::kTaken;
    ByteReader in(*body);
    MutexLock lock(notes_mutex_);
    losses_.count = in.Varint().value_or(0);
    for (uint64_t left = in.Count(kMostLosses).value_or(0); left > 0; --left) {
      Result<std::string_view> text = in.String(kMostLossText);
      if (!text) break;
      losses_.unseen.emplace_back(*text);
    }
    return Take::kTaken;
  });
}

// Takes over what the store lost meanwhile.
void CacheImpl::KeepLosses() {
  std::vector<std::string> lost = store_->TakeLosses();
  if (lost.empty()) return;
  const auto today = std::chrono::floor<std::chrono::days>(options_.clock->WallNow());
  const std::chrono::year_month_day day(today);
  {
    MutexLock lock(notes_mutex_);
    for (const std::string& text : lost) {
      ++losses_.count;
      if (losses_.unseen.size() >= kMostLosses) losses_.unseen.erase(losses_.unseen.begin());
      losses_.unseen.push_back(fmt::format("{:04}-{:02}-{:02}: damage in the cache: {}", static_cast<int>(day.year()),
                                           static_cast<unsigned>(day.month()), static_cast<unsigned>(day.day()), text)
                                   .substr(0, kMostLossText));
    }
  }
  if (!options_.inspect) WriteLosses();
}

void CacheImpl::WriteLosses() {
  ByteWriter out;
  {
    MutexLock lock(notes_mutex_);
    out.Varint(losses_.count);
    out.Varint(losses_.unseen.size());
    for (const std::string& text : losses_.unseen) out.String(text);
  }
  StoreBatch batch;
  batch.Put(Family::kMeta, LossesKey(), Seal(ValueType::kMeta, kStateVersion, out.view()));
  MutexLock lock(store_->write_mutex());
  (void)store_->Write(batch, Durability::kSoon);  // what cannot be written waits in memory
}

Result<void> CacheImpl::MoveDamaged() {
  std::vector<Damaged> damaged;
  {
    MutexLock lock(notes_mutex_);
    damaged.swap(damaged_);
  }
  if (damaged.empty()) return {};
  const bool unreadable = std::ranges::any_of(damaged, [](const Damaged& one) { return !one.value; });
  if (unreadable) (void)store_->Mend();  // what that brings back stays
  MutexLock lock(store_->write_mutex());
  StoreBatch batch;
  bool index_touched = false;
  for (const Damaged& one : damaged) {
    // Only what is still there: a writer may have replaced it meanwhile.
    bool same = !one.value.has_value();
    store_->Read(one.family, one.key, [&](std::string_view, std::string_view now, CacheLayer layer) {
      same = one.value == now && one.layer == layer;
      return Take::kTaken;
    });
    if (!same) continue;
    batch.Delete(one.family, one.key);
    index_touched |= one.family == Family::kKernels;
    if (++quarantined_ > kMostKept) continue;
    std::string_view value = one.value ? *one.value : std::string_view();
    ByteWriter out;
    out.U8(static_cast<uint8_t>(one.family));
    out.String(one.key);
    out.String(one.reason.message);
    out.SignedVarint(options_.clock->WallNow().time_since_epoch().count());
    out.Varint(value.size());
    out.String(value.substr(0, kKeptOfDamaged));
    batch.Put(Family::kMeta, QuarantineKey(one.family, one.key),
              Seal(ValueType::kQuarantined, kQuarantinedVersion, out.view()));
  }
  if (batch.empty()) return {};
  pinned_bytes_.reset();
  ByteWriter count;
  count.Varint(quarantined_);
  batch.Put(Family::kMeta, QuarantineCountKey(), Seal(ValueType::kMeta, kStateVersion, count.view()));
  HONE_TRY(store_->Write(batch, Durability::kSoon));
  if (index_touched) rebuild_index_ = true;
  return {};
}

// Gives every record its kernel's and class's row again, after rows were lost.
void CacheImpl::RebuildIndex(std::stop_token stop) {
  constexpr size_t kChunk = 256;
  std::vector<Record> chunk;
  auto write = [&] {
    MutexLock lock(store_->write_mutex());
    StoreBatch batch;
    for (const Record& record : chunk) AddIndexRows(record, ClassTextFor(record), batch);
    (void)store_->Write(batch, Durability::kSoon);
    chunk.clear();
  };
  ScanRecords("", [&](Found&& found) {
    if (found.layer != CacheLayer::kSystem) chunk.push_back(std::move(found.record));
    if (chunk.size() >= kChunk) write();
    return !stop.stop_requested();
  });
  write();
}

}  // namespace hone
