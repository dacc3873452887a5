// What every build begins with, for whatever kind of device.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/manifest.h"
#include "ir/target.h"

namespace hone {

// A kernel as a build sees it.
struct KernelSource {
  std::string canonical;
  Kernel kernel;  // at its sizes
};
Result<KernelSource> ReadKernel(const std::string& text);  // kInvalid, kLimit

// The manifest of code for it that packs nothing and needs no workspace. kUnsupported: a dimension that follows from a
// size that is a range.
Result<Manifest> DescribeKernel(const std::string& canonical, const Kernel& kernel, const Target& target);

// Times the steps of a build.
class LapClock {
 public:
  // Microseconds since the last call.
  double Lap() {
    auto now = std::chrono::steady_clock::now();
    double us = std::chrono::duration<double, std::micro>(now - last_).count();
    last_ = now;
    return us;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace hone
