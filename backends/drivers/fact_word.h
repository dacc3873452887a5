// Devices in the words of targets, for every driver.
#pragma once

#include <string>

#include "base/result.h"
#include "ir/target.h"

namespace hone {

// A fact's value: what a driver says, in one word.
std::string FactWord(std::string text);
// kNotFound.
Error DeviceIsGone(const DeviceTarget& target);

}  // namespace hone
