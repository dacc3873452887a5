// A step of a network without a kernel: its nodes, evaluated by their definition between kernels.
#pragma once

#include <span>

#include "base/result.h"
#include "network/run/kernel_calls.h"

namespace hone {

// `operands`: memory of what the call reads, then of what it writes. Thread-safe. Errors say which call and node:
// kInvalid where data index outside of what they index.
// REQUIRES: call.is_host().
Result<void> RunHostCall(const Graph& graph, const KernelCall& call, std::span<void* const> operands);

}  // namespace hone
