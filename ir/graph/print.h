// A kernel as kernel-language text that ParseKernel reads back to an equal kernel.
#pragma once

#include <string>

#include "ir/graph/kernel.h"

namespace hone {

// kHidden leaves the values of sizes out ("where s0, s1=.."): the text of a class, which does not parse.
enum class SizeValues : uint8_t { kShown, kHidden };

std::string PrintKernel(const Kernel& kernel, SizeValues sizes = SizeValues::kShown);

// One expression: axes and tensors by their names.
std::string PrintExpr(const Kernel& kernel, const Stage& stage, const Expr& expr);
// The same for an expression over sizes only.
std::string PrintExtent(const Kernel& kernel, const Expr& extent);
// The beginning of such a text, for messages: at most 200 bytes, "…" for the rest.
std::string Shortened(std::string text);

// How deep the expression's text nests for who reads it (ParseLimits::nesting), at most; brackets, functions, negations
// and the statement around it counted.
int BracketsOf(const Expr& expr);

}  // namespace hone
