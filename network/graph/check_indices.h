// Indices that come from data are checked before a kernel gathers by them.
#pragma once

#include "network/graph/graph.h"

namespace hone {

// Puts a host operation before each gather by indices that are known only when the network runs: it counts those below
// zero from the end, and refuses what lies outside (kInvalid, with the index). Indices in a file were checked when it
// was read; those of 64 bits become constants of 32, as kernels take them. The order of nodes stays topological.
void CheckIndices(Graph& graph);

}  // namespace hone
