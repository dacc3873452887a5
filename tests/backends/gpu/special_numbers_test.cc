// NaN, infinities, zeros of either sign and the smallest numbers are on devices what they are by the reference.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backends/drivers/gpu_context.h"
#include "backends/gpu/build_for_gpu.h"
#include "backends/gpu/compile_cuda.h"
#include "backends/gpu/find_nvrtc.h"
#include "ir/device_artifact.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "ir/reference/interpret.h"
#include "tests/support/gpu_kind_names.h"
#include "tests/support/sanitizers.h"
#include "tests/support/special_numbers.h"

namespace hone {
namespace special_numbers_test {

// What the device computes beside what it should; "": all of it is right.
std::string Wrong(GpuContext& context, const DeviceTarget& device, const SpecialKernel& of) {
  const Kernel kernel = Specialize(ParseKernel(of.text).value());
  const Result<BuildOutput> built = BuildForGpu({of.text, "", device});
  if (!built) return built.error().Text();
  const DeviceArtifact artifact = DecodeDeviceArtifact(built->object).value();
  const Result<std::unique_ptr<LoadedKernel>> loaded = context.Load(artifact, Operands::kOwned);
  if (!loaded) return loaded.error().Text();
  std::vector<std::vector<std::byte>> operands;
  std::vector<OperandView> inputs;
  std::vector<size_t> buffers(kernel.operands.size());
  for (size_t b = 0; b < artifact.buffers.size(); ++b)
    if (artifact.buffers[b].operand >= 0) buffers[static_cast<size_t>(artifact.buffers[b].operand)] = b;
  for (size_t i = 0; i < kernel.operands.size(); ++i) {
    const Tensor& tensor = kernel.tensors[kernel.operands[i]];
    operands.emplace_back(static_cast<size_t>(ElementCount(kernel, tensor) * ByteSize(tensor.dtype)));
    if (tensor.kind == TensorKind::kInput) FillSpecial(tensor.dtype, of.data, i, operands.back());
    EXPECT_TRUE((*loaded)->Write(buffers[i], operands.back()));
  }
  EXPECT_TRUE((*loaded)->Pack());
  EXPECT_TRUE((*loaded)->Call(1));
  const size_t output = operands.size() - 1;  // each of these kernels has one
  EXPECT_TRUE((*loaded)->Read(buffers[output], operands[output]));
  for (size_t i = 0; i < output; ++i) inputs.push_back({operands[i].data()});
  Interpreter reference(kernel, inputs);
  const Tensor& tensor = kernel.tensors[kernel.operands[output]];
  std::string wrong;
  for (int64_t e = 0; e < ElementCount(kernel, tensor); ++e) {
    const Reference wanted = reference.At(0, e);
    const double seen = LoadElement(tensor.dtype, operands[output].data(), static_cast<size_t>(e));
    if (RelativeError(seen, wanted, tensor.dtype) > Allowed(wanted, tensor.dtype, Tolerance(kernel)))
      wrong += fmt::format("[{}] is {}, wanted {}; ", e, seen, wanted.value);
  }
  return wrong;
}

// CUDA's driver of other tests of this program, which computes nothing.
bool HasFakeCuda() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver != nullptr && ::dlsym(driver, "FakeCudaHeld") != nullptr;
}

class SpecialNumbers : public ::testing::TestWithParam<std::string> {};

TEST_P(SpecialNumbers, AreWhatTheReferenceSays) {
  if (testing::kSeesThreads) GTEST_SKIP() << "[SKIP] a driver in this process";
  const std::string& kind = GetParam();
  if (kind == kCudaKind && HasFakeCuda()) GTEST_SKIP() << "[SKIP] cuda: other tests have a driver of their own";
  const Result<std::vector<DeviceTarget>> found = FindDevices(kind);
  if (!found || found->empty())
    GTEST_SKIP() << "[SKIP] " << kind << ": " << (found ? "no such device is here" : found.error().Text());
  if (kind == kCudaKind) { ASSERT_TRUE(OpenNvrtc(FindNvrtc().value())); }
  const DeviceTarget& device = found->front();
  const std::unique_ptr<GpuContext> context = OpenDevice(device).value();
  for (const char* type : {"f32", "f64"}) {
    if (type == std::string("f64") && device.Number("f64") == 0) continue;
    for (const SpecialKernel& kernel : SpecialKernels(type))
      EXPECT_EQ(Wrong(*context, device, kernel), "") << kernel.text;
  }
}

// Mesa's driver for processors has threads that follow each other in a sub-group, though Vulkan does not say so.
TEST(SubGroupsOfLavapipe, ExchangeRegisters) {
  if (testing::kSeesThreads) GTEST_SKIP() << "[SKIP] a driver in this process";
  const std::vector<DeviceTarget> found = FindDevices(kVulkanKind).value_or(std::vector<DeviceTarget>());
  if (found.empty() || !found[0].facts.at("driver").starts_with("llvmpipe"))
    GTEST_SKIP() << "[SKIP] no lavapipe is here";
  const std::unique_ptr<GpuContext> context = OpenDevice(found[0]).value();
  DeviceTarget device = found[0];
  device.facts["sub_group"] = "4";
  device.facts["type"] = "gpu";
  int by_lanes = 0;
  for (const SpecialKernel& kernel : SpecialKernels("f32")) {
    if (kernel.data != SpecialKernel::Data::kRows) continue;
    EXPECT_EQ(Wrong(*context, device, kernel), "") << kernel.text;
    by_lanes += BuildForGpu({kernel.text, "", device})->schedule.find("lane.x") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(by_lanes, 3);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SpecialNumbers, ::testing::ValuesIn(testing::GpuKindNames()),
                         [](const auto& info) { return info.param; });

}  // namespace special_numbers_test
}  // namespace hone
