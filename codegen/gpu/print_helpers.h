// Parts of the printer: functions that dialects lack, words that they have for themselves.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "codegen/gpu/dialect.h"
#include "codegen/gpu/straight.h"

namespace hone {

// A pattern of the dialects' table with its arguments.
template <typename... Args>
std::string Fill(std::string_view pattern, Args&&... args) {
  return fmt::format(fmt::runtime(pattern), std::forward<Args>(args)...);
}

// The definition of hone_NAME: "max_f32", "max_f32x16" of vectors, "larger_f32", "abs_i32", "i32_of_f32".
std::string HelperText(const Dialect& dialect, const std::string& name);

// A constant as it is spelled.
std::string ConstantText(const Dialect& dialect, const straight::Value& value);

// Those that a stage may be called.
std::span<const std::string_view> ReservedWords();

}  // namespace hone
