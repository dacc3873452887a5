// Whether bytes are code for a CUDA device (a cubin, an ELF file) that lies wholly inside them: CUDA's driver is handed
// where it begins, and not how long it is.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace hone {

// kCorrupt with what lies outside, or why it is none.
Result<void> CheckCubin(std::span<const std::byte> bytes);

}  // namespace hone
