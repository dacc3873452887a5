// What code generation says to a schedule that it can make no code of.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace hone {

// kInvalid, with the reason.
inline Error Refuse(std::string message) { return {ErrorKind::kInvalid, std::move(message), ""}; }

}  // namespace hone
