// Integer arithmetic of sizes. Division toward minus infinity is ir/graph/expr.h's: the kernel language divides so.
#pragma once

#include <bit>
#include <cstdint>

namespace hone {

// REQUIRES of all: nothing negative, a divisor or multiple of at least 1, a result that fits.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t value, int64_t multiple) { return CeilDiv(value, multiple) * multiple; }
constexpr int64_t BitCeil(int64_t value) {  // the smallest power of two that is not below
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
}

}  // namespace hone
