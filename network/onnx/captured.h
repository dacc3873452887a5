// What the bodies of a node read from around them.
#pragma once

#include "network/onnx/onnx_model.h"

namespace hone {

// Names that the node's bodies read and do not make themselves, in the order of reading, some of them several times.
// REQUIRES: the nodes within know what theirs capture.
std::vector<std::string> CapturedBy(const OnnxNode& node);

}  // namespace hone
