// CUDA's driver as we call it, against one without a device that is strict about it (tests/support/fake_cuda): in this
// process, and by the pools that serve kernels. That a real one does what its manual says is shown by GpuDevice's tests
// on a machine that has one.
#include "backends/drivers/cuda_context.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "backends/drivers/cuda_driver.h"
#include "backends/gpu/find_nvrtc.h"
#include "backends/gpu/gpu_backend.h"
#include "base/bytes.h"
#include "base/file.h"
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

// However much code has been there.
TEST_F(CudaContextTest, CodeThatNobodyHasTakesNoMemory) {
  constexpr size_t kCodes = 32, kBytes = size_t{1} << 20;
  const size_t before = ::mallinfo2().uordblks;
  for (size_t i = 0; i < kCodes; ++i) {
    DeviceArtifact artifact = ArtifactOf("twice", Text());
    artifact.sources[0] += std::string(kBytes, static_cast<char>('a' + i));
    ASSERT_TRUE(context_->Load(artifact, Operands::kOwned));
  }
  EXPECT_LT(::mallinfo2().uordblks, before + kCodes * kBytes / 4);
}

// A context, memory and a stream of an application's.
class BorrowedCuda : public CudaContextTest {
 protected:
  void SetUp() override {
    CudaContextTest::SetUp();
    if (IsSkipped()) return;
    cu_.cuDevicePrimaryCtxRetain = Function<decltype(cu_.cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
    cu_.cuDevicePrimaryCtxRelease_v2 =
        Function<decltype(cu_.cuDevicePrimaryCtxRelease_v2)>("cuDevicePrimaryCtxRelease_v2");
    cu_.cuCtxPushCurrent_v2 = Function<decltype(cu_.cuCtxPushCurrent_v2)>("cuCtxPushCurrent_v2");
    cu_.cuCtxPopCurrent_v2 = Function<decltype(cu_.cuCtxPopCurrent_v2)>("cuCtxPopCurrent_v2");
    cu_.cuCtxGetCurrent = Function<decltype(cu_.cuCtxGetCurrent)>("cuCtxGetCurrent");
    cu_.cuMemAlloc_v2 = Function<decltype(cu_.cuMemAlloc_v2)>("cuMemAlloc_v2");
    cu_.cuMemFree_v2 = Function<decltype(cu_.cuMemFree_v2)>("cuMemFree_v2");
    cu_.cuStreamCreate = Function<decltype(cu_.cuStreamCreate)>("cuStreamCreate");
    cu_.cuStreamDestroy_v2 = Function<decltype(cu_.cuStreamDestroy_v2)>("cuStreamDestroy_v2");
    hold_ = Function<void (*)(bool)>("FakeCudaHold");
    for (int device : {0, 1}) {
      Own& own = own_[device];
      cu_.cuDevicePrimaryCtxRetain(&own.context, device);
      cu_.cuCtxPushCurrent_v2(own.context);
      for (cuda::Address* address : {&own.x, &own.y}) ASSERT_EQ(cu_.cuMemAlloc_v2(address, 16384), cuda::kSuccess);
      ASSERT_EQ(cu_.cuStreamCreate(&own.stream, cuda::kStreamNonBlocking), cuda::kSuccess);
      cuda::Context popped = nullptr;
      cu_.cuCtxPopCurrent_v2(&popped);
    }
    std::memcpy(reinterpret_cast<void*>(own_[0].x), x_.data(), 16384);
    borrowed_ = BorrowCudaContext(own_[0].context).value();
  }
  void TearDown() override {
    borrowed_.reset();
    for (int device : {0, 1}) {
      if (own_[device].context == nullptr) continue;
      cu_.cuCtxPushCurrent_v2(own_[device].context);
      for (cuda::Address address : {own_[device].x, own_[device].y}) cu_.cuMemFree_v2(address);
      cu_.cuStreamDestroy_v2(own_[device].stream);
      cuda::Context popped = nullptr;
      cu_.cuCtxPopCurrent_v2(&popped);
      cu_.cuDevicePrimaryCtxRelease_v2(device);
    }
    CudaContextTest::TearDown();
  }

  template <typename T>
  static T Function(const char* name) {
    return reinterpret_cast<T>(::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), name));
  }
  std::string Refusal(const BorrowedBuffer& buffer) const {
    const Result<MemoryRange> found = borrowed_->Find(buffer, 16384, false, 4);
    return found ? "" : found.error().Text();
  }

  struct Own {
    cuda::Context context = nullptr;
    cuda::Address x = 0, y = 0;
    cuda::Stream stream = nullptr;
  };
  cuda::Driver cu_;
  std::array<Own, 2> own_;
  void (*hold_)(bool) = nullptr;
  std::unique_ptr<BorrowedContext> borrowed_;
};

TEST_F(BorrowedCuda, EnqueuesOnAStreamAndSaysWhenThatHasEnded) {
  EXPECT_EQ(PrintTarget(borrowed_->target()), Text());
  std::unique_ptr<BorrowedKernel> kernel = borrowed_->LoadBorrowed(ArtifactOf("twice", Text())).value();
  std::unique_ptr<BorrowedKernel> other = kernel->Another().value();
  for (BorrowedKernel* each : {kernel.get(), other.get()}) {
    ASSERT_TRUE(each->PlaceBorrowed(0, {own_[0].x, 16384}));
    ASSERT_TRUE(each->PlaceBorrowed(1, {own_[0].y, 16384}));
    ASSERT_TRUE(borrowed_->Check({.queue = own_[0].stream}));
    hold_(true);
    std::unique_ptr<EnqueuedWork> work = each->EnqueueOn({.queue = own_[0].stream}, nullptr).value();
    std::unique_ptr<EnqueuedWork> later = each->EnqueueOn({.queue = nullptr}, work.get()).value();
    EXPECT_FALSE(work->HasEnded());
    hold_(false);
    EXPECT_TRUE(work->HasEnded());
    later->Wait();
  }
  const auto* y = reinterpret_cast<const float*>(own_[0].y);
  for (size_t i = 0; i < x_.size(); ++i) ASSERT_EQ(y[i], 2 * x_[i]);
  // The thread's context is as it was: none.
  cuda::Context current = own_[1].context;
  cu_.cuCtxGetCurrent(&current);
  EXPECT_EQ(current, nullptr);
}

TEST_F(BorrowedCuda, RefusesWhatIsAnotherContexts) {
  EXPECT_EQ(Refusal({own_[0].x, 16384}), "");
  EXPECT_THAT(Refusal({own_[1].x, 16384}), HasSubstr("another context's"));
  EXPECT_THAT(Refusal({own_[0].x, 16380}), HasSubstr("the buffer has 16380 bytes, the operand 16384"));
  EXPECT_THAT(Refusal({own_[0].x + 4, 16384}), HasSubstr("no multiple of 16 bytes"));
  EXPECT_THAT(Refusal({16, 16384}), HasSubstr("no memory that CUDA knows"));
  EXPECT_THAT(borrowed_->Check({.queue = own_[1].stream}).error().Text(), HasSubstr("another context's"));
  EXPECT_THAT(BorrowCudaContext(nullptr).error().Text(), HasSubstr("none is current in this thread"));
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
    const Result<std::vector<Device>> found = GpuBackend(kCudaKind).Probe();
    ASSERT_TRUE(found) << found.error().Text();
    device_ = found->front();
    WorkerPoolsOptions options;
    options.builders.builders = 1;
    pools_ = GpuBackend(kCudaKind).StartPools(options).value();
  }
  void TearDown() override {
    ConfigureNvrtc("");
    ::unsetenv("LD_LIBRARY_PATH");
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  }

  Result<CheckReport> Check(const std::string& function, CheckOptions options = {}) const {
    return Check(ArtifactOf(function, PrintTarget(device_.target)), options);
  }
  Result<CheckReport> Check(const DeviceArtifact& artifact, CheckOptions options) const {
    return Prepare()->Check(FileOf(artifact), options, In(seconds(60)));
  }
  std::unique_ptr<WorkerPools::Reference> Prepare() const {
    return pools_->Prepare(kTwice, device_.target, In(seconds(60))).value();
  }
  static SealedMemfd FileOf(const DeviceArtifact& artifact) {
    return SealedMemfd::Create(AsBytes(EncodeDeviceArtifact(artifact))).value();
  }
  SealedMemfd FileOf(const std::string& function) const {
    return FileOf(ArtifactOf(function, PrintTarget(device_.target)));
  }
  std::string Refusal(const std::string& function, CheckOptions options = {}) const {
    return TextOf(Check(function, options));
  }
  static std::string TextOf(const Result<CheckReport>& report) {
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
  const std::vector<Device> all = GpuBackend(kCudaKind).Probe().value();
  ASSERT_GT(all.size(), 1u);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_FALSE(IsChecked(all[i].target)) << all[i].name;
}

TEST_F(CudaRunner, ChecksAndTimes) {
  const Result<CheckReport> report = Check("twice", {.timed_runs = 3, .full = true});
  ASSERT_TRUE(report) << report.error().Text();
  EXPECT_TRUE(report->verified()) << report->failure->Text();
  EXPECT_EQ(report->time_us, 500);
}

TEST_F(CudaRunner, MeasuresCopiesAndSaysWhyItCannot) {
  const Result<CopySpeed> speed = GpuBackend(kCudaKind).MeasureCopies(device_.target);
  ASSERT_TRUE(speed) << speed.error().Text();
  EXPECT_GT(speed->to_gb_s, 0.05);  // of memory to memory
  EXPECT_GT(speed->from_gb_s, 0.05);
  EXPECT_LT(speed->to_us, 1e4);
  DeviceTarget gone = *device_.target.device();
  gone.facts["units"] = "77";
  EXPECT_THAT(GpuBackend(kCudaKind).MeasureCopies(Target(gone)).error().Text(), HasSubstr("not there any more"));
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

TEST_F(CudaRunner, ADeviceThatWasLostBetweenKernelsIsOpenedAnew) {
  EXPECT_EQ(Refusal("twice_then_breaks"), "it is verified");
  EXPECT_EQ(Refusal("twice"), "it is verified");
  // Lost again at once, whoever opens it.
  EXPECT_THAT(Refusal("breaks"), HasSubstr("could not be started: finding breaks failed: an illegal memory access"));
  EXPECT_EQ(Refusal("twice"), "it is verified");
}

// The processes below this one that have no children.
std::vector<pid_t> LastDescendants() {
  std::map<pid_t, pid_t> parents;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = ReadFile(entry.path() / "stat", 4096).value_or("");
    const size_t name = stat.rfind(')');  // may hold anything
    if (name == std::string::npos) continue;
    char state = 0;
    pid_t parent = 0;
    std::istringstream(stat.substr(name + 1)) >> state >> parent;
    parents[std::stoi(stat)] = parent;
  }
  std::vector<pid_t> last;
  for (const auto& [process, parent] : parents) {
    pid_t above = process;
    while (above != ::getpid() && parents.contains(above)) above = parents[above];
    const bool has_children = std::ranges::any_of(parents, [&](const auto& other) { return other.second == process; });
    if (above == ::getpid() && process != ::getpid() && !has_children) last.push_back(process);
  }
  return last;
}

// The process with the driver in it.
std::vector<pid_t> DeviceProcesses() {
  std::vector<pid_t> found;
  for (const pid_t process : LastDescendants())
    if (ReadFile("/proc/" + std::to_string(process) + "/comm", 64).value_or("").starts_with("hone-device-run"))
      found.push_back(process);
  return found;
}

TEST_F(CudaRunner, ADeviceProcessThatEndsBetweenKernelsIsNoKernelsFault) {
  EXPECT_EQ(Refusal("twice_then_ends"), "it is verified");
  EXPECT_EQ(Refusal("twice"), "it is verified");
  std::vector<pid_t> killed;
  for (const pid_t process : DeviceProcesses())
    if (::kill(process, SIGKILL) == 0) killed.push_back(process);
  ASSERT_FALSE(killed.empty());
  EXPECT_EQ(Refusal("twice"), "it is verified");
  // Of two processes that end before it has run, it is to blame.
  EXPECT_THAT(Refusal("ends"), HasSubstr("ended the process"));
  EXPECT_EQ(Refusal("twice"), "it is verified");
}

// Nothing says so but results that were right before.
TEST_F(CudaRunner, AProcessThatComputesWronglySinceSomeKernelIsEnded) {
  std::unique_ptr<WorkerPools::Reference> reference = Prepare();
  const auto check = [&](const std::string& function) {
    return TextOf(reference->Check(FileOf(function), {}, In(seconds(60))));
  };
  EXPECT_EQ(check("twice"), "it is verified");
  EXPECT_EQ(check("twice_then_lies"), "it is verified");
  EXPECT_EQ(check("twice_after_a_while"), "it is verified");
  EXPECT_THAT(check("thrice"), HasSubstr("elements are wrong"));
  reference.reset();
  // Where nothing is known of the kernel yet.
  EXPECT_EQ(Refusal("twice_then_lies"), "it is verified");
  EXPECT_EQ(Refusal("twice"), "it is verified");
  EXPECT_THAT(Refusal("thrice"), HasSubstr("elements are wrong"));
}

TEST_F(CudaRunner, AProcessThatComputesWronglyIsFoundWhileKernelsAreTimed) {
  const std::unique_ptr<Evaluator> evaluator = pools_->MakeEvaluator(kTwice, device_.target, {}).value();
  const auto check = [&](const std::string& function) { return TextOf(evaluator->Check(FileOf(function), {})); };
  const auto time = [&](int times) {
    for (int i = 0; i < times; ++i) ASSERT_TRUE(evaluator->Time(FileOf("twice"), {}));
  };
  EXPECT_EQ(check("twice"), "it is verified");
  const std::vector<pid_t> first = DeviceProcesses();
  ASSERT_EQ(first.size(), 1u);
  time(20);
  EXPECT_EQ(DeviceProcesses(), first);
  EXPECT_EQ(check("twice_then_lies"), "it is verified");
  time(20);
  EXPECT_NE(DeviceProcesses(), first);
  EXPECT_EQ(DeviceProcesses().size(), 1u);
}

TEST_F(CudaRunner, MemoryThatTheDeviceDoesNotHaveIsALimit) {
  DeviceArtifact artifact = ArtifactOf("twice", PrintTarget(device_.target));
  artifact.buffers.push_back({int64_t{2} << 30, -1, true});
  const Result<CheckReport> report = Check(artifact, {});
  ASSERT_TRUE(report) << report.error().Text();
  ASSERT_TRUE(report->failure);
  EXPECT_EQ(report->failure->kind, ErrorKind::kLimit) << report->failure->Text();
  EXPECT_THAT(report->failure->Text(), HasSubstr("out of memory"));
}

}  // namespace
}  // namespace hone
