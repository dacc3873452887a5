#include "base/result.h"

#include <array>

namespace hone {

std::string_view ErrorKindName(ErrorKind kind) {
  static constexpr std::array<std::string_view, 14> kNames = {
      "?",    "invalid", "not_found",   "unsupported",  "limit",      "io",           "corrupt",
      "busy", "timeout", "unavailable", "build_failed", "run_failed", "wrong_result", "internal"};
  size_t index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : kNames[0];
}

Error Error::Context(std::string_view prefix) && {
  message = std::string(prefix) + ": " + message;
  return std::move(*this);
}

std::string Error::Text() const { return where.empty() ? message : where + ": " + message; }

}  // namespace hone
