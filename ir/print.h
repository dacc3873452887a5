// A kernel as kernel-language text that ParseKernel reads back to an equal kernel.
#pragma once

#include <string>

#include "ir/kernel.h"

namespace hone {

std::string PrintKernel(const Kernel& kernel);

// One expression, for messages: axes and tensors by their names.
std::string PrintExpr(const Kernel& kernel, const Stage& stage, const Expr& expr);

}  // namespace hone
