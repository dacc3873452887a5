// What is missing on a device, as a list of kernels (NAME.kernels): what `hone warm` takes where there is a compiler.
#pragma once

#include <string>

#include "client/protocol/protocol.h"

namespace hone {

// A comment with the device's target, then how often and the kernel, a line each.
std::string MissingText(const MissingReply& missing);

}  // namespace hone
