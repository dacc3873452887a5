// Sequences of tensors: what exporters make of lists in programs. Where it is known which tensors are in them, what is
// done with the list is done with these, and nothing after this knows of sequences.
#pragma once

#include "network/onnx/onnx_model.h"

namespace hone {

// Nodes that make, change and read sequences become nodes of their elements, in the model and in the bodies within it;
// a loop that carries one, and takes as many steps as the file says, becomes these steps. Those of sequences that are
// carried through other loops, are inputs or outputs, or whose places are computed, stay as they are: no operator that
// is known.
void ResolveSequences(OnnxModel& model);

}  // namespace hone
