// The devices that a daemon serves, under the names that --target takes.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "client/protocol/protocol.h"

namespace hone::cli {

struct ServedTarget {
  std::string name;     // "cpu", "opencl:0", "cuda:sm_90"
  std::string target;   // PrintTarget
  bool is_here = true;  // false: code is built for it, and run nowhere

  // The target without its kind.
  std::string facts() const { return target.substr(std::min(target.find(' '), target.size() - 1) + 1); }
};

// The CPU first.
std::vector<ServedTarget> ServedTargets(const StatusReply& status);

}  // namespace hone::cli
