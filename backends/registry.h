// The backends there are, by the kind of their devices: the CPU's, and what was added since the program started.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "base/result.h"

namespace hone {

// Thread-safe, all of them. What they give lasts as long as the program.
std::vector<const Backend*> Backends();                  // the CPU's first, the others in the order in which they came
const Backend* FindBackend(std::string_view kind);       // nullptr: there is none
Result<const Backend*> BackendOf(const Target& target);  // kUnsupported, with the kinds that there are

// From then on there are schedules for its kind, too (codegen/device_kinds.h). kInvalid: the kind has one.
Result<void> AddBackend(std::unique_ptr<const Backend> backend);

}  // namespace hone
