// Sums, windows and products as kernels.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/graph/dtype_traits.h"
#include "network/run/kernel_writer.h"

namespace hone {

std::string KernelWriter::Variable(int64_t extent, std::string* name) {
  *name = fmt::format("r{}", reductions_++);
  return fmt::format("{} < {}", *name, extent);
}

bool KernelWriter::IsSum(const Node& node) const {
  return (node.function == "sum" || node.function == "mean") && IsFloat(graph_.dtype(node.output));
}

int64_t KernelWriter::PartsOf(const Node& node, const Shape& shape) const {
  constexpr int64_t kLongSum = 32, kLongRow = 4096;
  const auto last = static_cast<size_t>(node.axes.back());
  const int64_t extent = shape[last];
  if (!IsSum(node) || node.axes.size() > 1 || extent < (last + 1 < shape.size() ? kLongSum : kLongRow)) return 1;
  auto parts = static_cast<int64_t>(std::sqrt(static_cast<double>(extent)));
  while (extent % parts != 0) --parts;
  return parts;
}

Result<KernelTerm> KernelWriter::SumOfColumns(const Node& node, const Indices& indices, int64_t parts) {
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

std::pair<std::string, std::string> KernelWriter::Variables(const Node& node, const Shape& shape, Indices& own) {
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

Result<KernelTerm> KernelWriter::Reduce(const Node& node, const Indices& indices) {
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

std::string KernelWriter::WindowIndex(const Node& node, const Indices& indices, size_t d, const std::string& variable,
                                      int64_t pad) {
  std::string begin = node.stride[d] == 1 ? indices[2 + d] : fmt::format("{}*{}", indices[2 + d], node.stride[d]);
  std::string step = node.dilation[d] == 1 ? variable : fmt::format("{}*{}", variable, node.dilation[d]);
  return Shifted(fmt::format("{} + {}", begin, step), -pad);
}

Result<std::string> KernelWriter::Windowed(const Node& node, const Indices& indices, std::string_view fill) {
  const KernelTerm load =
      HONE_TRY(Operand(node.inputs[0], {indices[0], indices[1], WindowIndex(node, indices, 0, "r0", node.pads[0]),
                                        WindowIndex(node, indices, 1, "r1", node.pads[1])}));
  return fmt::format("(r0 < {}, r1 < {}) pad({}, {})", node.window[0], node.window[1], load.text, fill);
}

Result<KernelTerm> KernelWriter::PaddedAverage(const Node& node, const Indices& indices) {
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

Result<KernelTerm> KernelWriter::DilatedMax(const Node& node, const Indices& indices) {
  const DType type = graph_.dtype(node.output);
  if (!IsFloat(type)) {
    return Error{ErrorKind::kUnsupported, "the maximum of whole numbers over a dilated window", node.origin};
  }
  std::string top = HONE_TRY(Windowed(node, indices, "-inf"));
  Word("maxpool2d_dilated");
  return KernelTerm{"max" + top, type};
}

KernelTerm KernelWriter::Summed(const Node& node, std::string_view sum) {
  const Shape& shape = graph_.shape(node.output);
  // In the order of the result, so that both are over the same axes.
  const bool is_as_result = shape.size() == 4 && graph_.shape(result_) == shape;
  const ValueId order = is_as_result ? result_ : node.output;
  const std::string element = fmt::format("a[{}]", fmt::join(Stored(order, AllIndices(shape.size())), ", "));
  before_ += fmt::format("a: i32[{}] {} = {} ", Extents(Stored(order, shape)), element, sum);
  binds_constants_ = true;
  return KernelTerm{element, DType::kI32};
}

Result<KernelTerm> KernelWriter::Conv(const Node& node) {
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
    const Shape padded = {x[0], x[1], x[2] + node.pads[0] + node.pads[2], x[3] + node.pads[1] + node.pads[3]};
    before_ +=
        fmt::format("{0}: {1}[{2}] {0}[{3}] = pad({4}, {5:.0f}) ", name, Name(graph_.dtype(node.inputs[0])),
                    Extents(Stored(node.inputs[0], padded)),
                    fmt::join(Stored(node.inputs[0], Indices{"n", "c", "h", "v"}), ", "), inside.text, node.fill);
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

Result<KernelTerm> KernelWriter::MatMul(const Node& node, const Indices& value_indices) {
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

Result<KernelTerm> KernelWriter::Softmax(const Node& node, const Indices& indices) {
  auto axis = static_cast<size_t>(node.axis);
  const Shape& shape = graph_.shape(node.inputs[0]);
  auto load = [&](Indices own, std::string index) -> Result<std::string> {
    own[axis] = std::move(index);
    return HONE_TRY(Operand(node.inputs[0], own)).text;
  };
  auto top = [&](const Indices& own) -> Result<std::string> {
    return fmt::format("(max(r0 < {}) {})", shape[axis], HONE_TRY(load(own, "r0")));
  };
  auto total = [&](const Indices& own) -> Result<std::string> {
    return fmt::format("(sum(r1 < {}) exp({} - {}))", shape[axis], HONE_TRY(load(own, "r1")), HONE_TRY(top(own)));
  };
  if (!node.flag) {
    Word("softmax_axis");
    return Made(node, fmt::format("exp({} - {}) / {}", HONE_TRY(load(indices, indices[axis])), HONE_TRY(top(indices)),
                                  HONE_TRY(total(indices))));
  }
  // x - max - log Σ exp(x - max), with a statement of its own for what there is one of for each row.
  Word("log_softmax");
  if (shape.size() == 1)
    return Made(node, fmt::format("{} - {} - log({})", HONE_TRY(load(indices, indices[0])), HONE_TRY(top(indices)),
                                  HONE_TRY(total(indices))));
  const Indices all = AllIndices(shape.size());
  const std::string rows = fmt::format("l{}", before_.size());
  Shape extents = shape;
  Indices of_row = all, row = indices;
  const auto at = static_cast<std::ptrdiff_t>(axis);
  extents.erase(extents.begin() + at);
  of_row.erase(of_row.begin() + at);
  row.erase(row.begin() + at);
  before_ += fmt::format("{0}: {1}[{2}] {0}[{3}] = log({4}) ", rows, Name(Wide(graph_.dtype(node.output))),
                         Extents(extents), fmt::join(of_row, ", "), HONE_TRY(total(all)));
  return Made(node, fmt::format("{} - {} - {}[{}]", HONE_TRY(load(indices, indices[axis])), HONE_TRY(top(indices)),
                                rows, fmt::join(row, ", ")));
}

}  // namespace hone
