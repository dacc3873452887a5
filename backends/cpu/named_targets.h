// CPUs by name, for code that is made here for other machines.
#pragma once

#include <string_view>

#include "base/result.h"
#include "ir/target.h"

namespace hone {

//   name ::= processor ("+" feature)*        neoverse-n1, armv8.2-a+dotprod, x86-64-v3
//
// Caches and cores are what such machines usually have: four cores. kInvalid with the names that there are.
Result<CpuTarget> NamedCpu(std::string_view name);

}  // namespace hone
