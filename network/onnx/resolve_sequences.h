// Sequences of tensors: what exporters make of lists in programs. Where it is known which tensors are in them, what is
// done with the list is done with these, and nothing after this knows of sequences.
#pragma once

#include "network/onnx/onnx_model.h"

namespace hone {

// Nodes that make, change and read sequences become nodes of their elements, in the model and in the bodies within it.
// A loop that carries one becomes its steps where the file says how many there are, and otherwise collects what it
// appends (collect_lists.h). Those of sequences that loops change in other ways, that are inputs or outputs, or whose
// places are computed though they are no parts of one tensor, stay as they are: no operator that is known.
void ResolveSequences(OnnxModel& model);

}  // namespace hone
