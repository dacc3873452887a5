// The rewrites of a kernel's graph that `rewrite NAME STAGE …` names in a schedule. Each is a file of this folder,
// which ends with its entry, and a line in registry.cc.
//
// A rewrite keeps the function that the kernel computes over real numbers. It either applies or is refused with its
// reason. (inline, cache_read and rfactor are rewrites, too, with steps of their own: ir/steps/graph_steps.cc.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/schedule/schedule.h"
#include "ir/steps/fit_context.h"

namespace hone {

// What a rewrite does to a float result.
enum class Rounding : uint8_t {
  kSame = 1,       // every bit as before
  kReordered = 2,  // as another order of summation: within the bounds of any order, so of accuracy=strict
  kCoarser = 3,    // may be beyond the bounds of accuracy=strict
  kCoarsest = 4,   // may be beyond those of accuracy=relaxed, too
};

struct GraphRewrite {
  std::string_view name;

  // What it takes behind the stage: names, then numbers.
  std::string_view takes;  // in words, for messages
  size_t names = 0;
  bool or_more_names = false;
  size_t numbers = 0;

  Rounding rounding = Rounding::kSame;
  // Whether the rest of a schedule means nothing without it: a fit that would drop it is refused.
  bool is_algorithm = false;

  // The kernel with the stage rewritten. kInvalid, kLimit: why not. REQUIRES: as many names and numbers as
  // it takes.
  Result<Kernel> (*apply)(Kernel kernel, StageId stage, const RewriteStep& step) = nullptr;
  // Changes names and numbers to what suits the context's kernel, and says why; "" if they suit it as they are.
  // nullptr: they always do.
  std::string (*fit)(RewriteStep& step, const FitContext& context) = nullptr;
};

std::span<const GraphRewrite* const> AllRewrites();
// nullptr: there is none of that name.
const GraphRewrite* FindRewrite(std::string_view name);

// kInvalid: no such rewrite or stage, other arguments than it takes, or what the rewrite says.
Result<Kernel> ApplyRewrite(const Kernel& kernel, const RewriteStep& step);

// Whether results of such a rewrite stay within the bounds that the accuracy asks for.
bool Admits(Accuracy accuracy, Rounding rounding);

}  // namespace hone
