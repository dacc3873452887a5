#include "backends/cpu/measure_peaks.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/clock.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace hone {
namespace {

constexpr int kRounds = 5;
constexpr int kChains = 12;               // more than latency × units on any core of today
constexpr int64_t kSteps = 1'000'000;     // of each chain: some milliseconds
constexpr int64_t kReadBytes = 32 << 20;  // of one thread in one round, where that is more than the data
constexpr int64_t kLargest = 256 << 20;

volatile float float_sink;
volatile uint64_t integer_sink;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void Fma512() {
  __m512 acc[kChains], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-6f);
  for (auto& x : acc) x = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < kSteps; ++i)
    for (auto& x : acc) x = _mm512_fmadd_ps(x, a, b);
  float lanes[16];
  for (int c = 1; c < kChains; ++c) acc[0] += acc[c];
  _mm512_storeu_ps(lanes, acc[0]);
  float_sink = lanes[0];
}
__attribute__((target("avx2,fma"))) void Fma256() {
  __m256 acc[kChains], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-6f);
  for (auto& x : acc) x = _mm256_set1_ps(1.0f);
  for (int64_t i = 0; i < kSteps; ++i)
    for (auto& x : acc) x = _mm256_fmadd_ps(x, a, b);
  float lanes[8];
  for (int c = 1; c < kChains; ++c) acc[0] += acc[c];
  _mm256_storeu_ps(lanes, acc[0]);
  float_sink = lanes[0];
}
__attribute__((target("avx512f"))) uint64_t Read512(const uint64_t* data, int64_t count) {
  __m512i acc[8] = {};
  for (int64_t i = 0; i < count; i += 64)
    for (int j = 0; j < 8; ++j) acc[j] |= *reinterpret_cast<const __m512i*>(data + i + 8 * j);
  for (int j = 1; j < 8; ++j) acc[0] |= acc[j];
  return static_cast<uint64_t>(acc[0][0]);
}
__attribute__((target("avx2"))) uint64_t Read256(const uint64_t* data, int64_t count) {
  __m256i acc[8] = {};
  for (int64_t i = 0; i < count; i += 32)
    for (int j = 0; j < 8; ++j) acc[j] |= *reinterpret_cast<const __m256i*>(data + i + 4 * j);
  for (int j = 1; j < 8; ++j) acc[0] |= acc[j];
  return static_cast<uint64_t>(acc[0][0]);
}
#elif defined(__aarch64__)
void Fma128() {
  float32x4_t acc[kChains], a = vdupq_n_f32(0.999f), b = vdupq_n_f32(1e-6f);
  for (auto& x : acc) x = vdupq_n_f32(1.0f);
  for (int64_t i = 0; i < kSteps; ++i)
    for (auto& x : acc) x = vfmaq_f32(b, x, a);
  for (int c = 1; c < kChains; ++c) acc[0] = vaddq_f32(acc[0], acc[c]);
  float_sink = vgetq_lane_f32(acc[0], 0);
}
uint64_t Read128(const uint64_t* data, int64_t count) {
  uint64x2_t acc[8];
  for (auto& x : acc) x = vdupq_n_u64(0);
  for (int64_t i = 0; i < count; i += 16)
    for (int j = 0; j < 8; ++j) acc[j] = vorrq_u64(acc[j], vld1q_u64(data + i + 2 * j));
  for (int j = 1; j < 8; ++j) acc[0] = vorrq_u64(acc[0], acc[j]);
  return vgetq_lane_u64(acc[0], 0);
}
#endif

struct Loops {
  void (*fma)() = nullptr;
  uint64_t (*read)(const uint64_t* data, int64_t count) = nullptr;  // a multiple of 64, aligned to 64 bytes
  int lanes = 0;
};

Loops LoopsFor(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512: return {Fma512, Read512, 16};
    case Isa::kAvx2: return {Fma256, Read256, 8};
#elif defined(__aarch64__)
    case Isa::kNeon: return {Fma128, Read128, 4};
#endif
    default: return {};
  }
}

// Amount per second of all threads; each starts when all are there. Best of the rounds: what the machine can do
// undisturbed. 0: there are not as many threads to be had.
template <typename Work>
double BestRate(int threads, double amount, const Work& work) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> missing{threads};
    std::atomic<bool> is_off{false};
    std::atomic<double> longest{0};
    auto run = [&](int thread) {
      --missing;
      while (missing > 0 && !is_off) std::this_thread::yield();
      if (is_off) return;
      Stopwatch watch;
      work(thread);
      double mine = watch.Microseconds(), seen = longest;
      while (mine > seen && !longest.compare_exchange_weak(seen, mine)) {}
    };
    std::vector<std::jthread> others;
    try {
      for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
    } catch (const std::system_error&) {
      is_off = true;
      return 0;
    }
    run(0);
    others.clear();
    best = std::max(best, amount * threads / longest * 1e6);
  }
  return best;
}

// Memory for one thread, touched; nullptr: there is none.
struct Free {
  void operator()(uint64_t* data) const { ::operator delete[](data, std::align_val_t{64}); }
};
using Words = std::unique_ptr<uint64_t[], Free>;
Words MakeWords(int64_t count) {
  Words words(new (std::align_val_t{64}, std::nothrow) uint64_t[static_cast<size_t>(count)]);
  if (words) std::fill_n(words.get(), count, uint64_t{1});
  return words;
}

// Bytes a thread reads over and over so that they come from this level: few of those that do, since a roof is what the
// level gives at most, and the size of a shared cache is not what one of its users gets. 0: the level is no larger than
// the one before.
int64_t BytesAt(int level, const CpuTarget& host, int threads) {
  const int64_t sizes[] = {host.l1_bytes, host.l2_bytes, host.l3_bytes / threads};
  int64_t bytes;
  if (level == kMemoryLevels - 1)
    bytes = std::clamp<int64_t>(2 * host.l3_bytes, 16 << 20, kLargest) / threads;
  else if (level == 0)
    bytes = sizes[0] / 2;
  else if (sizes[level] <= 2 * sizes[level - 1])
    return 0;
  else
    bytes = std::min(2 * sizes[level - 1], kLargest / 4 / threads);
  return bytes / 4096 * 4096;
}

}  // namespace

MachinePeaks MeasurePeaks(const Target& target, int threads) {
  MachinePeaks peaks;
  if (!target.cpu()) return peaks;
  const CpuTarget& host = *target.cpu();
  const Loops loops = LoopsFor(host.isa);
  threads = std::clamp(threads, 1, std::max(1, host.cores));
  if (loops.fma == nullptr) return peaks;
  peaks.gflops = BestRate(threads, 2e-9 * loops.lanes * kChains * kSteps, [&](int) { loops.fma(); });
  for (int level = 0; level < kMemoryLevels; ++level) {
    const int64_t bytes = BytesAt(level, host, threads);
    if (bytes == 0) {
      peaks.read_gb_s[static_cast<size_t>(level)] = peaks.read_gb_s[static_cast<size_t>(level) - 1];
      continue;
    }
    std::vector<Words> words;
    for (int thread = 0; thread < threads; ++thread) words.push_back(MakeWords(bytes / 8));
    if (std::any_of(words.begin(), words.end(), [](const Words& one) { return !one; })) continue;
    const int64_t passes = std::max<int64_t>(1, kReadBytes / bytes);
    peaks.read_gb_s[static_cast<size_t>(level)] =
        BestRate(threads, 1e-9 * static_cast<double>(bytes * passes), [&](int thread) {
          uint64_t sum = 0;
          for (int64_t pass = 0; pass < passes; ++pass)
            sum |= loops.read(words[static_cast<size_t>(thread)].get(), bytes / 8);
          integer_sink = sum;
        });
  }
  return peaks;
}

}  // namespace hone
