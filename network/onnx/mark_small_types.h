// Who takes numbers of a small type for wider ones is told by an attribute: what QuantizeLinear and CastLike are to
// round to ("output_dtype", "hone_to"), and that GatherBlockQuantized has one a byte ("hone_one_a_byte").
#pragma once

#include "network/onnx/onnx_model.h"

namespace hone {

// Nodes of the graph and of all bodies in it. A value's type is its tensor's or input's, or follows from the nodes that
// make it, if these cast to it, quantise to it or only move its elements. REQUIRES: functions are inlined.
void MarkSmallTypes(OnnxModel& model);

}  // namespace hone
