// What is built where a request names no schedule.
#include "backends/gpu/build_for_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hone {
namespace build_for_gpu_test {

using ::testing::HasSubstr;
using ::testing::Not;

Result<std::string> CodeFor(const std::string& kernel, std::string_view target) {
  BuildRequest request;
  request.kernel = kernel;
  request.target = ParseTarget(target).value();
  return ExplainGpuCode(request);
}

// A rule's instruction takes 32 threads, whatever the device has.
TEST(BuildForGpu, WhatNoRuleLaysOutForTheDeviceIsAThreadPerOutput) {
  const Result<std::string> code =
      CodeFor("matmul(M=64,N=64,K=128,dtype=f16)", "cuda arch=sm_80 block_bytes=49152 block_threads=8 units=4");
  ASSERT_TRUE(code) << code.error().Text();
  EXPECT_THAT(*code, HasSubstr("thread.x"));
  EXPECT_THAT(*code, Not(HasSubstr("tensorize")));
}

}  // namespace build_for_gpu_test
}  // namespace hone
