// Result<T>: a value or an Error. Fallible functions return it; HONE_TRY passes the error up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace hone {

// Numbers are stored and sent: never reuse one.
enum class ErrorKind : uint8_t {
  kInvalid = 1,  // the input is wrong; the message says where and what was wanted
  kNotFound = 2,
  kUnsupported = 3,  // legal, but not on this target (yet)
  kLimit = 4,        // legal, but larger than hone's limits
  kIo = 5,
  kCorrupt = 6,  // stored or received bytes that do not decode
  kBusy = 7,     // try again; the message says when
  kTimeout = 8,
  kUnavailable = 9,  // the other side is not there
  kBuildFailed = 10,
  kRunFailed = 11,    // a candidate crashed, hung or ran out of memory
  kWrongResult = 12,  // a candidate's output differs from the reference
  kInternal = 13,     // a bug of ours
};

// "invalid", "not_found", …: the spelling in JSON output.
std::string_view ErrorKindName(ErrorKind kind);

struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;  // what was seen, what was wanted, what to try
  std::string where;    // "file:line:column", a path, a step; may be empty

  // Prefixes the message: context gathers on the way up.
  Error Context(std::string_view prefix) &&;
  // "where: message" on one line.
  std::string Text() const;
};

template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using Base = tl::expected<T, Error>;
  using Base::Base;
  Result(Error error) : Base(tl::unexpect, std::move(error)) {}  // NOLINT(google-explicit-constructor)
  Result()
    requires std::is_void_v<T>
      : Base() {}
};

namespace internal {
template <typename T>
T TakeValue(Result<T>&& result) {
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}
}  // namespace internal

// Value of a Result, or return its error from the enclosing function.
#define HONE_TRY(expression)                                         \
  ({                                                                 \
    auto hone_try_result = (expression);                             \
    if (!hone_try_result) return std::move(hone_try_result).error(); \
    ::hone::internal::TakeValue(std::move(hone_try_result));         \
  })

}  // namespace hone
