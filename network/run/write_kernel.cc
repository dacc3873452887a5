#include "network/run/write_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/graph/dtype_traits.h"
#include "network/run/kernel_writer.h"

namespace hone {
namespace {

constexpr size_t kMostOperands = 24;
constexpr size_t kMostBytes = 16 << 10;
constexpr int64_t kMostKnownIndices = int64_t{1} << 20;

}  // namespace

Result<KernelText> KernelWriter::Run(const Node& root) {
  Shape shape = graph_.shape(root.output);
  result_ = root.output;
  is_quantized_ = ComputesWithBytes(root);
  Indices indices;
  for (size_t d = 0; d < shape.size(); ++d) indices.push_back(shape[d] == 1 ? "0" : fmt::format("i{}", d));
  const std::string body = As(HONE_TRY(Compute(root, indices)), graph_.dtype(root.output));
  std::string inputs, left_indices;
  for (size_t i = 0; i < text_.inputs.size(); ++i) {
    ValueId value = text_.inputs[i];
    inputs += fmt::format("{}{}x{}: {}[{}]", i == 0 ? "" : ", ",
                          binds_constants_ && graph_.is_constant(value) ? "const " : "", i, Name(graph_.dtype(value)),
                          Extents(Stored(value, graph_.shape(value))));
  }
  if (text_.inputs.empty()) return Error{ErrorKind::kUnsupported, "it reads nothing", root.origin};
  if (shape.empty()) shape = {1};
  left_indices = fmt::format("{}", fmt::join(Stored(root.output, AllIndices(shape.size())), ", "));
  shape = Stored(root.output, shape);
  for (const std::string& word : words_) { text_.label += (text_.label.empty() ? "" : "+") + word; }
  text_.text = fmt::format("kernel \"{}\"({}) -> y: {}[{}] {{ {}y[{}] = {} }}", text_.label, inputs,
                           Name(graph_.dtype(root.output)), Extents(shape), before_, left_indices, body);
  if (text_.text.size() > kMostBytes) return Error{ErrorKind::kLimit, "the kernel's text is too long", root.origin};
  return std::move(text_);
}

std::string KernelWriter::Extents(const Shape& shape) {
  if (shape.empty()) return "1";
  return fmt::format("{}", fmt::join(shape, ", "));
}

Result<KernelTerm> KernelWriter::Operand(ValueId value, const Indices& indices) {
  const DType type = graph_.dtype(value);
  const std::optional<double> number = graph_.ScalarOf(value);
  if (number && !(is_quantized_ && *number != 0)) return KernelTerm{Literal(*number, Wide(type)), type, number};
  auto found = std::find(text_.inputs.begin(), text_.inputs.end(), value);
  if (found == text_.inputs.end()) {
    if (text_.inputs.size() == kMostOperands) return Error{ErrorKind::kLimit, "too many operands", ""};
    text_.inputs.push_back(value);
    found = text_.inputs.end() - 1;
  }
  return KernelTerm{fmt::format("x{}[{}]", found - text_.inputs.begin(),
                                indices.empty() ? "0" : fmt::format("{}", fmt::join(Stored(value, indices), ", "))),
                    type};
}

bool KernelWriter::ComputesWithBytes(const Node& node) const {
  if (IsByte(graph_.dtype(node.output))) return true;
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
    const Node* inner = inlines_(input) ? graph_.ProducerOf(input) : nullptr;
    return IsByte(graph_.dtype(input)) || (inner != nullptr && ComputesWithBytes(*inner));
  });
}

Result<KernelTerm> KernelWriter::At(ValueId value, const Indices& indices) {
  const Node* node = graph_.ProducerOf(value);
  if (node == nullptr || !inlines_(value)) return Operand(value, indices);
  return Compute(*node, indices);
}

KernelWriter::Indices KernelWriter::Broadcast(ValueId operand, const Indices& indices) const {
  const Shape& shape = graph_.shape(operand);
  Indices own(indices.end() - static_cast<std::ptrdiff_t>(shape.size()), indices.end());
  for (size_t d = 0; d < own.size(); ++d) {
    if (shape[d] == 1) own[d] = "0";
  }
  return own;
}

Result<KernelTerm> KernelWriter::At(const Node& node, size_t input, const Indices& indices) {
  return At(node.inputs[input], Broadcast(node.inputs[input], indices));
}

KernelTerm KernelWriter::Made(const Node& node, std::string text) const {
  const DType type = graph_.dtype(node.output);
  if (!IsByte(type)) return {std::move(text), Wide(type)};
  return {fmt::format("{}({})", Name(type), text), type};
}

Result<KernelTerm> KernelWriter::Compute(const Node& node, const Indices& indices) {
  text_.nodes.push_back(graph_.values[node.output].producer);
  switch (node.kind) {
    case NodeKind::kUnary: return Unary(node, indices);
    case NodeKind::kBinary: return Binary(node, indices);
    case NodeKind::kSelect: {
      const KernelTerm condition = HONE_TRY(At(node, 0, indices)), a = HONE_TRY(At(node, 1, indices));
      const KernelTerm b = HONE_TRY(At(node, 2, indices));
      const DType type = Common(a, b);
      Word("where");
      return KernelTerm{fmt::format("if({}, {}, {})", As(condition, DType::kBool), As(a, type), As(b, type)), type};
    }
    case NodeKind::kCast: {
      const KernelTerm x = HONE_TRY(At(node, 0, indices));
      Word("cast");
      return KernelTerm{As(x, node.dtype), node.dtype};
    }
    case NodeKind::kTranspose: {
      Indices own(indices.size());
      for (size_t d = 0; d < indices.size(); ++d) own[static_cast<size_t>(node.axes[d])] = indices[d];
      KernelTerm x = HONE_TRY(At(node.inputs[0], own));
      Word("transpose");
      return x;
    }
    case NodeKind::kExpand: {
      KernelTerm x = HONE_TRY(At(node, 0, indices));
      Word("expand");
      return x;
    }
    case NodeKind::kSlice: {
      Indices own = indices;
      for (size_t d = 0; d < own.size(); ++d) {
        if (graph_.shape(node.inputs[0])[d] == 1) continue;
        std::string scaled = node.steps[d] == 1 ? own[d] : fmt::format("{}*{}", own[d], std::abs(node.steps[d]));
        own[d] = node.steps[d] > 0 ? Shifted(scaled, node.starts[d]) : fmt::format("({} - {})", node.starts[d], scaled);
      }
      KernelTerm x = HONE_TRY(At(node.inputs[0], own));
      Word("slice");
      return x;
    }
    case NodeKind::kPad: return Pad(node, indices);
    case NodeKind::kConcat: return Concat(node, indices);
    case NodeKind::kGather: {
      auto axis = static_cast<std::ptrdiff_t>(node.axis);
      auto rank = static_cast<std::ptrdiff_t>(graph_.shape(node.inputs[1]).size());
      Indices which(indices.begin() + axis, indices.begin() + axis + rank);
      Indices own(indices.begin(), indices.begin() + axis);
      own.push_back(HONE_TRY(Index(node, which)));
      own.insert(own.end(), indices.begin() + axis + rank, indices.end());
      KernelTerm x = HONE_TRY(At(node.inputs[0], own));
      Word("gather");
      return x;
    }
    case NodeKind::kGatherElements: {
      Indices own = indices;
      own[static_cast<size_t>(node.axis)] = HONE_TRY(Index(node, indices));
      for (size_t d = 0; d < own.size(); ++d) {
        if (graph_.shape(node.inputs[0])[d] == 1) own[d] = "0";
      }
      KernelTerm x = HONE_TRY(At(node.inputs[0], own));
      Word("gather_elements");
      return x;
    }
    case NodeKind::kReduce: return Reduce(node, indices);
    case NodeKind::kAveragePool: return PaddedAverage(node, indices);
    case NodeKind::kMaxPool: return DilatedMax(node, indices);
    case NodeKind::kMatMul: return MatMul(node, indices);
    case NodeKind::kSoftmax: return Softmax(node, indices);
    case NodeKind::kConv:
      if (IsWholeContraction(graph_, node)) return Conv(node);
      break;
    case NodeKind::kDense:
    case NodeKind::kLayerNorm:
    case NodeKind::kReshape:
    case NodeKind::kHost: break;
  }
  return Error{ErrorKind::kUnsupported, fmt::format("no kernel for {} here", Name(node.kind)), node.origin};
}

Result<KernelTerm> KernelWriter::Unary(const Node& node, const Indices& indices) {
  const std::string x = As(HONE_TRY(At(node, 0, indices)), Wide(graph_.dtype(node.inputs[0])));
  Word(node.function);
  if (node.function == "neg") return Made(node, fmt::format("(-{})", x));
  if (node.function == "not") return Made(node, fmt::format("(not {})", x));
  return Made(node, fmt::format("{}({})", node.function, x));
}

Result<KernelTerm> KernelWriter::Binary(const Node& node, const Indices& indices) {
  const DType type = Wide(graph_.dtype(node.inputs[0]));
  const bool is_whole = !IsFloat(type);
  std::optional<double> divisor = graph_.ScalarOf(node.inputs[1]);
  const std::string a = As(HONE_TRY(At(node, 0, indices)), type), b = As(HONE_TRY(At(node, 1, indices)), type);
  const std::string& f = node.function;
  Word(f);
  if ((f == "div" || f == "mod") && is_whole && !(divisor && *divisor > 0)) {
    return Error{ErrorKind::kUnsupported, "a division of whole numbers by what is no positive constant", node.origin};
  }
  if (f == "div" && is_whole)  // towards zero
    return Made(node, fmt::format("if({0} < 0, -((-{0}) / {1}), {0} / {1})", a, b));
  if (f == "mod" && !is_whole) return Made(node, fmt::format("({0} - floor({0} / {1})*{1})", a, b));
  if (f == "fmod") return Error{ErrorKind::kUnsupported, "a remainder with the dividend's sign", node.origin};
  if (f == "pow" && is_whole) {
    return Error{ErrorKind::kUnsupported, "powers of whole numbers when the network runs", node.origin};
  }
  struct Infix {
    std::string_view function, sign;
  };
  constexpr Infix kInfix[] = {{"add", "+"}, {"sub", "-"},   {"mul", "*"}, {"div", "/"}, {"mod", "%"},
                              {"eq", "=="}, {"ne", "!="},   {"lt", "<"},  {"le", "<="}, {"gt", ">"},
                              {"ge", ">="}, {"and", "and"}, {"or", "or"}};
  for (const Infix& infix : kInfix) {
    if (infix.function == f) return Made(node, fmt::format("({} {} {})", a, infix.sign, b));
  }
  return Made(node, fmt::format("{}({}, {})", f, a, b));  // min, max, pow
}

std::string KernelWriter::GoingOn(const Node& node, size_t d, const std::string& index, int64_t extent) {
  const int64_t before = node.starts[d], after = node.extents[d] - before - extent, most = std::max(before, after);
  if (before <= 0 && after <= 0) return index;
  if (extent == 1) return "0";
  if (node.function == "edge") return fmt::format("clamp({}, 0, {})", index, extent - 1);
  if (node.function == "wrap") return fmt::format("({} % {})", index, extent);
  const int64_t last = extent - 1;
  if (most <= last) return fmt::format("({0} - abs({0} - abs({1})))", last, index);
  return fmt::format("({0} - abs({0} - {1} % {2}))", last, index, 2 * last);
}

Result<KernelTerm> KernelWriter::Pad(const Node& node, const Indices& indices) {
  const Shape shape = graph_.shape(node.inputs[0]);
  Indices own = indices;
  std::string condition;
  for (size_t d = 0; d < own.size(); ++d) {
    own[d] = Shifted(indices[d], -node.starts[d]);
    if (!node.function.empty()) {
      own[d] = GoingOn(node, d, own[d], shape[d]);
      continue;
    }
    auto demand = [&](std::string part) { condition += (condition.empty() ? "" : " and ") + std::move(part); };
    if (node.starts[d] > 0) demand(fmt::format("{} >= {}", indices[d], node.starts[d]));
    if (node.extents[d] - node.starts[d] > shape[d])
      demand(fmt::format("{} < {}", indices[d], node.starts[d] + shape[d]));
  }
  KernelTerm x = HONE_TRY(At(node.inputs[0], own));
  Word("pad");
  if (condition.empty()) return x;
  const KernelTerm fill{"", x.type, node.fill};
  return KernelTerm{fmt::format("if({}, {}, {})", condition, As(x, x.type), As(fill, x.type)), x.type};
}

Result<KernelTerm> KernelWriter::Concat(const Node& node, const Indices& indices) {
  auto axis = static_cast<size_t>(node.axis);
  std::vector<KernelTerm> parts;
  std::string text, closing;
  int64_t begin = 0;
  DType type = graph_.dtype(node.output);
  for (ValueId input : node.inputs) {
    int64_t extent = graph_.shape(input)[axis];
    Indices own = indices;
    own[axis] = extent == 1 ? "0" : Shifted(indices[axis], -begin);
    parts.push_back(HONE_TRY(At(input, own)));
    if (!parts.back().number && parts.back().type != type) type = Wide(type);
    begin += extent;
  }
  begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    begin += graph_.shape(node.inputs[i])[axis];
    if (i + 1 == parts.size()) {
      text += As(parts[i], type);
    } else {
      text += fmt::format("if({} < {}, {}, ", indices[axis], begin, As(parts[i], type));
      closing += ")";
    }
  }
  Word("concat");
  return KernelTerm{text + closing, type};
}

Result<std::string> KernelWriter::Index(const Node& node, const Indices& which) {
  int64_t extent = graph_.shape(node.inputs[0])[static_cast<size_t>(node.axis)];
  if (std::optional<double> number = graph_.ScalarOf(node.inputs[1])) {
    return std::to_string(static_cast<int64_t>(*number) + (*number < 0 ? extent : 0));
  }
  if (std::optional<std::string> steady = SteadyIndex(node.inputs[1], which, extent)) return *std::move(steady);
  const KernelTerm index = HONE_TRY(At(node.inputs[1], which));
  return fmt::format("clamp(int({}), 0, {})", index.text, extent - 1);
}

std::optional<std::string> KernelWriter::SteadyIndex(ValueId indices, const Indices& which, int64_t extent) {
  if (which.size() != 1 || !graph_.is_constant(indices) || CountOf(graph_.shape(indices)) > kMostKnownIndices)
    return std::nullopt;
  const Numbers* known = graph_.TryElements(indices);
  if (known == nullptr || known->whole.size() < 2) return std::nullopt;
  const std::vector<int64_t>& at = known->whole;
  const auto times = std::ranges::find_if(at, [&](int64_t each) { return each != at[0]; }) - at.begin();
  for (size_t i = 0; i < at.size(); ++i)
    if (at[i] != at[0] + static_cast<int64_t>(i) / times || at[i] < 0 || at[i] >= extent) return std::nullopt;
  if (times == std::ssize(at)) return std::to_string(at[0]);
  return Shifted(times == 1 ? which[0] : fmt::format("({})/{}", which[0], times), at[0]);
}

KernelWriter::Indices KernelWriter::AllIndices(size_t rank) {
  Indices all;
  for (size_t d = 0; d < rank; ++d) all.push_back(fmt::format("i{}", d));
  return all;
}

bool IsWholeContraction(const Graph& graph, const Node& node) {
  return (node.kind == NodeKind::kConv || node.kind == NodeKind::kMatMul) && IsByte(graph.dtype(node.inputs[0]));
}

Result<KernelText> WriteKernel(Graph& graph, const Node& node, const std::function<bool(ValueId)>& inlines,
                               const std::set<ValueId>& channels_last) {
  return KernelWriter(graph, inlines, channels_last).Run(node);
}

bool IsPointwise(NodeKind kind) {
  switch (kind) {
    case NodeKind::kUnary:
    case NodeKind::kBinary:
    case NodeKind::kSelect:
    case NodeKind::kCast:
    case NodeKind::kTranspose:
    case NodeKind::kSlice:
    case NodeKind::kPad:
    case NodeKind::kConcat:
    case NodeKind::kGather:
    case NodeKind::kGatherElements:
    case NodeKind::kExpand: return true;
    default: return false;
  }
}

}  // namespace hone
