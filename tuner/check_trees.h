// Whether trees that are read from somewhere end: XGBoost follows the links of those that it loads without looking.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hone {

// `json`: boosted trees as XGBoost writes them. Returns the same JSON, printed anew, so that what was checked is what
// is read. Every tree's branches lead to later nodes of it and ask for features below `width`; there are no categories,
// one output and one tree a round, of an objective that hone trains. kCorrupt says what is not so.
Result<std::string> CheckTrees(std::string_view json, size_t width);

}  // namespace hone
