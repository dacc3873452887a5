// Equal packed layouts of equal operands are equal bytes, whatever kernel and schedule packs them: copies are shared by
// that (client/api/packed_constants.h).
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <tuple>

#include "backends/cpu/build_for_cpu.h"
#include "base/rng.h"
#include "codegen/rules/choices.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "tests/support/run_kernel.h"

namespace hone {
namespace {

using Packed =
    std::map<std::tuple<std::vector<int64_t>, int64_t, std::string>, std::pair<std::vector<uint8_t>, std::string>>;

int OneAfterTheOther(void*, int64_t n, int64_t, void (*body)(int64_t, int64_t, int32_t, void*), void* ctx) {
  if (n > 0) body(0, n, 0, ctx);
  return 0;
}

// Packs the constants of what was built from one sequence of bytes; what has been packed alike before must be equal.
void Pack(const BuildOutput& built, const std::string& what, Packed& packed) {
  const int fd = memfd_create("kernel", MFD_CLOEXEC);
  ASSERT_EQ(write(fd, built.object.data(), built.object.size()), static_cast<ssize_t>(built.object.size()));
  void* library = dlopen(fmt::format("/proc/self/fd/{}", fd).c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const Manifest& manifest = built.manifest;
  std::vector<uint8_t> workspace(static_cast<size_t>(manifest.workspace_common + manifest.workspace_per_worker) + 64);
  hone_env env{sizeof(hone_env), HONE_ABI_VERSION, nullptr, 1, OneAfterTheOther, nullptr};
  env.workspace = workspace.data() + 64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64;
  for (size_t i = 0; i < manifest.operands.size(); ++i) {
    const ManifestOperand& operand = manifest.operands[i];
    if (operand.packed_bytes == 0) continue;
    std::vector<int64_t> shape;
    int64_t bytes = ByteSize(operand.dtype);
    for (const ManifestDim& dim : operand.shape) {
      shape.push_back(dim.hi);
      bytes *= dim.hi;
    }
    std::vector<uint8_t> source(static_cast<size_t>(bytes));
    for (size_t b = 0; b < source.size(); ++b) source[b] = static_cast<uint8_t>(b * 2654435761u >> 13 & 0x3f);
    std::vector<uint8_t> memory(static_cast<size_t>(operand.packed_bytes) + 64, 0xa5);
    uint8_t* to = memory.data() + 64 - reinterpret_cast<uintptr_t>(memory.data()) % 64;
    auto pack = reinterpret_cast<hone_pack_fn>(dlsym(library, "hone_pack"));
    ASSERT_EQ(pack(&env, static_cast<int32_t>(i), source.data(), to), 0);
    std::vector<uint8_t> result(to, to + operand.packed_bytes);
    auto [found, is_new] = packed.try_emplace({shape, operand.packed_bytes, operand.packed_layout}, result, what);
    EXPECT_TRUE(is_new || found->second.first == result)
        << operand.packed_layout << "\nof " << what << "\nand " << found->second.second;
  }
  dlclose(library);
  close(fd);
}

TEST(PackedLayouts, EqualOnesAreEqualBytes) {
  const uint64_t seed = 23;
  Rng rng(seed);
  Packed packed;
  int built_count = 0;
  const std::vector<Target> targets = TestTargets();
  for (const char* text : {
           "dense(M=2,N=70,K=48,const=1)",
           "dense(M=7,N=70,K=48,const=1)+bias",
           "dense(M=64,N=70,K=48,const=1)+gelu",
           "matmul(M=9,N=70,K=48,const=1)",
           "matmul(M=9,N=48,K=48,const=1)",
           "dense(M=9,N=48,K=48,const=1)",
           "conv2d(C=16,H=8,W=8,O=32,R=3,S=3,pad=1,const=1)+bias",
           "conv2d(C=16,H=14,W=14,O=32,R=3,S=3,pad=1,stride=2,const=1)",
           "conv2d(C=16,H=14,W=14,O=32,R=3,S=3,pad=1,const=1,accuracy=relaxed)",
           "conv2d(C=16,H=20,W=14,O=32,R=3,S=3,pad=1,const=1,accuracy=relaxed)",
           "dense(M=5,N=64,K=64,const=1,dtype=i8)",
           "dense(M=50,N=64,K=64,const=1,dtype=i8)",
       }) {
    Result<Kernel> kernel = ParseKernel(text);
    ASSERT_TRUE(kernel) << kernel.error().Text();
    for (const Target& target : targets) {
      for (int p = 0; p < 4; ++p) {
        Result<Plan> plan = PlanSchedule(Specialize(*kernel), target, [&](const Choice& choice) {
          return rng.Chance(p / 4.0) ? choice.options[rng.Below(choice.options.size())] : choice.preferred;
        });
        ASSERT_TRUE(plan) << plan.error().Text();
        std::string schedule = PrintSchedule(plan->schedule);
        Result<BuildOutput> built = BuildForCpu({text, schedule, target});
        if (!built) continue;  // the choices do not go together
        ++built_count;
        Pack(*built, fmt::format("{} for {}\n{}", text, PrintTarget(target), schedule), packed);
      }
    }
  }
  std::printf("%d kernels built, %zu layouts\n", built_count, packed.size());
  EXPECT_GT(built_count, 3 * static_cast<int>(packed.size()));  // most are met several times
  EXPECT_GT(packed.size(), 10U);
}

// One matrix, as it lies, turned, and doubled, in panels of the same form.
TEST(PackedLayouts, OfWhatIsComputedSayWhatThatIs) {
  constexpr char kHead[] = "kernel k(x: f32[9,48], const w: f32[48,48]) -> y: f32[9,48] {";
  constexpr char kSum[] = "y[m,n] = sum(k) x[m,k]*t[n,k] }";
  Packed packed;
  for (const char* body :
       {"t[i,j] = w[i,j]", "t[i,j] = w[j,i]", "t[i,j] = w[i,j]*2.0", "t[j,i] = w[i,j]*2.0", "t[i,j] = w[i,47-j]",
        "t[i,j] = sum(p < 2) w[i,j]", "t[i,j] = sum(p < 3) w[i,j]", "t[i,j] = max(p < 2) w[i,j]"}) {
    const std::string text = fmt::format("{} t: f32[48,48]\n {}\n {}", kHead, body, kSum);
    const char* schedule = body[2] == 'i' ? "store t const [i/16, j, i%16]\n" : "store t const [j/16, i, j%16]\n";
    Result<BuildOutput> built = BuildForCpu({text, schedule, TestTargets()[0]});
    ASSERT_TRUE(built) << built.error().Text();
    Pack(*built, text, packed);
  }
  EXPECT_EQ(packed.size(), 8U);
}

}  // namespace
}  // namespace hone
