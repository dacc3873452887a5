// Values for what a file ships without values, so that a network can run, be timed and be compared.
#pragma once

#include <cstdint>

#include "network/onnx/import_network.h"

namespace hone {

// Gives every weight of the network data: uniform in ±√(3 / fan-in), which keeps the deviation of what flows through;
// vectors that multiply in 1 ± 0.1 (scales of normalisations, variances) or √½ ± 0.1 (of what flows, without a
// normalisation: it is mostly a residual sum). The same seed and network give the same values on every machine.
// REQUIRES: the network as BuildNetwork made it.
void SeedWeights(Network& network, uint64_t seed);

// Data for the network's inputs, in their order: floats uniform in ±√3 (deviation 1), whole numbers that are valid
// wherever they index, truth values at random.
std::vector<Numbers> RandomData(const Graph& graph, uint64_t seed);

}  // namespace hone
