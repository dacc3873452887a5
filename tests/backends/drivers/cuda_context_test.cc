// CUDA's driver as we call it, against one without a device that is strict about it (tests/support/fake_cuda): in this
// process, and by the pools that serve kernels. That a real one does what its manual says is shown by GpuDevice's tests
// on a machine that has one.
#include "backends/drivers/cuda_context.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backends/gpu/find_nvrtc.h"
#include "backends/gpu/gpu_backend.h"
#include "base/bytes.h"
#include "ir/device_artifact.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "tests/backends/runner_fixture.h"
#include "tests/support/some_cubin.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::In;

constexpr char kTwice[] = "kernel twice(x: f32[N]) -> y: f32[N] where N=4096 { y[i] = x[i] * 2.0 }";
constexpr char kFake[] =
    "cuda arch=sm_86 block_bytes=49152 block_bytes_most=101376 block_threads=1024 device=Fake_GPU_0 driver=";

// A call of a function that the driver knows by name, of kTwice's operands.
DeviceArtifact ArtifactOf(const std::string& function, const std::string& target) {
  DeviceArtifact artifact;
  artifact.manifest.kernel = Canonicalize(ParseKernel(kTwice).value()).text;
  artifact.manifest.target = target;
  artifact.manifest.operands.resize(2);
  for (ManifestOperand& operand : artifact.manifest.operands) operand.shape = {{4096, 4096, -1}};
  artifact.manifest.operands[0].name = "x";
  artifact.manifest.operands[1].name = "y";
  artifact.manifest.operands[1].is_output = true;
  artifact.manifest.launches = 1;
  artifact.language = kCubin;
  artifact.sources = {testing::SomeCubin()};
  artifact.buffers = {{16384, 0, false}, {16384, 1, true}};
  DeviceLaunch launch;
  launch.entry = function;
  launch.grid = {8, 2, 1};
  launch.block = {128, 2, 1};
  launch.buffers = {0, 1};
  artifact.launches = {launch};
  return artifact;
}

std::span<const std::byte> BytesOf(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

class CudaContextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    void* fake = ::dlopen(HONE_FAKE_CUDA "/libcuda.so.1", RTLD_NOW);  // found from now on by its name
    ASSERT_NE(fake, nullptr) << ::dlerror();
    held_ = reinterpret_cast<int (*)()>(::dlsym(fake, "FakeCudaHeld"));
    const Result<std::vector<DeviceTarget>> found = FindCudaDevices();
    ASSERT_TRUE(found) << found.error().Text();
    if (found->empty() || held_ == nullptr) GTEST_SKIP() << "[SKIP] this process has another libcuda";
    target_ = found->front();
    ASSERT_EQ(found->size(), 1u);  // the second lets nobody compute
    x_.resize(4096);
    std::iota(x_.begin(), x_.end(), 1.0F);
    context_ = OpenCudaDevice(target_).value();
  }
  void TearDown() override {
    context_.reset();
    if (held_ == nullptr) return;
    EXPECT_EQ(held_(), 0) << "not everything was released";
  }

  std::string Text() const { return PrintTarget(target_); }

  DeviceTarget target_;
  std::unique_ptr<GpuContext> context_;
  std::vector<float> x_;
  int (*held_)() = nullptr;
};

TEST_F(CudaContextTest, DescribesItsDevice) {
  EXPECT_THAT(Text(), HasSubstr(kFake));
  EXPECT_EQ(target_.Number("units"), 3);
  EXPECT_EQ(target_.Number("l2"), 1 << 20);
  DeviceTarget other = target_;
  other.facts["driver"] = "0.1";
  EXPECT_EQ(OpenCudaDevice(other).error().kind, ErrorKind::kNotFound);
}

TEST_F(CudaContextTest, CallsAndTimesByEvents) {
  std::unique_ptr<LoadedKernel> kernel = context_->Load(ArtifactOf("twice", Text()), Operands::kOwned).value();
  ASSERT_TRUE(kernel->Write(0, BytesOf(x_)));
  EXPECT_EQ(kernel->Pack(), 0);
  EXPECT_EQ(kernel->Call(3), 1'500'000);  // half a millisecond each
  std::vector<float> y(4096);
  ASSERT_TRUE(kernel->Read(1, std::as_writable_bytes(std::span(y))));
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 2 * x_[i]);
  EXPECT_EQ(kernel->FindOverrun().value(), std::nullopt);
}

TEST_F(CudaContextTest, FindsWhatIsWrittenBesideABuffer) {
  std::unique_ptr<LoadedKernel> kernel = context_->Load(ArtifactOf("stray", Text()), Operands::kOwned).value();
  ASSERT_TRUE(kernel->Write(0, BytesOf(x_)));
  ASSERT_TRUE(kernel->Call(1));
  EXPECT_EQ(kernel->FindOverrun().value(), std::optional<size_t>(1));
}

TEST_F(CudaContextTest, PlacesBuffersWhereTheyMayLie) {
  std::unique_ptr<LoadedKernel> kernel = context_->Load(ArtifactOf("twice", Text()), Operands::kPlaced).value();
  const std::unique_ptr<DeviceMemory> arena = context_->Allocate(3 * 16384).value();
  ASSERT_TRUE(kernel->Place(0, *arena, 16384 + 16));
  EXPECT_EQ(kernel->Place(1, *arena, 4).error().kind, ErrorKind::kUnsupported);
  ASSERT_TRUE(kernel->Place(1, *arena, 0));
  ASSERT_TRUE(context_->Write(*arena, 16384 + 16, BytesOf(x_)));
  ASSERT_TRUE(kernel->Enqueue());
  ASSERT_TRUE(context_->Copy(*arena, 0, *arena, 2 * 16384, 8192));
  ASSERT_TRUE(context_->Finish());
  std::vector<float> y(2048);
  ASSERT_TRUE(context_->Read(*arena, 2 * 16384, std::as_writable_bytes(std::span(y))));
  EXPECT_EQ(y[2047], 4096);
}

TEST_F(CudaContextTest, SaysWhatTheDriverRefuses) {
  EXPECT_EQ(context_->Allocate(size_t{1} << 40).error().kind, ErrorKind::kLimit);
  EXPECT_THAT(context_->Load(ArtifactOf("nothing", Text()), Operands::kOwned).error().Text(),
              HasSubstr("finding nothing"));
  DeviceArtifact artifact = ArtifactOf("twice", Text());
  artifact.sources = {"no code at all"};
  const Error error = context_->Load(artifact, Operands::kOwned).error();
  EXPECT_EQ(error.kind, ErrorKind::kBuildFailed);
  EXPECT_THAT(error.Text(), HasSubstr("no such code"));
  artifact.language = "opencl";
  EXPECT_EQ(context_->Load(artifact, Operands::kOwned).error().kind, ErrorKind::kUnsupported);
}

// In a process of its own, started by honed's pools, as for any kind of device.
class CudaRunner : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::HasBuilder()) GTEST_SKIP() << testing::kNoBuilder;
    // NVRTC is looked for before a device is; none is opened until somebody builds.
    const std::filesystem::path place = std::filesystem::canonical(::testing::TempDir()) / "nvrtc_of_nobody";
    std::filesystem::create_directories(place);
    std::ofstream(place / "libnvrtc.so.12") << "no library";
    ConfigureNvrtc(place);
    ::setenv("LD_LIBRARY_PATH", HONE_FAKE_CUDA, 1);
    ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    const Result<std::vector<Device>> found = CudaBackend().Probe();
    ASSERT_TRUE(found) << found.error().Text();
    device_ = found->front();
    WorkerPoolsOptions options;
    options.builders.builders = 1;
    pools_ = CudaBackend().StartPools(options).value();
  }
  void TearDown() override {
    ConfigureNvrtc("");
    ::unsetenv("LD_LIBRARY_PATH");
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  }

  Result<CheckReport> Check(const std::string& function, CheckOptions options = {}) const {
    const std::string bytes = EncodeDeviceArtifact(ArtifactOf(function, PrintTarget(device_.target)));
    const SealedMemfd file = SealedMemfd::Create(AsBytes(bytes)).value();
    std::unique_ptr<WorkerPools::Reference> reference =
        pools_->Prepare(kTwice, device_.target, In(seconds(60))).value();
    return reference->Check(file, options, In(seconds(60)));
  }
  std::string Refusal(const std::string& function, CheckOptions options = {}) const {
    const Result<CheckReport> report = Check(function, options);
    if (!report) return report.error().Text();
    return report->failure ? report->failure->Text() : "it is verified";
  }

  Device device_;
  std::unique_ptr<WorkerPools> pools_;
};

TEST_F(CudaRunner, FindsTheDeviceBeforeThoseThatAreNotHere) {
  EXPECT_EQ(device_.name, "cuda:0");
  EXPECT_TRUE(IsChecked(device_.target));
  EXPECT_THAT(PrintTarget(device_.target), HasSubstr(kFake));
  const std::vector<Device> all = CudaBackend().Probe().value();
  ASSERT_GT(all.size(), 1u);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_FALSE(IsChecked(all[i].target)) << all[i].name;
}

TEST_F(CudaRunner, ChecksAndTimes) {
  const Result<CheckReport> report = Check("twice", {.timed_runs = 3, .full = true});
  ASSERT_TRUE(report) << report.error().Text();
  EXPECT_TRUE(report->verified()) << report->failure->Text();
  EXPECT_EQ(report->time_us, 500);
}

TEST_F(CudaRunner, WhatADriverCompilesAtTheFirstLaunchIsNotTheCandidatesTime) {
  EXPECT_EQ(Refusal("twice_after_a_while", {.run_limit = milliseconds(100)}), "it is verified");
  EXPECT_THAT(Refusal("twice_slowly", {.run_limit = milliseconds(100), .timed_runs = 1}), HasSubstr("still running"));
}

TEST_F(CudaRunner, SeesWhatIsWrongAndGoesOn) {
  EXPECT_THAT(Refusal("thrice"), HasSubstr("elements are wrong"));
  EXPECT_THAT(Refusal("stray"), HasSubstr("a stray write beside y"));
  // The context is good for nothing any more: the next one gets another process.
  EXPECT_THAT(Refusal("fault"), HasSubstr("an illegal memory access was encountered (CUDA's error 700)"));
  EXPECT_EQ(Refusal("twice"), "it is verified");
  EXPECT_THAT(Refusal("endless", {.run_limit = milliseconds(300)}), HasSubstr("still running"));
  EXPECT_EQ(Refusal("twice"), "it is verified");
}

}  // namespace
}  // namespace hone
