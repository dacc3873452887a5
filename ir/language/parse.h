// Text to kernel: library operations ("conv2d(C=64,…)+bias+relu") and the kernel language. docs/kernel_language.md.
#pragma once

#include <string_view>

#include "base/result.h"
#include "ir/graph/kernel.h"

namespace hone {

struct ParseLimits {
  size_t text_bytes = 1 << 20;
  int nesting = 200;  // of brackets, in the text and in the kernel as it prints
  int height = 1000;  // of an expression: operators and functions above one another, chains included
  int stages = 256;
  int nodes = 20'000;  // of the kernel, extents included, names and functions replaced by what they stand for
  int rank = 8;
  int operands = 64;
  int ranges = 64;  // sizes that are ranges
  int threads = 1024;
  int64_t size = int64_t{1} << 40;           // of one dimension
  int64_t tensor_bytes = int64_t{16} << 30;  // of all operands together, and of each intermediate
  double points = 1e15;                      // iterations of one stage: days on any one machine
};

// One kernel, from a library operation's spelling or from the kernel language (anything that starts with `kernel` after
// comments). Checked: every access in bounds (ir/graph/verify_kernel.h), limits kept. Errors: kInvalid, kLimit,
// kUnsupported, with `where` = "file:line:column" and a message that says what was seen and what was wanted.
Result<Kernel> ParseKernel(std::string_view text, std::string_view file = "kernel", const ParseLimits& limits = {});

}  // namespace hone
