// A mark: a figure with the limit that it should keep, on a line that bench/check collects.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace hone {

// Prints "mark NAME SEEN UNIT at most LIMIT met"; true if it was met.
inline bool PrintMark(std::string_view name, double seen, std::string_view unit, double most) {
  bool met = seen <= most;
  fmt::print("mark {:<40} {:>10.3f} {:<4} at most {:g}  {}\n", name, seen, unit, most, met ? "met" : "missed");
  return met;
}

}  // namespace hone
