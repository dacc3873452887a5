// All kinds of GPUs, for tests that run on a device of each.
#pragma once

#include <string>
#include <vector>

#include "ir/gpu_kinds.h"

namespace hone::testing {

inline std::vector<std::string> GpuKindNames() {
  std::vector<std::string> names;
  for (const GpuKind& kind : kGpuKinds) names.emplace_back(kind.name);
  return names;
}

}  // namespace hone::testing
