// What GLSL becomes is valid, as spirv-val sees it: for every operation, whether a driver is there or not.
#include "backends/gpu/compile_glsl.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "backends/gpu/build_for_gpu.h"
#include "base/file.h"
#include "ir/device_artifact.h"
#include "tests/support/operation_samples.h"

namespace hone {
namespace {

// What spirv-val, a program of spirv-tools, says of a module; "": it is valid.
std::string Complaint(const std::string& module) {
  const std::string path = fmt::format("{}/module.{}", ::testing::TempDir(), ::getpid());
  EXPECT_TRUE(WriteFileAtomically(path, module));
  const std::string command =
      fmt::format("spirv-val --target-env vulkan1.2 --scalar-block-layout {0} >{0}.said 2>&1", path);
  const int status = std::system(command.c_str());
  std::string said = ReadFile(path + ".said", 1 << 20).value();
  std::remove(path.c_str());
  std::remove((path + ".said").c_str());
  return status == 0 ? "" : said + fmt::format("status {}", status);
}

class CompileGlslTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<std::string> module = CompileGlsl("#version 450\nlayout(local_size_x = 1) in;\nvoid main() {}\n");
    if (!module && module.error().kind == ErrorKind::kUnsupported) GTEST_SKIP() << "[SKIP] " << module.error().message;
    if (std::system("spirv-val --version >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "[SKIP] there is no spirv-val here (Debian: spirv-tools)";
    module_ = module.value();
  }
  std::string module_;  // that does nothing
};

TEST_F(CompileGlslTest, EveryOperationIsAValidModule) {
  DeviceTarget target{std::string(kVulkanKind), {{"block_bytes", "32768"}, {"block_threads", "1024"}}};
  const auto is_valid = [&](const std::string& kernel) {
    const Result<BuildOutput> built = BuildForGpu({kernel, "", target});
    ASSERT_TRUE(built) << kernel << ": " << built.error().Text();
    const DeviceArtifact artifact = DecodeDeviceArtifact(built->object).value();
    EXPECT_EQ(artifact.language, kSpirv);
    for (const std::string& module : artifact.sources) EXPECT_EQ(Complaint(module), "") << kernel;
  };
  for (const std::string& kernel : GpuSamples()) is_valid(kernel);
  target.facts["sub_group"] = "32";
  is_valid("softmax(M=64,N=300)");
}

// Nothing is fused or left out that the code does not say: of arithmetic on floats wherever it stands, in what is
// stored, compared and handed to functions too.
TEST_F(CompileGlslTest, ArithmeticIsDoneAsItIsWritten) {
  constexpr uint32_t kExecutionMode = 16, kDecorate = 71, kNoContraction = 42, kSignedZeroInfNanPreserve = 4461;
  const std::set<uint32_t> arithmetic{12, 127, 129, 131, 133, 136, 142};  // OpExtInst, OpFNegate … OpVectorTimesScalar
  const DeviceTarget target{std::string(kVulkanKind), {{"block_bytes", "32768"}, {"block_threads", "1024"}}};
  std::vector<std::string> kernels = GpuSamples();
  kernels.push_back(
      "kernel k(x: f32[N], y: f32[N]) -> z: f32[N] where N=64 { z[i] = max(x[i] * y[i] + 1.0, exp(-x[i] * 2.0)) }");
  kernels.push_back(
      "kernel k(x: f64[N], y: f64[N]) -> z: f64[N] where N=64 { z[i] = if(x[i] * y[i] + 1.0 < 0.0, x[i] / y[i], 1.0) "
      "}");
  size_t operations = 0;
  for (const std::string& kernel : kernels) {
    const Result<BuildOutput> built = BuildForGpu({kernel, "", target});
    ASSERT_TRUE(built) << kernel << ": " << built.error().Text();
    const DeviceArtifact artifact = DecodeDeviceArtifact(built->object).value();
    for (const std::string& module : artifact.sources) {
      std::vector<uint32_t> words(module.size() / 4);
      std::memcpy(words.data(), module.data(), module.size());
      std::set<uint32_t> decorated, modes;
      for (size_t at = 5; at < words.size(); at += words[at] >> 16) {
        const uint32_t op = words[at] & 0xffff;
        if (op == kExecutionMode && words[at + 2] == kSignedZeroInfNanPreserve) modes.insert(words[at + 3]);
        if (op == kDecorate && words[at + 2] == kNoContraction) decorated.insert(words[at + 1]);
        if (!arithmetic.contains(op)) continue;
        ++operations;
        EXPECT_TRUE(decorated.contains(words[at + 2])) << kernel << ": %" << words[at + 2];
      }
      EXPECT_TRUE(modes.contains(32)) << kernel;
      EXPECT_EQ(modes.contains(64), kernel.find("f64") != std::string::npos) << kernel;
    }
  }
  EXPECT_GT(operations, 1000u);
}

TEST_F(CompileGlslTest, TheValidatorSeesDamage) {
  EXPECT_EQ(Complaint(module_), "");
  std::string cut = module_;
  cut.resize(cut.size() - 4);  // the end of main
  EXPECT_NE(Complaint(cut), "");
}

TEST_F(CompileGlslTest, ItsWordsAreTheReason) {
  const Result<std::string> module = CompileGlsl("#version 450\nvoid main() { int k = nonsense; }\n");
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().kind, ErrorKind::kBuildFailed);
  EXPECT_THAT(module.error().message, ::testing::HasSubstr("nonsense"));
}

}  // namespace
}  // namespace hone
