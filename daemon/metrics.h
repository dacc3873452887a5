// What honed counts and times, for `hone stats`, `hone status` and the benchmarks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/trial.h"
#include "client/protocol/protocol.h"

namespace hone {

// Times in buckets that grow by 2^(1/8), 9 %, from 0.1 µs to 30 minutes. Thread-safe, no locks.
class Histogram {
 public:
  void Add(double us);
  uint64_t count() const;
  // The time that a share `q` of all were below, to 9 %; 0 if there were none.
  double Quantile(double q) const;

 private:
  static constexpr int kPerOctave = 8;
  static constexpr double kFirst = 0.1;
  static constexpr size_t kBuckets = 280;
  std::array<std::atomic<uint64_t>, kBuckets> buckets_{};
};

// Thread-safe. Counters only rise; gauges are the present.
struct Metrics {
  using Counter = std::atomic<uint64_t>;

  Counter hits_memory{0};    // code was in memory
  Counter trials{0};         // candidates that a search built and ran …
  Counter trials_failed{0};  // … of them without a time
  std::array<Counter, static_cast<size_t>(Verdict::kDisturbed) + 1> trials_by_verdict{};  // … by what became of them
  Counter refined{0};           // kernels that got better code
  Counter transferred{0};       // misses that were served with a neighbour's schedule
  Counter imported_checked{0};  // artifacts of bundles that were checked here, and are served from then on …
  Counter imported_refused{0};  // … and those that failed it: their schedules are compiled
  Counter idle_interrupts{0};   // idle time that ended because somebody wanted something
  Counter hits_disk{0};         // code was in the cache on disk
  Counter misses{0};            // compiled
  Counter joined{0};            // waited for a compilation that another request had started
  Counter not_compiled{0};      // a miss that asked for no compilation
  Counter refused{0};           // the kernel's own fault: syntax, limits, not on this target
  Counter failed{0};            // could not be built, or computed something wrong
  Counter busy{0};              // told to come again
  Counter over_budget{0};       // answered "not within the budget"
  Counter displaced{0};         // compilations and searches that made room for another client's
  Counter abandoned{0};         // clients that left before their answer; queued work dropped
  Counter connections_accepted{0};
  Counter connections_refused{0};  // other users
  Counter connections_dropped{0};  // broke the protocol, stopped reading, or made room for others
  Counter held_back{0};            // answers that had to wait until earlier ones were read
  Counter bad_frames{0};
  Counter uninvited_descriptors{0};
  Counter reloads{0};
  Counter notices{0};         // of better code, to clients that hold older
  Counter calls_reported{0};  // of kernels, by the clients that hold them

  // Gauges.
  std::atomic<uint32_t> connections{0};
  std::atomic<uint32_t> connections_lingering{0};  // closed, with descriptors that their clients have not read
  std::atomic<uint32_t> watchers{0};               // connections that want to hear of better code …
  std::atomic<uint32_t> watches{0};                // … and what they hold
  std::atomic<uint32_t> lookups_queued{0};
  std::atomic<uint32_t> builds_queued{0};
  std::atomic<uint32_t> builds_running{0};
  std::atomic<uint64_t> imports_waiting{0};  // kernels that bundles brought, to be made ready
  std::atomic<uint64_t> hot_bytes{0};
  std::atomic<uint64_t> hot_entries{0};

  Histogram hit;       // from a read request to its answer handed to the kernel
  Histogram disk_hit;  // from a read request to its answer
  Histogram miss;
  Histogram parse, lookup, transfer, reference, build, check, store;  // the miss' steps

  std::vector<Stat> Snapshot() const;
};

}  // namespace hone
