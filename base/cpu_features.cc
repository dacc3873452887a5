#include "base/cpu_features.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/tiles.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace hone {
namespace {

#if defined(__x86_64__)

struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Cpuid Query(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // leaves zeros where the leaf does not exist
  return r;
}

// Which register states the operating system saves and restores.
uint64_t Xcr0(const Cpuid& leaf1) {
  if ((leaf1.ecx & (1u << 27)) == 0) return 0;  // OSXSAVE
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E. Names are LLVM's (llvm/TargetParser/X86TargetParser.def).
std::vector<std::string_view> Detect() {
  Cpuid leaf1 = Query(1, 0), leaf7 = Query(7, 0), leaf71 = Query(7, 1), extended = Query(0x80000001u, 0);
  uint64_t xcr0 = Xcr0(leaf1);
  bool ymm = (xcr0 & 0x6) == 0x6, zmm = (xcr0 & 0xe6) == 0xe6, tiles = (xcr0 & 0x60000) == 0x60000;
  auto bit = [](unsigned word, int n) { return (word >> n & 1) != 0; };
  struct Row {
    std::string_view name;
    bool there;
  };
  const Row rows[] = {
      {"amx-bf16", tiles && bit(leaf7.edx, 22)},
      {"amx-int8", tiles && bit(leaf7.edx, 25)},
      {"amx-tile", tiles && bit(leaf7.edx, 24)},
      {"avx", ymm && bit(leaf1.ecx, 28)},
      {"avx2", ymm && bit(leaf7.ebx, 5)},
      {"avx512bf16", zmm && bit(leaf71.eax, 5)},
      {"avx512bw", zmm && bit(leaf7.ebx, 30)},
      {"avx512cd", zmm && bit(leaf7.ebx, 28)},
      {"avx512dq", zmm && bit(leaf7.ebx, 17)},
      {"avx512f", zmm && bit(leaf7.ebx, 16)},
      {"avx512fp16", zmm && bit(leaf7.edx, 23)},
      {"avx512vbmi", zmm && bit(leaf7.ecx, 1)},
      {"avx512vl", zmm && bit(leaf7.ebx, 31)},
      {"avx512vnni", zmm && bit(leaf7.ecx, 11)},
      {"avxvnni", ymm && bit(leaf71.eax, 4)},
      {"bmi", bit(leaf7.ebx, 3)},
      {"bmi2", bit(leaf7.ebx, 8)},
      {"f16c", ymm && bit(leaf1.ecx, 29)},
      {"fma", ymm && bit(leaf1.ecx, 12)},
      {"gfni", bit(leaf7.ecx, 8)},
      {"lzcnt", bit(extended.ecx, 5)},
      {"movbe", bit(leaf1.ecx, 22)},
      {"popcnt", bit(leaf1.ecx, 23)},
      {"sse4.1", bit(leaf1.ecx, 19)},
      {"sse4.2", bit(leaf1.ecx, 20)},
  };
  std::vector<std::string_view> found;
  for (const Row& row : rows)
    if (row.there) found.push_back(row.name);
  return found;
}

#elif defined(__aarch64__)

// Linux' arch/arm64/include/uapi/asm/hwcap.h, written out: older headers lack the newer bits.
std::vector<std::string_view> Detect() {
  unsigned long hwcap = ::getauxval(AT_HWCAP), hwcap2 = ::getauxval(AT_HWCAP2);
  struct Row {
    std::string_view name;
    bool there;
  };
  const Row rows[] = {
      {"bf16", (hwcap2 >> 14 & 1) != 0},
      {"dotprod", (hwcap >> 20 & 1) != 0},
      {"fullfp16", (hwcap >> 9 & 1) != 0 && (hwcap >> 10 & 1) != 0},
      {"i8mm", (hwcap2 >> 13 & 1) != 0},
      {"lse", (hwcap >> 8 & 1) != 0},
      {"neon", (hwcap >> 1 & 1) != 0},
      {"sve", (hwcap >> 22 & 1) != 0},
      {"sve2", (hwcap2 >> 1 & 1) != 0},
  };
  std::vector<std::string_view> found;
  for (const Row& row : rows)
    if (row.there) found.push_back(row.name);
  return found;
}

#else
std::vector<std::string_view> Detect() { return {}; }
#endif

}  // namespace

const std::vector<std::string_view>& CpuFeatures() {
  static const std::vector<std::string_view> features = Detect();
  return features;
}

bool CpuHasFeature(std::string_view name) {
  const std::vector<std::string_view>& features = CpuFeatures();
  return std::binary_search(features.begin(), features.end(), name);
}

std::vector<std::string_view> FeaturesOfIsa(std::string_view isa) {
  if (isa == "avx2") return {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt"};
  if (isa == "avx512")
    return {"avx", "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl",
            "bmi", "bmi2", "f16c",     "fma",      "lzcnt",    "movbe",   "popcnt"};
  if (isa == "neon") return {"neon"};
  return {};
}

Result<void> CheckProcessor(std::string_view isa, std::span<const std::string> features) {
  std::vector<std::string_view> needed = FeaturesOfIsa(isa);
  if (needed.empty()) return Error{ErrorKind::kUnsupported, fmt::format("artifact for unknown ISA \"{}\"", isa), ""};
  needed.insert(needed.end(), features.begin(), features.end());
  for (std::string_view feature : needed)
    if (!CpuHasFeature(feature))
      return Error{ErrorKind::kUnsupported, fmt::format("artifact needs {}, which this CPU lacks", feature), ""};
  const bool has_tiles = std::any_of(features.begin(), features.end(),
                                     [](const std::string& feature) { return feature.starts_with("amx-"); });
  if (has_tiles && !MayUseTiles())
    return Error{ErrorKind::kUnsupported, "artifact needs AMX, which Linux did not give to this process", ""};
  return {};
}

}  // namespace hone
