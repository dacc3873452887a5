#include "cache/bundle_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <tuple>
#include <utility>

#include "ir/target.h"

namespace hone {
namespace {

bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

// The class of the kernels of fixed sizes that a range holds: class texts mark sizes that are ranges, and these go.
// nullopt: it has none.
std::optional<Fingerprint> ClassWithin(std::string class_text) {
  constexpr std::string_view kRange = "=..";
  const size_t where = class_text.find("\nwhere ");
  if (where == std::string::npos) return std::nullopt;
  bool has_ranges = false;
  for (size_t at = where; (at = class_text.find(kRange, at)) < class_text.find('\n', where + 1); has_ranges = true)
    class_text.erase(at, kRange.size());
  if (!has_ranges) return std::nullopt;
  return Fingerprint{Hash128(class_text)};
}

}  // namespace

Error BundleCache::Unchangeable() {
  return {ErrorKind::kUnsupported, "only what bundles hold is served here, and none of it can be changed",
          "honed-edge"};
}

Result<std::unique_ptr<BundleCache>> BundleCache::Open(BundleCacheOptions options) {
  std::unique_ptr<BundleCache> cache(new BundleCache(std::move(options)));
  const BundleCacheOptions& opened = cache->options_;
  cache->held_ = OpenBundles(opened.directories, opened.keys, opened.clock->WallNow());
  HONE_TRY(cache->Index());
  return cache;
}

Result<void> BundleCache::Index() {
  // A bundle that turns out to be unsound takes what was read of it along.
  for (uint32_t i = 0; i < held_.bundles.size();) {
    const size_t before = places_.size();
    Result<void> read = IndexBundle(i);
    if (read) {
      held_.bundles[i].bytes.ForgetPages();
      ++i;
      continue;
    }
    places_.resize(before);
    held_.left_out.push_back(fmt::format("{}: {}", held_.bundles[i].path, read.error().Text()));
    held_.bundles.erase(held_.bundles.begin() + i);
  }
  std::ranges::stable_sort(places_, [&](const Place& a, const Place& b) {
    return std::tuple(a.fingerprint, suits_[b.target]) < std::tuple(b.fingerprint, suits_[a.target]);
  });
  places_.shrink_to_fit();
  uses_ = std::make_unique<Use[]>(places_.size());
  return {};
}

Result<void> BundleCache::IndexBundle(uint32_t bundle) {
  return held_.bundles[bundle].bundle.ForEachPlacedEntry([&](BundleEntry&& entry, EntryPlace where) -> Result<void> {
    const Record& record = entry.record;
    if (!record.artifact_digest) return {};
    const std::string target = TargetInWordsOfToday(record.key.target);
    auto known = std::ranges::find(targets_, target);
    if (known == targets_.end()) {
      const uint64_t suits = options_.suits(target);
      targets_.push_back(target);
      suits_.push_back(suits);
      known = targets_.end() - 1;
    }
    const auto number = static_cast<uint32_t>(known - targets_.begin());
    if (suits_[number] == 0) return {};
    places_.push_back({record.key.fingerprint, record.key.class_fingerprint, *record.artifact_digest, where, bundle,
                       number, record.key.threads, ClassWithin(entry.class_text)});
    return {};
  });
}

std::pair<size_t, size_t> BundleCache::RangeOf(const Fingerprint& fingerprint) const {
  auto found = std::ranges::equal_range(places_, fingerprint, {}, &Place::fingerprint);
  return {static_cast<size_t>(found.begin() - places_.begin()), static_cast<size_t>(found.end() - places_.begin())};
}

std::optional<size_t> BundleCache::Find(const Record& record) const {
  const auto [begin, end] = RangeOf(record.key.fingerprint);
  for (size_t i = begin; i < end; ++i)
    if (record.artifact_digest == places_[i].artifact) return i;
  return std::nullopt;
}

// As an import would have stored it.
Result<Record> BundleCache::Read(const Place& place) const {
  const HeldBundle& held = held_.bundles[place.bundle];
  Result<BundleEntry> entry = held.bundle.EntryAt(place.entry);
  held.bytes.ForgetPages();
  if (!entry) return std::move(entry).error().Context(held.path);
  Record record = std::move(entry->record);
  record.key.target = targets_[place.target];
  const BundleManifest& manifest = held.bundle.manifest();
  record.source = RecordSource{manifest.name, manifest.version, held.key.key, record.origin, true};
  record.origin = Origin::kImported;
  record.donor.reset();
  if (!IsPrintable(record.label)) record.label = "kernel";
  return record;
}

Result<std::optional<CacheHit>> BundleCache::Lookup(const CacheKey& key, Counting counting) {
  const auto [begin, end] = RangeOf(key.fingerprint);
  std::vector<size_t> order(end - begin);
  std::iota(order.begin(), order.end(), begin);
  if (key.target != options_.target)
    std::erase_if(order, [&](size_t i) { return targets_[places_[i].target] != key.target; });
  std::ranges::stable_partition(order, [&](size_t i) { return places_[i].threads == key.threads; });
  for (size_t i : order) {
    Record record = HONE_TRY(Read(places_[i]));
    if (record.key.canonical != key.canonical) {
      ++collisions_;
      continue;
    }
    ++hits_;
    if (counting == Counting::kAsUse) NoteUse(key.fingerprint, key.class_fingerprint, 1);
    const bool is_checked = IsCheckedHere(record);
    return CacheHit{std::move(record), CacheLayer::kSystem, is_checked, !is_checked};
  }
  ++misses_;
  return std::optional<CacheHit>();
}

Result<std::vector<Record>> BundleCache::RangesOf(const Fingerprint& class_fingerprint) const {
  std::vector<Record> records;
  const Place* before = nullptr;
  for (const Place& place : places_) {
    if (place.class_within != class_fingerprint) continue;
    if (before == nullptr || before->fingerprint != place.fingerprint) records.push_back(HONE_TRY(Read(place)));
    before = &place;
  }
  return records;
}

Result<std::optional<std::vector<std::byte>>> BundleCache::Artifact(const Record& record) {
  const std::optional<size_t> place = Find(record);
  if (!place) return std::optional<std::vector<std::byte>>();
  const HeldBundle& held = held_.bundles[places_[*place].bundle];
  Result<std::vector<std::byte>> code = held.bundle.Artifact(places_[*place].artifact);
  held.bytes.ForgetPages();
  if (!code) return std::move(code).error().Context(held.path);
  return *std::move(code);
}

ArtifactCheck BundleCache::CheckOf(const Record& record) const {
  const std::optional<size_t> place = Find(record);
  if (!place) return ArtifactCheck::kNone;
  return uses_[*place].is_checked ? ArtifactCheck::kHere : ArtifactCheck::kTrusted;
}

Result<void> BundleCache::Put(const NewRecord& entry, Durability) {
  const std::optional<size_t> place = Find(entry.record);
  if (!place) return Unchangeable();
  if (entry.check == ArtifactCheck::kHere) uses_[*place].is_checked = true;
  return {};
}

void BundleCache::NoteUse(const Fingerprint& fingerprint, const Fingerprint&, uint64_t calls) {
  const auto [begin, end] = RangeOf(fingerprint);
  if (begin == end) return;
  uses_[begin].calls += calls;
  uses_[begin].last_ms = options_.clock->WallNow().time_since_epoch().count();
}

Result<KernelUse> BundleCache::UseOf(const Fingerprint& fingerprint) {
  const auto [begin, end] = RangeOf(fingerprint);
  if (begin == end) return KernelUse{};
  const WallTime last{std::chrono::milliseconds(uses_[begin].last_ms)};
  return KernelUse{places_[begin].class_fingerprint, uses_[begin].calls, last};
}

Result<std::vector<Fingerprint>> BundleCache::FindByPrefix(std::string_view hex_digits, size_t limit) {
  const std::string wanted = HONE_TRY(BeginningOfFingerprint(hex_digits));
  std::vector<Fingerprint> found;
  for (const Place& place : places_) {
    if (found.size() == limit) break;
    const bool is_known = !found.empty() && found.back() == place.fingerprint;
    if (!is_known && place.fingerprint.Hex().starts_with(wanted)) found.push_back(place.fingerprint);
  }
  return found;
}

Result<std::vector<Record>> BundleCache::RecordsOf(const Fingerprint& fingerprint) {
  std::vector<Record> records;
  const auto [begin, end] = RangeOf(fingerprint);
  for (size_t i = begin; i < end; ++i) records.push_back(HONE_TRY(Read(places_[i])));
  return records;
}

Result<void> BundleCache::ForEachRecord(const std::optional<Fingerprint>& class_fingerprint,
                                        const std::function<bool(const Record&)>& visit) {
  for (const Place& place : places_) {
    if (class_fingerprint && place.class_fingerprint != *class_fingerprint) continue;
    if (!visit(HONE_TRY(Read(place)))) break;
  }
  return {};
}

// A place is the number of the next record: nothing comes or goes.
Result<bool> BundleCache::ForEachRecordAfter(std::string& place, const std::function<bool(const Record&)>& visit) {
  size_t next = 0;
  std::from_chars(place.data(), place.data() + place.size(), next);
  bool goes_on = true;
  while (goes_on && next < places_.size()) goes_on = visit(HONE_TRY(Read(places_[next++])));
  place = std::to_string(next);
  return next >= places_.size();
}

CacheStats BundleCache::Stats() {
  CacheStats stats;
  stats.hits = hits_;
  stats.misses = misses_;
  stats.collisions = collisions_;
  CacheStats::Family records{std::string(NameOf(Family::kRecords)), places_.size(), 0};
  for (const HeldBundle& held : held_.bundles) records.bytes += held.bundle.bytes();
  stats.disk_bytes = records.bytes;
  stats.families.push_back(std::move(records));
  if (!held_.left_out.empty())
    stats.problem = held_.left_out.size() == 1 ? "left out: " + held_.left_out.front()
                                               : fmt::format("{} bundles are left out, the first: {}",
                                                             held_.left_out.size(), held_.left_out.front());
  return stats;
}

}  // namespace hone
