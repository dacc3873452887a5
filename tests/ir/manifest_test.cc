// The manifest's byte form: round trips, every truncation, every flipped bit, nonsense in sound envelopes.
#include "ir/manifest.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/envelope.h"
#include "base/hash.h"
#include "base/rng.h"

namespace hone::manifest_test {
namespace {

Manifest Sample() {
  Manifest manifest;
  manifest.kernel = "kernel k(a: f32[S0, 64], const b: f32[64, 32]) -> c: f32[S0, 32] where S0=1..512 { … }";
  manifest.target = "avx512 cpu=znver5 features= l1=49152 l2=1048576 l3=33554432 cores=2";
  manifest.dynamic_sizes = {"S0"};
  manifest.operands = {
      {"a", DType::kF32, {{1, 512, 0}, {64, 64, -1}}, false, false, 4, 0, ""},
      {"b", DType::kF32, {{64, 64, -1}, {32, 32, -1}}, false, true, 4, 8192, "n/32,k,n%32"},
      {"c", DType::kF32, {{1, 512, 0}, {32, 32, -1}}, true, false, 64, 0, ""},
  };
  manifest.workspace_common = 1 << 20;
  manifest.workspace_per_worker = 4096;
  manifest.launches = 1;
  manifest.accuracy = Accuracy::kRelaxed;
  manifest.flops = 1.25e9;
  return manifest;
}

void ExpectEqual(const Manifest& a, const Manifest& b) {
  EXPECT_EQ(a.kernel, b.kernel);
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.dynamic_sizes, b.dynamic_sizes);
  EXPECT_EQ(a.workspace_common, b.workspace_common);
  EXPECT_EQ(a.workspace_per_worker, b.workspace_per_worker);
  EXPECT_EQ(a.launches, b.launches);
  EXPECT_EQ(a.accuracy, b.accuracy);
  EXPECT_EQ(a.flops, b.flops);
  ASSERT_EQ(a.operands.size(), b.operands.size());
  for (size_t i = 0; i < a.operands.size(); ++i) {
    const ManifestOperand &x = a.operands[i], &y = b.operands[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.dtype, y.dtype);
    EXPECT_EQ(x.is_output, y.is_output);
    EXPECT_EQ(x.is_const, y.is_const);
    EXPECT_EQ(x.alignment, y.alignment);
    EXPECT_EQ(x.packed_bytes, y.packed_bytes);
    EXPECT_EQ(x.packed_layout, y.packed_layout);
    ASSERT_EQ(x.shape.size(), y.shape.size());
    for (size_t d = 0; d < x.shape.size(); ++d) {
      EXPECT_EQ(x.shape[d].lo, y.shape[d].lo);
      EXPECT_EQ(x.shape[d].hi, y.shape[d].hi);
      EXPECT_EQ(x.shape[d].size_index, y.shape[d].size_index);
    }
  }
}

Result<Manifest> Decode(std::string_view bytes) { return DecodeManifest(AsBytes(bytes)); }

TEST(Manifest, RoundTrips) {
  for (const Manifest& manifest : {Manifest{}, Sample()}) {
    Result<Manifest> decoded = Decode(EncodeManifest(manifest));
    ASSERT_TRUE(decoded.has_value()) << decoded.error().Text();
    ExpectEqual(*decoded, manifest);
  }
}

TEST(Manifest, IsReproducible) { EXPECT_EQ(EncodeManifest(Sample()), EncodeManifest(Sample())); }

TEST(Manifest, RefusesEveryTruncationAndFlippedBit) {
  std::string bytes = EncodeManifest(Sample());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(Decode(bytes.substr(0, size)).error().kind, ErrorKind::kCorrupt) << size;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(Decode(damaged).has_value()) << bit;
  }
}

TEST(Manifest, NewerVersionSaysSo) {
  EXPECT_EQ(Decode(Seal(ValueType::kManifest, Manifest::kVersion + 1, "")).error().kind, ErrorKind::kUnsupported);
}

TEST(Manifest, DamagedBodiesNeverCrashAndHaveOneSpelling) {
  std::string body(*Unseal(ValueType::kManifest, 1, EncodeManifest(Sample())));
  for (size_t size = 0; size < body.size(); ++size)
    EXPECT_FALSE(Decode(Seal(ValueType::kManifest, 1, body.substr(0, size))).has_value()) << size;
  Rng rng(5);
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = body;
    for (uint64_t hits = 1 + rng.Below(3); hits > 0; --hits)
      damaged[rng.Below(damaged.size())] = static_cast<char>(rng.Next());
    std::string value = Seal(ValueType::kManifest, 1, damaged);
    Result<Manifest> decoded = Decode(value);
    EXPECT_TRUE(!decoded || EncodeManifest(*decoded) == value);
  }
}

TEST(Manifest, RefusesContradictions) {
  auto refused = [](auto change) {
    Manifest manifest = Sample();
    change(manifest);
    return !Decode(EncodeManifest(manifest)).has_value();
  };
  EXPECT_TRUE(refused([](Manifest& m) { m.operands[0].shape[0].size_index = 1; }));  // no such size
  EXPECT_TRUE(refused([](Manifest& m) { m.operands[0].shape[0].size_index = -2; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.operands[0].shape[0].size_index = -1; }));  // constant with a range
  EXPECT_TRUE(refused([](Manifest& m) { m.operands[0].shape[1] = {5, 4, -1}; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.operands[0].shape[1] = {-4, -4, -1}; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.operands[0].alignment = 3; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.operands[0].alignment = 0; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.operands[1].packed_layout = ""; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.operands[0].packed_layout = "x"; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.workspace_per_worker = 63; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.workspace_common = -1; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.workspace_common = (1ll << 40) + 1; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.operands.resize(2000); }));
  EXPECT_FALSE(refused([](Manifest&) {}));
}

}  // namespace
}  // namespace hone::manifest_test
