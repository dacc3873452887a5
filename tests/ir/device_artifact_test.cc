// The byte form of devices' artifacts: what is decoded says again what was encoded, and what contradicts itself is
// refused before anybody allocates or launches by it.
#include "ir/device_artifact.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/bytes.h"
#include "base/rng.h"

namespace hone::device_artifact_test {
namespace {

DeviceArtifact Sample() {
  DeviceArtifact artifact;
  artifact.manifest.kernel = "kernel k(x: f32[8, 4]) -> y: f32[8] { … }";
  artifact.manifest.target = "opencl device=some";
  artifact.manifest.operands.resize(2);
  ManifestOperand& x = artifact.manifest.operands[0];
  x.name = "x";
  x.shape = {{8, 8, -1}, {4, 4, -1}};
  ManifestOperand& y = artifact.manifest.operands[1];
  y.name = "y";
  y.shape = {{8, 8, -1}};
  y.is_output = true;
  artifact.manifest.launches = 1;
  artifact.language = "opencl";
  artifact.sources = {"__kernel void pack() {}\n__kernel void sum() {}\n"};
  artifact.buffers = {{128, 0, false}, {32, 1, true}, {64, -1, true}};
  artifact.launches.resize(2);
  DeviceLaunch& pack = artifact.launches[0];
  pack.entry = "pack";
  pack.packs = true;
  pack.block = {4, 1, 1};
  pack.buffers = {0, 2};
  DeviceLaunch& sum = artifact.launches[1];
  sum.entry = "sum";
  sum.grid = {2, 1, 1};
  sum.block = {8, 2, 1};
  sum.shared_bytes = 64;
  sum.buffers = {2, 1};
  return artifact;
}

Result<DeviceArtifact> Decode(const std::string& bytes, uint64_t size = 0) {
  return DecodeDeviceArtifact(AsBytes(bytes), size);
}

TEST(DeviceArtifact, RoundTrips) {
  const std::string bytes = EncodeDeviceArtifact(Sample());
  const Result<DeviceArtifact> read = Decode(bytes, bytes.size());
  ASSERT_TRUE(read) << read.error().Text();
  EXPECT_EQ(EncodeDeviceArtifact(*read), bytes);
  EXPECT_EQ(read->launches[1].shared_bytes, 64);
  EXPECT_TRUE(read->launches[0].packs);
  EXPECT_EQ(Decode(bytes, bytes.size() + 1).error().kind, ErrorKind::kInvalid);
}

TEST(DeviceArtifact, RefusesEveryTruncationAndWhatFollows) {
  const std::string bytes = EncodeDeviceArtifact(Sample());
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(Decode(bytes.substr(0, size))) << size;
  EXPECT_FALSE(Decode(bytes + "x"));
}

TEST(DeviceArtifact, DamageIsRefusedOrSaysTheSameAgain) {
  const std::string bytes = EncodeDeviceArtifact(Sample());
  Rng rng(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = bytes;
    for (uint64_t hits = 1 + rng.Below(3); hits > 0; --hits)
      damaged[rng.Below(damaged.size())] = static_cast<char>(rng.Next());
    const Result<DeviceArtifact> read = Decode(damaged);
    if (read) { EXPECT_EQ(EncodeDeviceArtifact(*read), damaged); }
  }
}

TEST(DeviceArtifact, RefusesWhatContradictsItself) {
  const std::pair<const char*, std::function<void(DeviceArtifact&)>> cases[] = {
      {"the buffer of x has 124 bytes", [](DeviceArtifact& a) { a.buffers[0].bytes = 124; }},
      {"x is written", [](DeviceArtifact& a) { a.buffers[0].is_written = true; }},
      {"y is not written", [](DeviceArtifact& a) { a.buffers[1].is_written = false; }},
      {"x has two buffers", [](DeviceArtifact& a) { a.buffers[2] = a.buffers[0]; }},
      {"y has no buffer", [](DeviceArtifact& a) { a.buffers[1].operand = -1; }},
      {"a buffer of an operand that is not there", [](DeviceArtifact& a) { a.buffers[2].operand = 2; }},
      {"a buffer of a launch is 3, not 0 to 2", [](DeviceArtifact& a) { a.launches[0].buffers = {3}; }},
      {"the source of a launch is 1, not 0 to 0", [](DeviceArtifact& a) { a.launches[0].source = 1; }},
      {"a launch packs after one that does not",
       [](DeviceArtifact& a) { a.launches[1].packs = true, a.launches[0].packs = false; }},
      {"the name of a launch is no function's", [](DeviceArtifact& a) { a.launches[0].entry = "x; y"; }},
      {"a number of blocks is 0, not 1 to 1099511627776", [](DeviceArtifact& a) { a.launches[0].grid[1] = 0; }},
      {"a block has 1048576 threads", [](DeviceArtifact& a) { a.launches[0].block = {1024, 1024, 1}; }},
      {"no source", [](DeviceArtifact& a) { a.sources.clear(); }},
      {"a source with a zero in it", [](DeviceArtifact& a) { a.sources[0] += '\0'; }},
  };
  for (const auto& [message, change] : cases) {
    DeviceArtifact artifact = Sample();
    change(artifact);
    const Result<DeviceArtifact> read = Decode(EncodeDeviceArtifact(artifact));
    ASSERT_FALSE(read) << message;
    EXPECT_EQ(read.error().message, message);
    EXPECT_EQ(read.error().kind, ErrorKind::kCorrupt);
  }
}

TEST(DeviceArtifact, ANewerOneSaysSo) {
  std::string bytes = EncodeDeviceArtifact(Sample());
  bytes[7] = 2;
  EXPECT_EQ(Decode(bytes).error().kind, ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace hone::device_artifact_test
