// CUDA C as NVRTC takes it: what every operation becomes for two architectures, what ptxas says of it, and the reasons
// of what is refused. No device is needed.
#include "backends/gpu/compile_cuda.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "backends/gpu/build_for_gpu.h"
#include "backends/gpu/find_nvrtc.h"
#include "backends/gpu/gpu_backend.h"
#include "base/bytes.h"
#include "codegen/gpu/print_warp.h"
#include "ir/device_artifact.h"
#include "tests/backends/runner_fixture.h"
#include "tests/support/gpu_schedules.h"
#include "tests/support/operation_samples.h"
#include "tests/support/warp_schedules.h"

namespace hone::compile_cuda_test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::In;

constexpr char kMatmul[] = "matmul(M=256,N=256,K=256)+bias+relu";

DeviceTarget TargetOf(const std::string& arch) {
  return {std::string(kCudaKind), {{"arch", arch}, {"block_bytes", "49152"}, {"block_threads", "1024"}}};
}

std::string CudaTextOf(const BuildRequest& request) {
  std::string text = ExplainGpuCode(request).value();
  return text.erase(0, text.find("\n// cuda\n"));
}

// Before it is opened, be it here or not.
TEST(BuildForCuda, WithoutNvrtcSaysWhatToInstall) {
  const Result<BuildOutput> built = BuildForGpu({kMatmul, "", TargetOf("sm_80")});
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(built.error().message, HasSubstr("pip install nvidia-cuda-nvrtc-cu12"));
  EXPECT_THAT(ExplainGpuCode({kMatmul, "", TargetOf("sm_80")}).value(), HasSubstr("__global__"));  // needs none
}

class CompileCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static const Result<void> opened = []() -> Result<void> { return OpenNvrtc(HONE_TRY(FindNvrtc())); }();
    if (!opened) GTEST_SKIP() << "[SKIP] " << opened.error().message;
  }
};

TEST_F(CompileCudaTest, EveryOperationIsTakenForBothArchitectures) {
  for (const std::string& kernel : GpuSamples()) {
    for (const char* arch : {"sm_80", "sm_90"}) {
      const Result<BuildOutput> built = BuildForGpu({kernel, "", TargetOf(arch)});
      ASSERT_TRUE(built) << arch << " " << kernel << ": " << built.error().Text();
      const Result<DeviceArtifact> artifact = DecodeDeviceArtifact(built->object);
      ASSERT_TRUE(artifact) << artifact.error().Text();
      EXPECT_EQ(artifact->language, kCubin);
      for (const DeviceLaunch& launch : artifact->launches)
        EXPECT_NE(artifact->sources[0].find(launch.entry), std::string::npos) << launch.entry;
    }
  }
}

// What our checks took for granted of a launch, and ptxas counted.
TEST_F(CompileCudaTest, LimitsAgreeWithPtxas) {
  for (const std::string kernel : {kMatmul, "softmax(M=64,N=512)", "layer_norm(M=64,N=768)",
                                   "conv2d(C=64,H=28,W=28,O=64,R=3,S=3,pad=1,const=1)+bias+relu",
                                   "matmul(M=1024,N=1024,K=512,dtype=f16)+bias+gelu"}) {
    for (const char* arch : {"sm_80", "sm_90"}) {
      const BuildRequest request{kernel, "", TargetOf(arch)};
      const DeviceArtifact artifact = DecodeDeviceArtifact(BuildForGpu(request)->object).value();
      const Result<std::map<std::string, PtxasCounts>> counts = CountsOfPtxas(CudaTextOf(request), arch);
      ASSERT_TRUE(counts) << counts.error().Text();
      ASSERT_EQ(counts->size(), artifact.launches.size());
      for (const DeviceLaunch& launch : artifact.launches) {
        const PtxasCounts& of = counts->at(launch.entry);
        EXPECT_LE(of.shared_bytes, launch.shared_bytes) << kernel << " " << arch;
        EXPECT_LT(launch.shared_bytes - of.shared_bytes, 16) << "only the last array's end is rounded up";
        EXPECT_LE(launch.shared_bytes, 49152);
        EXPECT_LE(launch.block[0] * launch.block[1] * launch.block[2] * of.registers, 65536);
        EXPECT_EQ(of.spilled_bytes, 0) << kernel << " " << arch;
      }
    }
  }
}

// Instructions that a schedule names are in the code, and in no loop of less.
TEST_F(CompileCudaTest, MultipliesMatricesByTheInstructionThatAScheduleNames) {
  for (const WarpCase& of : kWarpCases) {
    const std::string small = WarpMatmul(of, 64, 96, 128);
    for (const char* arch : {"sm_80", "sm_90"}) {
      const BuildRequest request{small, WarpSchedule(of.instruction, of.steps), TargetOf(arch)};
      const Result<BuildOutput> built = BuildForGpu(request);
      ASSERT_TRUE(built) << of.instruction << ": " << built.error().Text();
      const Result<std::string> ptx = PtxOfCuda(CudaTextOf(request), arch);
      ASSERT_TRUE(ptx) << ptx.error().Text();
      EXPECT_THAT(*ptx, HasSubstr(PtxName(*FindInstruction(of.instruction)))) << arch;
    }
    // So does the default schedule, where it pays.
    const BuildRequest untuned{WarpMatmul(of, 256, 256, 256), "", TargetOf("sm_80")};
    EXPECT_THAT(BuildForGpu(untuned)->schedule, HasSubstr(fmt::format("tensorize {} ", of.instruction)));
    EXPECT_THAT(PtxOfCuda(CudaTextOf(untuned), "sm_80").value(), HasSubstr(PtxName(*FindInstruction(of.instruction))));
    // Of a device that has none the same schedule is plain sums.
    const BuildRequest older{small, WarpSchedule(of.instruction, of.steps), TargetOf("sm_75")};
    EXPECT_TRUE(BuildForGpu(older)) << BuildForGpu(older).error().Text();
    EXPECT_THAT(CudaTextOf(older), ::testing::Not(HasSubstr("mma.sync")));
  }
}

// Rows' partial results meet in the registers of warps.
TEST_F(CompileCudaTest, ExchangesRegistersOfAWarp) {
  for (const std::string kernel : {"softmax(M=64,N=128)", "layer_norm(M=64,N=768)", "reduce_sum(M=7,N=601,dtype=f64)"})
    for (const char* arch : {"sm_80", "sm_90"}) {
      const BuildRequest request{kernel, "", TargetOf(arch)};
      const Result<BuildOutput> built = BuildForGpu(request);
      ASSERT_TRUE(built) << kernel << ": " << built.error().Text();
      EXPECT_THAT(built->schedule, HasSubstr(" lane.x")) << kernel;
      EXPECT_THAT(PtxOfCuda(CudaTextOf(request), arch).value(), HasSubstr("shfl.sync.bfly.b32")) << kernel << arch;
    }
}

// Fragments that lie in block storage as the warp loads them at once are loaded so.
TEST_F(CompileCudaTest, LoadsMatricesTogether) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"matmul(M=256,N=256,K=256,dtype=f16)+bias", {"x4.shared.b16", "x2.trans.shared.b16"}},
      {"matmul(M=256,N=256,K=256,dtype=bf16,ta=1,tb=1)", {"x4.trans.shared.b16", "x2.shared.b16"}},
      {"dense(M=256,N=256,K=256,dtype=u8)", {"x4.shared.b16", "x2.shared.b16"}},
      {"dense(M=256,N=256,K=256,accuracy=fast)", {"x4.shared.b16", "x2.shared.b16", "cvt.rna.tf32.f32"}}};
  for (const auto& [kernel, words] : cases)
    for (const char* arch : {"sm_80", "sm_90"}) {
      const BuildRequest request{kernel, "", TargetOf(arch)};
      const Result<BuildOutput> built = BuildForGpu(request);
      ASSERT_TRUE(built) << kernel << ": " << built.error().Text();
      if (built->schedule.find("tensorize mma_") == std::string::npos) continue;  // by groups
      const std::string ptx = PtxOfCuda(CudaTextOf(request), arch).value();
      for (const std::string word : words) {
        const bool is_load = word.starts_with("x");
        EXPECT_THAT(ptx, HasSubstr((is_load ? "ldmatrix.sync.aligned.m8n8." : "") + word)) << kernel << " " << arch;
      }
    }
}

// By groups of warps, for an architecture by itself, whose code devices of "sm_90" run.
TEST_F(CompileCudaTest, MultipliesByGroupsOfWarps) {
  DeviceTarget large = TargetOf("sm_90");
  large.facts["block_bytes_most"] = "232448";
  large.facts["units"] = "132";
  for (const char* dtype : {"f16", "bf16"})
    for (const char* kernel : {"matmul(M=4096,N=4096,K=4096,dtype={},accuracy=relaxed)",
                               "matmul(M=1000,N=768,K=512,dtype={},ta=1,tb=1)+bias+relu"}) {
      const BuildRequest request{fmt::format(fmt::runtime(kernel), dtype), "", large};
      const Result<BuildOutput> built = BuildForGpu(request);
      ASSERT_TRUE(built) << built.error().Text();
      EXPECT_THAT(built->schedule, HasSubstr("tensorize wgmma_m64n"));
      const DeviceArtifact artifact = DecodeDeviceArtifact(built->object).value();
      const std::map<std::string, PtxasCounts> counts = CountsOfPtxas(CudaTextOf(request), "sm_90").value();
      for (const DeviceLaunch& launch : artifact.launches) {
        const PtxasCounts& of = counts.at(launch.entry);
        EXPECT_EQ(of.spilled_bytes, 0) << request.kernel;
        EXPECT_FALSE(of.serializes) << request.kernel;
        EXPECT_LE(launch.block[0] * launch.block[1] * of.registers, 65536);
      }
    }
  // ptxas says so where something touches sums of products that are on their way.
  std::string text = CudaTextOf({"matmul(M=128,N=128,K=64,dtype=f16)", GroupSchedule(), large});
  EXPECT_FALSE(CountsOfPtxas(text, "sm_90")->at("hone_0_y").serializes);
  text.insert(text.find("asm volatile(\"wgmma.commit_group"), "acc_0_0 += 1.0f; ");
  EXPECT_TRUE(CountsOfPtxas(text, "sm_90")->at("hone_0_y").serializes);
}

TEST_F(CompileCudaTest, CopiesAheadPastTheRegisters) {
  const std::string pipelined = std::string(kTiledMatmulSchedule) + "pipeline as 3\npipeline bs 3\n";
  for (const char* arch : {"sm_75", "sm_80", "sm_90"}) {
    const BuildRequest request{kTiledMatmul, pipelined, TargetOf(arch)};
    const Result<BuildOutput> built = BuildForGpu(request);
    ASSERT_TRUE(built) << arch << ": " << built.error().Text();
    const std::string ptx = PtxOfCuda(CudaTextOf(request), arch).value();
    const bool is_async = std::string_view(arch) != "sm_75";
    for (const char* word : {"cp.async.ca.shared.global", "cp.async.commit_group", "cp.async.wait_group 1"})
      EXPECT_EQ(ptx.find(word) != std::string::npos, is_async) << arch << " " << word;
  }
}

TEST_F(CompileCudaTest, IsReproducible) {
  const BuildRequest request{kMatmul, "", TargetOf("sm_80")};
  EXPECT_EQ(BuildForGpu(request)->object, BuildForGpu(request)->object);
}

TEST_F(CompileCudaTest, ItsWordsAreTheReason) {
  const Result<std::string> code = CompileCuda("extern \"C\" __global__ void f() { nonsense; }", "sm_80");
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().kind, ErrorKind::kBuildFailed);
  EXPECT_THAT(code.error().message, HasSubstr("identifier \"nonsense\" is undefined"));
  const Result<std::string> large = CompileCuda(
      "extern \"C\" __global__ void f(float* y) { __shared__ float s[16384]; s[threadIdx.x] = y[0]; "
      "__syncthreads(); y[1] = s[y[3] > 0]; }",
      "sm_80");
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message, HasSubstr("too much shared data"));
  EXPECT_THAT(CompileCuda("", "sm_1").error().message, HasSubstr("sm_1"));
}

// As honed does it: in a builder that has given up its files, with the registry's devices.
TEST_F(CompileCudaTest, BuildersCompileLockedIn) {
  if (!testing::HasBuilder()) GTEST_SKIP() << testing::kNoBuilder;
  const Backend& cuda = GpuBackend(kCudaKind);
  const Result<std::vector<Device>> devices = cuda.Probe();
  ASSERT_TRUE(devices) << devices.error().Text();
  const auto device = std::ranges::find(*devices, "cuda:sm_90", &Device::name);
  ASSERT_NE(device, devices->end());
  EXPECT_FALSE(IsChecked(device->target));
  EXPECT_THAT(cuda.CompilerName("").value(), HasSubstr("nvrtc="));
  WorkerPoolsOptions options;
  options.builders.builders = 1;
  std::unique_ptr<WorkerPools> pools = cuda.StartPools(options).value();
  const Result<BuiltArtifact> built = pools->Build({kMatmul, "", device->target}, In(seconds(60)));
  ASSERT_TRUE(built) << built.error().Text();
  EXPECT_EQ(built->manifest.target, PrintTarget(device->target));
  bool is_locked_in = false;
  for (const Confinement& confinement : pools->Confinements())
    is_locked_in |= confinement.child == "builder" && !confinement.reads_files;
  EXPECT_TRUE(is_locked_in);
}

TEST(FindNvrtc, LooksWhereItIsTold) {
  const std::filesystem::path place = std::filesystem::canonical(::testing::TempDir()) / "nvrtc_place";
  std::filesystem::remove_all(place);
  std::filesystem::create_directories(place);
  struct Restore {
    ~Restore() { ConfigureNvrtc(""); }
  } restore;
  ConfigureNvrtc(place);
  EXPECT_EQ(FindNvrtc().error().kind, ErrorKind::kNotFound);
  EXPECT_THAT(FindNvrtc().error().message, HasSubstr(place.string()));
  EXPECT_EQ(GpuBackend(kCudaKind).Probe().error().kind,
            ErrorKind::kNotFound);  // without a compiler there is nothing to serve
  for (const char* name : {"libnvrtc.so.9", "libnvrtc.so.12", "libnvrtc.alt.so.13", "libnvrtc-builtins.so.13.0"})
    std::ofstream(place / name) << "no library";
  EXPECT_EQ(FindNvrtc().value(), place / "libnvrtc.so.12");
  ConfigureNvrtc(place / "libnvrtc.so.9");
  EXPECT_EQ(FindNvrtc().value(), place / "libnvrtc.so.9");
  std::filesystem::permissions(place, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
  EXPECT_EQ(FindNvrtc().error().kind, ErrorKind::kInvalid);
}

}  // namespace
}  // namespace hone::compile_cuda_test
