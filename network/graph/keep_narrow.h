// Constant weights that a file has as whole numbers of 8 or 4 bits stay what they are: the product that dequantises
// them becomes one with narrow weights (NodeKind::kDense), whose kernel widens them as it reads.
#pragma once

#include "network/graph/graph.h"

namespace hone {

// Rewrites x · w where w is dequantised from constant bytes with a scale (and zero point) for all, for each output
// channel, or for each block of steps along the sum; through a transposition. Whole numbers that fit 4 bits are packed
// two a byte. Small weights stay floats: they are in a cache anyway.
Result<void> KeepNarrow(Graph& graph);

// Every kDense as a product with weights of floats, for devices whose kernels have no bytes.
Result<void> WidenWeights(Graph& graph);

}  // namespace hone
