// Operators that contract, pool, normalise and reduce.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "network/onnx/translate.h"

namespace hone {
namespace {

// Windows over one dimension are windows over two, the first of which is 1.
struct Window {
  std::vector<int64_t> window, stride, dilation, pads;
};

Result<Window> ReadWindow(const OperatorCall& call, std::vector<int64_t> window) {
  size_t rank = window.size();
  if (rank != 1 && rank != 2)
    return call.build.Unsupported(fmt::format("a window over {} dimensions, wanted 1 or 2", rank));
  if (call.rank(0) != static_cast<int64_t>(rank) + 2) {
    return call.build.Invalid(fmt::format("the input is {}, wanted {} dimensions", ShapeText(call.shape(0)), rank + 2));
  }
  Window out{std::move(window), call.Wholes("strides", std::vector<int64_t>(rank, 1)),
             call.Wholes("dilations", std::vector<int64_t>(rank, 1)),
             call.Wholes("pads", std::vector<int64_t>(2 * rank, 0))};
  if (out.stride.size() != rank || out.dilation.size() != rank || out.pads.size() != 2 * rank) {
    return call.build.Invalid("strides, dilations, pads and the window disagree about the dimensions");
  }
  constexpr int64_t kMost = 1 << 30;
  for (const auto* numbers : {&out.window, &out.stride, &out.dilation}) {
    for (int64_t number : *numbers) {
      if (number < 1 || number > kMost)
        return call.build.Invalid(fmt::format("saw a window, stride or dilation of {}", number));
    }
  }
  std::string automatic = call.Text("auto_pad", "NOTSET");
  if (automatic == "VALID") out.pads.assign(2 * rank, 0);
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    for (size_t d = 0; d < rank; ++d) {
      int64_t size = call.shape(0)[2 + d], count = (size + out.stride[d] - 1) / out.stride[d];
      int64_t reach = (out.window[d] - 1) * out.dilation[d] + 1;
      int64_t pad = std::max<int64_t>((count - 1) * out.stride[d] + reach - size, 0);
      out.pads[d] = automatic == "SAME_UPPER" ? pad / 2 : pad - pad / 2;
      out.pads[rank + d] = pad - out.pads[d];
    }
  } else if (automatic != "NOTSET" && automatic != "VALID") {
    return call.build.Invalid(fmt::format("auto_pad={}", automatic));
  }
  if (rank == 1) {
    out.window.insert(out.window.begin(), 1);
    out.stride.insert(out.stride.begin(), 1);
    out.dilation.insert(out.dilation.begin(), 1);
    out.pads = {0, out.pads[0], 0, out.pads[1]};
  }
  return out;
}

// [N, C, W] as [N, C, 1, W].
Shape WithHeight(Shape shape) {
  shape.insert(shape.begin() + 2, 1);
  return shape;
}

Result<Outputs> AddWindowed(OperatorCall& call, Node node, const Window& window) {
  node.window = window.window;
  node.stride = window.stride;
  node.dilation = window.dilation;
  node.pads = window.pads;
  bool is_line = call.rank(0) == 3;
  if (is_line) {
    node.inputs[0] = HONE_TRY(call.build.Reshape(node.inputs[0], WithHeight(call.shape(0))));
    if (node.kind == NodeKind::kConv) {
      const Shape weight = call.build.shape(node.inputs[1]);
      if (weight.size() != 3) return call.build.Invalid(fmt::format("the weight is {}", ShapeText(weight)));
      node.inputs[1] = HONE_TRY(call.build.Reshape(node.inputs[1], WithHeight(weight)));
    }
  }
  ValueId y = HONE_TRY(call.build.Add(std::move(node)));
  if (!is_line) return Outputs{y};
  Shape shape = call.build.shape(y);
  shape.erase(shape.begin() + 2);
  return Outputs{HONE_TRY(call.build.Reshape(y, shape))};
}

Result<Outputs> Conv(OperatorCall& call) {
  if (call.rank(1) < 3) return call.build.Invalid(fmt::format("the weight is {}", ShapeText(call.shape(1))));
  std::vector<int64_t> standard(call.shape(1).begin() + 2, call.shape(1).end());
  if (standard.size() > 2) return ConvOfAnyRank(call);
  Window window = HONE_TRY(ReadWindow(call, call.Wholes("kernel_shape", standard)));
  Node node;
  node.kind = NodeKind::kConv;
  node.inputs = {call.In(0), call.In(1)};
  if (call.Has(2)) node.inputs.push_back(call.In(2));
  node.groups = call.Whole("group", 1);
  return AddWindowed(call, std::move(node), window);
}

// Whether windows lie within the input and its padding, as kernels have them. `shape`: without the height that a line
// does not have.
bool LiesWithin(const Window& window, const Shape& shape) {
  using Wide = __int128;  // attributes may be anything
  for (size_t d = 4 - shape.size(); d < 2; ++d)
    if ((Wide{window.window[d]} - 1) * window.dilation[d] >=
        Wide{shape[shape.size() - 2 + d]} + window.pads[d] + window.pads[2 + d])
      return false;
  return true;
}

Result<Outputs> Pool(OperatorCall& call) {
  std::vector<int64_t> extents = call.Wholes("kernel_shape", {});
  if (call.node().outputs.size() > 1 || extents.size() > 2) return PoolOfAnyRank(call);
  Window window = HONE_TRY(ReadWindow(call, std::move(extents)));
  if (!LiesWithin(window, call.shape(0))) return PoolOfAnyRank(call);
  Node node;
  node.kind = call.node().op == "MaxPool" ? NodeKind::kMaxPool : NodeKind::kAveragePool;
  node.flag = node.kind == NodeKind::kAveragePool && call.Whole("count_include_pad", 0) != 0 &&
              std::any_of(window.pads.begin(), window.pads.end(), [](int64_t pad) { return pad != 0; });
  node.ceil = call.Whole("ceil_mode", 0) != 0;
  node.inputs = {call.In(0)};
  return AddWindowed(call, std::move(node), window);
}

Result<Outputs> GlobalPool(OperatorCall& call) {
  if (call.rank(0) < 3) return call.build.Invalid("it wants 3 dimensions or more");
  std::vector<int64_t> axes(static_cast<size_t>(call.rank(0)) - 2);
  std::iota(axes.begin(), axes.end(), 2);
  return Outputs{HONE_TRY(call.build.Reduce(call.node().op == "GlobalMaxPool" ? "max" : "mean", call.In(0), axes))};
}

// Vectors are matrices of one row or column, whose dimension of 1 is dropped again.
Result<Outputs> MatMul(OperatorCall& call) {
  ValueId a = call.In(0), b = call.In(1);
  bool a_is_vector = call.rank(0) == 1, b_is_vector = call.rank(1) == 1;
  if (a_is_vector) a = HONE_TRY(call.build.Reshape(a, {1, call.shape(0)[0]}));
  if (b_is_vector) b = HONE_TRY(call.build.Reshape(b, {call.shape(1)[0], 1}));
  Node node;
  node.kind = NodeKind::kMatMul;
  node.inputs = {a, b};
  ValueId y = HONE_TRY(call.build.Add(std::move(node)));
  Shape shape = call.build.shape(y);
  if (b_is_vector) shape.pop_back();
  if (a_is_vector) shape.erase(shape.end() - (b_is_vector ? 1 : 2));
  return Outputs{HONE_TRY(call.build.Reshape(y, shape))};
}

// alpha·A·B + beta·C
Result<Outputs> Gemm(OperatorCall& call) {
  if (call.rank(0) != 2 || call.rank(1) != 2) return call.build.Invalid("it wants two matrices");
  Node node;
  node.kind = NodeKind::kMatMul;
  node.inputs = {call.In(0), call.In(1)};
  node.flag = call.Whole("transB", 0) != 0;
  if (call.Whole("transA", 0) != 0) node.inputs[0] = HONE_TRY(call.build.Transpose(call.In(0), {1, 0}));
  ValueId y = HONE_TRY(call.build.Add(std::move(node)));
  DType dtype = call.build.dtype(y);
  if (double alpha = call.Real("alpha", 1); alpha != 1) {
    y = HONE_TRY(call.build.Binary("mul", y, call.build.Scalar(alpha, dtype)));
  }
  double beta = call.Real("beta", 1);
  if (call.Has(2) && beta != 0) {
    ValueId c = call.In(2);
    if (beta != 1) c = HONE_TRY(call.build.Binary("mul", c, call.build.Scalar(beta, dtype)));
    Shape shape = call.build.shape(y);
    y = HONE_TRY(call.build.Binary("add", y, c));
    if (call.build.shape(y) != shape) return call.build.Invalid("C does not fit the product");
  }
  return Outputs{y};
}

// Multiplication and addition a channel, with constants computed ahead: simplify folds them into what comes before.
Result<Outputs> BatchNorm(OperatorCall& call) {
  if (call.rank(0) < 2) return call.build.Invalid("it wants 2 dimensions or more");
  const bool is_training = call.Whole("training_mode", 0) != 0;
  DType dtype = call.build.dtype(call.In(0));
  Shape channel(call.shape(0).size() - 1, 1);
  channel[0] = call.shape(0)[1];
  ValueId parts[4];
  for (size_t i = 0; i < 4; ++i) {
    if (call.shape(i + 1) != Shape{channel[0]}) {
      return call.build.Invalid(
          fmt::format("operand {} is {}, wanted {}", i + 1, ShapeText(call.shape(i + 1)), channel[0]));
    }
    parts[i] = HONE_TRY(call.build.Reshape(call.In(i + 1), channel));
  }
  Outputs running;
  if (is_training) {  // by the batch's own mean and variance; those of before go on, by `momentum` of them
    std::vector<int64_t> axes(static_cast<size_t>(call.rank(0)));
    std::iota(axes.begin(), axes.end(), 0);
    axes.erase(axes.begin() + 1);
    ValueId mean = HONE_TRY(call.build.Reduce("mean", call.In(0), axes));
    ValueId centred = HONE_TRY(call.build.Binary("sub", call.In(0), mean));
    ValueId variance = HONE_TRY(call.build.Reduce("mean", HONE_TRY(call.build.Binary("mul", centred, centred)), axes));
    const double momentum = call.Real("momentum", 0.9);
    for (auto [i, now] : {std::pair(size_t{2}, mean), std::pair(size_t{3}, variance)}) {
      ValueId old = HONE_TRY(call.build.Binary("mul", parts[i], call.build.Scalar(momentum, dtype)));
      parts[i] = HONE_TRY(call.build.Reshape(now, channel));
      ValueId share = HONE_TRY(call.build.Binary("mul", parts[i], call.build.Scalar(1 - momentum, dtype)));
      running.push_back(HONE_TRY(call.build.Reshape(HONE_TRY(call.build.Binary("add", old, share)), {channel[0]})));
    }
  }
  ValueId spread = HONE_TRY(call.build.Binary("add", parts[3], call.build.Scalar(call.Real("epsilon", 1e-5), dtype)));
  ValueId factor = HONE_TRY(call.build.Binary("div", parts[0], HONE_TRY(call.build.Unary("sqrt", spread))));
  ValueId shift = HONE_TRY(call.build.Binary("mul", parts[2], factor));
  shift = HONE_TRY(call.build.Binary("sub", parts[1], shift));
  ValueId scaled = HONE_TRY(call.build.Binary("mul", call.In(0), factor));
  Outputs outputs{HONE_TRY(call.build.Binary("add", scaled, shift))};
  outputs.insert(outputs.end(), running.begin(), running.end());
  return outputs;
}

Result<Outputs> LayerNorm(OperatorCall& call) {
  Node node;
  node.kind = NodeKind::kLayerNorm;
  node.axis = HONE_TRY(call.Axis(call.Whole("axis", -1), call.rank(0)));
  node.epsilon = call.Real("epsilon", 1e-5);
  Shape row(call.shape(0).begin() + node.axis, call.shape(0).end());
  node.inputs = {call.In(0), call.In(1)};
  if (call.Has(2)) {
    node.inputs.push_back(call.In(2));
  } else {
    node.inputs.push_back(call.build.Constant(MakeNumbers(call.build.dtype(call.In(0)), row)));
  }
  for (size_t i = 1; i < 3; ++i) {  // they broadcast
    if (CountOf(call.build.shape(node.inputs[i])) == CountOf(row)) {
      node.inputs[i] = HONE_TRY(call.build.Reshape(node.inputs[i], row));
    } else {
      node.inputs[i] = HONE_TRY(call.build.Expand(node.inputs[i], row));
    }
  }
  std::vector<int64_t> axes(static_cast<size_t>(call.rank(0) - node.axis));
  std::iota(axes.begin(), axes.end(), node.axis);
  Outputs outputs{HONE_TRY(call.build.Add(std::move(node)))};
  if (call.node().outputs.size() > 1) {  // of the type that statistics are kept in, which is f32 for all that comes
    const ValueId x = HONE_TRY(call.build.Cast(call.In(0), DType::kF32));
    ValueId mean = HONE_TRY(call.build.Reduce("mean", x, axes));
    ValueId centred = HONE_TRY(call.build.Binary("sub", x, mean));
    ValueId variance = HONE_TRY(call.build.Reduce("mean", HONE_TRY(call.build.Binary("mul", centred, centred)), axes));
    ValueId epsilon = call.build.Scalar(call.Real("epsilon", 1e-5), DType::kF32);
    variance = HONE_TRY(call.build.Binary("add", variance, epsilon));
    outputs.push_back(mean);
    outputs.push_back(HONE_TRY(call.build.Unary("rsqrt", variance)));
  }
  return outputs;
}

// x / √(mean(x²) + ε) · scale over the last dimensions.
Result<Outputs> RootMeanSquareNorm(OperatorCall& call) {
  const int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", -1), call.rank(0)));
  std::vector<int64_t> axes(static_cast<size_t>(call.rank(0) - axis));
  std::iota(axes.begin(), axes.end(), axis);
  const double epsilon = call.Real("epsilon", 1e-5);
  const ValueId y = HONE_TRY(OverRootMeanSquare(call.build, call.In(0), std::move(axes), epsilon));
  return Outputs{HONE_TRY(call.build.Binary("mul", y, call.In(1)))};
}

// (x − mean) / √(variance + ε) over some dimensions, then a factor and a term a channel.
Result<ValueId> Normalize(OperatorCall& call, ValueId x, std::vector<int64_t> axes) {
  ValueId mean = HONE_TRY(call.build.Reduce("mean", x, axes));
  ValueId centred = HONE_TRY(call.build.Binary("sub", x, mean));
  ValueId variance = HONE_TRY(call.build.Reduce("mean", HONE_TRY(call.build.Binary("mul", centred, centred)), axes));
  ValueId epsilon = call.build.Scalar(call.Real("epsilon", 1e-5), call.build.dtype(x));
  ValueId inverse = HONE_TRY(call.build.Unary("rsqrt", HONE_TRY(call.build.Binary("add", variance, epsilon))));
  return call.build.Binary("mul", centred, inverse);
}

Result<Outputs> ChannelNorm(OperatorCall& call) {
  if (call.rank(0) < 3) return call.build.Invalid("it wants 3 dimensions or more");
  const Shape x = call.shape(0);
  bool in_groups = call.node().op == "GroupNormalization";
  int64_t groups = in_groups ? call.Whole("num_groups", 1) : x[1];
  if (groups < 1 || x[1] % groups != 0)
    return call.build.Invalid(fmt::format("{} groups of {} channels", groups, x[1]));
  ValueId parameters[2];  // the scale and the bias, one a channel; before opset 21 one a group
  for (size_t i = 0; i < 2; ++i) {
    parameters[i] = call.In(i + 1);
    if (in_groups && call.opset() < 21 && call.shape(i + 1) == Shape{groups}) {
      parameters[i] = HONE_TRY(call.build.Reshape(parameters[i], {groups, 1}));
      parameters[i] = HONE_TRY(call.build.Expand(parameters[i], {groups, x[1] / groups}));
      parameters[i] = HONE_TRY(call.build.Reshape(parameters[i], {x[1]}));
    }
    if (call.build.shape(parameters[i]) != Shape{x[1]})
      return call.build.Invalid(
          fmt::format("operand {} is {}, wanted one a channel", i + 2, ShapeText(call.shape(i + 1))));
  }
  ValueId y =
      HONE_TRY(call.build.Reshape(call.In(0), {x[0], groups, CountOf(x) / std::max<int64_t>(x[0] * groups, 1)}));
  y = HONE_TRY(Normalize(call, y, {2}));
  y = HONE_TRY(call.build.Reshape(y, x));
  Shape channel(x.size() - 1, 1);
  channel[0] = x[1];
  y = HONE_TRY(call.build.Binary("mul", y, HONE_TRY(call.build.Reshape(parameters[0], channel))));
  return Outputs{HONE_TRY(call.build.Binary("add", y, HONE_TRY(call.build.Reshape(parameters[1], channel))))};
}

// Before opset 13 a softmax is over all dimensions from its axis on, read as one.
Result<Outputs> Softmax(OperatorCall& call) {
  bool flattens = call.opset() < 13;
  int64_t rank = call.rank(0);
  if (rank == 0) return call.build.Invalid("it wants a dimension");
  const Shape shape = call.shape(0);
  Node node;
  node.kind = NodeKind::kSoftmax;
  node.axis = HONE_TRY(call.Axis(call.Whole("axis", flattens ? 1 : -1), rank));
  ValueId x = call.In(0);
  if (flattens) {
    int64_t rows = CountOf(Shape(shape.begin(), shape.begin() + node.axis));
    int64_t columns = CountOf(Shape(shape.begin() + node.axis, shape.end()));
    x = HONE_TRY(call.build.Reshape(x, {rows, columns}));
    node.axis = 1;
  }
  if (!IsFloat(call.build.dtype(x))) return call.build.Invalid("it wants floats");
  node.flag = call.node().op == "LogSoftmax";
  node.inputs = {x};
  x = HONE_TRY(call.build.Add(std::move(node)));
  return Outputs{HONE_TRY(call.build.Reshape(x, shape))};
}

// Axes: an attribute, an input since opset 13 (sums) or 18 (the others).
Result<Outputs> Reduce(OperatorCall& call) {
  const std::string& op = call.node().op;
  std::optional<std::vector<int64_t>> axes = HONE_TRY(call.AttributeOrInput("axes", 1));
  int64_t rank = call.rank(0);
  if (!axes || axes->empty()) {  // over all, or each element by itself
    axes.emplace(call.Whole("noop_with_empty_axes", 0) != 0 ? 0 : static_cast<size_t>(rank));
    std::iota(axes->begin(), axes->end(), 0);
  }
  *axes = HONE_TRY(call.Axes(*axes, rank));
  const DType dtype = call.build.dtype(call.In(0));
  ValueId x = call.In(0), taken_off;
  if (op == "ReduceL1") x = HONE_TRY(call.build.Unary("abs", x));
  if (op == "ReduceL2" || op == "ReduceSumSquare") x = HONE_TRY(call.build.Binary("mul", x, x));
  if (op == "ReduceLogSumExp") {  // the largest is taken off, so that nothing overflows
    if (!IsFloat(dtype)) x = HONE_TRY(call.build.Cast(x, DType::kF64));
    ValueId top = HONE_TRY(call.build.Reduce("max", x, *axes));
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    ValueId magnitude = HONE_TRY(call.build.Unary("abs", top));
    ValueId is_infinite =
        HONE_TRY(call.build.Binary("eq", magnitude, call.build.Scalar(kInfinity, call.build.dtype(x))));
    taken_off = HONE_TRY(call.build.Select(is_infinite, call.build.Scalar(0, call.build.dtype(x)), top));
    x = HONE_TRY(call.build.Unary("exp", HONE_TRY(call.build.Binary("sub", x, taken_off))));
  }
  std::string_view function = op == "ReduceMean"   ? "mean"
                              : op == "ReduceMax"  ? "max"
                              : op == "ReduceMin"  ? "min"
                              : op == "ReduceProd" ? "prod"
                                                   : "sum";
  ValueId y = HONE_TRY(call.build.Reduce(function, x, *axes));
  if (op == "ReduceL2") y = HONE_TRY(call.build.Unary("sqrt", y));
  if (op == "ReduceLogSum" || op == "ReduceLogSumExp") y = HONE_TRY(call.build.Unary("log", y));
  if (taken_off) y = HONE_TRY(call.build.Cast(HONE_TRY(call.build.Binary("add", y, taken_off)), dtype));
  if (call.Whole("keepdims", 1) == 0) {
    Shape shape;
    for (int64_t d = 0; d < rank; ++d) {
      if (!std::binary_search(axes->begin(), axes->end(), d)) shape.push_back(call.shape(0)[static_cast<size_t>(d)]);
    }
    y = HONE_TRY(call.build.Reshape(y, shape));
  }
  return Outputs{y};
}

}  // namespace

Result<ValueId> OverRootMeanSquare(Builder& build, ValueId x, std::vector<int64_t> axes, double epsilon) {
  ValueId squares = HONE_TRY(build.Reduce("mean", HONE_TRY(build.Binary("mul", x, x)), std::move(axes)));
  squares = HONE_TRY(build.Binary("add", squares, build.Scalar(epsilon, build.dtype(x))));
  return build.Binary("mul", x, HONE_TRY(build.Unary("rsqrt", squares)));
}

std::vector<Operator> LayerOperators() {
  std::vector<Operator> table = {{"Conv", 2, Conv},
                                 {"MaxPool", 1, Pool},
                                 {"AveragePool", 1, Pool},
                                 {"GlobalAveragePool", 1, GlobalPool},
                                 {"GlobalMaxPool", 1, GlobalPool},
                                 {"MatMul", 2, MatMul},
                                 {"Gemm", 2, Gemm},
                                 {"BatchNormalization", 5, BatchNorm},
                                 {"LayerNormalization", 2, LayerNorm},
                                 {"RMSNormalization", 2, RootMeanSquareNorm},
                                 {"SimplifiedLayerNormalization", 2, RootMeanSquareNorm},
                                 {"InstanceNormalization", 3, ChannelNorm},
                                 {"GroupNormalization", 3, ChannelNorm},
                                 {"Softmax", 1, Softmax},
                                 {"LogSoftmax", 1, Softmax}};
  for (std::string_view op : {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
                              "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"}) {
    table.push_back({op, 1, Reduce});
  }
  return table;
}

}  // namespace hone
