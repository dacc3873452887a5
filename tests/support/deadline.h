// How long a test waits for what must come.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace hone::testing {

inline MonotonicTime In(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

}  // namespace hone::testing
