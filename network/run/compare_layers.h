// Where a network of narrow types loses accuracy: its layers beside those of the network that it was made of. Both are
// computed by definition, on the same inputs; values of one name and shape stand for each other, as the tools that
// quantise keep them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "network/graph/graph.h"

namespace hone {

struct LayerError {
  std::string name;  // of the value
  std::string node;
  double error = 0;    // √(Σ(y − r)² / Σr²); infinite where y is no number and r is one
  double largest = 0;  // largest |y − r| over the largest |r|
};

// In the order of `network`. `data`: inputs of `exact`, which has those of `network`, by name and shape, maybe of
// another type. kInvalid: it has not, or no layers go together. Errors of Evaluate.
Result<std::vector<LayerError>> CompareLayers(Graph& network, Graph& exact, const std::vector<Numbers>& data);

// The first layer whose error is above a threshold.
std::optional<LayerError> FirstAbove(const std::vector<LayerError>& layers, double threshold);

// Those where accuracy is lost: whose error is well above that of every layer before.
std::vector<LayerError> Losses(const std::vector<LayerError>& layers);

}  // namespace hone
