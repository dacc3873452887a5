// Whether all of a model was taken; if not, what is missing, by cause: a node that only reads what a missing one would
// have computed is none.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"

namespace hone {

// An operator that was left out for a reason.
struct Missing {
  std::string op;  // as the file calls it
  std::string reason;
  std::vector<std::string> nodes;
};

// In the order of their first nodes.
std::vector<Missing> MissingOf(const Network& network);

// How many other nodes of the file depend on one of these, directly or through others.
size_t CountDependents(const OnnxModel& model, const std::vector<std::string>& nodes);

// kUnsupported where the import left nodes out: each cause of it in one line.
Result<void> CheckComplete(const Network& network, const std::string& path);

}  // namespace hone
