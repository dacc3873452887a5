#include "network/run/write_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/graph/dtype_traits.h"
#include "network/run/kernel_term.h"

namespace hone {
namespace {

using Indices = std::vector<std::string>;

constexpr size_t kMostOperands = 24;
constexpr size_t kMostBytes = 16 << 10;

class Writer {
 public:
  Writer(Graph& graph, const std::function<bool(ValueId)>& inlines) : graph_(graph), inlines_(inlines) {}

  Result<KernelText> Run(const Node& root) {
    Shape shape = graph_.shape(root.output);
    is_quantized_ = ComputesWithBytes(root);
    Indices indices;
    for (size_t d = 0; d < shape.size(); ++d) indices.push_back(shape[d] == 1 ? "0" : fmt::format("i{}", d));
    const std::string body = As(HONE_TRY(Compute(root, indices)), graph_.dtype(root.output));
    std::string inputs, left_indices;
    for (size_t i = 0; i < text_.inputs.size(); ++i) {
      ValueId value = text_.inputs[i];
      inputs += fmt::format("{}{}x{}: {}[{}]", i == 0 ? "" : ", ",
                            binds_constants_ && graph_.is_constant(value) ? "const " : "", i, Name(graph_.dtype(value)),
                            Extents(graph_.shape(value)));
    }
    if (text_.inputs.empty()) return Error{ErrorKind::kUnsupported, "it reads nothing", root.origin};
    if (shape.empty()) shape = {1};
    for (size_t d = 0; d < shape.size(); ++d) left_indices += fmt::format("{}i{}", d == 0 ? "" : ", ", d);
    for (const std::string& word : words_) { text_.label += (text_.label.empty() ? "" : "+") + word; }
    text_.text = fmt::format("kernel \"{}\"({}) -> y: {}[{}] {{ {}y[{}] = {} }}", text_.label, inputs,
                             Name(graph_.dtype(root.output)), Extents(shape), before_, left_indices, body);
    if (text_.text.size() > kMostBytes) return Error{ErrorKind::kLimit, "the kernel's text is too long", root.origin};
    return std::move(text_);
  }

 private:
  static std::string Extents(const Shape& shape) {
    if (shape.empty()) return "1";
    return fmt::format("{}", fmt::join(shape, ", "));
  }

  Result<KernelTerm> Operand(ValueId value, const Indices& indices) {
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
                                  indices.empty() ? "0" : fmt::format("{}", fmt::join(indices, ", "))),
                      type};
  }

  // Kernels of quantised layers differ in their scales and zero points, which are operands: so equal layers share one.
  bool ComputesWithBytes(const Node& node) const {
    if (IsByte(graph_.dtype(node.output))) return true;
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      const Node* inner = inlines_(input) ? graph_.ProducerOf(input) : nullptr;
      return IsByte(graph_.dtype(input)) || (inner != nullptr && ComputesWithBytes(*inner));
    });
  }

  // A value at an index: an expression over operands.
  Result<KernelTerm> At(ValueId value, const Indices& indices) {
    const Node* node = graph_.ProducerOf(value);
    if (node == nullptr || !inlines_(value)) return Operand(value, indices);
    return Compute(*node, indices);
  }

  // The index of an operand that broadcasts.
  Indices Broadcast(ValueId operand, const Indices& indices) const {
    const Shape& shape = graph_.shape(operand);
    Indices own(indices.end() - static_cast<std::ptrdiff_t>(shape.size()), indices.end());
    for (size_t d = 0; d < own.size(); ++d) {
      if (shape[d] == 1) own[d] = "0";
    }
    return own;
  }

  Result<KernelTerm> At(const Node& node, size_t input, const Indices& indices) {
    return At(node.inputs[input], Broadcast(node.inputs[input], indices));
  }

  void Word(std::string word) { words_.push_back(std::move(word)); }

  // The result of a node's arithmetic.
  KernelTerm Made(const Node& node, std::string text) const {
    const DType type = graph_.dtype(node.output);
    if (!IsByte(type)) return {std::move(text), Wide(type)};
    return {fmt::format("{}({})", Name(type), text), type};
  }

  Result<KernelTerm> Compute(const Node& node, const Indices& indices) {
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
          own[d] =
              node.steps[d] > 0 ? Shifted(scaled, node.starts[d]) : fmt::format("({} - {})", node.starts[d], scaled);
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
      case NodeKind::kLayerNorm:
      case NodeKind::kReshape:
      case NodeKind::kHost: break;
    }
    return Error{ErrorKind::kUnsupported, fmt::format("no kernel for {} here", Name(node.kind)), node.origin};
  }

  Result<KernelTerm> Unary(const Node& node, const Indices& indices) {
    const std::string x = As(HONE_TRY(At(node, 0, indices)), Wide(graph_.dtype(node.inputs[0])));
    Word(node.function);
    if (node.function == "neg") return Made(node, fmt::format("(-{})", x));
    if (node.function == "not") return Made(node, fmt::format("(not {})", x));
    return Made(node, fmt::format("{}({})", node.function, x));
  }

  Result<KernelTerm> Binary(const Node& node, const Indices& indices) {
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

  // An index that may be beyond the borders, as the element that is there instead.
  static std::string GoingOn(const Node& node, size_t d, const std::string& index, int64_t extent) {
    const int64_t before = node.starts[d], after = node.extents[d] - before - extent, most = std::max(before, after);
    if (before <= 0 && after <= 0) return index;
    if (extent == 1) return "0";
    if (node.function == "edge") return fmt::format("clamp({}, 0, {})", index, extent - 1);
    if (node.function == "wrap") return fmt::format("({} % {})", index, extent);
    const int64_t last = extent - 1;
    if (most <= last) return fmt::format("({0} - abs({0} - abs({1})))", last, index);
    return fmt::format("({0} - abs({0} - {1} % {2}))", last, index, 2 * last);
  }

  Result<KernelTerm> Pad(const Node& node, const Indices& indices) {
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

  Result<KernelTerm> Concat(const Node& node, const Indices& indices) {
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

  // Where a gather reads: an index that was checked before (network/graph/check_indices.h), so that what keeps it
  // inside changes none.
  Result<std::string> Index(const Node& node, const Indices& which) {
    int64_t extent = graph_.shape(node.inputs[0])[static_cast<size_t>(node.axis)];
    if (std::optional<double> number = graph_.ScalarOf(node.inputs[1])) {
      return std::to_string(static_cast<int64_t>(*number) + (*number < 0 ? extent : 0));
    }
    const KernelTerm index = HONE_TRY(At(node.inputs[1], which));
    return fmt::format("clamp(int({}), 0, {})", index.text, extent - 1);
  }

  // A variable of a reduction.
  std::string Variable(int64_t extent, std::string* name) {
    *name = fmt::format("r{}", reductions_++);
    return fmt::format("{} < {}", *name, extent);
  }

  bool IsSum(const Node& node) const {
    return (node.function == "sum" || node.function == "mean") && IsFloat(graph_.dtype(node.output));
  }

  // A long sum is a sum of sums, of which there are so many: each number would otherwise be added to ever larger ones,
  // and rounding that leans one way grows with their count. Along the innermost dimension the lanes of a vector are as
  // many sums already. 1: it is not long.
  int64_t PartsOf(const Node& node, const Shape& shape) const {
    constexpr int64_t kLongSum = 32, kLongRow = 4096;
    const auto last = static_cast<size_t>(node.axes.back());
    const int64_t extent = shape[last];
    if (!IsSum(node) || node.axes.size() > 1 || extent < (last + 1 < shape.size() ? kLongSum : kLongRow)) return 1;
    auto parts = static_cast<int64_t>(std::sqrt(static_cast<double>(extent)));
    while (extent % parts != 0) --parts;
    return parts;
  }

  // The sums of a long sum down columns in a statement of its own, whose last axis is that of the columns.
  Result<KernelTerm> SumOfColumns(const Node& node, const Indices& indices, int64_t parts) {
    const auto axis = static_cast<size_t>(node.axes.front());
    Shape shape = graph_.shape(node.inputs[0]);
    const int64_t extent = shape[axis] / parts;
    shape[axis] = parts;
    Indices left = AllIndices(shape.size()), own = left;
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d] == 1) own[d] = "0";
    std::string inner, outer, sums = fmt::format("s{}", reductions_);
    const std::string over_inner = Variable(extent, &inner);
    own[axis] = fmt::format("{}*{} + {}", left[axis], extent, inner);
    const DType type = Wide(graph_.dtype(node.output));
    KernelTerm x = HONE_TRY(At(node.inputs[0], own));
    before_ += fmt::format("{0}: {1}[{2}] {0}[{3}] = sum({4}) ({5}) ", sums, Name(type), Extents(shape),
                           fmt::join(left, ", "), over_inner, As(x, type));
    const std::string over_outer = Variable(parts, &outer);
    Indices read = indices;
    read[axis] = outer;
    return KernelTerm{fmt::format("(sum({}) {}[{}])", over_outer, sums, fmt::join(read, ", ")), type};
  }

  // A sum's outer variables, the inner ones, and with them the index of what is summed.
  std::pair<std::string, std::string> Variables(const Node& node, const Shape& shape, Indices& own) {
    std::string outer, inner, name;
    const bool is_sum = IsSum(node);
    if (const int64_t parts = PartsOf(node, shape); parts > 1) {
      const auto last = static_cast<size_t>(node.axes.back());
      outer = Variable(parts, &name);
      own[last] = fmt::format("{}*{}", name, shape[last] / parts);
      inner = Variable(shape[last] / parts, &name);
      own[last] += " + " + name;
      return {outer, inner};
    }
    for (int64_t axis : node.axes) {
      const auto d = static_cast<size_t>(axis);
      std::string& to = is_sum && node.axes.size() > 1 && axis == node.axes.front() ? outer : inner;
      to += (to.empty() ? "" : ", ") + Variable(shape[d], &name);
      own[d] = name;
    }
    return {outer, inner};
  }

  Result<KernelTerm> Reduce(const Node& node, const Indices& indices) {
    const Shape shape = graph_.shape(node.inputs[0]);
    Indices own = indices;
    int64_t count = 1;
    for (int64_t axis : node.axes) count *= shape[static_cast<size_t>(axis)];
    const DType type = graph_.dtype(node.output);
    const bool is_extreme = node.function == "max" || node.function == "min";
    Word(node.function == "mean" ? "mean" : "reduce_" + node.function);
    std::string text;
    const int64_t parts = PartsOf(node, shape);
    if (parts > 1 && static_cast<size_t>(node.axes.back()) + 1 < shape.size()) {
      text = HONE_TRY(SumOfColumns(node, indices, parts)).text;
    } else {
      const auto [outer, inner] = Variables(node, shape, own);
      KernelTerm x = HONE_TRY(At(node.inputs[0], own));
      x = {As(x, is_extreme ? x.type : Wide(type)), is_extreme ? x.type : Wide(type)};
      std::string f = node.function == "mean" ? "sum" : node.function;
      text = fmt::format("({}({}) ({}))", f, inner, x.text);
      if (!outer.empty()) text = fmt::format("({}({}) {})", f, outer, text);
      if (is_extreme) return KernelTerm{text, x.type};
    }
    if (node.function != "mean") return Made(node, text);
    return Made(node, fmt::format("({} / {})", text, Literal(static_cast<double>(count), type)));
  }

  // Windows that the library's pools do not have: padding that counts, dilation. Indices are n, c, h, w.
  static std::string WindowIndex(const Node& node, const Indices& indices, size_t d, const std::string& variable,
                                 int64_t pad) {
    std::string begin = node.stride[d] == 1 ? indices[2 + d] : fmt::format("{}*{}", indices[2 + d], node.stride[d]);
    std::string step = node.dilation[d] == 1 ? variable : fmt::format("{}*{}", variable, node.dilation[d]);
    return Shifted(fmt::format("{} + {}", begin, step), -pad);
  }

  Result<std::string> Windowed(const Node& node, const Indices& indices, std::string_view fill) {
    const KernelTerm load =
        HONE_TRY(Operand(node.inputs[0], {indices[0], indices[1], WindowIndex(node, indices, 0, "r0", node.pads[0]),
                                          WindowIndex(node, indices, 1, "r1", node.pads[1])}));
    return fmt::format("(r0 < {}, r1 < {}) pad({}, {})", node.window[0], node.window[1], load.text, fill);
  }

  // Divided by what of the window lies in the padded input.
  Result<KernelTerm> PaddedAverage(const Node& node, const Indices& indices) {
    if (node.dilation != std::vector<int64_t>{1, 1}) {
      return Error{ErrorKind::kUnsupported, "an average over a dilated window", node.origin};
    }
    if (node.ceil) return Error{ErrorKind::kUnsupported, "ceil_mode=1 with padding that counts", node.origin};
    std::string total = HONE_TRY(Windowed(node, indices, "0"));
    Word("avgpool2d_padded");
    return Made(node,
                fmt::format("(sum{}) / {}", total,
                            Literal(static_cast<double>(node.window[0] * node.window[1]), graph_.dtype(node.output))));
  }

  Result<KernelTerm> DilatedMax(const Node& node, const Indices& indices) {
    const DType type = graph_.dtype(node.output);
    if (!IsFloat(type)) {
      return Error{ErrorKind::kUnsupported, "the maximum of whole numbers over a dilated window", node.origin};
    }
    std::string top = HONE_TRY(Windowed(node, indices, "-inf"));
    Word("maxpool2d_dilated");
    return KernelTerm{"max" + top, type};
  }

  static Indices AllIndices(size_t rank) {
    Indices all;
    for (size_t d = 0; d < rank; ++d) all.push_back(fmt::format("i{}", d));
    return all;
  }

  // A sum of products of bytes in a statement of its own, over the same axes as the value's: it stays in registers.
  KernelTerm Summed(const Node& node, std::string_view sum) {
    const Shape& shape = graph_.shape(node.output);
    const std::string element = fmt::format("a[{}]", fmt::join(AllIndices(shape.size()), ", "));
    before_ += fmt::format("a: i32[{}] {} = {} ", Extents(shape), element, sum);
    binds_constants_ = true;
    return KernelTerm{element, DType::kI32};
  }

  // A convolution of bytes. What padding holds is part of a copy, as in the library's convolutions.
  Result<KernelTerm> Conv(const Node& node) {
    const Indices indices = AllIndices(4);
    const Shape x = graph_.shape(node.inputs[0]), w = graph_.shape(node.inputs[1]);
    const std::string& channel = indices[1];
    const int64_t outputs = w[0] / node.groups;
    const bool is_padded = std::any_of(node.pads.begin(), node.pads.end(), [](int64_t pad) { return pad != 0; });
    auto variable = [](int64_t extent, const std::string& name) { return extent == 1 ? "0" : name; };
    const std::string c = variable(w[1], "r0"), r = variable(w[2], "r1"), s = variable(w[3], "r2");
    std::string from = w[1] == 1 && outputs == 1 ? channel
                       : node.groups == 1        ? c
                                                 : fmt::format("({}/{})*{} + {}", channel, outputs, w[1], c);
    if (x[1] == 1) from = "0";
    KernelTerm load = HONE_TRY(Operand(
        node.inputs[0], {indices[0], from, WindowIndex(node, indices, 0, r, 0), WindowIndex(node, indices, 1, s, 0)}));
    const KernelTerm weight = HONE_TRY(Operand(node.inputs[1], {channel, c, r, s}));
    if (is_padded) {
      const std::string name = "p";
      const KernelTerm inside =
          HONE_TRY(Operand(node.inputs[0], {"n", "c", Shifted("h", -node.pads[0]), Shifted("v", -node.pads[1])}));
      before_ += fmt::format("{0}: {1}[{2}, {3}, {4}, {5}] {0}[n, c, h, v] = pad({6}, {7:.0f}) ", name,
                             Name(graph_.dtype(node.inputs[0])), x[0], x[1], x[2] + node.pads[0] + node.pads[2],
                             x[3] + node.pads[1] + node.pads[3], inside.text, node.fill);
      load.text.replace(0, load.text.find('['), name);
    }
    std::string variables;
    for (auto [extent, name] : {std::pair(w[1], "r0"), std::pair(w[2], "r1"), std::pair(w[3], "r2")})
      if (extent != 1) variables += fmt::format("{}{} < {}", variables.empty() ? "" : ", ", name, extent);
    Word(w[1] == 1 && outputs == 1 && node.groups > 1 ? "depthwise_conv2d" : "conv2d");
    const std::string product = fmt::format("{}*{}", load.text, weight.text);
    KernelTerm sum = Summed(node, variables.empty() ? product : fmt::format("sum({}) {}", variables, product));
    if (node.inputs.size() > 2) {
      sum.text = fmt::format("({} + {})", sum.text, As(HONE_TRY(Operand(node.inputs[2], {channel})), DType::kI32));
      Word("bias");
    }
    return sum;
  }

  // Batch dimensions that broadcast, and products of bytes.
  Result<KernelTerm> MatMul(const Node& node, const Indices& value_indices) {
    const bool is_whole = IsWholeContraction(graph_, node);
    const Indices indices = is_whole ? AllIndices(value_indices.size()) : value_indices;
    auto operand = [&](size_t i, std::string row, std::string column) -> Result<KernelTerm> {
      const Shape& shape = graph_.shape(node.inputs[i]);
      size_t batch = shape.size() - 2;
      Indices own(indices.end() - 2 - static_cast<std::ptrdiff_t>(batch), indices.end() - 2);
      for (size_t d = 0; d < batch; ++d) {
        if (shape[d] == 1) own[d] = "0";
      }
      own.push_back(std::move(row));
      own.push_back(std::move(column));
      return Operand(node.inputs[i], own);
    };
    const KernelTerm a = HONE_TRY(operand(0, indices[indices.size() - 2], "r0"));
    const KernelTerm b = HONE_TRY(node.flag ? operand(1, indices.back(), "r0") : operand(1, "r0", indices.back()));
    Word(is_whole ? "matmul" : "matmul_broadcast");
    std::string sum = fmt::format("sum(r0 < {}) {}*{}", graph_.shape(node.inputs[0]).back(), a.text, b.text);
    return is_whole ? Summed(node, sum) : Made(node, sum);
  }

  // Over a dimension that is not the last.
  Result<KernelTerm> Softmax(const Node& node, const Indices& indices) {
    auto axis = static_cast<size_t>(node.axis);
    int64_t extent = graph_.shape(node.inputs[0])[axis];
    auto load = [&](std::string index) -> Result<std::string> {
      Indices own = indices;
      own[axis] = std::move(index);
      return HONE_TRY(Operand(node.inputs[0], own)).text;
    };
    std::string top = fmt::format("(max(r0 < {}) {})", extent, HONE_TRY(load("r0")));
    std::string total = fmt::format("(sum(r1 < {}) exp({} - {}))", extent, HONE_TRY(load("r1")), top);
    Word("softmax_axis");
    return Made(node, fmt::format("exp({} - {}) / {}", HONE_TRY(load(indices[axis])), top, total));
  }

  Graph& graph_;
  const std::function<bool(ValueId)>& inlines_;
  KernelText text_;
  std::string before_;  // statements that the value's needs
  bool binds_constants_ = false, is_quantized_ = false;
  std::vector<std::string> words_;
  int reductions_ = 0;
};

}  // namespace

bool IsWholeContraction(const Graph& graph, const Node& node) {
  return (node.kind == NodeKind::kConv || node.kind == NodeKind::kMatMul) && IsByte(graph.dtype(node.inputs[0]));
}

Result<KernelText> WriteKernel(Graph& graph, const Node& node, const std::function<bool(ValueId)>& inlines) {
  return Writer(graph, inlines).Run(node);
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
