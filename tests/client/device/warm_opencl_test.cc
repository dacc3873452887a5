// PoCL compiles a kernel at its first launch: that is not the application's. In a program of its own (ctest runs each
// test in one), since the driver reads once where its cache is.
#if __has_include(<CL/cl.h>)
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backends/drivers/opencl_context.h"
#include "backends/drivers/opencl_driver.h"
#include "client/device/device_handle.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temporary_directory.h"

namespace hone::warm_opencl_test {
namespace {

constexpr size_t kFloats = 64;

std::unique_ptr<DeviceCode> Twice(const DeviceTarget& target) {
  DeviceArtifact artifact;
  artifact.manifest.kernel = "y = 2 x";
  artifact.manifest.target = PrintTarget(target);
  artifact.manifest.operands.resize(2);
  for (ManifestOperand& operand : artifact.manifest.operands) operand.shape = {{kFloats, kFloats, -1}};
  artifact.manifest.operands[0].name = "x";
  artifact.manifest.operands[1].name = "y";
  artifact.manifest.operands[1].is_output = true;
  artifact.language = kOpenClKind;
  artifact.sources = {
      "__kernel void twice(__global const float* x, __global float* y) {\n"
      "  const int i = (int)(get_group_id(0) * 16 + get_local_id(0));\n"
      "  y[i] = 2 * x[i];\n"
      "}\n"};
  artifact.buffers = {{kFloats * 4, 0, false}, {kFloats * 4, 1, true}};
  DeviceLaunch launch;
  launch.entry = "twice";
  launch.grid = {4, 1, 1};
  launch.block = {16, 1, 1};
  launch.buffers = {0, 1};
  artifact.launches = {launch};
  return std::make_unique<DeviceCode>(std::move(artifact));
}

// What PoCL's linker made.
int Compiled(const std::string& cache) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cache))
    count += entry.path().extension() == ".so";
  return count;
}

TEST(WarmOpenCl, NothingIsCompiledAtTheFirstCall) {
  if (testing::kSeesThreads) GTEST_SKIP() << "[SKIP] a driver in this process";
  const TemporaryDirectory cache;
  ::setenv("POCL_CACHE_DIR", cache.path().c_str(), 1);
  const Result<const OpenCl*> loaded = LoadOpenCl();
  const std::vector<OpenClFound> found = loaded ? FindOpenCl(**loaded).value() : std::vector<OpenClFound>();
  if (found.empty()) GTEST_SKIP() << "[SKIP] no OpenCL device is here";
  if (found[0].target.facts.at("type") != "cpu") GTEST_SKIP() << "[SKIP] the first OpenCL device is not PoCL's";
  const OpenCl& cl = **loaded;
  cl_device_id device = found[0].device;
  const OpenClOwned<cl_context> context(cl.clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr),
                                        cl.clReleaseContext);
  auto shared = std::make_shared<SharedDevice>();
  shared->context = BorrowOpenClContext(context.get(), device).value();
  EXPECT_EQ(Compiled(cache.path()), 0);
  const std::unique_ptr<DeviceHandle> handle =
      DeviceHandle::Create(shared, Twice(shared->context->target()), {}).value();
  EXPECT_EQ(Compiled(cache.path()), 1);
  std::vector<float> x(kFloats, 3), y(kFloats);
  void* const operands[] = {x.data(), y.data()};
  ASSERT_TRUE(handle->Call(operands));
  EXPECT_EQ(y, std::vector<float>(kFloats, 6));
  EXPECT_EQ(Compiled(cache.path()), 1);
}

}  // namespace
}  // namespace hone::warm_opencl_test

#endif
