// Loop and Scan: a body that runs as often as values say, a step after the other.
#pragma once

#include <optional>
#include <vector>

#include "network/onnx/onnx_model.h"
#include "network/run/program.h"

namespace hone {

// All results of a Loop or Scan node. `inputs`: in its order, nullopt for what is left out; `captured`: what the body
// takes after its own inputs. kInvalid: operands that do not go together; kLimit: a loop that does not end; errors of
// Program::Run.
Result<std::vector<HostTensor>> RunLoop(const OnnxNode& node, Program& body,
                                        const std::vector<std::optional<TensorView>>& inputs,
                                        const std::vector<TensorView>& captured);

}  // namespace hone
