// How long it takes to compute a network by definition, before anything is measured.
#pragma once

#include "network/graph/graph.h"

namespace hone {

// Steps, about: elements that are read and written, and products.
double CountSteps(const Graph& graph);

}  // namespace hone
