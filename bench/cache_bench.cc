// The cache with many records: how fast it opens, looks up and lists, and how much disk a record takes.
//
//   cache_bench [--records N] [--artifacts N] [--dir DIR] [--keep]
//
// Records are synthetic but shaped as real ones: convolutions and matrix products of forty classes, each with sizes of
// its own, so that canonical texts, requests and schedules are unique. Marks, for 10^6 records: opening below one
// second, lookup p99 below 100 µs, below 1 KB a record on disk. The fill goes through Put, as served misses do; lookups
// run in random order after a restart, so the cache's own memory is cold and the kernel's page cache is warm.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "bench/mark.h"
#include "cache/schedule_cache.h"

namespace hone {
namespace {

struct Arguments {
  int records = 1'000'000;
  int artifacts = 1'000;
  std::string directory;
  bool keep = false;
};

const std::string kTarget =
    "avx512 cpu=sapphirerapids features=avx512bf16,avx512fp16,avx512vnni l1=49152 l2=2097152 l3=33554432 cores=2";
const std::string kCode = "llvm-19.1.7 abi=1 avx512 cpu=sapphirerapids features=avx512bf16,avx512fp16,avx512vnni";
constexpr int kClasses = 40;

struct Synthetic {
  Canonical canonical;
  std::string request, label, schedule;
};

// Kernel number i; the same every time.
Synthetic Convolution(int64_t i, Rng rng) {
  int64_t variant = i % kClasses, c = 1 + static_cast<int64_t>(rng.Below(512)),
          o = 1 + static_cast<int64_t>(rng.Below(512));
  int64_t h = 7 + static_cast<int64_t>(rng.Below(220)), w = 7 + i / kClasses % 25'000, r = 1 + variant % 7,
          stride = 1 + variant / 7 % 2;
  int64_t p = (h + 2 - r) / stride + 1, q = (w + 2 - r) / stride + 1;
  std::string epilogue = variant % 3 == 0   ? "max(t[n, o, y, x] + b[o], 0)"
                         : variant % 3 == 1 ? "t[n, o, y, x] + b[o]"
                                            : "t[n, o, y, x] + b[o] + a[n, o, y, x]";
  Synthetic kernel;
  kernel.label = fmt::format("conv2d+bias{}", variant % 3 == 0 ? "+relu" : variant % 3 == 1 ? "" : "+add");
  kernel.canonical.class_text = fmt::format(
      "kernel k(t0: f32[S0, S1, S2, S3], const t1: f32[S4, S1, {0}, {0}], const t2: f32[S4]) -> t5: f32[S0, S4, S5, "
      "S6] {{\n"
      "  t3: f32[S0, S1, S2 + 2, S3 + 2]\n  t4: f32[S0, S4, S5, S6]\n"
      "  t3[i0, i1, i2, i3] = pad(t0[i0, i1, i2 - 1, i3 - 1], 0)\n"
      "  t4[i0, i1, i2, i3] = sum(r0 < S1, r1 < {0}, r2 < {0}) t3[i0, r0, i2 * {1} + r1, i3 * {1} + r2] * t1[i1, r0, "
      "r1, r2]\n"
      "  t5[i0, i1, i2, i3] = {2}\n}}\n",
      r, stride, epilogue);
  kernel.canonical.shape = {1, c, h, w, o, p, q};
  kernel.canonical.text =
      kernel.canonical.class_text +
      fmt::format("where S0=1, S1={}, S2={}, S3={}, S4={}, S5={}, S6={} accuracy=strict threads=0\n", c, h, w, o, p, q);
  kernel.request =
      fmt::format("conv2d(C={},H={},W={},O={},R={},S={},stride={},pad=1,const=1)+bias", c, h, w, o, r, r, stride);
  kernel.schedule = fmt::format(
      "rewrite fuse_axes t5 i2 i3\ncache_read t1 -> t1p for t4 const [i1/32, r0, r1, r2, i1%32]\nsplit t4.i1 {0} "
      "32\nsplit t4.i2 {1} {2}\n"
      "split t4.r0 {3}\nreorder t4.i1.0 t4.i2.0 t4.r0.0 t4.i1.1 t4.i2.1 t4.r0.1 t4.r1 t4.r2 t4.i2.2 t4.i1.2\n"
      "fuse t4.i1.0 t4.i2.0\nparallel t4.i1.0+i2.0 grain={4}\nvectorize t4.i1.2\nunroll t4.i2.2\nunroll t4.r2\n"
      "compute_at t5 t4.i1.1\nregister_tile t4.r0.0\ntail t4.i1 pad\ntail t4.i2 shift\n",
      1 + rng.Below(8), 1 + rng.Below(16), 1 + rng.Below(14), 1 + rng.Below(64), 1 + rng.Below(8));
  return kernel;
}

Synthetic Kernel(int i) { return Convolution(i, Rng(7).Fork(static_cast<uint64_t>(i))); }

NewRecord EntryOf(const Synthetic& kernel, int i, const std::vector<std::byte>& artifact) {
  Rng rng = Rng(11).Fork(static_cast<uint64_t>(i));
  NewRecord entry;
  Record& record = entry.record;
  record.key = {Fingerprint{Hash128(kernel.canonical.class_text)},
                Fingerprint{Hash128(kernel.canonical.text)},
                kernel.canonical.text,
                kTarget,
                2,
                kCode};
  record.shape = kernel.canonical.shape;
  record.request = kernel.request;
  record.label = kernel.label;
  record.schedule = kernel.schedule;
  record.origin = Origin::kTransferred;
  record.measured = Timing{std::chrono::nanoseconds(10'000 + rng.Below(10'000'000)),
                           std::chrono::nanoseconds(rng.Below(5'000)),
                           CacheTemperature::kWarm,
                           TimeStatistic::kMedian,
                           2,
                           9};
  record.check = {rng.Uniform() * 1e-6, 300, false};
  record.donor = Fingerprint{Hash128(fmt::format("donor {}", rng.Below(1000)))};
  entry.class_text = kernel.canonical.class_text;
  if (!artifact.empty()) {
    entry.artifact = artifact;
  } else {  // as after an eviction, but with the size of what was there
    record.artifact_digest = Hash256(fmt::format("artifact {}", i));
  }
  return entry;
}

std::vector<std::byte> ArtifactOf(int i) {
  Rng rng(static_cast<uint64_t>(i));
  std::vector<std::byte> bytes(24'000);
  for (size_t at = 0; at < bytes.size(); at += 2) bytes[at] = static_cast<std::byte>(rng.Next());
  return bytes;
}

double Percentile(std::vector<double>& values, double share) {
  auto at = values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

std::unique_ptr<ScheduleCache> Open(const CacheOptions& options) {
  Result<std::unique_ptr<ScheduleCache>> cache = ScheduleCache::Open(options);
  if (cache) return *std::move(cache);
  fmt::print(stderr, "cache_bench: {}\n", cache.error().Text());
  std::exit(1);
}

void PrintLatencies(const char* name, std::vector<double>& micros) {
  fmt::print("{:<14} p50 {:6.1f} µs   p99 {:6.1f} µs   p99.9 {:6.1f} µs   max {:8.1f} µs   n={}\n", name,
             Percentile(micros, 0.5), Percentile(micros, 0.99), Percentile(micros, 0.999), Percentile(micros, 1),
             micros.size());
}

double Fill(const Arguments& arguments, const CacheOptions& options) {
  std::unique_ptr<ScheduleCache> cache = Open(options);
  std::vector<double> puts;
  Stopwatch total;
  for (int i = 0; i < arguments.records; ++i) {
    std::vector<std::byte> artifact = i < arguments.artifacts ? ArtifactOf(i) : std::vector<std::byte>();
    NewRecord entry = EntryOf(Kernel(i), i, artifact);
    Stopwatch watch;
    if (!cache->Put(entry, Durability::kSoon)) std::exit(1);
    puts.push_back(watch.Microseconds());
  }
  PrintLatencies("put", puts);
  fmt::print("fill {:.1f} s\n", total.Microseconds() / 1e6);
  Stopwatch watch;
  cache.reset();
  return watch.Microseconds() / 1e6;
}

// Milliseconds of each of a few openings.
std::vector<double> OpenTimes(const CacheOptions& options) {
  std::vector<double> millis;
  for (int round = 0; round < 5; ++round) {
    Stopwatch watch;
    std::unique_ptr<ScheduleCache> cache = Open(options);
    millis.push_back(watch.Microseconds() / 1e3);
  }
  return millis;
}

void Lookups(const Arguments& arguments, ScheduleCache& cache, std::vector<double>& hits, std::vector<double>& misses) {
  Rng rng(3);
  for (int i = 0; i < 50'000; ++i) {
    bool known = !rng.Chance(0.2);
    int number =
        static_cast<int>(rng.Below(static_cast<uint64_t>(arguments.records))) + (known ? 0 : arguments.records);
    CacheKey key = EntryOf(Kernel(number), number, {}).record.key;
    if (!known) key.fingerprint.bytes[3] ^= 1;
    Stopwatch watch;
    Result<std::optional<CacheHit>> hit = cache.Lookup(key);
    (known ? hits : misses).push_back(watch.Microseconds());
    if (!hit || hit->has_value() != known) {
      fmt::print(stderr, "cache_bench: kernel {} {}\n", number, known ? "is not found" : "is found, and was never put");
      std::exit(1);
    }
  }
}

void Artifacts(const Arguments& arguments, ScheduleCache& cache) {
  std::vector<double> reads;
  for (int i = 0; i < arguments.artifacts; ++i) {
    Result<std::optional<CacheHit>> hit = cache.Lookup(EntryOf(Kernel(i), i, {}).record.key);
    Stopwatch watch;
    if (!*cache.Artifact((*hit)->record)) std::exit(1);
    reads.push_back(watch.Microseconds());
  }
  if (!reads.empty()) PrintLatencies("artifact 24 KB", reads);
}

void Run(const Arguments& arguments) {
  CacheOptions options;
  options.directory = arguments.directory;
  options.size_cap = 0;
  if (!std::filesystem::exists(options.directory)) {
    double closing = Fill(arguments, options);
    fmt::print("close {:.2f} s\n", closing);
  }
  std::vector<double> opens = OpenTimes(options);
  fmt::print("open {:.0f} ms (", opens[0]);
  for (size_t i = 1; i < opens.size(); ++i) fmt::print("{}{:.0f}", i > 1 ? ", " : "then ", opens[i]);
  fmt::print(")\n");
  std::unique_ptr<ScheduleCache> cache = Open(options);
  std::vector<double> hits, misses;
  Lookups(arguments, *cache, hits, misses);
  PrintLatencies("lookup, hit", hits);
  PrintLatencies("lookup, miss", misses);
  Artifacts(arguments, *cache);
  Stopwatch listing;
  std::vector<ClassSummary> classes = cache->Classes().value();
  uint64_t listed = 0;
  double classes_s = listing.Microseconds() / 1e6;
  listing.Restart();
  (void)cache->ForEachRecord(classes[0].info.fingerprint, [&](const Record&) { return ++listed > 0; });
  fmt::print("classes {} in {:.2f} s; ls of one class: {} records in {:.2f} s\n", classes.size(), classes_s, listed,
             listing.Microseconds() / 1e6);
  CacheStats stats = cache->Stats();
  uint64_t bytes = 0;
  for (const CacheStats::Family& family : stats.families) {
    fmt::print("family {:<10} {:>9} entries {:>12} bytes\n", family.name, family.entries, family.bytes);
    if (family.name == "records" || family.name == "kernels") bytes += family.bytes;
  }
  fmt::print("directory {} bytes, memory {} bytes\n", stats.disk_bytes, stats.memory_bytes);
  PrintMark("cache open", *std::max_element(opens.begin(), opens.end()) / 1e3, "s", 1);
  PrintMark("cache lookup p99", std::max(Percentile(hits, 0.99), Percentile(misses, 0.99)), "us", 100);
  PrintMark("cache bytes a record", static_cast<double>(bytes) / arguments.records, "B", 1000);
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) {
  hone::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    std::string_view name = argv[i];
    if (name == "--keep")
      arguments.keep = true;
    else if (name == "--records" && i + 1 < argc)
      arguments.records = std::atoi(argv[++i]);
    else if (name == "--artifacts" && i + 1 < argc)
      arguments.artifacts = std::atoi(argv[++i]);
    else if (name == "--dir" && i + 1 < argc)
      arguments.directory = argv[++i];
    else
      return fmt::print(stderr, "usage: cache_bench [--records N] [--artifacts N] [--dir DIR] [--keep]\n"), 2;
  }
  if (arguments.directory.empty())
    arguments.directory =
        (std::filesystem::temp_directory_path() / fmt::format("hone-cache-bench-{}", getpid())).string();
  hone::Run(arguments);
  if (!arguments.keep) std::filesystem::remove_all(arguments.directory);
  return 0;
}
