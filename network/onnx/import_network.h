// From an ONNX model to a graph with known shapes, and what of the model could not be taken.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "network/graph/graph.h"
#include "network/onnx/onnx_model.h"

namespace hone {

struct ImportOptions {
  std::map<std::string, Shape> shapes;       // of inputs, in place of what the file says
  std::set<std::string> data;                // inputs that stay inputs, whatever they are used for
  int64_t folding_limit = int64_t{1} << 28;  // elements of a constant that is computed
  std::map<std::string, std::shared_ptr<const HostTensor>> elements = {};  // of inputs that are constants
  Accuracy accuracy = Accuracy::kStrict;                                   // Graph::accuracy
  // What waits for numbers that are computed when the network runs becomes Network::rest; otherwise it is left out.
  bool in_stages = false;
};

// A node that is not part of the graph, and why.
struct LeftOut {
  std::string node;
  std::string op;
  std::string reason;
  bool follows = false;  // for no reason of its own: it reads what another one would have computed
};

// Nodes of a model whose shapes are decided by numbers that the others compute: to be imported when those are known.
struct Rest {
  std::vector<OnnxNode> nodes;        // in an order in which they can run
  std::vector<std::string> reads;     // what of the network they read, and outputs of the model among that
  std::set<std::string> deciding;     // values whose elements must be known to import them
  std::vector<OnnxTensor> constants;  // of the network, that they read
};

struct Network {
  Graph graph;                       // its outputs: those of `outputs`, then those of Rest::reads
  std::vector<std::string> outputs;  // the model's, but for those that are left out or computed by the rest
  Rest rest;
  std::vector<LeftOut> left_out;  // in the file's order, those after a node that was left out included
  std::vector<ValueId> weights;   // inputs of the file that count as constants
  std::string producer;
};

// An input that the file has no elements of is a weight if some node uses it where layers keep theirs (the second
// operand of a convolution, a matrix product or a table …); a file with such weights ships its structure alone, so its
// other inputs of floats are weights too, except the first. Nodes are sorted. Errors, at "PATH: node NAME (OPERATOR)":
// kInvalid for cycles, values that nothing computes or two nodes compute, operands that do not go together, dimensions
// that are not known; kUnsupported if nothing at all could be taken; kLimit.
Result<Network> BuildNetwork(const OnnxModel& model, const std::string& path, const ImportOptions& options);

// ReadOnnx, BuildNetwork and Simplify (network/graph/simplify.h).
Result<Network> ImportModel(const std::string& path, const ImportOptions& options = {});

}  // namespace hone
