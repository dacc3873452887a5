// Records for tests of the cache: as real ones look, different for every number.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "cache/schedule_cache.h"

namespace hone {

inline const std::string kSampleTarget =
    "cpu avx512 cpu=znver5 features=avx512vnni l1=49152 l2=1048576 l3=33554432 cores=2";
inline const std::string kSampleCode = "llvm-19.1.7 abi=1 avx512 cpu=znver5 features=avx512vnni";

inline Canonical SampleCanonical(int kernel, int class_number = 0) {
  Canonical canonical;
  canonical.shape = {128, 768 + kernel, 768};
  canonical.class_text = fmt::format(
      "kernel k(t0: f32[S0, S2], const t1: f32[S2, S1]) -> t2: f32[S0, S1] {{ t2[i, j] = sum(r) t0[i, r] * t1[r, j] * "
      "{} }}",
      class_number);
  canonical.text = canonical.class_text + fmt::format(" where S0=128, S1={}, S2=768", 768 + kernel);
  return canonical;
}

inline CacheKey SampleKey(int kernel, int class_number = 0) {
  Canonical canonical = SampleCanonical(kernel, class_number);
  return {Fingerprint{Hash128(canonical.class_text)},
          Fingerprint{Hash128(canonical.text)},
          canonical.text,
          kSampleTarget,
          2,
          kSampleCode};
}

inline Record SampleRecord(int kernel, int class_number = 0) {
  Record record;
  record.key = SampleKey(kernel, class_number);
  record.shape = SampleCanonical(kernel, class_number).shape;
  record.request = fmt::format("matmul(M=128,N={},K=768,const=1)", 768 + kernel);
  record.label = fmt::format("matmul{}", class_number);
  record.schedule =
      fmt::format("split t2.i {}\nsplit t2.j 32\nreorder t2.i.0 t2.j.0 t2.r t2.i.1 t2.j.1\n", 2 + kernel % 12);
  record.origin = Origin::kTransferred;
  record.measured = Timing{std::chrono::nanoseconds(51'000 + kernel),
                           std::chrono::nanoseconds(700),
                           CacheTemperature::kWarm,
                           TimeStatistic::kMedian,
                           2,
                           9};
  record.check = {1.5e-7, 300, false};
  return record;
}

// Half random, half zero: about as compressible as code is.
inline std::vector<std::byte> SampleArtifact(int kernel, size_t size = 20'000) {
  Rng rng(static_cast<uint64_t>(kernel));
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; i += 2) bytes[i] = static_cast<std::byte>(rng.Next());
  return bytes;
}

inline NewRecord SampleEntry(int kernel, int class_number = 0) {
  return {SampleRecord(kernel, class_number), SampleCanonical(kernel, class_number).class_text, std::nullopt};
}

}  // namespace hone
