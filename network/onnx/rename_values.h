// Copies of nodes read and make values under other names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "network/onnx/onnx_model.h"

namespace hone {

using ValueNames = std::map<std::string, std::string>;  // old → new; others stay

void RenameValues(std::vector<std::string>& names, const ValueNames& renamed);
// What the node's bodies read from around them. REQUIRES: no body has a value of its own that is named like a new name.
void RenameInBodies(OnnxNode& node, const ValueNames& renamed);
// What the node's bodies have of their own.
void PrefixInBodies(OnnxNode& node, const std::string& prefix);

}  // namespace hone
