// How fast operands get from the host's memory to a device's and back: what a program pays that has them there. The
// device's backend measures it, with the copies that libhone_opencl and its like make for hone_opencl_call.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hone {

struct CopySpeed {
  double to_gb_s = 0, from_gb_s = 0;  // of large copies
  double to_us = 0, from_us = 0;      // of the smallest ones: what each costs besides
  // None are needed: the device computes on the host's memory.
  bool IsFree() const { return to_gb_s == 0 && from_gb_s == 0; }
  bool operator==(const CopySpeed&) const = default;
};

// What was measured under load is too slow, never too fast.
CopySpeed Fastest(const CopySpeed& a, const CopySpeed& b);

// "23.1 20.4 8.2 9.1"; kCorrupt.
std::string PrintCopySpeed(const CopySpeed& speed);
Result<CopySpeed> ParseCopySpeed(std::string_view text);

}  // namespace hone
