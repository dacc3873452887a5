// Which of several codes for a kernel a device is given: what was made for a target most like its own.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/serve/devices.h"

namespace hone {

// 0: code for that target does not run on the host of `devices`. Else more for each fact of the target that is the
// host's, too, the first ones (what code is made of, the model) counting more than all that follow.
uint64_t HowWellItSuits(const std::string& target_text, const Devices& devices);

}  // namespace hone
