// Which buffers an application may hand to kernels, where a Vulkan device is (lavapipe makes a processor one).
#if __has_include(<vulkan/vulkan.h>)
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "backends/drivers/vulkan_context.h"
#include "backends/gpu/build_for_gpu.h"
#include "ir/device_artifact.h"
#include "tests/support/sanitizers.h"
#include "tests/support/want_of_device.h"

namespace hone {
namespace borrowed_vulkan_test {

using ::testing::HasSubstr;

constexpr char kBytes[] = "kernel twice(x: i8[N]) -> y: i32[N] where N=64 { y[i] = x[i] * 2 }";

// Four of them are read at once.
TEST(BorrowedVulkan, BuffersOfSmallElementsBeginAtMultiplesOfFourBytes) {
  if (testing::kSeesThreads) GTEST_SKIP() << "[SKIP] a driver in this process";
  const std::vector<DeviceTarget> found = FindVulkanDevices().value_or(std::vector<DeviceTarget>());
  if (found.empty() || found[0].Number("i8") != 1)
    HONE_SKIP_FOR_WANT_OF(kVulkanKind, "no Vulkan device with bytes is here");
  const std::unique_ptr<GpuContext> context = OpenVulkanDevice(found[0]).value();
  const auto* borrowed = dynamic_cast<BorrowedContext*>(context.get());
  ASSERT_NE(borrowed, nullptr);
  const auto refusal = [&](uint64_t address, uint64_t element_bytes) {
    const Result<MemoryRange> found = borrowed->Find({address, 64}, 64, false, element_bytes);
    return found ? std::string() : found.error().Text();
  };
  EXPECT_EQ(refusal(4096 + 4, 1), "");
  EXPECT_EQ(refusal(4096 + 8, 8), "");
  EXPECT_THAT(refusal(4096 + 2, 1), HasSubstr("no multiple of 4 bytes"));
  EXPECT_THAT(refusal(4096 + 2, 2), HasSubstr("no multiple of 4 bytes"));
  EXPECT_THAT(refusal(4096 + 4, 8), HasSubstr("no multiple of 8 bytes"));

  const BuildOutput built = BuildForGpu({kBytes, "", found[0]}).value();
  const std::unique_ptr<LoadedKernel> kernel =
      context->Load(DecodeDeviceArtifact(built.object).value(), Operands::kPlaced).value();
  const std::unique_ptr<DeviceMemory> memory = context->Allocate(4096).value();
  EXPECT_TRUE(kernel->Place(0, *memory, 4));
  const Result<void> placed = kernel->Place(0, *memory, 2);
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().kind, ErrorKind::kUnsupported);
}

}  // namespace borrowed_vulkan_test
}  // namespace hone

#endif
