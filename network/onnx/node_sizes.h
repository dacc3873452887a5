// How much nodes are, with those of the bodies within them: what copies of them take is bounded before they are made.
#pragma once

#include <cstddef>
#include <vector>

#include "network/onnx/onnx_model.h"

namespace hone {

// Of all copies that a model is read into: of functions for their calls, of loops' bodies for their steps.
inline constexpr size_t kMostCopiedBytes = size_t{1} << 30;

struct NodeSizes {
  size_t nodes = 0;
  size_t names = 0;       // of values, wherever one stands
  size_t references = 0;  // attributes that are a call's
  size_t bytes = 0;       // of names and attributes; tensors are shared by copies
};

size_t BytesOfAttributes(const std::vector<OnnxAttribute>& attributes);
NodeSizes SizesOf(const std::vector<OnnxNode>& nodes);

}  // namespace hone
