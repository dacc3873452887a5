// Work of a network that no kernel is written for: plain code over numbers, in double precision or 64-bit integers, as
// ONNX defines it. It runs between kernels, on the caller's thread; a report names it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "network/graph/host_tensor.h"

namespace hone {

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
};

// The element types that an operation takes, a letter for each operand; those at the end may be missing. InferType
// refuses all others: `compute` reads one of the two vectors of Numbers, and `run` reads elements as they lie. No
// operation is made without them.
//   r  floats                         =  the first operand's type
//   w  whole numbers or truth values  .  any type
class OperandTypes {
 public:
  OperandTypes(const char* letters) : letters_(letters) {}             // NOLINT(google-explicit-constructor)
  OperandTypes(std::string letters) : letters_(std::move(letters)) {}  // NOLINT(google-explicit-constructor)
  const std::string& letters() const { return letters_; }

 private:
  std::string letters_;
};

struct HostOperation {
  std::string name;  // ONNX's, for people
  OperandTypes takes;
  std::vector<TensorType> types;  // of the results
  // All results, of these types, from the inputs in the node's order. Thread-safe. kInvalid: an index or a size among
  // the inputs that cannot be.
  std::function<Result<std::vector<Numbers>>(std::span<const Numbers* const> inputs)> compute = {};
  double steps = 0;        // about how many it takes, where that is far more than elements go in and come out
  bool is_check = false;   // looks at its input and passes it on: no work that a kernel would do
  bool is_random = false;  // other results every time: they are no constants, and a check goes on with those it finds
  // The same over elements as memory holds them, dense and of the values' own types, where numbers in double precision
  // would cost much of the work; empty: there is none. Sessions run it, checks compare it with `compute`. A result that
  // nobody reads has no memory: nullptr.
  std::function<Result<void>(std::span<const void* const> inputs, std::span<void* const> results)> run = {};
};

}  // namespace hone
