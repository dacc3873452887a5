#include "network/onnx/translate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "network/onnx/data_shaped.h"

namespace hone {
namespace {

constexpr int64_t kMostWholes = 4096;

std::string_view KindName(OnnxAttribute::Kind kind) {
  using Kind = OnnxAttribute::Kind;
  switch (kind) {
    case Kind::kInt: return "a whole number";
    case Kind::kFloat: return "a real number";
    case Kind::kText: return "a text";
    case Kind::kInts: return "whole numbers";
    case Kind::kFloats: return "real numbers";
    case Kind::kTexts: return "texts";
    case Kind::kTensor: return "a tensor";
    case Kind::kGraph: return "a graph";
    case Kind::kOther: break;
  }
  return "something else";
}

}  // namespace

const OnnxAttribute* OperatorCall::Find(std::string_view name) const { return FindAttribute(node_, name); }

const OnnxAttribute* OperatorCall::Find(std::string_view name, OnnxAttribute::Kind kind) const {
  const OnnxAttribute* attribute = Find(name);
  if (attribute != nullptr && attribute->kind != kind && mistyped_.empty())
    mistyped_ = fmt::format("its attribute {} holds {}, wanted {}", name, KindName(attribute->kind), KindName(kind));
  return attribute;
}

int64_t OperatorCall::Whole(std::string_view name, int64_t standard) const {
  const OnnxAttribute* attribute = Find(name, OnnxAttribute::Kind::kInt);
  return attribute == nullptr ? standard : attribute->whole;
}

double OperatorCall::Real(std::string_view name, double standard) const {
  const OnnxAttribute* attribute = Find(name, OnnxAttribute::Kind::kFloat);
  return attribute == nullptr ? standard : attribute->real;
}

std::string OperatorCall::Text(std::string_view name, std::string standard) const {
  const OnnxAttribute* attribute = Find(name, OnnxAttribute::Kind::kText);
  return attribute == nullptr ? standard : attribute->text;
}

std::vector<int64_t> OperatorCall::Wholes(std::string_view name, std::vector<int64_t> standard) const {
  const OnnxAttribute* attribute = Find(name, OnnxAttribute::Kind::kInts);
  return attribute == nullptr ? standard : attribute->wholes;
}

Result<std::vector<int64_t>> OperatorCall::ConstantInput(size_t i, std::string_view what) {
  HONE_TRY(CheckHas(i, what));
  ValueId value = In(i);
  if (CountOf(shape(i)) > kMostWholes) {
    return build.Invalid(fmt::format("{} is {}, wanted a few whole numbers", what, ShapeText(shape(i))));
  }
  if (!build.graph().is_constant(value)) return Undecided(i, what);
  const Numbers* elements = HONE_TRY(build.graph().Elements(value));
  if (elements->is_real())
    return build.Invalid(fmt::format("{} holds {}, wanted whole numbers", what, Name(elements->dtype)));
  return elements->whole;
}

Result<void> OperatorCall::CheckHas(size_t i, std::string_view what) const {
  if (Has(i)) return {};
  return build.Invalid(fmt::format("operand {}, {}, is missing", i + 1, what));
}

Error OperatorCall::Undecided(size_t i, std::string_view what) {
  undecided_.push_back(i);
  return build.Unsupported(fmt::format("{} is computed when the network runs, and shapes must be known before", what));
}

Result<std::optional<std::vector<int64_t>>> OperatorCall::AttributeOrInput(std::string_view name, size_t i) {
  if (const OnnxAttribute* attribute = Find(name, OnnxAttribute::Kind::kInts)) return std::optional(attribute->wholes);
  if (!Has(i)) return std::optional<std::vector<int64_t>>();
  return std::optional(HONE_TRY(ConstantInput(i, name)));
}

Result<const Numbers*> OperatorCall::Known(size_t i, std::string_view what) {
  HONE_TRY(CheckHas(i, what));
  if (!build.graph().is_constant(In(i))) return Undecided(i, what);
  return build.graph().Elements(In(i));
}

Result<double> OperatorCall::OneNumber(size_t i, std::string_view what) {
  HONE_TRY(CheckHas(i, what));
  if (const int64_t count = CountOf(shape(i)); count != 1)
    return build.Invalid(fmt::format("{} has {} elements, wanted 1", what, count));
  const std::optional<double> number = build.graph().ScalarOf(In(i));
  if (!number) return Undecided(i, what);
  return *number;
}

Result<int64_t> OperatorCall::Axis(int64_t axis, int64_t rank) const {
  if (axis < -rank || axis >= rank) { return build.Invalid(fmt::format("axis {} of {} dimensions", axis, rank)); }
  return axis < 0 ? axis + rank : axis;
}

Result<std::vector<int64_t>> OperatorCall::Axes(std::vector<int64_t> axes, int64_t rank) const {
  for (int64_t& axis : axes) axis = HONE_TRY(Axis(axis, rank));
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) return build.Invalid("an axis is named twice");
  return axes;
}

// Another operator of the same attributes, on other inputs: its first output.
Result<ValueId> Apply(OperatorCall& call, std::string op, std::vector<ValueId> inputs) {
  OnnxNode node = call.node();
  node.op = std::move(op);
  node.domain.clear();
  node.outputs.resize(1);
  const int64_t opset = call.Whole("opset", call.opset());  // onnxruntime's softmax says which one it means
  OperatorCall inner(call.build.graph(), node, std::move(inputs), opset);
  return HONE_TRY(FindOperator(node.op)->translate(inner))[0];
}

const Operator* FindOperator(const std::string& name) {
  static const std::map<std::string, Operator> operators = [] {
    std::map<std::string, Operator> all;
    for (const auto& table : {ElementwiseOperators(),
                              MovementOperators(),
                              LayerOperators(),
                              IndexingOperators(),
                              ResizingOperators(),
                              SamplingOperators(),
                              RegionOperators(),
                              WindowOperators(),
                              FunctionOperators(),
                              RecurrentOperators(),
                              QuantizedOperators(),
                              SelectionOperators(),
                              AttentionOperators(),
                              SignalOperators(),
                              TransposedOperators(),
                              FusedOperators(),
                              GroupedAttentionOperators(),
                              DecoderAttentionOperators(),
                              StateOperators(),
                              GateOperators(),
                              FewBitsOperators(),
                              ContributedOperators(),
                              OldOperators(),
                              ExpertOperators(),
                              ScatteringOperators(),
                              RandomOperators()}) {
      for (const Operator& each : table) all.emplace(each.name, each);
    }
    return all;
  }();
  auto found = operators.find(name);
  return found == operators.end() ? nullptr : &found->second;
}

}  // namespace hone
