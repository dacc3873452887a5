// Straight code -> text that a device's compiler takes.
#pragma once

#include <string>
#include <vector>

#include "codegen/gpu/dialect.h"
#include "codegen/gpu/straight.h"

namespace hone {

// A compilation unit: one for all launches, or, where a dialect wants that, one for each. Its launches are named
// LaunchName.
std::vector<std::string> PrintSources(const straight::Program& program, const Dialect& dialect);

// The entry of a launch, `index` counting those of Program::pack, then those of Program::launches: "hone_0_y".
std::string LaunchName(const straight::Program& program, size_t index);

}  // namespace hone
