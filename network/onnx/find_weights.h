// Which inputs of an ONNX graph are weights: some exporters write every parameter as an input, without its elements.
#pragma once

#include <set>
#include <string>
#include <unordered_set>

#include "network/onnx/onnx_model.h"

namespace hone {

// Names of inputs. An input of real numbers that a layer takes as its weight, or whose rows are looked up and that
// nothing else reads, makes all the others weights, too, but the first one; none does: there are none. Not those in
// `data`, and no initialisers.
std::unordered_set<std::string> FindWeights(const OnnxModel& model, const std::set<std::string>& data);

}  // namespace hone
