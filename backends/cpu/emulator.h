// What runs code for other processors here, so that it can be checked: qemu-user, and a hone-runner that was built for
// such a machine (the preset edge-arm64).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/target.h"

namespace hone {

// From now on runners of other machines are DIRECTORY/ARCHITECTURE/hone-runner; "": beside our own programs. Before
// anything is asked for.
void ConfigureForeignRunners(std::string directory);

// A program with its arguments that is a runner for the target. kNotFound with what is missing and what to do;
// kInvalid: others than this user and root can write there. Thread-safe.
Result<std::vector<std::string>> FindEmulatedRunner(const CpuTarget& target);

}  // namespace hone
