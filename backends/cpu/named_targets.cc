#include "backends/cpu/named_targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace hone {
namespace {

constexpr int kCores = 4;

struct NamedProcessor {
  std::string_view name;
  Isa isa;
  std::string_view cpu;  // LLVM's name
  std::vector<std::string> features;
  int64_t l1_kib, l2_kib, l3_kib;
};

// Sizes: the makers' technical reference manuals, of the usual configuration.
const std::vector<NamedProcessor>& Processors() {
  static const std::vector<NamedProcessor> processors = {
      {"x86-64-v3", Isa::kAvx2, "x86-64-v3", {}, 32, 512, 4096},
      {"x86-64-v4", Isa::kAvx512, "x86-64-v4", {}, 32, 1024, 4096},
      {"armv8-a", Isa::kNeon, "generic", {}, 32, 512, 1024},
      {"armv8.2-a", Isa::kNeon, "generic", {}, 32, 512, 1024},
      {"cortex-a53", Isa::kNeon, "cortex-a53", {}, 32, 512, 1024},
      {"cortex-a72", Isa::kNeon, "cortex-a72", {}, 32, 1024, 1024},
      {"cortex-a76", Isa::kNeon, "cortex-a76", {"dotprod", "fullfp16"}, 64, 512, 2048},
      {"neoverse-n1", Isa::kNeon, "neoverse-n1", {"dotprod", "fullfp16"}, 64, 1024, 4096},
      {"neoverse-v1", Isa::kNeon, "neoverse-v1", {"bf16", "dotprod", "fullfp16", "i8mm"}, 64, 1024, 4096},
      {"neoverse-n2", Isa::kNeon, "neoverse-n2", {"bf16", "dotprod", "fullfp16", "i8mm"}, 64, 1024, 4096},
  };
  return processors;
}

// What may follow a name: those that change the code that we emit.
std::vector<std::string_view> FeaturesToName(Isa isa) {
  if (isa == Isa::kNeon) return {"bf16", "dotprod", "fullfp16", "i8mm"};
  if (isa == Isa::kAvx2) return {"avxvnni"};
  return {"amx-bf16", "amx-int8", "amx-tile", "avx512bf16", "avx512fp16", "avx512vbmi", "avx512vnni", "avxvnni"};
}

}  // namespace

Result<CpuTarget> NamedCpu(std::string_view name) {
  const std::string_view processor = name.substr(0, name.find('+'));
  const auto known = std::ranges::find(Processors(), processor, &NamedProcessor::name);
  if (known == Processors().end()) {
    std::vector<std::string_view> names;
    for (const NamedProcessor& each : Processors()) names.push_back(each.name);
    return Error{ErrorKind::kInvalid,
                 fmt::format("no CPU is called \"{}\"; there are: {}, or a target's whole text, as `honed-edge "
                             "--describe-target` prints it",
                             processor, fmt::join(names, ", ")),
                 "target"};
  }
  CpuTarget target;
  target.isa = known->isa;
  target.cpu = known->cpu;
  target.features = known->features;
  target.l1_bytes = known->l1_kib << 10;
  target.l2_bytes = known->l2_kib << 10;
  target.l3_bytes = known->l3_kib << 10;
  target.cores = kCores;
  for (std::string_view rest = name.substr(processor.size()); !rest.empty();) {
    rest.remove_prefix(1);
    const std::string_view feature = rest.substr(0, rest.find('+'));
    const std::vector<std::string_view> there = FeaturesToName(target.isa);
    if (std::ranges::find(there, feature) == there.end())
      return Error{ErrorKind::kInvalid,
                   fmt::format("saw \"+{}\" behind {}, wanted one of: {}", feature, processor, fmt::join(there, ", ")),
                   "target"};
    if (std::ranges::find(target.features, feature) == target.features.end()) target.features.emplace_back(feature);
    rest.remove_prefix(feature.size());
  }
  std::ranges::sort(target.features);
  return target;
}

}  // namespace hone
