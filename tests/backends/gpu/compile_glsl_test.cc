// What GLSL becomes is valid, as spirv-val sees it: for every operation, whether a driver is there or not.
#include "backends/gpu/compile_glsl.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

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
  const DeviceTarget target{std::string(kVulkanKind), {{"block_bytes", "32768"}, {"block_threads", "1024"}}};
  for (const std::string& kernel : GpuSamples()) {
    const Result<BuildOutput> built = BuildForGpu({kernel, "", target});
    ASSERT_TRUE(built) << kernel << ": " << built.error().Text();
    const DeviceArtifact artifact = DecodeDeviceArtifact(built->object).value();
    EXPECT_EQ(artifact.language, kSpirv);
    for (const std::string& module : artifact.sources) EXPECT_EQ(Complaint(module), "") << kernel;
  }
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
