// The same network with fewer, larger nodes: activations and normalisations that exporters spell out in small
// operators, factors and terms a channel that belong into the weights before them, chains of reshapes.
#pragma once

#include "network/graph/graph.h"

namespace hone {

// What can be seen in a graph, as rewritings, until none applies. Shapes stay; results agree up to rounding. Errors of
// Graph::Add (a bug, or a limit).
Result<void> Simplify(Graph& graph);

}  // namespace hone
