#include "client/api/kernel_handle.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/bytes.h"
#include "base/hash.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "tests/support/c_artifact.h"

namespace hone {
namespace {

using testing::CManifest;
using testing::CompileArtifact;
using testing::CPrologue;

ManifestOperand Operand(std::string name, int64_t n, bool is_output) {
  ManifestOperand operand;
  operand.name = std::move(name);
  operand.shape = {{n, n, -1}};
  operand.is_output = is_output;
  return operand;
}

// y[i] = x[i] + w[i] over 1,000 elements; w is packed (doubled, so that packing shows). The workspace of a call holds a
// mark that no other call may touch.
Manifest AddManifest(bool packed) {
  Manifest manifest;
  manifest.kernel = "add";
  manifest.target = "avx2 cpu=generic features= l1=32768 l2=524288 l3=4194304 cores=1";
  manifest.operands = {Operand("x", 1000, false), Operand("w", 1000, false), Operand("y", 1000, true)};
  manifest.operands[1].is_const = true;
  if (packed) {
    manifest.operands[1].packed_bytes = 4000;
    manifest.operands[1].packed_layout = "doubled";
  }
  manifest.workspace_common = 64;
  manifest.workspace_per_worker = 64;
  manifest.flops = 1000;
  return manifest;
}

constexpr const char* kAddCode = R"(
struct ctx { const float *x, *w; float *y; long *mark; };
static void body(int64_t begin, int64_t end, int32_t worker, void *p) {
  struct ctx *c = p;
  for (int64_t i = begin; i < end; ++i) c->y[i] = c->x[i] + c->w[i];
}
EXPORT int hone_entry(const hone_env *env, void *const *buffers, const int64_t *sizes) {
  struct ctx c = {buffers[0], buffers[1], buffers[2], env->workspace};
  long mine = (long)buffers[2];
  *c.mark = mine;
  int status = env->parallel_for(env->pool, 1000, 100, body, &c);
  return status != 0 ? status : *c.mark == mine ? 0 : 77;
}
EXPORT int hone_pack(const hone_env *env, int32_t operand, const void *src, void *dst) {
  for (int i = 0; i < 1000; ++i) ((float *)dst)[i] = 2 * ((const float *)src)[i];
  return operand == 1 ? 0 : 5;
}
)";

Result<std::unique_ptr<LoadedArtifact>> LoadCode(const Manifest& manifest, const std::string& code,
                                                 std::string_view canonical = "") {
  std::vector<std::byte> bytes = CompileArtifact(CPrologue() + code + CManifest(EncodeManifest(manifest)));
  SealedMemfd file = *SealedMemfd::Create(bytes);
  Digest256 digest = Hash256(bytes);
  return LoadedArtifact::Load(std::move(file), bytes.size(),
                              std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()), canonical);
}

std::unique_ptr<KernelHandle> MakeAdd(bool packed, int threads = 2, std::shared_ptr<PackedConstants> shared = {}) {
  Workers workers;
  workers.pool = std::make_shared<ThreadPool>(ThreadPoolOptions{.threads = threads});
  workers.count = threads;
  Result<std::unique_ptr<LoadedArtifact>> code = LoadCode(AddManifest(packed), kAddCode);
  EXPECT_TRUE(code) << code.error().Text();
  return *KernelHandle::Create(*std::move(code), {}, workers, KernelHandle::Change::kFrozen, std::move(shared));
}

struct Data {
  std::vector<float> x = std::vector<float>(1000, 1.5f), w = std::vector<float>(1000, 2.0f),
                     y = std::vector<float>(1000, -1);
  void* buffers[3] = {x.data(), nullptr, y.data()};
};

int Kind(int status) { return status & 0xff; }
int Index(int status) { return (status >> 8) - 1; }

TEST(KernelHandle, CallsWithABoundConstant) {
  auto kernel = MakeAdd(false);
  Data data;
  ASSERT_TRUE(kernel->Bind(1, data.w.data()));
  ASSERT_EQ(kernel->Call(data.buffers, nullptr), 0);
  for (float y : data.y) ASSERT_EQ(y, 3.5f);
}

TEST(KernelHandle, PacksAConstantOnceWhenItIsBound) {
  auto kernel = MakeAdd(true);
  Data data;
  ASSERT_TRUE(kernel->Bind(1, data.w.data()));
  ASSERT_EQ(kernel->Call(data.buffers, nullptr), 0);
  for (float y : data.y) ASSERT_EQ(y, 5.5f);
}

TEST(KernelHandle, SharesWhatIsPackedFromTheSameMemory) {
  auto shared = std::make_shared<PackedConstants>();
  auto first = MakeAdd(true, 2, shared), second = MakeAdd(true, 2, shared);
  Data data;
  ASSERT_TRUE(first->Bind(1, data.w.data()));
  ASSERT_TRUE(second->Bind(1, data.w.data()));
  EXPECT_EQ(shared->bytes(), 4000);
  first = nullptr;
  ASSERT_EQ(second->Call(data.buffers, nullptr), 0);
  EXPECT_EQ(data.y[999], 5.5f);
  Data other;
  first = MakeAdd(true, 2, shared);
  ASSERT_TRUE(first->Bind(1, other.w.data()));
  EXPECT_EQ(shared->bytes(), 8000);
  first = nullptr;
  second = nullptr;
  EXPECT_EQ(shared->bytes(), 0);
}

TEST(KernelHandle, PacksChangedMemoryAnewWhenItIsBoundAgain) {
  auto shared = std::make_shared<PackedConstants>();
  auto first = MakeAdd(true, 2, shared), second = MakeAdd(true, 2, shared);
  Data data;
  ASSERT_TRUE(first->Bind(1, data.w.data()));
  ASSERT_TRUE(second->Bind(1, data.w.data()));
  data.w.assign(1000, 10);
  for (KernelHandle* kernel : {first.get(), second.get()}) {
    ASSERT_TRUE(kernel->Bind(1, data.w.data()));
    ASSERT_EQ(kernel->Call(data.buffers, nullptr), 0);
    EXPECT_EQ(data.y[999], 21.5f);
  }
}

TEST(PackedConstants, AreOneForAShapeAndALayout) {
  PackedConstants constants;
  const float data[4] = {};
  ManifestOperand operand = Operand("w", 1000, false);
  operand.packed_bytes = 64;
  operand.packed_layout = "a";
  int packed = 0;
  std::vector<PackedConstants::Copy> held;
  auto take = [&](const ManifestOperand& as, const void* of, bool anew = false) {
    held.push_back(*constants.Take(of, as, anew, [&]() -> Result<PackedConstants::Copy> {
      ++packed;
      return PackedConstants::Copy(std::make_shared<int>(packed));
    }));
    return packed;
  };
  EXPECT_EQ(take(operand, data), 1);
  EXPECT_EQ(take(operand, data), 1);
  EXPECT_EQ(take(operand, data + 1), 2);
  ManifestOperand other = operand;
  other.shape = {{10, 10, -1}, {100, 100, -1}};
  EXPECT_EQ(take(other, data), 3);
  other = operand;
  other.packed_layout = "b";
  EXPECT_EQ(take(other, data), 4);
  other = operand;
  other.dtype = DType::kI32;
  EXPECT_EQ(take(other, data), 5);
  EXPECT_EQ(take(operand, data, true), 6);
  EXPECT_EQ(take(operand, data), 6);
  EXPECT_FALSE(constants.Take(data + 2, operand, false, [] { return Error{ErrorKind::kLimit, "none", ""}; }));
  held.clear();
  EXPECT_EQ(take(operand, data), 7);
}

TEST(KernelHandle, AnUnpackedConstantMayBeGivenToEachCall) {
  auto kernel = MakeAdd(false);
  Data data;
  data.buffers[1] = data.w.data();
  ASSERT_EQ(kernel->Call(data.buffers, nullptr), 0);
  EXPECT_EQ(data.y[999], 3.5f);
}

TEST(KernelHandle, RefusesWhatIsMissingOrMisalignedAndWritesNothing) {
  auto kernel = MakeAdd(true);
  Data data;
  data.buffers[1] = data.w.data();
  int status = kernel->Call(data.buffers, nullptr);  // packed, and not bound
  EXPECT_EQ(Kind(status), static_cast<int>(ErrorKind::kInvalid));
  EXPECT_EQ(Index(status), 1);
  ASSERT_TRUE(kernel->Bind(1, data.w.data()));
  data.buffers[0] = nullptr;
  EXPECT_EQ(Index(kernel->Call(data.buffers, nullptr)), 0);
  data.buffers[0] = reinterpret_cast<char*>(data.x.data()) + 1;
  EXPECT_EQ(Index(kernel->Call(data.buffers, nullptr)), 0);
  EXPECT_NE(kernel->Call(nullptr, nullptr), 0);
  for (float y : data.y) ASSERT_EQ(y, -1);
}

TEST(KernelHandle, RefusesOutputsThatOverlapInputs) {
  auto kernel = MakeAdd(false);
  std::vector<float> memory(3000, 1);
  void* buffers[3] = {memory.data(), memory.data() + 2000, memory.data() + 999};
  int status = kernel->Call(buffers, nullptr);
  EXPECT_EQ(Kind(status), static_cast<int>(ErrorKind::kInvalid));
  EXPECT_EQ(Index(status), 2);
  buffers[2] = memory.data() + 1001;
  EXPECT_NE(kernel->Call(buffers, nullptr), 0);
  buffers[2] = memory.data() + 1000;
  EXPECT_EQ(kernel->Call(buffers, nullptr), 0);
}

TEST(KernelHandle, RefusesOutputsThatOverlapWhatAConstantIsPackedFrom) {
  auto kernel = MakeAdd(true);
  Data data;
  ASSERT_TRUE(kernel->Bind(1, data.w.data()));
  data.buffers[2] = data.w.data();  // another version would pack what is written there
  const int status = kernel->Call(data.buffers, nullptr);
  EXPECT_EQ(Kind(status), static_cast<int>(ErrorKind::kInvalid));
  EXPECT_EQ(Index(status), 2);
  data.buffers[2] = data.y.data();
  EXPECT_EQ(kernel->Call(data.buffers, nullptr), 0);
}

TEST(KernelHandle, BindSaysWhatIsWrong) {
  auto kernel = MakeAdd(true);
  Data data;
  EXPECT_EQ(kernel->Bind(3, data.w.data()).error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(kernel->Bind(-1, data.w.data()).error().kind, ErrorKind::kInvalid);
  EXPECT_NE(kernel->Bind(2, data.w.data()).error().message.find("output"), std::string::npos);
  EXPECT_NE(kernel->Bind(0, data.w.data()).error().message.find("not constant"), std::string::npos);
  EXPECT_FALSE(kernel->Bind(1, nullptr));
  ServedFacts facts;  // code is shared by texts that call their operands otherwise
  facts.operands = {"mine", "weights", "out"};
  kernel = *KernelHandle::Create(*LoadCode(AddManifest(true), kAddCode), facts, Workers{});
  EXPECT_TRUE(kernel->Bind(0, data.w.data()).error().message.starts_with("mine is not constant"));
}

TEST(KernelHandle, ConcurrentCallsHaveWorkspacesOfTheirOwn) {
  auto kernel = MakeAdd(true, 3);
  Data shared;
  ASSERT_TRUE(kernel->Bind(1, shared.w.data()));
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      Data data;
      for (int call = 0; call < 2000; ++call) failures += kernel->Call(data.buffers, nullptr) != 0 || data.y[7] != 5.5f;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

TEST(KernelHandle, UsesTheApplicationsThreads) {
  static std::atomic<int> loops{0};
  Workers workers;
  workers.count = 4;
  workers.application_pool = &loops;
  workers.parallel_for = [](void* pool, int64_t n, int64_t, ThreadPool::Body body, void* ctx) {
    ++*static_cast<std::atomic<int>*>(pool);
    body(0, n, 3, ctx);
    return 0;
  };
  auto kernel = *KernelHandle::Create(*LoadCode(AddManifest(false), kAddCode), {}, workers);
  Data data;
  data.buffers[1] = data.w.data();
  ASSERT_EQ(kernel->Call(data.buffers, nullptr), 0);
  EXPECT_EQ(loops, 1);
  EXPECT_EQ(data.y[0], 3.5f);
}

TEST(KernelHandle, AFailingPoolFailsTheCall) {
  Workers workers;
  workers.parallel_for = [](void*, int64_t, int64_t, ThreadPool::Body, void*) { return 9; };
  auto kernel = *KernelHandle::Create(*LoadCode(AddManifest(false), kAddCode), {}, workers);
  Data data;
  data.buffers[1] = data.w.data();
  EXPECT_EQ(Kind(kernel->Call(data.buffers, nullptr)), static_cast<int>(ErrorKind::kRunFailed));
}

TEST(KernelHandle, ChecksDynamicSizes) {
  Manifest manifest = AddManifest(false);
  manifest.dynamic_sizes = {"N"};
  for (ManifestOperand& operand : manifest.operands) operand.shape = {{1, 1000, 0}};
  auto kernel = *KernelHandle::Create(*LoadCode(manifest, R"(
EXPORT int hone_entry(const hone_env *env, void *const *buffers, const int64_t *sizes) {
  for (int64_t i = 0; i < sizes[0]; ++i) ((float *)buffers[2])[i] = ((float *)buffers[0])[i] + ((float *)buffers[1])[i];
  return 0;
})"),
                                      {}, Workers{});
  std::vector<float> memory(1000, 1);
  void* buffers[3] = {memory.data(), memory.data() + 100, memory.data() + 200};
  int64_t sizes[] = {100};
  EXPECT_EQ(kernel->Call(buffers, sizes), 0);
  sizes[0] = 101;  // now they overlap
  EXPECT_EQ(Index(kernel->Call(buffers, sizes)), 2);
  for (int64_t wrong : {0, -1, 1001}) {
    sizes[0] = wrong;
    EXPECT_EQ(Kind(kernel->Call(buffers, sizes)), static_cast<int>(ErrorKind::kInvalid));
  }
  EXPECT_EQ(Kind(kernel->Call(buffers, nullptr)), static_cast<int>(ErrorKind::kInvalid));
}

TEST(KernelHandle, SaysWhatShapeAnOperandHasAtDynamicSizes) {
  Manifest manifest = AddManifest(false);
  manifest.dynamic_sizes = {"N", "M"};
  for (ManifestOperand& operand : manifest.operands) operand.shape = {{1, 1000, 1}, {7, 7, -1}, {2, 50, 0}};
  auto kernel = *KernelHandle::Create(*LoadCode(manifest, kAddCode), {}, Workers{});
  int64_t shape[3] = {};
  const int64_t sizes[] = {50, 3}, too_large[] = {51, 3};
  EXPECT_EQ(kernel->ShapeOf(2, sizes, shape), 0);
  EXPECT_EQ(std::vector<int64_t>(shape, shape + 3), (std::vector<int64_t>{3, 7, 50}));
  EXPECT_EQ(Kind(kernel->ShapeOf(2, too_large, shape)), static_cast<int>(ErrorKind::kInvalid));
  EXPECT_EQ(Index(kernel->ShapeOf(2, too_large, shape)), 2);
  for (int operand : {-1, 3}) EXPECT_NE(kernel->ShapeOf(operand, sizes, shape), 0);
  EXPECT_NE(kernel->ShapeOf(0, nullptr, shape), 0);
}

// Code for a range of sizes, in the hands of somebody who asked for one of them and knows nothing of the others.
TEST(KernelHandle, CodeForARangeIsCalledWithTheSizesOfTheKernelThatWasAskedFor) {
  const auto canonical = [](const std::string& kernel) { return Canonicalize(*ParseKernel(kernel)).text; };
  const std::string body = "{ y[i] = x[i] + w[i] }", head = "kernel add(x: f32[N], w: f32[N]) -> y: f32[N] where N=";
  Manifest manifest = AddManifest(false);
  manifest.kernel = canonical(head + "1..1000 " + body);
  manifest.dynamic_sizes = {"s0"};
  for (ManifestOperand& operand : manifest.operands) operand.shape = {{1, 1000, 0}};
  const std::string code = R"(
EXPORT int hone_entry(const hone_env *env, void *const *buffers, const int64_t *sizes) {
  for (int64_t i = 0; i < sizes[0]; ++i) ((float *)buffers[2])[i] = ((float *)buffers[0])[i] + ((float *)buffers[1])[i];
  return 0;
})";
  auto loaded = LoadCode(manifest, code, canonical(head + "37 " + body));
  ASSERT_TRUE(loaded) << loaded.error().Text();
  EXPECT_EQ((*loaded)->manifest().kernel, canonical(head + "37 " + body));
  auto kernel = *KernelHandle::Create(*std::move(loaded), {}, Workers{});
  EXPECT_TRUE(kernel->manifest().dynamic_sizes.empty());
  EXPECT_EQ(kernel->BytesOf(2), 37 * 4);
  Data data;
  data.buffers[1] = data.w.data();
  ASSERT_EQ(kernel->Call(data.buffers, nullptr), 0);
  EXPECT_EQ(data.y[36], 3.5f);
  EXPECT_EQ(data.y[37], -1);
  // They overlap behind the sizes that it has.
  void* near[3] = {data.x.data(), data.w.data(), data.x.data() + 37};
  EXPECT_EQ(kernel->Call(near, nullptr), 0);
  // What is not in the range is not to be had of it.
  for (const std::string& other : {head + "1001 " + body, head + "37 { y[i] = x[i] - w[i] }"}) {
    auto refused = LoadCode(manifest, code, canonical(other));
    ASSERT_FALSE(refused) << other;
    EXPECT_EQ(refused.error().message, "the code is for another kernel than the one that was asked for");
  }
}

TEST(KernelHandle, RefusesManifestsThatCannotBe) {
  // By the manifest's decoder or, for what that lets through, when the handle is made.
  auto is_refused = [](const Manifest& manifest) {
    Result<std::unique_ptr<LoadedArtifact>> loaded = LoadCode(manifest, kAddCode);
    return !loaded || !KernelHandle::Create(*std::move(loaded), {}, {});
  };
  EXPECT_FALSE(is_refused(AddManifest(false)));
  Manifest manifest = AddManifest(false);
  manifest.operands[0].shape = {{int64_t{1} << 39, int64_t{1} << 39, -1}, {1000, 1000, -1}};
  EXPECT_TRUE(is_refused(manifest));
  manifest = AddManifest(false);
  manifest.operands[0].shape = {{1, 8, 3}};
  EXPECT_TRUE(is_refused(manifest));
  manifest = AddManifest(false);
  manifest.operands[0].alignment = 3;
  EXPECT_TRUE(is_refused(manifest));
  manifest = AddManifest(false);
  manifest.workspace_per_worker = -64;
  EXPECT_TRUE(is_refused(manifest));
  manifest = AddManifest(false);
  manifest.operands.resize(65, manifest.operands[0]);
  EXPECT_TRUE(is_refused(manifest));
}

// One of two functions that differ in what they return.
std::string Returning(int value) {
  return "EXPORT int hone_entry(const hone_env *env, void *const *buffers, const int64_t *sizes) { return " +
         std::to_string(value) + "; }\n";
}

Manifest EmptyManifest() {
  Manifest manifest = AddManifest(false);
  manifest.operands = {Operand("y", 1, true)};
  return manifest;
}

TEST(Loader, EachArtifactIsItsOwnEvenUnderAReusedDescriptor) {
  int first_fd = -1, second_fd = -1;
  hone_entry_fn first_entry = nullptr;
  auto keep = *LoadCode(EmptyManifest(), Returning(1));
  {
    auto first = *LoadCode(EmptyManifest(), Returning(2));
    first_fd = first->file().fd();
    first_entry = first->entry();
    EXPECT_EQ(first_entry(nullptr, nullptr, nullptr), 2);
  }
  auto second = *LoadCode(EmptyManifest(), Returning(3));
  second_fd = second->file().fd();
  EXPECT_EQ(first_fd, second_fd) << "the descriptor was to be reused for this test to mean anything";
  EXPECT_EQ(second->entry()(nullptr, nullptr, nullptr), 3);
  EXPECT_EQ(keep->entry()(nullptr, nullptr, nullptr), 1);
}

TEST(Loader, SurvivesAnApplicationThatClosesItsDescriptors) {
  auto first = *LoadCode(EmptyManifest(), Returning(1));
  int fd = first->file().fd();
  close(fd);  // as programs do that become daemons
  auto second = *LoadCode(EmptyManifest(), Returning(2));
  ASSERT_EQ(second->file().fd(), fd) << "the descriptor was to be reused for this test to mean anything";
  EXPECT_EQ(second->entry()(nullptr, nullptr, nullptr), 2);
  EXPECT_EQ(first->entry()(nullptr, nullptr, nullptr), 1);
}

TEST(Loader, LeaksNoDescriptors) {
  auto count = [] {
    int open = 0;
    for (int fd = 0; fd < 256; ++fd) open += fcntl(fd, F_GETFD) != -1;
    return open;
  };
  (void)*LoadCode(EmptyManifest(), Returning(1));
  int before = count();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(LoadCode(EmptyManifest(), Returning(i % 3)));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(LoadCode(EmptyManifest(), Returning(1), "another kernel"));
  EXPECT_EQ(count(), before);
}

TEST(Loader, RefusesAnotherKernelsCodeAndDamage) {
  EXPECT_EQ(LoadCode(EmptyManifest(), Returning(1), "another kernel").error().kind, ErrorKind::kCorrupt);
  EXPECT_TRUE(LoadCode(EmptyManifest(), Returning(1), "add"));
  std::vector<std::byte> bytes =
      CompileArtifact(CPrologue() + Returning(1) + CManifest(EncodeManifest(EmptyManifest())));
  std::string wrong_digest(32, 'x');
  EXPECT_EQ(LoadedArtifact::Load(*SealedMemfd::Create(bytes), bytes.size(), wrong_digest, "").error().kind,
            ErrorKind::kInvalid);
  EXPECT_FALSE(LoadedArtifact::Load(*SealedMemfd::Create(bytes), bytes.size() + 1, "", ""));
  bytes.resize(bytes.size() / 2);
  EXPECT_FALSE(LoadedArtifact::Load(*SealedMemfd::Create(bytes), bytes.size(), "", ""));
}

TEST(Loader, RefusesCodeForAnIsaThatThisProcessorLacks) {
  Manifest manifest = EmptyManifest();
  manifest.target = "neon cpu=generic features= l1=1 l2=1 l3=1 cores=1";
#if defined(__x86_64__)
  EXPECT_EQ(LoadCode(manifest, Returning(1)).error().kind, ErrorKind::kUnsupported);
#endif
  manifest.target = "avx2 cpu=generic features=notafeature l1=1 l2=1 l3=1 cores=1";
  EXPECT_EQ(LoadCode(manifest, Returning(1)).error().kind, ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace hone
