// From the syntax tree to the stage graph: names get their meaning, values their types, reductions their stages.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/language/parse_tree.h"

namespace hone {

// Where the parts of a kernel stand in the source, for errors that are found after names are resolved.
struct SourceMap {
  IdVector<TensorId, Position> tensors;
  IdVector<StageId, Position> stages;
  std::unordered_map<const ExprNode*, Position> nodes;  // one place of each operation; valid while the kernel lives
};

// Checks names, ranks and types; bounds are left to VerifyKernel and limits on sizes to the caller. Sizes end up in the
// order of their first use, intermediates in the order of their stages, and stages that nothing reads are dropped, so
// printing and parsing again gives the same kernel.
Result<Kernel> ResolveKernel(const KernelTree& tree, std::string_view file, const ParseLimits& limits, SourceMap* map);

}  // namespace hone
