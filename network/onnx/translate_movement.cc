// Operators that move elements about, look at shapes, or make constants.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "network/graph/evaluate_internal.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

Result<Outputs> ConstantOf(OperatorCall& call) {
  if (const OnnxAttribute* value = call.Find("value"); value != nullptr && value->tensor != nullptr) {
    return Outputs{call.build.graph().AddConstant(call.node().name, value->tensor)};
  }
  if (const OnnxAttribute* value = call.Find("value_int")) {
    return Outputs{call.build.Constant(WholeNumbers({value->whole}, {}))};
  }
  if (const OnnxAttribute* value = call.Find("value_float"))
    return Outputs{call.build.Scalar(value->real, DType::kF32)};
  if (const OnnxAttribute* value = call.Find("value_ints")) {
    return Outputs{call.build.Constant(WholeNumbers(value->wholes, {static_cast<int64_t>(value->wholes.size())}))};
  }
  if (const OnnxAttribute* value = call.Find("value_floats")) {
    Numbers numbers = MakeNumbers(DType::kF32, {static_cast<int64_t>(value->reals.size())});
    numbers.real = value->reals;
    return Outputs{call.build.Constant(numbers)};
  }
  return call.build.Unsupported("its value is no tensor of numbers");
}

Result<Outputs> ConstantOfShape(OperatorCall& call) {
  Shape shape = HONE_TRY(call.ConstantInput(0, "the shape"));
  HONE_TRY(CheckShape(shape));
  ValueId value = call.build.Scalar(0, DType::kF32);
  if (const OnnxAttribute* given = call.Find("value"); given != nullptr && given->tensor != nullptr) {
    if (CountOf(given->tensor->shape) != 1) return call.build.Invalid("its value is no scalar");
    value = call.build.graph().AddConstant(call.node().name, given->tensor);
    value = HONE_TRY(call.build.Reshape(value, {}));
  }
  return Outputs{HONE_TRY(call.build.Expand(value, std::move(shape)))};
}

Result<Outputs> ShapeOf(OperatorCall& call) {
  const Shape& shape = call.shape(0);
  int64_t rank = call.rank(0);
  auto bound = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  int64_t begin = bound(call.Whole("start", 0)), end = std::max(begin, bound(call.Whole("end", rank)));
  std::vector<int64_t> part(shape.begin() + begin, shape.begin() + end);
  auto count = static_cast<int64_t>(part.size());
  return Outputs{call.build.Constant(WholeNumbers(part, {count}))};
}

Result<Outputs> SizeOf(OperatorCall& call) {
  return Outputs{call.build.Constant(WholeNumbers({CountOf(call.shape(0))}, {}))};
}

constexpr int64_t kMostOfRange = 10'000'000;

// Whole numbers as they are: as doubles those beyond 2^53 would be others.
Result<Outputs> RangeOfWholes(OperatorCall& call, const int64_t (&bounds)[3]) {
  using Wide = __int128;
  const Wide begin = bounds[0], step = bounds[2], length = bounds[1] - begin;
  if (step == 0) return call.build.Invalid("a range whose step is 0");
  const Wide rest = length % step;
  const Wide count = std::max<Wide>(0, length / step + (rest != 0 && (rest > 0) == (step > 0) ? 1 : 0));
  if (count > kMostOfRange)
    return call.build.Invalid(fmt::format("a range of {:g} elements", static_cast<double>(count)));
  Numbers numbers = MakeNumbers(call.build.dtype(call.In(0)), {static_cast<int64_t>(count)});
  for (size_t i = 0; i < numbers.whole.size(); ++i)
    numbers.whole[i] = static_cast<int64_t>(begin + static_cast<Wide>(i) * step);
  return Outputs{call.build.Constant(numbers)};
}

Result<Outputs> Range(OperatorCall& call) {
  double bounds[3];
  int64_t wholes[3];
  bool is_whole = true;
  for (size_t i = 0; i < 3; ++i) {
    bounds[i] = HONE_TRY(call.OneNumber(i, "a bound of it"));
    const Numbers* elements = HONE_TRY(call.build.graph().Elements(call.In(i)));
    is_whole = is_whole && !elements->is_real();
    wholes[i] = is_whole ? elements->whole[0] : 0;
  }
  if (is_whole) return RangeOfWholes(call, wholes);
  double count = bounds[2] == 0 ? -1 : std::max(0.0, std::ceil((bounds[1] - bounds[0]) / bounds[2]));
  if (!(count >= 0 && count <= static_cast<double>(kMostOfRange)))
    return call.build.Invalid(fmt::format("a range of {} elements", count));
  Numbers numbers = MakeNumbers(call.build.dtype(call.In(0)), {static_cast<int64_t>(count)});
  if (!numbers.is_real()) return call.build.Invalid("its start is a whole number, and another bound is none");
  for (size_t i = 0; i < static_cast<size_t>(count); ++i)
    numbers.real[i] = bounds[0] + static_cast<double>(i) * bounds[2];
  return Outputs{call.build.Constant(numbers)};
}

// 0 takes the input's dimension (unless allowzero), -1 what is left.
Result<Outputs> Reshape(OperatorCall& call) {
  std::vector<int64_t> wanted = HONE_TRY(call.ConstantInput(1, "the shape"));
  const Shape& x = call.shape(0);
  int64_t known = 1, open = -1;
  for (size_t d = 0; d < wanted.size(); ++d) {
    if (wanted[d] == 0 && call.Whole("allowzero", 0) == 0) {
      if (d >= x.size()) return call.build.Invalid(fmt::format("dimension {} of {} is wanted", d, ShapeText(x)));
      wanted[d] = x[d];
    }
    if (wanted[d] == -1) {
      if (open >= 0) return call.build.Invalid("two dimensions are -1");
      open = static_cast<int64_t>(d);
    } else if (wanted[d] < 0 || __builtin_mul_overflow(known, wanted[d], &known)) {
      return call.build.Invalid(fmt::format("the shape {} cannot be", fmt::join(wanted, "x")));
    }
  }
  if (open >= 0) {
    if (known == 0 || CountOf(x) % known != 0) {
      return call.build.Invalid(fmt::format("{} cannot be read as {}", ShapeText(x), fmt::join(wanted, "x")));
    }
    wanted[static_cast<size_t>(open)] = CountOf(x) / known;
  }
  return Outputs{HONE_TRY(call.build.Reshape(call.In(0), std::move(wanted)))};
}

Result<Outputs> Flatten(OperatorCall& call) {
  int64_t axis = call.Whole("axis", 1), rank = call.rank(0);
  if (axis != rank) axis = HONE_TRY(call.Axis(axis, std::max<int64_t>(rank, 1)));
  const Shape& x = call.shape(0);
  int64_t rows = CountOf(Shape(x.begin(), x.begin() + axis));
  int64_t columns = CountOf(Shape(x.begin() + axis, x.end()));
  return Outputs{HONE_TRY(call.build.Reshape(call.In(0), {rows, columns}))};
}

Result<Outputs> Squeeze(OperatorCall& call) {
  std::optional<std::vector<int64_t>> axes = HONE_TRY(call.AttributeOrInput("axes", 1));
  if (axes) *axes = HONE_TRY(call.Axes(*axes, call.rank(0)));
  Shape shape;
  for (size_t d = 0; d < call.shape(0).size(); ++d) {
    int64_t extent = call.shape(0)[d];
    bool drops = axes ? std::binary_search(axes->begin(), axes->end(), static_cast<int64_t>(d)) : extent == 1;
    if (drops && extent != 1)
      return call.build.Invalid(fmt::format("dimension {} of {} is not 1", d, ShapeText(call.shape(0))));
    if (!drops) shape.push_back(extent);
  }
  return Outputs{HONE_TRY(call.build.Reshape(call.In(0), std::move(shape)))};
}

Result<Outputs> Unsqueeze(OperatorCall& call) {
  std::optional<std::vector<int64_t>> axes = HONE_TRY(call.AttributeOrInput("axes", 1));
  if (!axes) return call.build.Invalid("no axes are given");
  auto rank = call.rank(0) + static_cast<int64_t>(axes->size());
  *axes = HONE_TRY(call.Axes(*axes, rank));
  Shape shape;
  size_t from = 0;
  for (int64_t d = 0; d < rank; ++d) {
    shape.push_back(std::binary_search(axes->begin(), axes->end(), d) ? 1 : call.shape(0)[from++]);
  }
  return Outputs{HONE_TRY(call.build.Reshape(call.In(0), std::move(shape)))};
}

Result<Outputs> Transpose(OperatorCall& call) {
  std::vector<int64_t> reversed(static_cast<size_t>(call.rank(0)));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return Outputs{HONE_TRY(call.build.Transpose(call.In(0), call.Wholes("perm", reversed)))};
}

Result<Outputs> Expand(OperatorCall& call) {
  Shape wanted = HONE_TRY(call.ConstantInput(1, "the shape"));
  // Broadcasting goes both ways: a dimension of 1 keeps the input's.
  Shape shape(std::max(wanted.size(), call.shape(0).size()), 1);
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t own = i < call.shape(0).size() ? call.shape(0)[call.shape(0).size() - 1 - i] : 1;
    int64_t other = i < wanted.size() ? wanted[wanted.size() - 1 - i] : 1;
    shape[shape.size() - 1 - i] = other == 1 ? own : other;
  }
  HONE_TRY(CheckShape(shape));
  return Outputs{HONE_TRY(call.build.Expand(call.In(0), std::move(shape)))};
}

Result<Outputs> Tile(OperatorCall& call) {
  std::vector<int64_t> repeats = HONE_TRY(call.ConstantInput(1, "the repeats"));
  const Shape x = call.shape(0);
  if (repeats.size() != x.size()) return call.build.Invalid("it wants one repeat a dimension");
  Shape apart, expanded, together;
  for (size_t d = 0; d < x.size(); ++d) {
    if (repeats[d] != 1) {
      apart.push_back(1);
      expanded.push_back(repeats[d]);
    }
    apart.push_back(x[d]);
    expanded.push_back(x[d]);
    int64_t all = 0;
    if (repeats[d] < 0 || __builtin_mul_overflow(x[d], repeats[d], &all))
      return call.build.Invalid("a repeat cannot be");
    together.push_back(all);
  }
  HONE_TRY(CheckShape(together));
  ValueId value = HONE_TRY(call.build.Reshape(call.In(0), apart));
  value = HONE_TRY(call.build.Expand(value, expanded));
  return Outputs{HONE_TRY(call.build.Reshape(value, together))};
}

Result<ValueId> SliceOf(OperatorCall& call, ValueId x, std::vector<int64_t> starts, std::vector<int64_t> steps,
                        Shape extents) {
  if (extents == call.build.shape(x) &&
      std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step == 1; })) {
    return x;
  }
  Node node;
  node.kind = NodeKind::kSlice;
  node.inputs = {x};
  node.starts = std::move(starts);
  node.steps = std::move(steps);
  node.extents = std::move(extents);
  return call.build.Add(std::move(node));
}

Result<Outputs> Slice(OperatorCall& call) {
  const Shape x = call.shape(0);
  int64_t rank = call.rank(0);
  std::vector<int64_t> starts = call.Wholes("starts", {}), ends = call.Wholes("ends", {});  // before opset 10
  if (call.opset() >= 10) {
    if (!call.Has(1) || !call.Has(2)) return call.build.Invalid("its starts or ends are missing");
    starts = HONE_TRY(call.ConstantInput(1, "the starts"));
    ends = HONE_TRY(call.ConstantInput(2, "the ends"));
  }
  std::vector<int64_t> axes(starts.size()), steps(starts.size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (call.Find("axes") != nullptr) axes = call.Wholes("axes", {});
  if (call.Has(3)) axes = HONE_TRY(call.ConstantInput(3, "the axes"));
  if (call.Has(4)) steps = HONE_TRY(call.ConstantInput(4, "the steps"));
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) {
    return call.build.Invalid("starts, ends, axes and steps are not equally many");
  }
  std::vector<int64_t> all_starts(x.size(), 0), all_steps(x.size(), 1);
  Shape extents = x;
  for (size_t i = 0; i < starts.size(); ++i) {
    auto d = static_cast<size_t>(HONE_TRY(call.Axis(axes[i], rank)));
    int64_t size = x[d], step = steps[i];
    if (step == 0 || step == INT64_MIN) return call.build.Invalid(fmt::format("a step of {}", step));
    auto bound = [&](int64_t at, int64_t least, int64_t most) {
      return std::clamp(at < 0 ? at + size : at, least, most);
    };
    int64_t begin = step > 0 ? bound(starts[i], 0, size) : bound(starts[i], 0, std::max<int64_t>(size - 1, 0));
    int64_t end = step > 0 ? bound(ends[i], 0, size) : bound(ends[i], -1, size);
    if (step < 0 && ends[i] < -size) end = -1;
    int64_t room = step > 0 ? end - begin : begin - end, stride = step > 0 ? step : -step;
    extents[d] = room <= 0 || size == 0 ? 0 : (room - 1) / stride + 1;
    all_starts[d] = begin;
    all_steps[d] = step;
  }
  return Outputs{HONE_TRY(SliceOf(call, call.In(0), all_starts, all_steps, extents))};
}

// Parts: an attribute, an input since opset 13, or as many as there are outputs.
Result<Outputs> Split(OperatorCall& call) {
  const Shape x = call.shape(0);
  auto axis = static_cast<size_t>(HONE_TRY(call.Axis(call.Whole("axis", 0), call.rank(0))));
  auto count = static_cast<int64_t>(call.node().outputs.size());
  std::optional<std::vector<int64_t>> parts = HONE_TRY(call.AttributeOrInput("split", 1));
  if (!parts) {
    parts.emplace();
    int64_t each = (x[axis] + count - 1) / std::max<int64_t>(count, 1);
    for (int64_t left = x[axis], i = 0; i < count; ++i) {
      parts->push_back(std::min(each, left));
      left -= parts->back();
    }
  }
  if (static_cast<int64_t>(parts->size()) != count) return call.build.Invalid("it wants one part an output");
  Outputs outputs;
  int64_t begin = 0;
  for (int64_t part : *parts) {
    if (part < 0 || part > x[axis] - begin)
      return call.build.Invalid(fmt::format("parts {} of {}", fmt::join(*parts, "+"), x[axis]));
    std::vector<int64_t> starts(x.size(), 0);
    starts[axis] = begin;
    Shape extents = x;
    extents[axis] = part;
    outputs.push_back(HONE_TRY(SliceOf(call, call.In(0), starts, std::vector<int64_t>(x.size(), 1), extents)));
    begin += part;
  }
  if (begin != x[axis]) return call.build.Invalid(fmt::format("parts {} of {}", fmt::join(*parts, "+"), x[axis]));
  return outputs;
}

Result<Outputs> Concat(OperatorCall& call) {
  Node node;
  node.kind = NodeKind::kConcat;
  node.axis = HONE_TRY(call.Axis(call.Whole("axis", 0), call.rank(0)));
  for (size_t i = 0; i < call.input_count(); ++i) {
    if (!call.Has(i)) return call.build.Invalid("an operand is left out");
    // Empty parts add nothing.
    if (call.rank(i) == call.rank(0) && call.shape(i)[static_cast<size_t>(node.axis)] == 0) continue;
    node.inputs.push_back(call.In(i));
  }
  if (node.inputs.empty()) return Outputs{call.In(0)};
  if (node.inputs.size() == 1) return Outputs{node.inputs[0]};
  // No kernel reads very many. Along the outermost dimension parts may share memory instead; where they do not, each
  // group of them is computed in its place.
  const Shape& x = call.shape(0);
  const size_t most = CountOf(Shape(x.begin(), x.begin() + node.axis)) == 1 ? 24 : 16;
  while (node.inputs.size() > most) {
    const size_t groups = (node.inputs.size() + most - 1) / most;
    std::vector<ValueId> joined;
    for (size_t i = 0; i < groups; ++i) {
      auto at = [&](size_t group) {
        return node.inputs.begin() + static_cast<std::ptrdiff_t>(node.inputs.size() * group / groups);
      };
      Node some = node;
      some.inputs.assign(at(i), at(i + 1));
      joined.push_back(HONE_TRY(call.build.Add(std::move(some))));
    }
    node.inputs = std::move(joined);
  }
  return Outputs{HONE_TRY(call.build.Add(std::move(node)))};
}

Result<Outputs> Pad(OperatorCall& call) {
  std::optional<std::vector<int64_t>> pads = HONE_TRY(call.AttributeOrInput("pads", 1));
  const Shape& x = call.shape(0);
  const DType dtype = call.build.dtype(call.In(0));
  Node node;
  node.kind = NodeKind::kPad;
  node.inputs = {call.In(0)};
  node.extents = x;
  node.starts.assign(x.size(), 0);
  std::vector<int64_t> axes(x.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (call.Has(3)) axes = HONE_TRY(call.ConstantInput(3, "the axes"));
  if (!pads || pads->size() != 2 * axes.size()) return call.build.Invalid("it wants two numbers a dimension");
  for (size_t i = 0; i < axes.size(); ++i) {
    auto d = static_cast<size_t>(HONE_TRY(call.Axis(axes[i], call.rank(0))));
    int64_t before = (*pads)[i], after = (*pads)[i + axes.size()];
    constexpr int64_t kMost = int64_t{1} << 40;
    if (std::max(before, after) > kMost || std::min(before, after) < -kMost || x[d] + before + after < 0) {
      return call.build.Invalid(fmt::format("padding {} and {} of {}", before, after, x[d]));
    }
    node.starts[d] = before;
    node.extents[d] = x[d] + before + after;
  }
  if (std::string mode = call.Text("mode", "constant"); mode != "constant") {
    if (mode != "edge" && mode != "reflect" && mode != "wrap") return call.build.Invalid("mode=" + mode);
    for (size_t d = 0; d < x.size(); ++d)
      if (x[d] == 0 && node.extents[d] > 0) return call.build.Invalid(fmt::format("dimension {} has no elements", d));
    node.function = mode;
  } else if (call.Has(2)) {
    node.fill = HONE_TRY(call.OneNumber(2, "what it pads with"));
    if (call.build.dtype(call.In(2)) != dtype)
      return call.build.Invalid(
          fmt::format("it pads {} with {}, wanted one type", Name(dtype), Name(call.build.dtype(call.In(2)))));
    if (!IsFloat(dtype)) node.whole_fill = HONE_TRY(call.Known(2, "what it pads with"))->whole[0];
  } else {
    node.fill = call.Real("value", 0);
    if (!IsFloat(dtype)) node.whole_fill = evaluating::Truncated(node.fill, dtype);
  }
  if (node.extents == x && std::all_of(node.starts.begin(), node.starts.end(), [](int64_t at) { return at == 0; })) {
    return Outputs{call.In(0)};
  }
  return Outputs{HONE_TRY(call.build.Add(std::move(node)))};
}

// From each of several indices to the next, if it is the same step forwards everywhere.
std::optional<int64_t> EvenStep(const std::vector<int64_t>& indices) {
  if (indices.size() < 2 || indices[1] <= indices[0]) return std::nullopt;
  const int64_t step = indices[1] - indices[0];
  for (size_t i = 2; i < indices.size(); ++i)
    if (indices[i] - indices[i - 1] != step) return std::nullopt;
  return step;
}

Result<Outputs> Gather(OperatorCall& call) {
  Node node;
  node.kind = call.node().op == "Gather" ? NodeKind::kGather : NodeKind::kGatherElements;
  node.axis = HONE_TRY(call.Axis(call.Whole("axis", 0), call.rank(0)));
  node.inputs = {call.In(0), call.In(1)};
  if (const Numbers* known = call.build.graph().TryElements(call.In(1)); known != nullptr && !known->is_real()) {
    // None of them is below zero afterwards.
    const int64_t extent = call.shape(0)[static_cast<size_t>(node.axis)];
    Numbers indices = *known;
    for (int64_t& index : indices.whole) {
      if (index < -extent || index >= extent)
        return call.build.Invalid(fmt::format("index {} of {} elements", index, extent));
      if (index < 0) index += extent;
    }
    if (const std::optional<int64_t> step = EvenStep(indices.whole); step && node.kind == NodeKind::kGather) {
      const auto axis = static_cast<size_t>(node.axis);
      ValueId part = HONE_TRY(call.build.Slice(call.In(0), axis, indices.whole[0], CountOf(indices.shape), *step));
      Shape shape = call.shape(0);
      shape.erase(shape.begin() + node.axis);
      shape.insert(shape.begin() + node.axis, indices.shape.begin(), indices.shape.end());
      return Outputs{HONE_TRY(call.build.Reshape(part, std::move(shape)))};
    }
    if (indices.whole != known->whole) node.inputs[1] = call.build.Constant(indices);
  }
  return Outputs{HONE_TRY(call.build.Add(std::move(node)))};
}

// x[n, b, b', c, h, w] and the like, by reading the dimensions apart, reordering them and reading them together.
Result<Outputs> DepthToSpace(OperatorCall& call) {
  if (call.rank(0) != 4) return call.build.Invalid("it wants 4 dimensions");
  const Shape x = call.shape(0);
  int64_t b = call.Whole("blocksize", 0);
  if (b < 1 || b > (1 << 20) || x[1] % (b * b) != 0)
    return call.build.Invalid(fmt::format("blocks of {} in {} channels", b, x[1]));
  int64_t c = x[1] / (b * b);
  bool is_dcr = call.Text("mode", "DCR") == "DCR";
  ValueId value = HONE_TRY(
      call.build.Reshape(call.In(0), is_dcr ? Shape{x[0], b, b, c, x[2], x[3]} : Shape{x[0], c, b, b, x[2], x[3]}));
  value = HONE_TRY(call.build.Transpose(
      value, is_dcr ? std::vector<int64_t>{0, 3, 4, 1, 5, 2} : std::vector<int64_t>{0, 1, 4, 2, 5, 3}));
  return Outputs{HONE_TRY(call.build.Reshape(value, {x[0], c, x[2] * b, x[3] * b}))};
}

Result<Outputs> SpaceToDepth(OperatorCall& call) {
  if (call.rank(0) != 4) return call.build.Invalid("it wants 4 dimensions");
  const Shape x = call.shape(0);
  int64_t b = call.Whole("blocksize", 0);
  if (b < 1 || x[2] % b != 0 || x[3] % b != 0)
    return call.build.Invalid(fmt::format("blocks of {} in {}", b, ShapeText(x)));
  ValueId value = HONE_TRY(call.build.Reshape(call.In(0), {x[0], x[1], x[2] / b, b, x[3] / b, b}));
  value = HONE_TRY(call.build.Transpose(value, {0, 3, 5, 1, 2, 4}));
  return Outputs{HONE_TRY(call.build.Reshape(value, {x[0], x[1] * b * b, x[2] / b, x[3] / b}))};
}

// The triangle as a constant of truth values.
Result<Outputs> Trilu(OperatorCall& call) {
  if (call.rank(0) < 2) return call.build.Invalid("it wants matrices");
  int64_t k = 0;
  if (call.Has(1)) {
    std::vector<int64_t> given = HONE_TRY(call.ConstantInput(1, "the diagonal"));
    if (given.size() != 1) return call.build.Invalid("the diagonal is no scalar");
    k = std::clamp<int64_t>(given[0], -(int64_t{1} << 40), int64_t{1} << 40);
  }
  Shape matrix(call.shape(0).end() - 2, call.shape(0).end());
  if (CountOf(matrix) > (int64_t{1} << 24)) return call.build.Unsupported("a triangle of more than 2^24 elements");
  Numbers mask = MakeNumbers(DType::kBool, matrix);
  bool is_upper = call.Whole("upper", 1) != 0;
  for (int64_t row = 0, i = 0; row < matrix[0]; ++row) {
    for (int64_t column = 0; column < matrix[1]; ++column, ++i) {
      mask.whole[static_cast<size_t>(i)] = is_upper ? column - row >= k : column - row <= k;
    }
  }
  ValueId zero = call.build.Scalar(0, call.build.dtype(call.In(0)));
  return Outputs{HONE_TRY(call.build.Select(call.build.Constant(mask), call.In(0), zero))};
}

}  // namespace

std::vector<Operator> MovementOperators() {
  return {{"Constant", 0, ConstantOf},
          {"ConstantOfShape", 1, ConstantOfShape},
          {"Shape", 1, ShapeOf},
          {"Size", 1, SizeOf},
          {"Range", 3, Range},
          {"Reshape", 2, Reshape},
          {"Flatten", 1, Flatten},
          {"Squeeze", 1, Squeeze},
          {"Unsqueeze", 1, Unsqueeze},
          {"Transpose", 1, Transpose},
          {"Expand", 2, Expand},
          {"Tile", 2, Tile},
          {"Slice", 1, Slice},
          {"Split", 1, Split},
          {"Concat", 1, Concat},
          {"Pad", 1, Pad},
          {"Gather", 2, Gather},
          {"GatherElements", 2, Gather},
          {"DepthToSpace", 1, DepthToSpace},
          {"SpaceToDepth", 1, SpaceToDepth},
          {"Trilu", 1, Trilu}};
}

}  // namespace hone
