// ONNX's operators in terms of the graph's few kinds of nodes, for opsets 7 to 27: what was an attribute and became an
// input is read from either.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "network/graph/graph_builder.h"
#include "network/onnx/onnx_model.h"

namespace hone {

// One ONNX node being translated.
class OperatorCall {
 public:
  OperatorCall(Graph& graph, const OnnxNode& node, std::vector<ValueId> inputs, int64_t opset)
      : build(graph, node.name), node_(node), inputs_(std::move(inputs)), opset_(opset) {}

  Builder build;

  int64_t opset() const { return opset_; }
  const OnnxNode& node() const { return node_; }
  size_t input_count() const { return inputs_.size(); }
  bool Has(size_t i) const { return i < inputs_.size() && inputs_[i]; }
  ValueId In(size_t i) const { return inputs_[i]; }  // REQUIRES: Has(i)
  const Shape& shape(size_t i) const { return build.shape(inputs_[i]); }
  int64_t rank(size_t i) const { return static_cast<int64_t>(shape(i).size()); }

  const OnnxAttribute* Find(std::string_view name) const;
  // The same, and what is said by mistyped() if it holds something else, of which the value is not there.
  const OnnxAttribute* Find(std::string_view name, OnnxAttribute::Kind kind) const;
  int64_t Whole(std::string_view name, int64_t standard) const;
  double Real(std::string_view name, double standard) const;
  std::string Text(std::string_view name, std::string standard) const;
  std::vector<int64_t> Wholes(std::string_view name, std::vector<int64_t> standard) const;
  // The first attribute that was read as what it does not hold; "": none. What comes out is not to be used then.
  const std::string& mistyped() const { return mistyped_; }

  // Whole numbers that decide shapes: an input that must be a constant with known elements. At most 4096 of them.
  Result<std::vector<int64_t>> ConstantInput(size_t i, std::string_view what);
  // Elements of a constant; Undecided for what is computed when the network runs.
  Result<const Numbers*> Known(size_t i, std::string_view what);
  // The only element of a constant. kInvalid: it has more, or none; Undecided as above.
  Result<double> OneNumber(size_t i, std::string_view what);
  // kUnsupported: input i decides a shape, and is computed when the network runs. REQUIRES: Has(i)
  Error Undecided(size_t i, std::string_view what);
  const std::vector<size_t>& undecided() const { return undecided_; }  // inputs that this was said of
  // An attribute up to some opset, an input since; nullopt if neither is given.
  Result<std::optional<std::vector<int64_t>>> AttributeOrInput(std::string_view name, size_t i);
  // 0 … rank-1 for an axis that may count from the end.
  Result<int64_t> Axis(int64_t axis, int64_t rank) const;
  Result<std::vector<int64_t>> Axes(std::vector<int64_t> axes, int64_t rank) const;

 private:
  Result<void> CheckHas(size_t i, std::string_view what) const;

  const OnnxNode& node_;
  std::vector<ValueId> inputs_;
  std::vector<size_t> undecided_;
  mutable std::string mistyped_;
  int64_t opset_;
};

using Outputs = std::vector<ValueId>;

struct Operator {
  std::string_view name;
  size_t fewest_inputs;
  Result<Outputs> (*translate)(OperatorCall& call);
};

// By OperatorName; nullptr: not known.
const Operator* FindOperator(const std::string& name);

// Another standard operator of the same attributes, on other inputs: its first output.
Result<ValueId> Apply(OperatorCall& call, std::string op, std::vector<ValueId> inputs);

// The tables, one a file.
std::vector<Operator> ElementwiseOperators();       // translate_elementwise.cc
std::vector<Operator> MovementOperators();          // translate_movement.cc
std::vector<Operator> LayerOperators();             // translate_layers.cc
std::vector<Operator> IndexingOperators();          // translate_indexing.cc
std::vector<Operator> ScatteringOperators();        // translate_scattering.cc
std::vector<Operator> RandomOperators();            // translate_random.cc
std::vector<Operator> ResizingOperators();          // translate_resizing.cc
std::vector<Operator> SamplingOperators();          // translate_sampling.cc
std::vector<Operator> RegionOperators();            // translate_regions.cc
std::vector<Operator> FunctionOperators();          // translate_functions.cc
std::vector<Operator> WindowOperators();            // translate_windows.cc
std::vector<Operator> TransposedOperators();        // translate_transposed.cc
std::vector<Operator> RecurrentOperators();         // translate_recurrent.cc
std::vector<Operator> QuantizedOperators();         // translate_quantized.cc
std::vector<Operator> SelectionOperators();         // translate_selection.cc
std::vector<Operator> SignalOperators();            // translate_signals.cc
std::vector<Operator> AttentionOperators();         // translate_attention.cc
std::vector<Operator> FusedOperators();             // translate_fused.cc
std::vector<Operator> GroupedAttentionOperators();  // translate_grouped_attention.cc
std::vector<Operator> DecoderAttentionOperators();  // translate_decoder_attention.cc
std::vector<Operator> StateOperators();             // translate_states.cc
std::vector<Operator> GateOperators();              // translate_gates.cc
std::vector<Operator> FewBitsOperators();           // translate_few_bits.cc
std::vector<Operator> ContributedOperators();       // translate_contributed.cc
std::vector<Operator> OldOperators();               // translate_old.cc
std::vector<Operator> ExpertOperators();            // translate_experts.cc

Result<Outputs> Einsum(OperatorCall& call);  // translate_einsum.cc

// Of any number of dimensions, with every output that ONNX knows.
Result<std::vector<ValueId>> ConvOfAnyRank(OperatorCall& call);
Result<std::vector<ValueId>> PoolOfAnyRank(OperatorCall& call);

// Which block each of so many elements is in, from the first one on; translate_quantized.cc. kLimit.
Result<ValueId> BlockOfEach(Builder& build, int64_t extent, int64_t block);

// x / √(mean(x²) + epsilon), the mean over `axes`; translate_layers.cc.
Result<ValueId> OverRootMeanSquare(Builder& build, ValueId x, std::vector<int64_t> axes, double epsilon);

// Whether the operator's definition covers opsets 1 to 6: they never broadcast, and their attributes stayed.
bool IsAsOldAsOnnx(std::string_view op);

}  // namespace hone
