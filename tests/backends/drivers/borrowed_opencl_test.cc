// Code with a constant that is packed on the device, in an OpenCL context of somebody else's, where a device is (PoCL
// makes a processor one).
#if __has_include(<CL/cl.h>)
#include <gmock/gmock.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "backends/drivers/opencl_context.h"
#include "backends/drivers/opencl_driver.h"
#include "backends/gpu/build_for_gpu.h"
#include "ir/device_artifact.h"
#include "tests/support/sanitizers.h"
#include "tests/support/want_of_device.h"

namespace hone {
namespace {

constexpr size_t kM = 4, kN = 32, kK = 16;
constexpr char kKernel[] =
    "kernel product(x: f32[M, K], const w: f32[N, K]) -> y: f32[M, N] where M=4, N=32, K=16 "
    "{ y[m, n] = sum(k) x[m, k] * w[n, k] }";
constexpr char kSchedule[] =
    "cache_read w -> wp for y const [n/8, k, n%8]\n"
    "bind wp.n block.x\nbind wp.k thread.x\n"
    "bind y.m block.x\nbind y.n thread.x\n";

TEST(BorrowedOpenCl, PacksOnceAndCallsOnAnyQueue) {
  if (testing::kSeesThreads) GTEST_SKIP() << "[SKIP] a driver in this process";
  const Result<const OpenCl*> loaded = LoadOpenCl();
  const std::vector<OpenClFound> found = loaded ? FindOpenCl(**loaded).value() : std::vector<OpenClFound>();
  if (found.empty()) HONE_SKIP_FOR_WANT_OF(kOpenClKind, "no OpenCL device is here");
  const OpenCl& cl = **loaded;
  cl_device_id device = found[0].device;
  const Result<BuildOutput> built = BuildForGpu({kKernel, kSchedule, found[0].target});
  ASSERT_TRUE(built) << built.error().Text();
  const DeviceArtifact artifact = DecodeDeviceArtifact(built->object).value();
  ASSERT_EQ(artifact.launches.size(), 2u);
  ASSERT_TRUE(artifact.launches[0].packs);

  const OpenClOwned<cl_context> context(cl.clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr),
                                        cl.clReleaseContext);
  const OpenClOwned<cl_command_queue> queue(
      cl.clCreateCommandQueue(context.get(), device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, nullptr),
      cl.clReleaseCommandQueue);
  std::array<std::vector<float>, 3> data{std::vector<float>(kM * kK), std::vector<float>(kN * kK),
                                         std::vector<float>(kM * kN)};
  for (size_t i = 0; i < data[0].size(); ++i) data[0][i] = static_cast<float>(i % 7);
  for (size_t i = 0; i < data[1].size(); ++i) data[1][i] = static_cast<float>(i % 5);
  std::vector<OpenClOwned<cl_mem>> buffers;
  for (std::vector<float>& values : data)
    buffers.emplace_back(cl.clCreateBuffer(context.get(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, values.size() * 4,
                                           values.data(), nullptr),
                         cl.clReleaseMemObject);

  const std::unique_ptr<BorrowedContext> borrowed = BorrowOpenClContext(context.get(), device).value();
  std::unique_ptr<BorrowedKernel> first = borrowed->LoadBorrowed(artifact).value();
  for (size_t i = 0; i < 3; ++i) {
    const BorrowedBuffer buffer{reinterpret_cast<uint64_t>(buffers[i].get()), 0};
    ASSERT_TRUE(borrowed->Find(buffer, data[i].size() * 4, i == 2, 4));
    EXPECT_FALSE(borrowed->Find(buffer, data[i].size() * 4 + 1, i == 2, 4));
    for (size_t b = 0; b < artifact.buffers.size(); ++b) {
      if (artifact.buffers[b].operand != static_cast<int32_t>(i)) continue;
      ASSERT_TRUE(first->PlaceBorrowed(b, buffer));
    }
  }
  ASSERT_TRUE(first->Pack());
  // Another one has the packed constant, and never saw what it was made of.
  std::unique_ptr<BorrowedKernel> second = first->Another().value();
  for (size_t b = 0; b < artifact.buffers.size(); ++b) {
    const int32_t operand = artifact.buffers[b].operand;
    if (operand != 0 && operand != 2) continue;
    ASSERT_TRUE(second->PlaceBorrowed(b, {reinterpret_cast<uint64_t>(buffers[static_cast<size_t>(operand)].get()), 0}));
  }
  for (BorrowedKernel* kernel : {first.get(), second.get()}) {
    const std::vector<float> nothing(kM * kN, -1);
    cl.clEnqueueWriteBuffer(queue.get(), buffers[2].get(), CL_TRUE, 0, nothing.size() * 4, nothing.data(), 0, nullptr,
                            nullptr);
    void* done = nullptr;
    std::unique_ptr<EnqueuedWork> work = kernel->EnqueueOn({.queue = queue.get(), .done = &done}, nullptr).value();
    work->Wait();
    EXPECT_TRUE(work->HasEnded());
    // A device that was lost answers nothing any more, and runs nothing.
    auto& driver = const_cast<OpenCl&>(cl);
    const auto asks = std::exchange(
        driver.clGetEventInfo,
        [](cl_event, cl_event_info, size_t, void*, size_t*) -> cl_int { return CL_DEVICE_NOT_AVAILABLE; });
    EXPECT_TRUE(work->HasEnded());
    driver.clGetEventInfo = asks;
    cl.clReleaseEvent(static_cast<cl_event>(done));
    cl.clEnqueueReadBuffer(queue.get(), buffers[2].get(), CL_TRUE, 0, data[2].size() * 4, data[2].data(), 0, nullptr,
                           nullptr);
    for (size_t m = 0; m < kM; ++m)
      for (size_t n = 0; n < kN; ++n) {
        float sum = 0;
        for (size_t k = 0; k < kK; ++k) sum += data[0][m * kK + k] * data[1][n * kK + k];
        ASSERT_EQ(data[2][m * kN + n], sum) << m << " " << n;
      }
  }
}

}  // namespace
}  // namespace hone

#endif
