// Library operations: "conv2d(C=64,H=56,W=56,O=64,R=3,S=3,pad=1)+bias+relu" becomes kernel-language text, which the
// same parser reads. Nothing after this knows an operation by its name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/language/lex.h"
#include "ir/language/parse.h"

namespace hone {

struct Expansion {
  std::string name;    // "conv2d+bias+relu"
  std::string source;  // kernel language
  Position position;   // of the operation in the text it came from
};

// kInvalid for unknown operations, attributes and epilogues, missing or wrong values; kUnsupported for element types
// and layouts that are not on this target yet; kLimit.
Result<Expansion> ExpandOperation(std::string_view text, std::string_view file, const ParseLimits& limits);

std::vector<std::string_view> OperationNames();
std::vector<std::string_view> EpilogueNames();

}  // namespace hone
