#include "daemon/metrics.h"

#include <algorithm>
#include <cmath>

namespace hone {

void Histogram::Add(double us) {
  double octaves = us > kFirst ? std::log2(us / kFirst) : 0;
  size_t bucket = std::min(kBuckets - 1, static_cast<size_t>(octaves * kPerOctave));
  buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
}

uint64_t Histogram::count() const {
  uint64_t count = 0;
  for (const auto& bucket : buckets_) count += bucket.load(std::memory_order_relaxed);
  return count;
}

double Histogram::Quantile(double q) const {
  uint64_t all = count();
  if (all == 0) return 0;
  auto wanted = static_cast<uint64_t>(std::ceil(q * static_cast<double>(all)));
  uint64_t below = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    below += buckets_[i].load(std::memory_order_relaxed);
    if (below >= std::max<uint64_t>(wanted, 1)) return kFirst * std::exp2((static_cast<double>(i) + 1) / kPerOctave);
  }
  return kFirst * std::exp2(static_cast<double>(kBuckets) / kPerOctave);
}

std::vector<Stat> Metrics::Snapshot() const {
  std::vector<Stat> stats;
  auto add = [&](std::string name, const auto& value) {
    stats.push_back({std::move(name), static_cast<double>(value.load(std::memory_order_relaxed))});
  };
  add("hits_memory", hits_memory);
  add("hits_disk", hits_disk);
  add("trials", trials);
  add("trials_failed", trials_failed);
  for (size_t v = static_cast<size_t>(Verdict::kTimed); v < trials_by_verdict.size(); ++v) {
    std::string name = "trials_" + std::string(VerdictName(static_cast<Verdict>(v)));
    std::replace(name.begin(), name.end(), ' ', '_');
    add(std::move(name), trials_by_verdict[v]);
  }
  add("refined", refined);
  add("imported_checked", imported_checked);
  add("imported_refused", imported_refused);
  add("transferred", transferred);
  add("misses", misses);
  add("joined", joined);
  add("not_compiled", not_compiled);
  add("refused", refused);
  add("failed", failed);
  add("busy", busy);
  add("over_budget", over_budget);
  add("abandoned", abandoned);
  add("displaced", displaced);
  add("connections", connections);
  add("connections_accepted", connections_accepted);
  add("connections_refused", connections_refused);
  add("connections_dropped", connections_dropped);
  add("connections_lingering", connections_lingering);
  add("held_back", held_back);
  add("bad_frames", bad_frames);
  add("uninvited_descriptors", uninvited_descriptors);
  add("reloads", reloads);
  add("watchers", watchers);
  add("watches", watches);
  add("notices", notices);
  add("calls_reported", calls_reported);
  add("lookups_queued", lookups_queued);
  add("idle_interrupts", idle_interrupts);
  add("builds_queued", builds_queued);
  add("imports_waiting", imports_waiting);
  add("builds_running", builds_running);
  add("hot_entries", hot_entries);
  add("hot_bytes", hot_bytes);
  auto times = [&](const std::string& name, const Histogram& histogram) {
    stats.push_back({name + "_count", static_cast<double>(histogram.count())});
    stats.push_back({name + "_p50_us", histogram.Quantile(0.5)});
    stats.push_back({name + "_p95_us", histogram.Quantile(0.95)});
    stats.push_back({name + "_p99_us", histogram.Quantile(0.99)});
  };
  times("hit", hit);
  times("disk_hit", disk_hit);
  times("miss", miss);
  times("step_parse", parse);
  times("step_lookup", lookup);
  times("step_transfer", transfer);
  times("step_reference", reference);
  times("step_build", build);
  times("step_check", check);
  times("step_store", store);
  return stats;
}

}  // namespace hone
