// Quantised networks in whole numbers. Files write DequantizeLinear before an operator and QuantizeLinear after it; the
// operator between computes with floats by its definition. Where scales and weights are constants the same comes of
// sums of bytes, a factor and one rounding.
#pragma once

#include "network/graph/graph.h"

namespace hone {

// Rewrites, where nothing else is in the way:
//   conv, matmul of (x − zx)·sx and (w − zw)·sw   →  a product of bytes in i32, what zx adds to it subtracted as a
//                                                    constant an output channel, times sx·sw; a quantised bias in i32
//   (… · s) / sy before it is rounded             →  … · (s/sy), through relu and sums, as onnxruntime multiplies
//   a mean of (x − z)·s                           →  a sum in i32 and a factor
//   quantised(dequantised(x)) of equal parameters →  x, through what moves elements and maxima
// Sums are exact; a factor in place of several roundings changes results by a step where they are at a tie.
Result<void> FoldQuantized(Graph& graph);

}  // namespace hone
