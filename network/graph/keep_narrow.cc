#include "network/graph/keep_narrow.h"

#include <algorithm>

#include "ir/graph/dtype_traits.h"
#include "network/graph/evaluate_internal.h"
#include "network/graph/quantization.h"
#include "network/graph/rewrite_pass.h"

namespace hone {
namespace {

constexpr int64_t kSmallWeights = 1 << 14;  // elements

class NarrowKeeper : public RewritePass {
 public:
  using RewritePass::RewritePass;

 private:
  // A matrix of bytes: [N, K] if its rows are the output channels, else [K, N]. Scale and zero point as they lie beside
  // it: one for all, one an output channel, or one for each block of steps of an output channel.
  struct Weight {
    Quantized bytes;
    bool is_by_rows = true;
    int64_t channels = 0, steps = 0, block = 0;
  };

  // The node of a constant.
  const Node* MadeBy(ValueId value, NodeKind kind) const {
    const NodeId id = graph_.values[value].producer;
    return id && graph_.nodes[id].kind == kind ? &graph_.nodes[id] : nullptr;
  }

  bool IsConstantOrNone(ValueId value) const { return !value || graph_.is_constant(value); }

  // Whether a parameter is one for all, or one for each output channel of a matrix.
  bool IsByChannel(ValueId parameter, const Weight& weight) const {
    const Shape& own = graph_.shape(parameter);
    const int64_t count = CountOf(own);
    if (count == 1) return true;
    if (count != weight.channels || own.size() > 2) return false;
    return weight.is_by_rows ? own.size() == 2 && own[1] == 1 : own.back() == count;
  }

  // Blocks along the sum as dimensions: [N, K/B, B] with parameters [N, K/B, 1], or [K/B, B, N] with [K/B, 1, N].
  bool IsByBlock(ValueId parameter, const Weight& weight, const Shape& cut) const {
    Shape wanted = cut;
    wanted[weight.is_by_rows ? 2 : 1] = 1;
    return graph_.shape(parameter) == wanted;
  }

  std::optional<Weight> FindWeight(ValueId value, bool is_by_rows) const {
    Weight weight;
    weight.is_by_rows = is_by_rows;
    if (const Node* turned = MadeBy(value, NodeKind::kTranspose); turned != nullptr && turned->axes == Shape{1, 0}) {
      value = turned->inputs[0];
      weight.is_by_rows = !is_by_rows;
    }
    const Shape matrix = graph_.shape(value);
    weight.channels = matrix[weight.is_by_rows ? 0 : 1];
    weight.steps = matrix[weight.is_by_rows ? 1 : 0];
    if (const Node* joined = MadeBy(value, NodeKind::kReshape); joined != nullptr) value = joined->inputs[0];
    const std::optional<Quantized> found = FindDequantize(graph_, value);
    if (!found || !IsByte(found->type) || !graph_.is_constant(found->value) || !graph_.is_constant(found->scale) ||
        !IsConstantOrNone(found->zero))
      return std::nullopt;
    weight.bytes = *found;
    const Shape& cut = graph_.shape(value);
    auto fits = [&](ValueId parameter) {
      if (cut == matrix) return IsByChannel(parameter, weight);
      return CountOf(graph_.shape(parameter)) == 1 || IsByBlock(parameter, weight, cut);
    };
    if (cut != matrix) {
      const Shape rows = {matrix[0], weight.steps / std::max<int64_t>(cut.back(), 1), cut.back()};
      const Shape columns = {cut[0], weight.steps / std::max<int64_t>(cut[0], 1), matrix[1]};
      if (cut.size() != 3 || cut != (weight.is_by_rows ? rows : columns)) return std::nullopt;
      weight.block = cut[weight.is_by_rows ? 2 : 1];
    }
    if (!fits(found->scale) || (found->zero && !fits(found->zero))) return std::nullopt;
    return weight;
  }

  // A matrix that lies as the weight does, with its output channels as rows.
  Result<ValueId> ByRows(Builder& build, ValueId value, const Weight& weight, int64_t steps) {
    if (weight.is_by_rows) return build.Reshape(value, {weight.channels, steps});
    return build.Transpose(HONE_TRY(build.Reshape(value, {steps, weight.channels})), {1, 0});
  }

  Result<ValueId> Parameter(Builder& build, ValueId value, const Weight& weight) {
    const int64_t blocks = weight.block > 0 ? weight.steps / weight.block : 1;
    if (CountOf(graph_.shape(value)) == 1)
      return build.Expand(HONE_TRY(build.Reshape(value, {1, 1})), {weight.channels, blocks});
    return ByRows(build, value, weight, blocks);
  }

  // Whether all are numbers of 4 bits, of the type's sign.
  bool FitsFourBits(const Weight& weight) {
    if ((weight.block > 0 ? weight.block : weight.steps) % 2 != 0) return false;
    const int64_t lowest = weight.bytes.type == DType::kI8 ? -8 : 0;
    auto fits = [&](ValueId value) {
      const Numbers* known = graph_.TryElements(value);
      return known != nullptr && std::all_of(known->whole.begin(), known->whole.end(),
                                             [&](int64_t each) { return each >= lowest && each <= lowest + 15; });
    };
    return fits(weight.bytes.value) && (!weight.bytes.zero || fits(weight.bytes.zero));
  }

  // Numbers of 4 bits as 0 … 15.
  Result<ValueId> Raised(Builder& build, ValueId value, DType type) {
    value = HONE_TRY(build.Cast(value, DType::kI32));
    return type == DType::kI8 ? build.Binary("add", value, build.Scalar(8, DType::kI32)) : Result<ValueId>(value);
  }

  Result<ValueId> PackedByTwos(Builder& build, ValueId rows, const Weight& weight) {
    const ValueId raised = HONE_TRY(Raised(build, rows, weight.bytes.type));
    const ValueId pairs = HONE_TRY(build.Reshape(raised, {weight.channels, weight.steps / 2, 2}));
    const ValueId first = HONE_TRY(build.Slice(pairs, 2, 0, 1)), second = HONE_TRY(build.Slice(pairs, 2, 1, 1));
    const ValueId upper = HONE_TRY(build.Binary("mul", second, build.Scalar(16, DType::kI32)));
    return build.Cast(HONE_TRY(build.Binary("add", first, upper)), DType::kU8);
  }

  Result<void> Visit(const Node& node) override {
    if (node.kind != NodeKind::kMatMul || graph_.dtype(node.output) != DType::kF32 ||
        !graph_.is_constant(node.inputs[1]) || graph_.shape(node.inputs[1]).size() != 2 ||
        CountOf(graph_.shape(node.inputs[1])) < kSmallWeights)
      return {};
    const std::optional<Weight> weight = FindWeight(node.inputs[1], node.flag);
    if (!weight) return {};
    Builder build(graph_, node.origin);
    const DType type = weight->bytes.type;
    const bool is_packed = FitsFourBits(*weight);
    ValueId bytes = HONE_TRY(ByRows(build, weight->bytes.value, *weight, weight->steps));
    if (is_packed) bytes = HONE_TRY(PackedByTwos(build, bytes, *weight));
    Node dense;
    dense.kind = NodeKind::kDense;
    dense.function = is_packed ? "u4" : Name(type);
    dense.extents = {weight->channels, weight->steps};
    dense.axis = weight->block;
    dense.inputs = {node.inputs[0], bytes, HONE_TRY(Parameter(build, weight->bytes.scale, *weight))};
    // Without one the middle of the type's range is 0.
    if (weight->bytes.zero || type == DType::kU8) {
      ValueId zero = weight->bytes.zero ? weight->bytes.zero : build.Scalar(0, type);
      zero = HONE_TRY(Parameter(build, zero, *weight));
      if (is_packed) zero = HONE_TRY(build.Cast(HONE_TRY(Raised(build, zero, type)), DType::kU8));
      dense.inputs.push_back(zero);
    }
    Replace(node.output, HONE_TRY(build.Add(std::move(dense))));
    return {};
  }
};

class Widener : public RewritePass {
 public:
  using RewritePass::RewritePass;

 private:
  Result<void> Visit(const Node& node) override {
    if (node.kind != NodeKind::kDense || node.function == "same") return {};
    Builder build(graph_, node.origin);
    const DType dtype = graph_.dtype(node.output);
    HostOperation widen{"weights", "wrw", {{dtype, {node.groups * node.extents[0], node.extents[1]}}}};
    widen.compute = [node, dtype](std::span<const Numbers* const> in) -> Result<std::vector<Numbers>> {
      const Numbers rows{dtype, {}, {}, {}};  // whose elements are not looked at
      std::vector<const Numbers*> all = {&rows};
      all.insert(all.end(), in.begin(), in.end());
      all.resize(node.inputs.size(), &rows);
      std::vector<Numbers> weights;
      weights.push_back(evaluating::WidenedWeights(node, all));
      return weights;
    };
    const std::vector<ValueId> inputs(node.inputs.begin() + 1, node.inputs.end() - (node.flag ? 1 : 0));
    Node dense = node;
    const ValueId weights = HONE_TRY(build.Host(std::move(widen), inputs))[0];
    if (!dense.flag) {
      Replace(dense.output, HONE_TRY(build.MatMul(dense.inputs[0], weights, true)));
      return {};
    }
    const ValueId output = dense.output;
    dense.inputs = {dense.inputs[0], weights, dense.inputs.back()};
    dense.function = "same";
    dense.axis = 0;
    Replace(output, HONE_TRY(build.Add(std::move(dense))));
    return {};
  }
};

}  // namespace

Result<void> KeepNarrow(Graph& graph) { return NarrowKeeper(graph).Run(); }
Result<void> WidenWeights(Graph& graph) { return Widener(graph).Run(); }

}  // namespace hone
