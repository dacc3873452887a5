// Models of what runs after a network of known shapes, or several times within it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"

namespace hone {

struct PartModel {
  OnnxModel model;
  std::set<std::string> deciding;  // its inputs whose elements must be known to import it
};

// Of the nodes of `rest` that wait: its inputs are what they read of `values`, which all that they read is among but
// for constants and results of theirs; its outputs are those of `whole` that they compute.
PartModel ModelOfRest(const OnnxModel& whole, const Rest& rest, std::vector<OnnxNode> waiting,
                      const std::map<std::string, TensorView>& values);

// Of a loop's body: its own inputs, then what it reads from around it and is no constant. Elements come of whichever
// types they have.
OnnxModel ModelOfBody(const OnnxModel& whole, const Rest& rest, const OnnxNode& loop, const OnnxBody& body);

}  // namespace hone
