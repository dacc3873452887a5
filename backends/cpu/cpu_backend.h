// CPUs as a kind of device: this machine's processor, LLVM in hone-builder, ELF shared objects, hone-runner.
#pragma once

#include "backends/backend.h"

namespace hone {

const Backend& CpuBackend();

}  // namespace hone
