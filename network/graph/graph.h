// A network as a graph of few kinds of nodes over values with known shapes. ONNX's many operators and their changes
// from opset to opset become these (network/onnx/translate); what follows never sees ONNX.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "ir/graph/kernel.h"
#include "network/graph/host_operation.h"
#include "network/graph/host_tensor.h"

namespace hone {

using ValueId = Id<struct ValueTag>;  // in Graph::values
using NodeId = Id<struct NodeTag>;    // in Graph::nodes

enum class NodeKind : uint8_t {
  kConv,            // x[N,C,H,W], w[O,C/groups,R,S] [, bias[O]]; padding holds `fill`; bytes of either sign give i32
  kMatMul,          // a[…,M,K], b[…,K,N] (N,K where `flag`), batch dimensions broadcast; bytes give i32
  kDense,           // x[…,K], w, scale [, zero] [, which]: x · wᵀ with weights kept as whole numbers: `extents` N and
                    // K, `function` i8, u8 or u4 (two a byte, the first in its lower half); (w − zero) · scale, one of
                    // each for a row of w, or for each `axis` steps of it; zero is the type's middle if there is none.
                    // `flag`: of `groups` weights, each row of x by the one that `which` says; then they may be floats,
                    // too, without scales: `function` is same
  kMaxPool,         // padding never wins
  kAveragePool,     // `flag`: padding counts as zeros
  kReduce,          // function over `axes`, which stay as 1: sum mean max min prod
  kSoftmax,         // over `axis`; `flag`: its logarithm
  kLayerNorm,       // x, gamma, beta over dimensions `axis` and after
  kUnary,           // function: a word of the kernel language
  kBinary,          // function: add sub mul div pow min max mod fmod eq ne lt le gt ge and or; broadcasts
  kSelect,          // condition, a, b; broadcasts
  kCast,            // to `dtype`
  kTranspose,       // `axes`: output dimension d is input dimension axes[d]
  kSlice,           // `starts` and `steps` for each dimension, `extents` of the output
  kPad,             // `starts`: elements before, `extents` of the output; negative ones cut. The rest is `fill`, or by
                    // `function` the nearest element (edge), or goes on mirrored (reflect) or from the other end (wrap)
  kConcat,          // along `axis`
  kGather,          // x, indices along `axis`; negative indices count from the end
  kGatherElements,  // the same, element by element
  kExpand,          // to `extents`, broadcasting
  kReshape,         // to `extents`: the same elements in the same order
  kHost,            // result number `axis` of `host`
};
std::string_view Name(NodeKind kind);

// Which fields mean something depends on the kind.
struct Node {
  NodeKind kind = NodeKind::kReshape;
  std::string function;
  std::vector<ValueId> inputs;
  ValueId output;
  std::vector<int64_t> axes, starts, steps, extents;
  int64_t axis = 0;
  double fill = 0;
  int64_t whole_fill = 0;  // the same as a whole number, which a double may be too short for: what kPad writes of these
  double epsilon = 0;
  bool flag = false;
  DType dtype = DType::kF32;
  // Windows.
  std::vector<int64_t> window, stride, dilation;  // h, w
  std::vector<int64_t> pads;                      // top, left, bottom, right
  int64_t groups = 1;
  bool ceil = false;
  std::shared_ptr<const HostOperation> host;  // the nodes of its results share it
  std::string origin;                         // the ONNX node that it comes from
};

// Shape and element type of a node's output, by rules of our own. kInvalid: inputs that do not go together, with what
// was seen and what was wanted; kUnsupported, kLimit.
Result<TensorType> InferType(const Node& node, std::span<const TensorType> inputs);

// What a node computes, in double precision or 64-bit integers, from ONNX's definition of it; knows nothing of kernels,
// so that it can check them. kInvalid: an index outside of what it indexes.
Result<Numbers> Evaluate(const Node& node, std::span<const Numbers* const> inputs, const TensorType& type);

struct GraphValue {
  std::string name;
  TensorType type;
  NodeId producer;  // none: an input or a constant of the file
  // Constant: its elements are known, or computed from known ones when they are wanted. A weight is a constant that the
  // file has no elements of: they are brought later (Graph::SetData).
  bool is_constant = false;
  bool is_weight = false;
  std::shared_ptr<const HostTensor> data;
  ValueId replaces;  // the value of the file that it takes the place of, where another way to compute it was found
};

// Nodes are in topological order. Not thread-safe.
class Graph {
 public:
  IdVector<ValueId, GraphValue> values;
  IdVector<NodeId, Node> nodes;
  std::vector<ValueId> inputs, outputs;
  // That the convolutions and products of f32 among its kernels are asked with (docs/kernel_language.md).
  Accuracy accuracy = Accuracy::kStrict;
  // Constants with more elements are not computed.
  int64_t folding_limit = int64_t{1} << 28;

  ValueId AddInput(std::string name, TensorType type);
  ValueId AddConstant(std::string name, std::shared_ptr<const HostTensor> data);
  ValueId AddWeight(std::string name, TensorType type);
  // Infers the type of the node's output and appends it; the output is constant if all inputs are. Errors of InferType,
  // with the node's name.
  Result<ValueId> Add(Node node);

  void SetData(ValueId weight, std::shared_ptr<const HostTensor> data);
  // Elements of a constant, computed if need be and kept. kNotFound: they depend on a weight without data (named);
  // kLimit; errors of Evaluate.
  Result<const Numbers*> Elements(ValueId constant);
  // The same in their own type, as kernels hold them; other constants' elements are forgotten.
  Result<std::shared_ptr<const HostTensor>> Tensor(ValueId constant);
  // As Elements, where they may well not be there: nullptr.
  const Numbers* TryElements(ValueId constant);
  // The one element of a constant scalar (of any rank), if it is known.
  std::optional<double> ScalarOf(ValueId value);
  void ForgetElements() { elements_.clear(); }

  const Shape& shape(ValueId value) const { return values[value].type.shape; }
  DType dtype(ValueId value) const { return values[value].type.dtype; }
  bool is_constant(ValueId value) const { return values[value].is_constant; }
  // The node that computes a value at run time; nullptr for inputs and constants.
  const Node* ProducerOf(ValueId value) const;

 private:
  std::map<ValueId, Numbers> elements_;
};

// How often nodes and the network's outputs read each value.
IdVector<ValueId, int> CountReaders(const Graph& graph);

}  // namespace hone
