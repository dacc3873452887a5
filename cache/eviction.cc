// Keeps the cache below its cap: databases set aside by repairs go first, then logs of trials that take more than a
// quarter of it, then artifacts (compiled again from their schedules when asked for), then records; the kernels not
// used for longest first, pinned ones never (but for their logs). Use that came often counts for longer: a flood of
// kernels that are asked for once does not push out what programs live on.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "cache/cache_impl.h"

namespace hone {
namespace {

constexpr uint64_t kDiskBlock = 4096;
constexpr uint64_t kTrialsShare = 4;    // beyond this part of the cap logs of trials go first
constexpr size_t kKernelsPerLock = 64;  // writers wait for at most this many

// Logs and files that are no longer used are deleted by another thread, which may take so long.
constexpr std::chrono::seconds kDeletion{2};
constexpr std::chrono::milliseconds kDeletionLook{10};

// For so much longer a kernel counts as used for each time that its calls have doubled; a month at most.
constexpr std::chrono::hours kLongerPerDoubling{24};
constexpr double kMostDoublings = 30;

WallTime Worth(WallTime last_used, uint64_t calls) {
  const double doublings = std::min(kMostDoublings, std::log2(static_cast<double>(std::max<uint64_t>(calls, 1))));
  return last_used + std::chrono::duration_cast<std::chrono::milliseconds>(kLongerPerDoubling * doublings);
}

}  // namespace

// Every kernel, the one that is worth least first.
std::vector<CacheImpl::Candidate> CacheImpl::LeastWorthFirst() {
  std::vector<Candidate> candidates;
  store_->Scan(Family::kKernels, std::string(1, kUseTag),
               [&](std::string_view key, std::string_view value, CacheLayer layer) {
                 if (layer == CacheLayer::kSystem) return Take::kTaken;
                 std::optional<Fingerprint> fingerprint = TaggedFingerprint(kUseTag, key);
                 Result<KernelUse> use = DecodeKernelUse(value);
                 if (fingerprint && use) {
                   const WallTime last = std::max(use->last_used, uses_.Of(*fingerprint).last_used);
                   candidates.push_back({Worth(last, use->calls), *fingerprint, use->class_fingerprint});
                 }
                 return Take::kTaken;
               });
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.worth < b.worth; });
  return candidates;
}

// Removes the log of one kernel's trials, its artifacts, or the kernel. Returns how many of them went into the batch.
uint64_t CacheImpl::EvictKernel(const Candidate& candidate, Evicts what, StoreBatch& batch) {
  const std::string prefix = KernelPrefix(candidate.class_fingerprint, candidate.fingerprint);
  if (what == Evicts::kTrials) return DeleteTrials(prefix, batch);
  const bool records = what == Evicts::kRecords;
  uint64_t removed = 0;
  bool kept = false;
  ScanRecords(prefix, [&](Found&& found) {
    if (found.layer == CacheLayer::kSystem) return true;
    bool has_artifact = found.record.artifact_digest.has_value();
    if (found.record.pinned || (!records && !has_artifact)) {
      kept = true;
      return true;
    }
    ++removed;
    batch.Delete(Family::kArtifacts, found.key);
    if (records) {
      batch.Delete(Family::kRecords, found.key);
      DeleteNotes(found.key, batch);
      DeleteTrials(found.key, batch);
      return true;
    }
    found.record.artifact_digest.reset();
    found.record.artifact_bytes = 0;
    batch.Put(Family::kRecords, found.key, Encoded(found.record, ArtifactCheck::kNone));
    return true;
  });
  if (records && !kept) {
    batch.Delete(Family::kKernels, UseKey(candidate.fingerprint));
    uses_.Forget(candidate.fingerprint);
  }
  return removed;
}

// Gives the space of what was removed back, until the directory is small enough: of artifacts, first that in the oldest
// blob files, where most of it lies; all live artifacts are rewritten only if that does not suffice.
Result<void> CacheImpl::Reclaim(Evicts what, uint64_t bytes, const std::stop_token& stop) {
  for (double blob_share : {0.25, 0.5, 1.0}) {
    std::shared_ptr<Store> store = store_->user();
    if (!store || stop.stop_requested()) return {};
    HONE_TRY(store_->Flush());
    if (what != Evicts::kArtifacts) HONE_TRY(store->Compact(Family::kTrials, 0));
    if (what == Evicts::kTrials) return {};
    HONE_TRY(store->Compact(Family::kArtifacts, blob_share));
    if (what == Evicts::kRecords) {
      HONE_TRY(store->Compact(Family::kRecords, 0));
      HONE_TRY(store->Compact(Family::kKernels, 0));
    }
    if (HONE_TRY(KeptBytes()) <= bytes) return {};
  }
  return {};
}

// What is on disk once what is being written is in tables and what nobody uses is deleted: neither the log of what was
// just written counts, nor a file that goes anyway. More would be removed for them than is too much.
Result<uint64_t> CacheImpl::KeptBytes() {
  HONE_TRY(store_->Flush());
  const std::shared_ptr<Store> store = store_->user();
  if (!store) return uint64_t{0};
  uint64_t tables = 0;
  uint64_t bytes = CacheBytes(options_.directory, [&](std::string_view name) {
    const bool is_table = name.ends_with(".sst") || name.ends_with(".blob");
    tables += is_table;
    return !is_table && !name.ends_with(".log");
  });
  bytes += tables * kDiskBlock;  // at most so much more is allocated than a table's size
  for (size_t family = 0; family < kFamilies; ++family) bytes += store->SizeOf(static_cast<Family>(family)).bytes;
  return bytes;
}

// Removes about as much as is too much, reclaims it, looks again, until it is little enough or nothing is left.
Result<CacheImpl::Evicted> CacheImpl::EvictPass(Evicts what, uint64_t bytes, const std::stop_token& stop) {
  constexpr std::array kFamilyOf = {Family::kTrials, Family::kArtifacts, Family::kRecords};
  const std::vector<Candidate> candidates = LeastWorthFirst();
  Evicted evicted;
  size_t next = 0;
  for (;;) {
    const uint64_t kept = HONE_TRY(KeptBytes());
    std::shared_ptr<Store> store = store_->user();
    evicted.suffices = kept <= bytes || !store || stop.stop_requested();
    if (evicted.suffices) return evicted;
    FamilySize size = store->SizeOf(kFamilyOf[static_cast<size_t>(what)]);
    uint64_t excess = kept - bytes;
    if (what == Evicts::kTrials) excess = std::min(excess, size.bytes - std::min(size.bytes, bytes / kTrialsShare));
    if (excess == 0) return evicted;
    uint64_t each = std::max<uint64_t>(1, size.bytes / std::max<uint64_t>(1, size.entries));
    uint64_t wanted = excess / each + 1, gone = 0;
    while (gone < wanted && next < candidates.size() && !stop.stop_requested()) {
      MutexLock lock(store_->write_mutex());
      StoreBatch batch;
      for (size_t i = 0; i < kKernelsPerLock && gone < wanted && next < candidates.size(); ++i)
        gone += EvictKernel(candidates[next++], what, batch);
      HONE_TRY(store_->Write(batch, Durability::kSoon));
    }
    if (gone == 0) return evicted;
    evicted.removed += gone;
    HONE_TRY(Reclaim(what, bytes, stop));
  }
}

void CacheImpl::AwaitDeletions(uint64_t bytes, const std::stop_token& stop) const {
  const MonotonicTime until = std::chrono::steady_clock::now() + kDeletion;
  while (CacheBytes(options_.directory) > bytes && !stop.stop_requested() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(kDeletionLook);
}

Result<EvictionReport> CacheImpl::EvictTo(uint64_t bytes, std::stop_token stop) {
  if (options_.inspect || options_.directory.empty())
    return Error{ErrorKind::kUnsupported, "only a cache on disk that is open for writing evicts", options_.directory};
  MutexLock lock(evict_mutex_);
  EvictionReport report;
  report.bytes_before = report.bytes_after = CacheBytes(options_.directory);
  if (report.bytes_before <= bytes) return report;
  HONE_TRY(WriteUses());
  HONE_TRY(store_->Flush());
  RemoveDamagedCopies(options_.directory);
  Evicted evicted = HONE_TRY(EvictPass(Evicts::kTrials, bytes, stop));
  report.trials = evicted.removed;
  while (!evicted.suffices) {  // again for what was written meanwhile
    evicted = HONE_TRY(EvictPass(Evicts::kArtifacts, bytes, stop));
    report.artifacts += evicted.removed;
    if (evicted.removed == 0) break;
  }
  // Records only when there is no artifact left.
  if (!evicted.suffices) {
    evicted = HONE_TRY(EvictPass(Evicts::kRecords, bytes, stop));
    report.records = evicted.removed;
  }
  if (evicted.suffices) AwaitDeletions(bytes, stop);
  report.bytes_after = CacheBytes(options_.directory);
  evicted_artifacts_ += report.artifacts;
  evicted_records_ += report.records;
  LogInfo("cache_evicted", {{"trials", report.trials},
                            {"artifacts", report.artifacts},
                            {"records", report.records},
                            {"bytes_before", report.bytes_before},
                            {"bytes_after", report.bytes_after}});
  return report;
}

}  // namespace hone
