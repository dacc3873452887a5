// Numbers as narrow integers with a scale and a zero point: q stands for (q − zero) · scale. Both are plain nodes of
// the graph, so that whatever knows no quantisation computes them as they stand; they are found again by their form.
#pragma once

#include <optional>

#include "network/graph/graph_builder.h"

namespace hone {

struct Quantized {
  ValueId value;            // whole numbers where they come from them, floats where they become them
  ValueId scale;            // f32
  ValueId zero;             // none: 0
  DType type = DType::kU8;  // of the whole numbers
};

// round(x / scale) + zero to the nearest whole number, ties to even, kept inside the type; NaN becomes 0. Scale and
// zero broadcast. x may be any float: it is divided in f32.
Result<ValueId> Quantize(Builder& build, const Quantized& x);
// (q − zero) · scale, in i32 and then once in f32.
Result<ValueId> Dequantize(Builder& build, const Quantized& q, DType to);
// q − zero in i32.
Result<ValueId> Centre(Builder& build, ValueId q, ValueId zero);
// x[…,H,W] with `zero` around it, one number: what a convolution reads as padding where nobody knows it before the
// network runs. `pads`: top, left, bottom, right.
Result<ValueId> Surround(Builder& build, ValueId x, const std::vector<int64_t>& pads, ValueId zero);

// What these functions made, constants too.
std::optional<Quantized> FindQuantize(const Graph& graph, ValueId value);
std::optional<Quantized> FindDequantize(const Graph& graph, ValueId value);
std::optional<Quantized> FindCentred(const Graph& graph, ValueId value);  // without a scale
// As the slice that gives what is surrounded: its input is `value`, its output what Surround was given.
std::optional<Node> FindSurrounded(const Graph& graph, ValueId value);

}  // namespace hone
