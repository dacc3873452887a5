// A loop whose steps are counted in the file, as nodes of each step, one after another.
#pragma once

#include <string>
#include <vector>

#include "network/onnx/onnx_model.h"

namespace hone {

struct UnrolledLoop {
  std::vector<OnnxTensor> initializers;
  std::vector<OnnxNode> nodes;  // the loop's outputs are theirs
};

// `steps` steps of a Loop's body, whose condition is true in each of them. Names of new values begin with `prefix`.
// Results that are collected become sequences that are joined. REQUIRES: the body fits the loop (FitsLoop).
UnrolledLoop UnrollLoop(const OnnxNode& loop, const OnnxBody& body, int64_t steps, const std::string& prefix);

// Whether the body takes the number of the step, the condition and the loop's states, and gives as much as the loop.
bool FitsLoop(const OnnxNode& loop, const OnnxBody& body);

}  // namespace hone
