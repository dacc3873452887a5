#include "backends/cpu/host_target.h"

#include <fmt/format.h>
#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>
#include <span>

#include "base/cpu_features.h"
#include "base/file.h"
#include "base/log.h"
#include "base/tiles.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hone {
namespace {

// First line of a small file of the kernel's; "" if it is not there.
std::string ReadLine(const std::string& path) {
  Result<std::string> text = ReadFile(path, 1 << 16);
  return text ? text->substr(0, text->find('\n')) : "";
}

// "48K", "32M" or plain bytes; 0 if it is none of these.
int64_t ParseSize(std::string_view text) {
  int64_t value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc()) return 0;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  return unit == "K" ? value << 10 : unit == "M" ? value << 20 : unit.empty() ? value : 0;
}

// Processors in a list such as "0-3,8".
int CountList(std::string_view text) {
  int count = 0;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    int first = 0, last = 0;
    auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), first);
    if (code != std::errc()) return std::max(count, 1);
    last = first;
    if (end != part.data() + part.size()) std::from_chars(end + 1, part.data() + part.size(), last);
    count += std::max(0, last - first + 1);
  }
  return std::max(count, 1);
}

// By the affinity mask, and by the quota of a container (cgroup v2).
int UsableCores() {
  cpu_set_t set;
  int cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  std::string quota = ReadLine("/sys/fs/cgroup/cpu.max");  // "200000 100000" or "max 100000"
  int64_t allowed = 0, period = 0;
  auto [end, code] = std::from_chars(quota.data(), quota.data() + quota.size(), allowed);
  if (code == std::errc() && end < quota.data() + quota.size()) {
    std::from_chars(end + 1, quota.data() + quota.size(), period);
    if (allowed > 0 && period > 0) cores = static_cast<int>(std::min<int64_t>(cores, (allowed + period - 1) / period));
  }
  return std::clamp(cores, 1, 4096);
}

#if defined(__x86_64__)

bool UnderHypervisor() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid(1, &eax, &ebx, &ecx, &edx);
  return (ecx >> 31 & 1) != 0;
}

struct CpuModel {
  std::string_view vendor;
  unsigned family, first_model, last_model;
  std::string_view name;                 // LLVM's
  std::vector<std::string_view> needed;  // what LLVM would use by that name; a hypervisor may hide it
};

// Names: llvm/lib/TargetParser/Host.cpp.
const std::vector<CpuModel>& CpuModels() {
  static const std::vector<CpuModel> models = {
      {"GenuineIntel", 6, 0x3c, 0x3c, "haswell", {}},
      {"GenuineIntel", 6, 0x3f, 0x3f, "haswell", {}},
      {"GenuineIntel", 6, 0x45, 0x46, "haswell", {}},
      {"GenuineIntel", 6, 0x3d, 0x3d, "broadwell", {}},
      {"GenuineIntel", 6, 0x47, 0x47, "broadwell", {}},
      {"GenuineIntel", 6, 0x4f, 0x4f, "broadwell", {}},
      {"GenuineIntel", 6, 0x56, 0x56, "broadwell", {}},
      {"GenuineIntel", 6, 0x4e, 0x4e, "skylake", {}},
      {"GenuineIntel", 6, 0x5e, 0x5e, "skylake", {}},
      {"GenuineIntel", 6, 0x8e, 0x8e, "skylake", {}},
      {"GenuineIntel", 6, 0x9e, 0x9e, "skylake", {}},
      {"GenuineIntel", 6, 0xa5, 0xa6, "skylake", {}},
      {"GenuineIntel", 6, 0x55, 0x55, "cooperlake", {"avx512bf16", "avx512vnni"}},
      {"GenuineIntel", 6, 0x55, 0x55, "cascadelake", {"avx512vnni"}},
      {"GenuineIntel", 6, 0x55, 0x55, "skylake-avx512", {"avx512f"}},
      {"GenuineIntel", 6, 0x7d, 0x7e, "icelake-client", {"avx512vnni", "avx512vbmi"}},
      {"GenuineIntel", 6, 0x6a, 0x6c, "icelake-server", {"avx512vnni", "avx512vbmi"}},
      {"GenuineIntel", 6, 0x8c, 0x8d, "tigerlake", {"avx512vnni", "avx512vbmi"}},
      {"GenuineIntel", 6, 0xa7, 0xa7, "rocketlake", {"avx512vnni", "avx512vbmi"}},
      {"GenuineIntel", 6, 0x97, 0x9a, "alderlake", {"avxvnni"}},
      {"GenuineIntel", 6, 0xbe, 0xbe, "alderlake", {"avxvnni"}},
      {"GenuineIntel", 6, 0xb7, 0xb7, "raptorlake", {"avxvnni"}},
      {"GenuineIntel", 6, 0xba, 0xbf, "raptorlake", {"avxvnni"}},
      {"GenuineIntel", 6, 0xaa, 0xac, "meteorlake", {"avxvnni"}},
      {"GenuineIntel", 6, 0xc5, 0xc6, "arrowlake", {"avxvnni"}},
      {"GenuineIntel", 6, 0xbd, 0xbd, "lunarlake", {"avxvnni"}},
      {"GenuineIntel", 6, 0x8f, 0x8f, "sapphirerapids", {"avx512fp16", "avx512bf16", "avxvnni"}},
      {"GenuineIntel", 6, 0xcf, 0xcf, "emeraldrapids", {"avx512fp16", "avx512bf16", "avxvnni"}},
      {"GenuineIntel", 6, 0xad, 0xae, "graniterapids", {"avx512fp16", "avx512bf16", "avxvnni"}},
      {"AuthenticAMD", 0x17, 0x00, 0x2f, "znver1", {}},
      {"AuthenticAMD", 0x17, 0x30, 0xff, "znver2", {}},
      {"AuthenticAMD", 0x19, 0x10, 0x1f, "znver4", {"avx512vnni", "avx512bf16"}},
      {"AuthenticAMD", 0x19, 0x60, 0xaf, "znver4", {"avx512vnni", "avx512bf16"}},
      {"AuthenticAMD", 0x19, 0x00, 0x5f, "znver3", {}},
      {"AuthenticAMD", 0x1a, 0x00, 0xff, "znver5", {"avx512vnni", "avx512bf16", "avxvnni"}},
  };
  return models;
}

std::string CpuName(Isa isa) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  char vendor[13] = {};
  __get_cpuid(0, &eax, &ebx, &ecx, &edx);
  __builtin_memcpy(vendor, &ebx, 4), __builtin_memcpy(vendor + 4, &edx, 4), __builtin_memcpy(vendor + 8, &ecx, 4);
  __get_cpuid(1, &eax, &ebx, &ecx, &edx);
  unsigned family = eax >> 8 & 0xf, model = eax >> 4 & 0xf;
  if (family == 6 || family == 0xf) model |= eax >> 12 & 0xf0;
  if (family == 0xf) family += eax >> 20 & 0xff;
  for (const CpuModel& known : CpuModels())
    if (known.vendor == vendor && known.family == family && model >= known.first_model && model <= known.last_model &&
        std::all_of(known.needed.begin(), known.needed.end(), CpuHasFeature))
      return std::string(known.name);
  return isa == Isa::kAvx512 ? "x86-64-v4" : "x86-64-v3";
}

// Features worth naming in a target: those that could change the code that we emit.
constexpr std::string_view kNamedFeatures[] = {"amx-bf16",   "amx-int8",   "amx-tile",   "avx512bf16",
                                               "avx512fp16", "avx512vbmi", "avx512vnni", "avxvnni"};

Result<Isa> DetectIsa() {
  auto has_all = [](std::string_view isa) {
    std::vector<std::string_view> features = FeaturesOfIsa(isa);
    return std::all_of(features.begin(), features.end(), CpuHasFeature);
  };
  if (has_all("avx512")) return Isa::kAvx512;
  if (has_all("avx2")) return Isa::kAvx2;
  return Error{ErrorKind::kUnsupported, "this CPU lacks AVX2 or FMA (x86-64-v3), which generated code needs", ""};
}

#elif defined(__aarch64__)

bool UnderHypervisor() { return ReadLine("/sys/hypervisor/type") != ""; }

std::string CpuName(Isa) {
  // MIDR_EL1: implementer in bits 31:24, part number in bits 15:4.
  std::string text = ReadLine("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
  uint64_t midr = std::strtoull(text.c_str(), nullptr, 16);
  if ((midr >> 24 & 0xff) != 0x41) return "generic";
  switch (midr >> 4 & 0xfff) {
    case 0xd03: return "cortex-a53";
    case 0xd05: return "cortex-a55";
    case 0xd08: return "cortex-a72";
    case 0xd0b: return "cortex-a76";
    case 0xd0c: return "neoverse-n1";
    case 0xd40: return "neoverse-v1";
    case 0xd49: return "neoverse-n2";
    case 0xd4f: return "neoverse-v2";
    default: return "generic";
  }
}

constexpr std::string_view kNamedFeatures[] = {"bf16", "dotprod", "fullfp16", "i8mm"};

Result<Isa> DetectIsa() { return Isa::kNeon; }

#else
#error "no code generator for this architecture yet"
#endif

// Caches of the first core. Where sysfs says nothing (some containers) the defaults of Target stay.
void DetectCaches(CpuTarget& target) {
  int threads = CountList(ReadLine("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list"));
  for (int index = 0; index < 8; ++index) {
    std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    std::string level = ReadLine(folder + "level");
    if (level.empty()) break;
    if (ReadLine(folder + "type") == "Instruction") continue;
    int64_t size = ParseSize(ReadLine(folder + "size"));
    if (size <= 0) continue;
    int shared = CountList(ReadLine(folder + "shared_cpu_list")), cores = std::max(1, shared / threads);
    if (level == "1") target.l1_bytes = size;
    if (level == "2") target.l2_bytes = size / cores;
    if (level != "3") continue;
    // Our part of it. In a virtual machine the cache is the host's, shared with neighbours that we cannot see: count 4
    // MiB a core, what server parts have.
    target.l3_bytes = std::max<int64_t>(size * std::min(target.cores, cores) / cores, 1 << 20);
    if (UnderHypervisor()) target.l3_bytes = std::min(target.l3_bytes, int64_t{target.cores} * (4 << 20));
  }
}

}  // namespace

Result<Target> HostTarget() {
  if (const char* text = ::secure_getenv("HONE_TARGET"); text != nullptr && *text != '\0') {
    Result<Target> target = ParseTarget(text);
    if (!target) return std::move(target).error().Context("HONE_TARGET");
    if (!target->cpu())
      return Error{ErrorKind::kInvalid,
                   fmt::format("saw \"{}\", wanted a CPU's target, which begins with \"cpu\"", target->kind()),
                   "HONE_TARGET"};
    return target;
  }
  CpuTarget target;
  target.isa = HONE_TRY(DetectIsa());
  target.cpu = CpuName(target.isa);
  const bool may_use_tiles = MayUseTiles();
  if (CpuHasFeature("amx-tile") && !may_use_tiles) {
    static std::once_flag said;
    std::call_once(said, [] { LogWarn("amx_refused", {{"note", "Linux gives no AMX registers: code does without"}}); });
  }
  for (std::string_view feature : kNamedFeatures)
    if (CpuHasFeature(feature) && (!feature.starts_with("amx-") || may_use_tiles) &&
        (target.isa != Isa::kAvx2 || !feature.starts_with("avx512")))
      target.features.emplace_back(feature);
  target.cores = UsableCores();
  DetectCaches(target);
  return Target(std::move(target));
}

}  // namespace hone
