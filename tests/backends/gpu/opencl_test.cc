// Code for GPUs on a real OpenCL device, where one is installed (PoCL makes a processor one): built, checked and timed
// by the pools that serve it; and what a device's code may do wrong without harm to anybody.
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <string>

#include "backends/gpu/build_for_gpu.h"
#include "backends/gpu/gpu_backend.h"
#include "base/bytes.h"
#include "ir/device_artifact.h"
#include "tests/backends/runner_fixture.h"
#include "tests/support/operation_samples.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::In;

constexpr char kScale[] = "kernel scale(x: f32[N]) -> y: f32[N] where N=4096 { y[i] = x[i] * 2.0 }";

class OpenClDevice : public ::testing::Test {
 protected:
  // Shared: starting a driver takes a while.
  static void SetUpTestSuite() {
    const Result<std::vector<Device>> found = OpenClBackend().Probe();
    if (!found || found->empty()) {
      why_ = found ? "no OpenCL device is installed (Debian: pocl-opencl-icd)" : found.error().Text();
      return;
    }
    device_ = (*found)[0];
    WorkerPoolsOptions options;
    options.builders.builders = 1;
    pools_ = OpenClBackend().StartPools(options).value();
  }
  static void TearDownTestSuite() { pools_.reset(); }
  void SetUp() override {
    if (!pools_) GTEST_SKIP() << "[SKIP] " << why_;
  }

  static DeviceArtifact Build(const std::string& kernel, const std::string& schedule = "") {
    const Result<BuildOutput> built = BuildForGpu({kernel, schedule, device_.target});
    EXPECT_TRUE(built) << kernel << ": " << built.error().Text();
    return DecodeDeviceArtifact(built->object).value();
  }

  static Result<CheckReport> Check(const std::string& kernel, const DeviceArtifact& artifact,
                                   CheckOptions options = {}) {
    const std::string bytes = EncodeDeviceArtifact(artifact);
    const SealedMemfd file = SealedMemfd::Create(AsBytes(bytes)).value();
    std::unique_ptr<WorkerPools::Reference> reference =
        pools_->Prepare(kernel, device_.target, In(seconds(60))).value();
    return reference->Check(file, options, In(seconds(120)));
  }

  // The reason why that artifact is refused.
  static std::string Refusal(const DeviceArtifact& artifact, CheckOptions options = {}) {
    const Result<CheckReport> report = Check(kScale, artifact, options);
    if (!report) return report.error().Text();
    return report->failure ? report->failure->Text() : "it is verified";
  }

  // The code of a thread, before everything else that it does.
  static DeviceArtifact With(const std::string& statement) {
    DeviceArtifact artifact = Build(kScale);
    std::string& source = artifact.sources[0];
    source.insert(source.find("{\n", source.find("hone_0")) + 2, statement);
    return artifact;
  }

  static inline Device device_;
  static inline std::unique_ptr<WorkerPools> pools_;
  static inline std::string why_;
};

TEST_F(OpenClDevice, EveryOperationIsRight) {
  for (const std::string& kernel : GpuSamples()) {
    const Result<CheckReport> report = Check(kernel, Build(kernel), {.full = true});
    ASSERT_TRUE(report) << kernel << ": " << report.error().Text();
    EXPECT_TRUE(report->verified()) << kernel << ": " << report->failure->Text();
  }
}

TEST_F(OpenClDevice, IsTimedByItsOwnEvents) {
  std::unique_ptr<Evaluator> evaluator = pools_->MakeEvaluator(kScale, device_.target, {}).value();
  const Result<BuiltArtifact> built = evaluator->Build("");
  ASSERT_TRUE(built) << built.error().Text();
  EXPECT_EQ(KindOfTarget(built->manifest.target), kOpenClKind);
  const Result<CheckReport> report = evaluator->Check(built->object, {});
  ASSERT_TRUE(report && report->verified());
  const Result<RunTiming> timing = evaluator->Time(built->object, {.samples = 7});
  ASSERT_TRUE(timing) << timing.error().Text();
  EXPECT_GE(timing->samples, 5);
  EXPECT_GT(timing->median_us, 0);
}

TEST_F(OpenClDevice, WrongResultsAreSeen) {
  DeviceArtifact artifact = Build(kScale);
  const size_t at = artifact.sources[0].rfind("2.0");
  ASSERT_NE(at, std::string::npos) << artifact.sources[0];
  artifact.sources[0].replace(at, 3, "2.1");
  EXPECT_THAT(Refusal(artifact), HasSubstr("elements are wrong"));
}

TEST_F(OpenClDevice, OutputsThatNobodyWritesAreSeen) { EXPECT_THAT(Refusal(With("return;\n")), HasSubstr("y[")); }

TEST_F(OpenClDevice, WritesBesideABufferAreSeen) {
  const DeviceArtifact artifact = Build(kScale);
  const std::string& source = artifact.sources[0];
  const size_t output = source.find("__global float* restrict ") + std::string("__global float* restrict ").size();
  const std::string name = source.substr(output, source.find_first_of(",)", output) - output);
  EXPECT_THAT(Refusal(With(name + "[-1] = 1.0f;\n")), HasSubstr("a stray write beside y"));
}

TEST_F(OpenClDevice, ItsCompilersWordsAreTheReason) {
  EXPECT_THAT(Refusal(With("int k = nonsense;\n")), HasSubstr("nonsense"));
}

TEST_F(OpenClDevice, WhatNeverEndsIsEndedAndTheNextIsRight) {
  const DeviceArtifact endless = With("for (volatile int i = 0; i < 2; i = 0) {}\n");
  EXPECT_THAT(Refusal(endless, {.run_limit = milliseconds(500)}), HasSubstr("still running"));
  EXPECT_EQ(Refusal(Build(kScale)), "it is verified");
}

TEST_F(OpenClDevice, ADeviceThatIsNotHereRunsNothing) {
  DeviceArtifact artifact = Build(kScale);
  DeviceTarget other = *device_.target.device();
  other.facts["driver"] = "0.1";
  artifact.manifest.target = PrintTarget(other);
  EXPECT_THAT(Refusal(artifact), HasSubstr("not there any more"));
}

TEST_F(OpenClDevice, IsMeantByFewerFacts) {
  const Backend& backend = OpenClBackend();
  const std::vector<Device> devices{device_};
  EXPECT_EQ(backend.Accept(DeviceTarget{"opencl", {}}, devices).value(), device_.target);
  EXPECT_EQ(backend.Accept(DeviceTarget{"opencl", {{"device", "toaster"}}}, devices).error().kind,
            ErrorKind::kUnsupported);
}

TEST(BuildForGpu, WhatADeviceLacksIsSaid) {
  const auto refusal = [](const std::string& kernel, std::map<std::string, std::string, std::less<>> facts) {
    const Result<BuildOutput> built = BuildForGpu({kernel, "", DeviceTarget{"opencl", std::move(facts)}});
    return built ? std::string("built") : built.error().Text();
  };
  EXPECT_THAT(refusal("matmul(M=8,N=8,K=8,dtype=f64)", {{"f64", "0"}}), HasSubstr("no f64"));
  EXPECT_EQ(refusal("matmul(M=8,N=8,K=8,dtype=f64)", {{"f64", "1"}}), "built");
  EXPECT_THAT(refusal("matmul(M=1..8,N=8,K=8)", {}), HasSubstr("fixed sizes"));
  // Small blocks, hardly any storage: there is a schedule for them all the same.
  EXPECT_EQ(refusal("matmul(M=256,N=256,K=256)", {{"block_threads", "32"}, {"block_bytes", "256"}}), "built");
}

TEST(BuildForGpu, IsReproducible) {
  const BuildRequest request{"matmul(M=64,N=64,K=64)+bias+relu", "", DeviceTarget{"opencl", {}}};
  EXPECT_EQ(BuildForGpu(request)->object, BuildForGpu(request)->object);
}

}  // namespace
}  // namespace hone
