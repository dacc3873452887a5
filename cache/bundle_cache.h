// A cache that serves what signed bundles hold and keeps nothing: for devices without a compiler. Records and code stay
// in the bundles' files and are unpacked when they are asked for; in memory is where each lies, and which code was
// checked since the start.
//
// A kernel may be there for several targets. What suits this device best is served: see BundleCacheOptions::suits.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cache/bundle_directory.h"
#include "cache/schedule_cache.h"

namespace hone {

struct BundleCacheOptions {
  std::vector<std::string> directories;
  TrustedKeys keys;
  std::string target;  // this device's, PrintTarget
  // How well code for a target suits the device, the more the better; 0: it does not run here.
  std::function<uint64_t(const std::string& target)> suits;
  const Clock* clock = &Clock::Real();
};

// Thread-safe.
class BundleCache final : public ScheduleCache {
 public:
  static Result<std::unique_ptr<BundleCache>> Open(BundleCacheOptions options);

  size_t bundles() const { return held_.bundles.size(); }
  size_t records() const { return places_.size(); }  // with code that runs here
  const std::vector<std::string>& left_out() const { return held_.left_out; }

  // Of a key with this device's target the best that there is, made for it or another, for as many threads if possible;
  // of a key with another target, that one's.
  Result<std::optional<CacheHit>> Lookup(const CacheKey& key, Counting counting) override;
  Result<std::optional<std::vector<std::byte>>> Artifact(const Record& record) override;
  bool IsCheckedHere(const Record& record) const override { return CheckOf(record) == ArtifactCheck::kHere; }
  ArtifactCheck CheckOf(const Record& record) const override;
  // Remembers that its artifact was checked, and nothing else of it. kUnsupported if no bundle holds it.
  Result<void> Put(const NewRecord& entry, Durability durability) override;
  // The records of ranges of sizes that hold kernels of that class, of each range the one that suits best.
  Result<std::vector<Record>> RangesOf(const Fingerprint& class_fingerprint) const;
  void NoteUse(const Fingerprint& fingerprint, const Fingerprint& class_fingerprint, uint64_t calls) override;
  Result<KernelUse> UseOf(const Fingerprint& fingerprint) override;
  Result<std::vector<Fingerprint>> FindByPrefix(std::string_view hex_digits, size_t limit) override;
  Result<std::vector<Record>> RecordsOf(const Fingerprint& fingerprint) override;
  Result<void> ForEachRecord(const std::optional<Fingerprint>& class_fingerprint,
                             const std::function<bool(const Record&)>& visit) override;
  Result<bool> ForEachRecordAfter(std::string& place, const std::function<bool(const Record&)>& visit) override;
  CacheStats Stats() override;

  // Bundles are chosen when they are opened.
  void Distrust(std::optional<std::set<Digest256>>) override {}

  // Nothing is kept but what bundles hold: none of these is there, and what would change it is kUnsupported.
  Result<void> Pin(const Fingerprint&, bool) override { return Unchangeable(); }
  Result<void> Remove(const Fingerprint&) override { return Unchangeable(); }
  Result<std::vector<ClassSummary>> Classes() override { return Unchangeable(); }
  Result<std::optional<std::string>> GetMeta(std::string_view) override { return std::optional<std::string>(); }
  Result<void> PutMeta(std::string_view, std::string_view, Durability) override { return Unchangeable(); }
  Result<std::optional<std::string>> GetNote(const CacheKey&, std::string_view) override {
    return std::optional<std::string>();
  }
  Result<void> PutNote(const CacheKey&, std::string_view, std::string_view, Durability,
                       std::optional<WallTime>) override {
    return Unchangeable();
  }
  Result<void> AppendTrials(const CacheKey&, std::span<const TrialRecord>, std::optional<WallTime>) override {
    return Unchangeable();
  }
  Result<void> ForEachTrial(const CacheKey&, const std::function<bool(const TrialRecord&)>&) override { return {}; }
  Result<std::optional<std::string>> GetModel(std::string_view) override { return std::optional<std::string>(); }
  Result<void> PutModel(std::string_view, std::string_view) override { return Unchangeable(); }
  Result<VerifyReport> Verify(std::stop_token) override { return Unchangeable(); }
  Result<EvictionReport> EvictTo(uint64_t, std::stop_token) override { return Unchangeable(); }
  Result<void> Flush() override { return {}; }

 private:
  // A record, and what is known of it. Sorted by kernel; of a kernel what suits best comes first.
  struct Place {
    Fingerprint fingerprint;
    Fingerprint class_fingerprint;
    Digest256 artifact{};
    EntryPlace entry;
    uint32_t bundle = 0;  // of held_
    uint32_t target = 0;  // of targets_
    int32_t threads = 0;
    std::optional<Fingerprint> class_within = std::nullopt;  // of a range of sizes: the class of the kernels in it
  };
  struct Use {
    std::atomic<uint64_t> calls{0};
    std::atomic<int64_t> last_ms{0};
    std::atomic<bool> is_checked{false};  // its artifact; kept at the first of the kernel's that name it
  };

  explicit BundleCache(BundleCacheOptions options) : options_(std::move(options)) {}
  static Error Unchangeable();
  Result<void> Index();
  Result<void> IndexBundle(uint32_t bundle);
  // Those of a kernel: first and behind the last.
  std::pair<size_t, size_t> RangeOf(const Fingerprint& fingerprint) const;
  // Of that code.
  std::optional<size_t> Find(const Record& record) const;
  Result<Record> Read(const Place& place) const;

  const BundleCacheOptions options_;
  HeldBundles held_;
  std::vector<std::string> targets_;  // that run here
  std::vector<uint64_t> suits_;       // by target
  std::vector<Place> places_;
  std::unique_ptr<Use[]> uses_;  // by place; a kernel's calls are counted at its first
  std::atomic<uint64_t> hits_{0}, misses_{0}, collisions_{0};
};

}  // namespace hone
