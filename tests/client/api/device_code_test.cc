// Code for devices as applications get it: whatever came of its bytes on the way, it is whole and the kernel's that was
// asked for, or refused before anything is loaded.
#include "client/api/device_code.h"

#include <gmock/gmock.h>

#include <string>

#include "base/bytes.h"
#include "base/hash.h"

namespace hone::device_code_test {

using ::testing::HasSubstr;

constexpr char kKernel[] = "kernel k(t0: f32[8]) -> t1: f32[8] { t1[i0] = t0[i0] + 1.0 }";

std::string Code() {
  DeviceArtifact artifact;
  artifact.manifest.kernel = kKernel;
  artifact.manifest.target = "opencl device=some";
  artifact.manifest.operands.resize(2);
  for (ManifestOperand& operand : artifact.manifest.operands) operand.shape = {{8, 8, -1}};
  artifact.manifest.operands[0].name = "t0";
  artifact.manifest.operands[1].name = "t1";
  artifact.manifest.operands[1].is_output = true;
  artifact.manifest.launches = 1;
  artifact.language = "opencl";
  artifact.sources = {"__kernel void one() {}\n"};
  artifact.buffers = {{32, 0, false}, {32, 1, true}};
  artifact.launches.resize(1);
  artifact.launches[0].entry = "one";
  artifact.launches[0].block = {8, 1, 1};
  artifact.launches[0].buffers = {0, 1};
  return EncodeDeviceArtifact(artifact);
}

// What honed says of those bytes.
GetReply Announced(const std::string& bytes) {
  GetReply reply;
  reply.target = "opencl device=some";
  const Digest256 digest = Hash256(AsBytes(bytes));
  reply.digest = AsText(std::as_bytes(std::span(digest)));
  reply.size = bytes.size();
  return reply;
}

Result<DeviceArtifact> Open(const std::string& bytes, const GetReply& reply, const std::string& canonical = kKernel) {
  return OpenDeviceCode(SealedMemfd::Create(AsBytes(bytes)).value(), reply, canonical);
}

TEST(OpenDeviceCode, IsWhatWasAnnounced) {
  const std::string bytes = Code();
  const Result<DeviceArtifact> opened = Open(bytes, Announced(bytes));
  ASSERT_TRUE(opened) << opened.error().Text();
  EXPECT_EQ(EncodeDeviceArtifact(*opened), bytes);
  EXPECT_TRUE(Open(bytes, Announced(bytes), ""));  // of a kernel that the caller cannot name
}

TEST(OpenDeviceCode, EveryBitThatIsTamperedWithIsSeen) {
  const std::string bytes = Code();
  const GetReply reply = Announced(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string tampered = bytes;
    tampered[bit / 8] = static_cast<char>(tampered[bit / 8] ^ 1 << bit % 8);
    const Result<DeviceArtifact> opened = Open(tampered, reply);
    ASSERT_FALSE(opened) << bit;
    EXPECT_EQ(opened.error().kind, ErrorKind::kCorrupt) << bit;
    EXPECT_THAT(opened.error().Text(), HasSubstr("the code is not what honed announced"));
  }
  for (const std::string& other : {bytes.substr(0, bytes.size() - 1), bytes + "x", std::string("x")})
    EXPECT_EQ(Open(other, reply).error().kind, ErrorKind::kCorrupt);
}

// A digest can be made for any bytes: what is not an artifact is none all the same.
TEST(OpenDeviceCode, WhatIsAnnouncedRightIsLookedAtToo) {
  const std::string bytes = Code();
  for (size_t size = 1; size < bytes.size(); ++size) {
    const std::string some = bytes.substr(0, size);
    EXPECT_FALSE(Open(some, Announced(some))) << size;
  }
  GetReply reply = Announced(bytes);
  ++reply.size;
  EXPECT_FALSE(Open(bytes, reply));
}

TEST(OpenDeviceCode, AnotherKernelsIsRefused) {
  const std::string bytes = Code();
  const Result<DeviceArtifact> opened =
      Open(bytes, Announced(bytes), "kernel k(t0: f32[8]) -> t1: f32[8] { t1[i0] = t0[i0] + 2.0 }");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind, ErrorKind::kCorrupt);
  EXPECT_THAT(opened.error().Text(), HasSubstr("the code is another kernel's"));
}

}  // namespace hone::device_code_test
