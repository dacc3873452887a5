// What is said to a schedule, or a rewrite, that cannot be.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace hone {

// kInvalid, with the reason.
inline Error Refuse(std::string message) { return {ErrorKind::kInvalid, std::move(message), ""}; }

}  // namespace hone
