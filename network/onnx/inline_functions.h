// Functions that a file defines beside its graph, as exporters write them for modules and for operators of their own:
// each call becomes the function's nodes.
#pragma once

#include <string>
#include <vector>

#include "network/onnx/onnx_model.h"

namespace hone {

struct OnnxFunction {
  std::string domain, name, overload;
  int64_t opset = 0;  // of ONNX's operators in it
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxAttribute> defaults;  // attributes that a call need not have
  std::vector<OnnxNode> nodes;
};

// Of nodes and the bodies within them. Names of new values begin with the call's number. kInvalid: a function that
// calls itself; kLimit: more nodes or bytes than hone reads. Errors name `path`.
Result<void> InlineFunctions(std::vector<OnnxNode>& nodes, const std::vector<OnnxFunction>& functions,
                             const std::string& path);

}  // namespace hone
