// An element-wise stage substituted into its readers.
#pragma once

#include "base/result.h"
#include "ir/graph/kernel.h"

namespace hone {

// Substitutes a stage without reduction into every stage that reads it, and drops it. Refuses outputs, reductions, and
// what would make the kernel larger, or a body higher, than a text may: a stage that is mentioned twice is doubled, and
// so is each of a chain.
Result<Kernel> InlineStage(Kernel kernel, StageId stage);
// Nodes that the body of `reader` has afterwards, at most.
double NodesOnceInlined(const Kernel& kernel, StageId stage, StageId reader);

}  // namespace hone
