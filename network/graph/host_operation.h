// Work of a network that no kernel is written for: plain code over numbers, in double precision or 64-bit integers, as
// ONNX defines it. It runs between kernels, on the caller's thread; a report names it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "network/graph/host_tensor.h"

namespace hone {

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
};

struct HostOperation {
  std::string name;               // ONNX's, for people
  std::vector<TensorType> types;  // of the results
  // All results, of these types, from the inputs in the node's order. Thread-safe. kInvalid: an index or a size among
  // the inputs that cannot be.
  std::function<Result<std::vector<Numbers>>(std::span<const Numbers* const> inputs)> compute;
  double steps = 0;       // about how many it takes, where that is far more than elements go in and come out
  bool is_check = false;  // looks at its input and passes it on: no work that a kernel would do
};

}  // namespace hone
