// Where a kernel stands under the machine's roofs.
#pragma once

#include <optional>

#include "client/protocol/protocol.h"

namespace hone::cli {

struct Bound {
  double us = 0;             // no call can take less, by the roofs
  double arithmetic_us = 0;  // 0: that roof is not known
  double memory_us = 0;
  bool is_memory = false;  // which of them it is
  double share = 0;        // of the bound that is reached: bound over time; 0: no time is known
};

// nullopt: no roof is known, as for another machine's record.
std::optional<Bound> BoundOf(const Roofline& roofline);

}  // namespace hone::cli
