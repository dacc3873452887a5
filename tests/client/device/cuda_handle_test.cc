// A kernel in an application's CUDA context, on a driver without a device (tests/support/fake_cuda), which knows a few
// functions by name and says when events come. That a real driver does the same is not shown by this.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backends/drivers/cuda_context.h"
#include "backends/drivers/cuda_queue.h"
#include "client/device/device_handle.h"
#include "ir/target.h"
#include "tests/support/some_cubin.h"

namespace hone {
namespace {

constexpr size_t kFloats = 2048;  // as many as the launch below has threads

std::unique_ptr<DeviceCode> CudaCode(const std::string& function, const DeviceTarget& target) {
  DeviceArtifact artifact;
  artifact.manifest.kernel = "a function of one operand";
  artifact.manifest.target = PrintTarget(target);
  artifact.manifest.operands.resize(2);
  for (ManifestOperand& operand : artifact.manifest.operands) operand.shape = {{kFloats, kFloats, -1}};
  artifact.manifest.operands[0].name = "x";
  artifact.manifest.operands[1].name = "y";
  artifact.manifest.operands[1].is_output = true;
  artifact.language = kCubin;
  artifact.sources = {testing::SomeCubin()};
  artifact.buffers = {{kFloats * 4, 0, false}, {kFloats * 4, 1, true}};
  DeviceLaunch launch;
  launch.entry = function;
  launch.grid = {8, 1, 1};
  launch.block = {256, 1, 1};
  launch.buffers = {0, 1};
  artifact.launches = {launch};
  return std::make_unique<DeviceCode>(std::move(artifact));
}

TEST(CudaHandle, SwapsOnAStreamAndReleasesTheOldCodeWhenItsEventComes) {
  void* fake = ::dlopen(HONE_FAKE_CUDA "/libcuda.so.1", RTLD_NOW);  // found from now on by its name
  ASSERT_NE(fake, nullptr) << ::dlerror();
  const auto hold = reinterpret_cast<void (*)(bool)>(::dlsym(fake, "FakeCudaHold"));
  const auto held = reinterpret_cast<int (*)()>(::dlsym(fake, "FakeCudaHeld"));
  if (hold == nullptr || held == nullptr) GTEST_SKIP() << "[SKIP] this process has another libcuda";
  const cuda::Driver& cu = *LoadCuda().value();
  {
    const std::unique_ptr<CudaQueue> mine = CudaQueue::Open(cu, 0).value();  // the application's context and stream
    const CudaQueue::Inside inside = mine->Enter().value();
    const CudaMemory x = mine->Allocate(kFloats * 4).value(), y = mine->Allocate(kFloats * 4).value();
    std::vector<float> numbers(kFloats), results(kFloats);
    std::iota(numbers.begin(), numbers.end(), 1.0F);
    ASSERT_TRUE(mine->Write(x.address(), std::as_bytes(std::span(numbers))));

    auto device = std::make_shared<SharedDevice>();
    device->context = BorrowCudaContext(nullptr).value();  // which is current
    const DeviceTarget target = device->context->target();
    std::unique_ptr<DeviceHandle> handle = DeviceHandle::Create(device, CudaCode("twice", target), {}).value();
    const auto call = [&] {
      const std::vector<BorrowedBuffer> buffers{{x.address(), kFloats * 4}, {y.address(), kFloats * 4}};
      const Result<void> enqueued = handle->Enqueue(buffers.data(), {.queue = mine->stream()});
      EXPECT_TRUE(enqueued) << enqueued.error().Text();
      EXPECT_TRUE(mine->Read(y.address(), std::as_writable_bytes(std::span(results))));
      return results[kFloats - 1] / numbers[kFloats - 1];
    };
    hold(true);
    EXPECT_EQ(call(), 2);
    std::unique_ptr<DeviceCode> code = CudaCode("thrice", target);
    code->artifact.sources[0] += '\0';  // other code
    handle->PublishVersion(handle->PrepareCode(std::move(code), {}).value());
    EXPECT_EQ(call(), 3);
    EXPECT_FALSE(handle->Reclaim());
    const int with_both = held();
    hold(false);
    EXPECT_TRUE(handle->Reclaim());
    EXPECT_LT(held(), with_both);  // a module, an event
    std::vector<float> host(kFloats);
    void* const operands[] = {numbers.data(), host.data()};
    ASSERT_TRUE(handle->Call(operands));
    EXPECT_EQ(host[7], 24);
  }
  EXPECT_EQ(held(), 0);
}

}  // namespace
}  // namespace hone
