// What the parts of the definition of a network's nodes share: walking tensors of numbers (evaluate.cc: contractions,
// windows, reductions; evaluate_elementwise.cc; evaluate_moves.cc).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "network/graph/graph.h"

namespace hone::evaluating {

using Arguments = std::span<const Numbers* const>;

std::vector<int64_t> StridesOf(const Shape& shape);
// Strides under which `shape` is read as the larger `out`: 0 where it broadcasts.
std::vector<int64_t> BroadcastStrides(const Shape& shape, const Shape& out);

// Calls visit(i, offsets) for every element i of `shape`, row-major, with Σ index·stride for each set of strides.
template <size_t kSets, typename Visit>
void ForEach(const Shape& shape, const std::array<std::vector<int64_t>, kSets>& strides, const Visit& visit) {
  int64_t count = CountOf(shape);
  std::array<int64_t, kSets> offsets{};
  std::array<int64_t, 8> index{};  // as many dimensions as CheckShape allows
  HONE_CHECK(shape.size() <= index.size());
  for (int64_t i = 0; i < count; ++i) {
    visit(static_cast<size_t>(i), offsets);
    for (size_t d = shape.size(); d-- > 0;) {
      for (size_t s = 0; s < kSets; ++s) offsets[s] += strides[s][d];
      if (++index[d] < shape[d]) break;
      for (size_t s = 0; s < kSets; ++s) offsets[s] -= strides[s][d] * shape[d];
      index[d] = 0;
    }
  }
}

void CopyElement(const Numbers& x, int64_t from, Numbers& out, size_t to);
// Element i of the result is the one of `x` at `base` and Σ index·stride.
Numbers ReadStrided(const Numbers& x, const Shape& shape, std::vector<int64_t> strides, int64_t base);

// The weights that a kDense node multiplies by, as [N, K] (of all experts, one behind the other), from its inputs.
Numbers WidenedWeights(const Node& node, Arguments in);

// A function of two numbers by its name in Node::function.
double (*BinaryReal(std::string_view name))(double, double);
int64_t (*BinaryWhole(std::string_view name, DType dtype))(int64_t, int64_t);

// Towards zero; what is too large or too small becomes the type's last number, NaN 0.
int64_t Truncated(double x, DType dtype);

// `type`: of the result, which shape inference says.
Numbers Unary(const Node& node, const Numbers& x, const TensorType& type);
Numbers Binary(const Node& node, Arguments in, const TensorType& type);
Numbers Select(Arguments in, const TensorType& type);
Numbers Cast(const Numbers& x, const TensorType& type);

Numbers Transpose(const Node& node, const Numbers& x, const TensorType& type);
Numbers Slice(const Node& node, const Numbers& x, const TensorType& type);
// The element of a line of `extent` that stands `at` places behind its first, which may be beyond either end: by
// kPad's `function`.
int64_t GoesOn(std::string_view function, int64_t at, int64_t extent);
Numbers Pad(const Node& node, const Numbers& x, const TensorType& type);
Numbers Concat(const Node& node, Arguments in, const TensorType& type);
Numbers Expand(const Numbers& x, const TensorType& type);
// kInvalid: an index outside.
Result<Numbers> Gather(const Node& node, Arguments in, const TensorType& type);
Result<Numbers> GatherElements(const Node& node, Arguments in, const TensorType& type);

}  // namespace hone::evaluating
