// What drivers say when something has run out is a limit, with words for it, wherever it happens. Real ones can hardly
// be brought to: a real device's functions are replaced one at a time.
#if __has_include(<CL/cl.h>) && __has_include(<vulkan/vulkan.h>)
#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/drivers/opencl_driver.h"
#include "backends/drivers/opencl_kernel.h"
#include "backends/drivers/vulkan_driver.h"
#include "backends/gpu/build_for_gpu.h"
#include "ir/device_artifact.h"
#include "tests/support/sanitizers.h"
#include "tests/support/want_of_device.h"

namespace hone::out_of_memory_test {

using ::testing::HasSubstr;

template <cl_int code>
cl_mem NoBuffer(cl_context, cl_mem_flags, size_t, void*, cl_int* said) {
  *said = code;
  return nullptr;
}
template <cl_int code>
cl_int NoLaunch(cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint,
                const cl_event*, cl_event*) {
  return code;
}
template <cl_int code>
cl_int NoWrite(cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void*, cl_uint, const cl_event*, cl_event*) {
  return code;
}

class OpenClOutOfMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kSeesThreads) GTEST_SKIP() << "[SKIP] a driver in this process";
    const Result<const OpenCl*> loaded = LoadOpenCl();
    const std::vector<OpenClFound> found = loaded ? FindOpenCl(**loaded).value() : std::vector<OpenClFound>();
    if (found.empty()) HONE_SKIP_FOR_WANT_OF(kOpenClKind, "no OpenCL device is here");
    cl_ = **loaded;
    device_ = found[0].device;
    context_ = {cl_.clCreateContext(nullptr, 1, &device_, nullptr, nullptr, nullptr), cl_.clReleaseContext};
    queue_ = {cl_.clCreateCommandQueue(context_.get(), device_, CL_QUEUE_PROFILING_ENABLE, nullptr),
              cl_.clReleaseCommandQueue};
    artifact_ = DecodeDeviceArtifact(BuildForGpu({"add(M=4,N=64)", "", found[0].target})->object).value();
    const char* text = artifact_.sources[0].c_str();
    auto program = std::make_shared<OpenClOwned<cl_program>>(
        cl_.clCreateProgramWithSource(context_.get(), 1, &text, nullptr, nullptr), cl_.clReleaseProgram);
    ASSERT_EQ(cl_.clBuildProgram(program->get(), 1, &device_, "-cl-std=CL1.2", nullptr, nullptr), CL_SUCCESS);
    program_ = std::move(program);
  }

  // How a kernel fares that is loaded, filled and called with functions of which `replace` exchanges one.
  Result<int64_t> Run(const std::function<void(OpenCl&)>& replace) const {
    OpenCl cl = cl_;
    replace(cl);
    const OpenClKernel::Home home{cl, context_.get(), queue_.get()};
    const std::unique_ptr<OpenClKernel> kernel =
        HONE_TRY(OpenClKernel::Make(home, {program_}, artifact_, Operands::kOwned, OpenClKernel::Guards::kNone));
    HONE_TRY(kernel->Write(0, std::vector<std::byte>(static_cast<size_t>(artifact_.buffers[0].bytes))));
    return kernel->Call(1);
  }

  template <cl_int code>
  void ExpectLimits(const std::string& words) const {
    const std::pair<std::string, std::function<void(OpenCl&)>> places[] = {
        {"allocating", [](OpenCl& cl) { cl.clCreateBuffer = NoBuffer<code>; }},
        {"copying", [](OpenCl& cl) { cl.clEnqueueWriteBuffer = NoWrite<code>; }},
        {"launching", [](OpenCl& cl) { cl.clEnqueueNDRangeKernel = NoLaunch<code>; }}};
    for (const auto& [place, replace] : places) {
      const Result<int64_t> ran = Run(replace);
      ASSERT_FALSE(ran) << place;
      EXPECT_EQ(ran.error().kind, ErrorKind::kLimit) << ran.error().Text();
      EXPECT_THAT(ran.error().Text(), HasSubstr(place));
      EXPECT_THAT(ran.error().Text(), HasSubstr(words));
    }
  }

 private:
  OpenCl cl_;
  cl_device_id device_ = nullptr;
  OpenClOwned<cl_context> context_;
  OpenClOwned<cl_command_queue> queue_;
  DeviceArtifact artifact_;
  OpenClKernel::Program program_;
};

TEST_F(OpenClOutOfMemory, IsALimit) {
  const Result<int64_t> whole = Run([](OpenCl&) {});
  ASSERT_TRUE(whole) << whole.error().Text();
  ExpectLimits<CL_MEM_OBJECT_ALLOCATION_FAILURE>("the device has no memory left");
  ExpectLimits<CL_OUT_OF_RESOURCES>("the device ran out of resources");
  ExpectLimits<CL_OUT_OF_HOST_MEMORY>("the driver has no memory left");
}

TEST(OpenClErrors, OthersAreOfTheRun) {
  EXPECT_EQ(OpenClFailed("launching", CL_DEVICE_NOT_AVAILABLE).kind, ErrorKind::kRunFailed);
  EXPECT_EQ(OpenClFailed("launching", -9999).kind, ErrorKind::kRunFailed);
}

TEST(VulkanErrors, WhatHasRunOutIsALimit) {
  const std::pair<VkResult, const char*> codes[] = {{VK_ERROR_OUT_OF_DEVICE_MEMORY, "the device has no memory left"},
                                                    {VK_ERROR_OUT_OF_HOST_MEMORY, "the driver has no memory left"},
                                                    {VK_ERROR_TOO_MANY_OBJECTS, "no room for more buffers"},
                                                    {VK_ERROR_OUT_OF_POOL_MEMORY, "pool has no room left"},
                                                    {VK_ERROR_FRAGMENTED_POOL, "pool has no room left"}};
  for (const auto& [code, words] : codes) {
    const Result<void> failed = CheckVulkan("allocating 64 bytes", code);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, ErrorKind::kLimit) << failed.error().Text();
    EXPECT_THAT(failed.error().Text(), HasSubstr(std::string("allocating 64 bytes failed: ")));
    EXPECT_THAT(failed.error().Text(), HasSubstr(words));
  }
  EXPECT_EQ(CheckVulkan("running", VK_ERROR_DEVICE_LOST).error().kind, ErrorKind::kRunFailed);
}

}  // namespace hone::out_of_memory_test

#endif
