// Code for GPUs on real devices, where some are installed (PoCL and lavapipe make a processor one): built, checked and
// timed by the pools that serve it; and what a device's code may do wrong without harm to anybody.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/build_for_gpu.h"
#include "backends/gpu/compile_cuda.h"
#include "backends/gpu/compile_glsl.h"
#include "backends/gpu/find_nvrtc.h"
#include "backends/gpu/gpu_backend.h"
#include "base/bytes.h"
#include "ir/device_artifact.h"
#include "tests/backends/runner_fixture.h"
#include "tests/support/data_index_kernels.h"
#include "tests/support/gpu_kind_names.h"
#include "tests/support/operation_samples.h"
#include "tests/support/sanitizers.h"
#include "tests/support/want_of_device.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::In;

constexpr char kScale[] = "kernel scale(x: f32[N]) -> y: f32[N] where N=4096 { y[i] = x[i] * 2.0 }";

// A device of each kind with the pools that serve it, shared by the tests: starting a driver takes a while.
struct Opened {
  Device device;
  std::unique_ptr<WorkerPools> pools;
  std::string why;  // there is none
};

Opened Open(const std::string& kind) {
  Opened opened;
  if (!testing::HasBuilder()) {
    opened.why = kind + ": hone-builder is not built";
    return opened;
  }
  Result<std::vector<Device>> found = GpuBackend(kind).Probe();
  if (!found || !IsChecked(found->front().target)) {
    opened.why = kind + ": " + (found ? "no such device is here" : found.error().Text());
    return opened;
  }
  if (kind == kCudaKind) {
    EXPECT_TRUE(OpenNvrtc(FindNvrtc().value()));  // for what the tests edit
  }
  opened.device = (*found)[0];
  WorkerPoolsOptions options;
  options.builders.builders = 2;
  opened.pools = GpuBackend(kind).StartPools(options).value();
  return opened;
}

class GpuDevice : public ::testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() { opened_.clear(); }
  void SetUp() override {
    auto [at, is_new] = opened_.try_emplace(GetParam());
    if (is_new) at->second = Open(GetParam());
    device_ = at->second.device;
    pools_ = at->second.pools.get();
    if (pools_ != nullptr) return;
    if (!testing::HasBuilder()) GTEST_SKIP() << testing::kNoBuilder;
    HONE_SKIP_FOR_WANT_OF(GetParam(), at->second.why);
  }

  DeviceArtifact Build(const std::string& kernel, const std::string& schedule = "") const {
    const Result<BuildOutput> built = BuildForGpu({kernel, schedule, device_.target});
    EXPECT_TRUE(built) << kernel << ": " << built.error().Text();
    return DecodeDeviceArtifact(built->object).value();
  }

  Result<CheckReport> Check(const std::string& kernel, const DeviceArtifact& artifact,
                            CheckOptions options = {}) const {
    const std::string bytes = EncodeDeviceArtifact(artifact);
    const SealedMemfd file = SealedMemfd::Create(AsBytes(bytes)).value();
    std::unique_ptr<WorkerPools::Reference> reference =
        pools_->Prepare(kernel, device_.target, In(seconds(60))).value();
    return reference->Check(file, options, In(seconds(120)));
  }

  // The reason why that artifact is refused.
  std::string Refusal(const DeviceArtifact& artifact, CheckOptions options = {}) const {
    const Result<CheckReport> report = Check(kScale, artifact, options);
    if (!report) return report.error().Text();
    return report->failure ? report->failure->Text() : "it is verified";
  }

  // kScale with other code.
  Result<DeviceArtifact> Edited(const std::function<void(std::string&)>& edit) const {
    DeviceArtifact artifact = Build(kScale);
    std::string text = ExplainGpuCode({kScale, "", device_.target}).value();
    text.erase(0, text.find("\n// " + std::string(LanguageOf(GetParam()))));
    edit(text);
    if (artifact.language == kSpirv) text = HONE_TRY(CompileGlsl(text));
    if (artifact.language == kCubin) text = HONE_TRY(CompileCuda(text, device_.target.device()->facts.at("arch")));
    artifact.sources = {text};
    return artifact;
  }

  // With a statement before everything else that a thread does. `y`: its output.
  Result<DeviceArtifact> With(const std::string& statement) const {
    return Edited([&](std::string& text) {
      const bool is_shader = text.find("void main()") != std::string::npos;
      std::string put = statement;
      if (is_shader)
        for (size_t at = 0; (at = put.find("y[", at)) != std::string::npos; at += 10) put.replace(at, 1, "args.y.at");
      text.insert(text.find("{\n", text.find(is_shader ? "void main()" : "hone_0")) + 2, put + "\n");
    });
  }

  static SealedMemfd FileOf(const DeviceArtifact& artifact) {
    return SealedMemfd::Create(AsBytes(EncodeDeviceArtifact(artifact))).value();
  }

  // Why each failed; "": it is to be checked.
  static std::vector<std::string> Rehearse(Evaluator& evaluator, const std::vector<SealedMemfd>& files) {
    std::vector<const SealedMemfd*> some;
    for (const SealedMemfd& file : files) some.push_back(&file);
    std::vector<std::string> told;
    for (const std::optional<Error>& failure : evaluator.Rehearse(some, {.run_limit = milliseconds(500)}))
      told.push_back(failure ? failure->Text() : "");
    return told;
  }

  Device device_;
  WorkerPools* pools_ = nullptr;

 private:
  static inline std::map<std::string, Opened> opened_;
};

TEST_P(GpuDevice, EveryOperationIsRight) {
  for (const std::string& kernel : GpuSamples()) {
    const Result<CheckReport> report = Check(kernel, Build(kernel), {.full = true});
    ASSERT_TRUE(report) << kernel << ": " << report.error().Text();
    EXPECT_TRUE(report->verified()) << kernel << ": " << report->failure->Text();
  }
}

// Languages of devices leave open what becomes of an integer that leaves its type, and their compilers use that.
TEST_P(GpuDevice, IntegersAreWhatTheKernelLanguageSays) {
  std::vector<std::string> kernels;
  for (const char* value :
       {"if(a[i] + 2147483647 > a[i], 1, 0)", "-(a[i] * 1073741824 * 2) / 1", "abs(a[i] * 1073741824 - 2147483647 - 1)",
        "i32(u8(a[i] * 1000))", "i32(u8(f32(a[i]) * 3.7))", "i32(f32(u8(a[i])) + float(u8(f64(a[i]))))"})
    kernels.push_back(fmt::format("kernel k(a: i32[N]) -> y: i32[N] where N=100 {{ y[i] = {} }}", value));
  // Bytes in memory, in vectors and one by one: cut, saturated, wrapped and compared without a sign.
  for (const char* value : {"u8(a[i] * 1000)", "u8(f32(a[i]) * 300.5)", "u8(-1.0 / f32(a[i] * 0))",
                            "u8(log(f32(a[i]) * 0.0 - 1.0))", "u8(if(a[i] > 0, 255, 128))", "max(b[i], u8(a[i]))",
                            "if(b[i] > u8(127), b[i], u8(i8(a[i] * 100)))", "u8(bool(b[i]))", "u8(f64(b[i]) - 100.0)"})
    for (const int n : {100, 37})
      kernels.push_back(fmt::format("kernel k(a: i32[N], b: u8[N]) -> y: u8[N] where N={} {{ y[i] = {} }}", n, value));
  for (const char* type : {"i8", "i32", "f32", "f16", "bf16", "f64", "bool"})
    kernels.push_back(fmt::format("kernel k(b: u8[N]) -> y: {0}[N] where N=256 {{ y[i] = {0}(b[i]) }}", type));
  for (const DataIndexKernel& kernel : DataIndexKernels()) kernels.push_back(kernel.text);
  for (const std::string& kernel : kernels) {
    const Result<CheckReport> report = Check(kernel, Build(kernel), {.full = true});
    ASSERT_TRUE(report) << kernel << ": " << report.error().Text();
    EXPECT_TRUE(report->verified()) << kernel << ": " << report->failure->Text();
  }
}

TEST_P(GpuDevice, IsTimedByItsOwnEvents) {
  std::unique_ptr<Evaluator> evaluator = pools_->MakeEvaluator(kScale, device_.target, {}).value();
  const Result<BuiltArtifact> built = evaluator->Build("");
  ASSERT_TRUE(built) << built.error().Text();
  EXPECT_EQ(KindOfTarget(built->manifest.target), GetParam());
  const Result<CheckReport> report = evaluator->Check(built->object, {});
  ASSERT_TRUE(report && report->verified());
  const Result<RunTiming> timing = evaluator->Time(built->object, {.samples = 7});
  ASSERT_TRUE(timing) << timing.error().Text();
  EXPECT_GE(timing->samples, 5);
  EXPECT_GT(timing->median_us, 0);
}

TEST_P(GpuDevice, WrongResultsAreSeen) {
  const Result<DeviceArtifact> artifact = Edited([](std::string& text) {
    const size_t at = text.rfind("2.0");
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at, 3, "2.1");
  });
  EXPECT_THAT(Refusal(artifact.value()), HasSubstr("elements are wrong"));
}

TEST_P(GpuDevice, OutputsThatNobodyWritesAreSeen) {
  EXPECT_THAT(Refusal(With("if (1 < 2) return;").value()), HasSubstr("y["));
}

TEST_P(GpuDevice, WritesBesideABufferAreSeen) {
  EXPECT_THAT(Refusal(With("int before = -1; y[before] = 1.0f;").value()), HasSubstr("a stray write beside y"));
}

TEST_P(GpuDevice, ItsCompilersWordsAreTheReason) {
  const Result<DeviceArtifact> artifact = With("int k = nonsense;");
  EXPECT_THAT(artifact ? Refusal(*artifact) : artifact.error().Text(), HasSubstr("nonsense"));
}

TEST_P(GpuDevice, WhatNeverEndsIsEndedAndTheNextIsRight) {
  // C++ takes it that loops end unless they do something that is seen.
  const char* sum = GetParam() == kCudaKind ? "*(volatile float*)y += 1.0f;" : "y[0] = y[0] + 1.0f;";
  const DeviceArtifact endless = With(fmt::format("for (int i = 0; i < 2; i = 0) {{ {} }}", sum)).value();
  // lavapipe leaves its loops by itself, after 65,535 iterations of all of them.
  const bool leaves = device_.target.device()->facts.at("driver").starts_with("llvmpipe");
  EXPECT_THAT(Refusal(endless, {.run_limit = milliseconds(500)}),
              AnyOf(HasSubstr("still running"), HasSubstr(leaves ? "never written" : "still running")));
  EXPECT_EQ(Refusal(Build(kScale)), "it is verified");
}

// A launch that reads what a later one computes is right from the second run on: the first one's scratch is still
// there.
TEST_P(GpuDevice, WhatAnEarlierRunHasLeftIsNotTakenForComputed) {
  constexpr char kTwo[] =
      "kernel two(x: f32[N]) -> y: f32[N] where N=4096 {\n  t: f32[N]\n  t[i] = exp(x[i])\n  y[i] = t[i] + t[N - 1 - "
      "i]\n}";
  DeviceArtifact artifact = Build(kTwo, "bind t.i block.x\nbind y.i block.x\n");
  ASSERT_EQ(artifact.launches.size(), 2u);
  std::swap(artifact.launches[0], artifact.launches[1]);
  const std::string bytes = EncodeDeviceArtifact(artifact);
  const SealedMemfd file = SealedMemfd::Create(AsBytes(bytes)).value();
  std::unique_ptr<WorkerPools::Reference> reference = pools_->Prepare(kTwo, device_.target, In(seconds(60))).value();
  for (int run = 0; run < 2; ++run) {
    const Result<CheckReport> report = reference->Check(file, {}, In(seconds(120)));
    ASSERT_TRUE(report) << report.error().Text();
    EXPECT_FALSE(report->verified()) << run;
  }
}

TEST_P(GpuDevice, ManyAreRehearsedAndThenRight) {
  std::unique_ptr<Evaluator> evaluator = pools_->MakeEvaluator(kScale, device_.target, {}).value();
  std::vector<SealedMemfd> files;
  for (int i = 0; i < 20; ++i) files.push_back(FileOf(With(fmt::format("if ({} < 0) return;", i)).value()));
  EXPECT_THAT(Rehearse(*evaluator, files), Each(""));
  for (const SealedMemfd& file : files) {
    const Result<CheckReport> report = evaluator->Check(file, {});
    ASSERT_TRUE(report && report->verified());
    EXPECT_TRUE(evaluator->Time(file, {.samples = 5}));
  }
}

// What is said of a process that touches memory which is not there: AddressSanitizer handles the signal, and ends it.
constexpr const char* kStrayAccess = testing::kSeesAddresses ? "it ended the process" : "killed by signal 11";

TEST_P(GpuDevice, WhatFailsInARehearsalIsNamedAndHarmsNoOther) {
  struct Bad {
    std::string statement, rehearsed, checked;
  };
  std::vector<Bad> bad{{"int before = -1; y[before] = 1.0f;", "a stray write beside y", "a stray write beside y"}};
  if (GetParam() == kOpenClKind) {
    bad.push_back({"((volatile __global int*)8)[0] = 1;", kStrayAccess, kStrayAccess});
    bad.push_back({"int k = nonsense;", "nonsense", "nonsense"});
    bad.push_back({"for (int i = 0; i < 2; i = 0) y[0] = y[0] + 1.0f;", "still running", "still running"});
  }
  std::vector<SealedMemfd> files;
  for (size_t i = 0; i < 3 * bad.size(); ++i)
    files.push_back(FileOf(With(i % 3 == 1 ? bad[i / 3].statement : fmt::format("if ({} < 0) return;", i)).value()));
  std::unique_ptr<Evaluator> evaluator = pools_->MakeEvaluator(kScale, device_.target, {}).value();
  const std::vector<std::string> failed = Rehearse(*evaluator, files);
  for (size_t i = 0; i < files.size(); ++i) {
    const Result<CheckReport> report = evaluator->Check(files[i], {.run_limit = milliseconds(500)});
    ASSERT_TRUE(report) << report.error().Text();
    EXPECT_EQ(report->verified(), i % 3 != 1) << i;
    EXPECT_EQ(failed[i].empty(), i % 3 != 1) << failed[i];
    if (report->verified()) continue;
    EXPECT_THAT(failed[i], HasSubstr(bad[i / 3].rehearsed));
    EXPECT_THAT(report->failure->Text(), HasSubstr(bad[i / 3].checked));
  }
}

TEST_P(GpuDevice, MemoryThatTheDeviceDoesNotHaveIsALimit) {
  DeviceArtifact artifact = Build(kScale);
  artifact.buffers.push_back({int64_t{1} << 40, -1, true});
  const Result<CheckReport> report = Check(kScale, artifact);
  ASSERT_TRUE(report) << report.error().Text();
  ASSERT_TRUE(report->failure);
  EXPECT_EQ(report->failure->kind, ErrorKind::kLimit) << report->failure->Text();
  EXPECT_THAT(report->failure->Text(),
              AllOf(HasSubstr("could not be started"), AnyOf(HasSubstr("memory"), HasSubstr("buffer"))));
  EXPECT_EQ(Refusal(Build(kScale)), "it is verified");
}

TEST_P(GpuDevice, ADeviceThatIsNotHereRunsNothing) {
  DeviceArtifact artifact = Build(kScale);
  DeviceTarget other = *device_.target.device();
  other.facts["driver"] = "0.1";
  artifact.manifest.target = PrintTarget(other);
  EXPECT_THAT(Refusal(artifact), HasSubstr("not there any more"));
}

TEST_P(GpuDevice, IsMeantByFewerFacts) {
  const Backend& backend = GpuBackend(GetParam());
  const std::vector<Device> devices{device_};
  EXPECT_EQ(backend.Accept(DeviceTarget{GetParam(), {}}, devices).value(), device_.target);
  EXPECT_EQ(backend.Accept(DeviceTarget{GetParam(), {{"device", "toaster"}}}, devices).error().kind,
            ErrorKind::kUnsupported);
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuDevice, ::testing::ValuesIn(testing::GpuKindNames()),
                         [](const auto& info) { return info.param; });

TEST(BuildForGpu, WhatADeviceLacksIsSaid) {
  const auto refusal = [](const std::string& kernel, std::map<std::string, std::string, std::less<>> facts,
                          const std::string& schedule = "") {
    const Result<BuildOutput> built = BuildForGpu({kernel, schedule, DeviceTarget{"opencl", std::move(facts)}});
    return built ? std::string("built") : built.error().Text();
  };
  EXPECT_THAT(refusal("matmul(M=8,N=8,K=8,dtype=f64)", {{"f64", "0"}}), HasSubstr("no f64"));
  EXPECT_EQ(refusal("matmul(M=8,N=8,K=8,dtype=f64)", {{"f64", "1"}}), "built");
  // There are no tensors of i64; places that data decide are computed in it.
  const std::string wide = "kernel a(x: f32[1000], w: i32[16]) -> y: f32[16] { y[i] = pad(x[8*w[i]], 0) }";
  EXPECT_THAT(refusal(wide, {{"i64", "0"}}), HasSubstr("no i64; ask for another target or for i32"));
  EXPECT_EQ(refusal(wide, {{"i64", "1"}}), "built");
  EXPECT_THAT(refusal("add(M=8,N=8,dtype=i8)", {{"i8", "0"}}), HasSubstr("no i8"));
  EXPECT_THAT(refusal("add(M=8,N=8,dtype=f16)", {{"i16", "0"}}), HasSubstr("no f16"));
  EXPECT_THAT(refusal("matmul(M=1..8,N=8,K=8)", {}), HasSubstr("fixed sizes"));
  // Small blocks, hardly any storage: there is a schedule for them all the same.
  EXPECT_EQ(refusal("matmul(M=256,N=256,K=256)", {{"block_threads", "32"}, {"block_bytes", "256"}}), "built");
}

TEST(BuildForGpu, SchedulesWithMoreBlocksThanAGridHasAreRefused) {
  const std::map<std::string, std::string, std::less<>> vulkan{{"grid", "65535"}};
  const auto refusal = [&](const std::string& schedule) {
    const Result<BuildOutput> built = BuildForGpu({"add(M=65536,N=4)", schedule, DeviceTarget{"vulkan", vulkan}});
    return built ? std::string("built") : built.error().Text();
  };
  EXPECT_THAT(refusal("bind y.m block.x\nbind y.n thread.x\n"), HasSubstr("65536 blocks along x, at most 65535"));
  EXPECT_THAT(refusal("bind y.m block.y\nbind y.n thread.x\n"), HasSubstr("65536 blocks along y, at most 65535"));
  EXPECT_EQ(refusal("split y.m 2\nreorder y.m.0 y.m.1 y.n\nbind y.m.0 block.x\nbind y.n thread.x\n"), "built");
  EXPECT_EQ(refusal(""), "built");
}

TEST(BuildForGpu, IsReproducible) {
  const BuildRequest request{"matmul(M=64,N=64,K=64)+bias+relu", "", DeviceTarget{"opencl", {}}};
  EXPECT_EQ(BuildForGpu(request)->object, BuildForGpu(request)->object);
}

}  // namespace
}  // namespace hone
