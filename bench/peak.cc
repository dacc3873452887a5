// peak: what one core of this machine can do at most, for the shares that other programs print. JSON on one line:
// {"isa","fma_gflops","vpdpbusd_gops","vdpbf16ps_gflops","read_gb_s"}: single-precision FMAs from registers, the same
// of dot products of bytes and of bf16 (0: the processor has none), and sequential reads from memory.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Best of several runs: the peak is what the machine can do undisturbed.
template <typename Work>
double BestRate(double amount, const Work& work) {
  double best = 0;
  for (int round = 0; round < 9; ++round) {
    double start = Seconds();
    work();
    best = std::max(best, amount / (Seconds() - start));
  }
  return best;
}

constexpr int64_t kSteps = 4'000'000;
constexpr int kChains = 12;  // more than latency × units on any core of today
volatile float sink;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void Fma512() {
  __m512 acc[kChains], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-6f);
  for (auto& x : acc) x = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < kSteps; ++i)
    for (auto& x : acc) x = _mm512_fmadd_ps(x, a, b);
  __m512 sum = acc[0];
  for (int c = 1; c < kChains; ++c) sum = _mm512_add_ps(sum, acc[c]);
  float lanes[16];
  _mm512_storeu_ps(lanes, sum);
  sink = lanes[0] + lanes[15];
}

// The compiler sees no way to leave out steps: it does not know what the operands are.
__attribute__((target("avx512f,avx512vnni"))) void Vpdpbusd512() {
  __m512i acc[kChains], a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(2);
  for (auto& x : acc) x = _mm512_setzero_si512();
  for (int64_t i = 0; i < kSteps; ++i) {
    asm volatile("" : "+v"(a), "+v"(b));
    for (auto& x : acc) x = _mm512_dpbusd_epi32(x, a, b);
  }
  for (int c = 1; c < kChains; ++c) acc[0] = _mm512_add_epi32(acc[0], acc[c]);
  sink = static_cast<float>(_mm512_cvtsi512_si32(acc[0]));
}

__attribute__((target("avx512f,avx512bf16"))) void Vdpbf16ps512() {
  __m512 acc[kChains];
  __m512i a = _mm512_set1_epi16(0x3f00), b = _mm512_set1_epi16(0x3000);
  for (auto& x : acc) x = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < kSteps; ++i) {
    asm volatile("" : "+v"(a), "+v"(b));
    for (auto& x : acc) x = _mm512_dpbf16_ps(x, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  for (int c = 1; c < kChains; ++c) acc[0] = _mm512_add_ps(acc[0], acc[c]);
  sink = _mm512_cvtss_f32(acc[0]);
}

__attribute__((target("avx2,fma"))) void Fma256() {
  __m256 acc[kChains], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-6f);
  for (auto& x : acc) x = _mm256_set1_ps(1.0f);
  for (int64_t i = 0; i < kSteps; ++i)
    for (auto& x : acc) x = _mm256_fmadd_ps(x, a, b);
  __m256 sum = acc[0];
  for (int c = 1; c < kChains; ++c) sum = _mm256_add_ps(sum, acc[c]);
  float lanes[8];
  _mm256_storeu_ps(lanes, sum);
  sink = lanes[0] + lanes[7];
}
#elif defined(__aarch64__)
void Fma128() {
  float32x4_t acc[kChains], a = vdupq_n_f32(0.999f), b = vdupq_n_f32(1e-6f);
  for (auto& x : acc) x = vdupq_n_f32(1.0f);
  for (int64_t i = 0; i < kSteps; ++i)
    for (auto& x : acc) x = vfmaq_f32(b, x, a);
  float32x4_t sum = acc[0];
  for (int c = 1; c < kChains; ++c) sum = vaddq_f32(sum, acc[c]);
  sink = vgetq_lane_f32(sum, 0);
}
#endif

}  // namespace

int main() {
  const char* isa = "?";
  double gflops = 0, bytes = 0, halves = 0;
  auto flops = [](int lanes) { return 2.0 * lanes * kChains * kSteps / 1e9; };
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    isa = "avx512", gflops = BestRate(flops(16), Fma512);
  else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    isa = "avx2", gflops = BestRate(flops(8), Fma256);
  if (__builtin_cpu_supports("avx512vnni")) bytes = BestRate(flops(64), Vpdpbusd512);
  if (__builtin_cpu_supports("avx512bf16")) halves = BestRate(flops(32), Vdpbf16ps512);
#elif defined(__aarch64__)
  isa = "neon", gflops = BestRate(flops(4), Fma128);
#endif
  constexpr size_t kBytes = size_t{256} << 20;
  std::unique_ptr<uint64_t[]> memory(new uint64_t[kBytes / 8]);
  std::memset(memory.get(), 1, kBytes);
  double read = BestRate(kBytes / 1e9, [&] {
    uint64_t sums[8] = {};
    for (size_t i = 0; i < kBytes / 8; i += 8)
      for (size_t j = 0; j < 8; ++j) sums[j] += memory[i + j];
    sink = static_cast<float>(sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7]);
  });
  std::printf(
      "{\"isa\":\"%s\",\"fma_gflops\":%.1f,\"vpdpbusd_gops\":%.1f,\"vdpbf16ps_gflops\":%.1f,\"read_gb_s\":%.1f}\n", isa,
      gflops, bytes, halves, read);
  return 0;
}
