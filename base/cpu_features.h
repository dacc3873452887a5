// What this CPU and its operating system can execute, under the names that LLVM uses. Nothing is cached by name: the
// answer comes from CPUID and XCR0 (x86-64) or the auxiliary vector (arm64), read once.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

// All features that we know to ask for and that are there, sorted: "avx2", "avx512f", "avx512vnni", "fma", "neon", …
const std::vector<std::string_view>& CpuFeatures();

bool CpuHasFeature(std::string_view name);

// Features that an ISA of ir/target.h stands for ("avx2", "avx512", "neon"); empty for an unknown name.
std::vector<std::string_view> FeaturesOfIsa(std::string_view isa);

// Whether this CPU runs code for that ISA and those features beyond it; kUnsupported with what it lacks.
Result<void> CheckProcessor(std::string_view isa, std::span<const std::string> features);

}  // namespace hone
