#include "client/cli/roofline_bound.h"

#include <algorithm>

namespace hone::cli {

std::optional<Bound> BoundOf(const Roofline& roofline) {
  Bound bound;
  if (roofline.peak_gflops > 0) bound.arithmetic_us = roofline.flops / roofline.peak_gflops / 1e3;
  if (roofline.read_gb_s > 0) bound.memory_us = roofline.operand_bytes / roofline.read_gb_s / 1e3;
  bound.us = std::max(bound.arithmetic_us, bound.memory_us);
  if (!(bound.us > 0)) return std::nullopt;
  bound.is_memory = bound.memory_us >= bound.arithmetic_us;
  if (roofline.time_us > 0) bound.share = bound.us / roofline.time_us;
  return bound;
}

}  // namespace hone::cli
