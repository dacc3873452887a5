// Numbers as narrow integers with a scale and a zero point.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/graph/dtype_traits.h"
#include "ir/graph/element.h"
#include "network/graph/quantization.h"
#include "network/graph/walk.h"
#include "network/onnx/small_types.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using Computed = Result<std::vector<Numbers>>;

// Which element of a scale belongs to element i of a tensor: one for all, one for each index along an axis, or one for
// each block along it.
class Parameters {
 public:
  static Result<Parameters> Of(const OperatorCall& call, const Shape& x, const Shape& scale) {
    Parameters all;
    const auto rank = static_cast<int64_t>(x.size());
    if (CountOf(scale) == 1) return all;
    const int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", 1), rank));
    all.strides_ = evaluating::StridesOf(x);
    all.x_ = x;
    all.steps_.assign(x.size(), 0);
    all.blocks_.assign(x.size(), 1);
    if (const int64_t block = call.Whole("block_size", 0); block > 0) {
      Shape wanted = x;
      const int64_t extent = x[static_cast<size_t>(axis)];
      wanted[static_cast<size_t>(axis)] = extent == 0 ? 0 : (extent - 1) / block + 1;
      if (scale != wanted)
        return call.build.Invalid(fmt::format("a scale of {}, wanted {}", ShapeText(scale), ShapeText(wanted)));
      all.steps_ = evaluating::StridesOf(scale);
      all.blocks_[static_cast<size_t>(axis)] = block;
      return all;
    }
    if (scale != Shape{x[static_cast<size_t>(axis)]})
      return call.build.Invalid(
          fmt::format("a scale of {} along dimension {} of {}", ShapeText(scale), axis, ShapeText(x)));
    all.steps_[static_cast<size_t>(axis)] = 1;
    return all;
  }

  size_t At(size_t i) const {
    int64_t at = 0;
    for (size_t d = 0; d < steps_.size(); ++d)
      at += static_cast<int64_t>(i) / strides_[d] % x_[d] / blocks_[d] * steps_[d];
    return static_cast<size_t>(at);
  }

 private:
  Shape x_;
  std::vector<int64_t> strides_, steps_, blocks_;
};

// To the nearest whole number, ties to even, kept inside the type.
int64_t Rounded(double x, double scale, int64_t zero, DType dtype) {
  const double value = std::nearbyint(RoundedTo(DType::kF32, x / scale)) + static_cast<double>(zero);
  const DTypeTraits& traits = TraitsOf(dtype);
  if (std::isnan(value)) return zero;
  return static_cast<int64_t>(
      std::clamp(value, static_cast<double>(traits.lowest), static_cast<double>(traits.highest)));
}

Result<void> CheckZeroPoint(const OperatorCall& call, size_t zero, size_t scale) {
  if (!call.Has(zero) || call.shape(zero) == call.shape(scale)) return {};
  if (CountOf(call.shape(zero)) == 1 && CountOf(call.shape(scale)) == 1) return {};
  return call.build.Invalid(
      fmt::format("a zero point of {} for a scale of {}", ShapeText(call.shape(zero)), ShapeText(call.shape(scale))));
}

// Scales must be positive numbers; what is computed when the network runs is taken as it comes.
// `has_sign`: those of blocks may be negative or zero, as onnxruntime's quantiser of few bits writes them.
Result<void> CheckScale(OperatorCall& call, size_t i, bool has_sign = false) {
  if (!IsFloat(call.build.dtype(call.In(i)))) return call.build.Invalid("a scale that is no float");
  const Numbers* known = call.build.graph().TryElements(call.In(i));
  if (known == nullptr) return {};
  for (double scale : known->real)
    if (!std::isfinite(scale) || (scale <= 0 && !has_sign))
      return call.build.Invalid(fmt::format("a scale of {}, wanted a {}number", scale, has_sign ? "" : "positive "));
  return {};
}

// Whether kernels compute with these whole numbers; onnxruntime's tools make no others.
bool IsPlain(DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8 || dtype == DType::kI32; }

// Scale and zero point i and i + 1 of a tensor: one for all, or a vector along `axis`.
Result<Quantized> ParametersOf(OperatorCall& call, ValueId x, size_t i, int64_t axis) {
  HONE_TRY(CheckScale(call, i));
  Quantized parameters{x, call.In(i), {}, DType::kU8};  // a zero point of 0 is none
  HONE_TRY(CheckZeroPoint(call, i + 1, i));
  Shape shape;
  if (CountOf(call.shape(i)) != 1) {
    const Shape& own = call.build.shape(x);
    axis = HONE_TRY(call.Axis(axis, static_cast<int64_t>(own.size())));
    if (call.shape(i) != Shape{own[static_cast<size_t>(axis)]})
      return call.build.Invalid(
          fmt::format("a scale of {} along dimension {} of {}", ShapeText(call.shape(i)), axis, ShapeText(own)));
    shape.assign(own.size() - static_cast<size_t>(axis), 1);
    shape[0] = call.shape(i)[0];
  }
  parameters.scale = HONE_TRY(call.build.Cast(HONE_TRY(call.build.Reshape(parameters.scale, shape)), DType::kF32));
  if (call.Has(i + 1)) {
    const Numbers* known = call.build.graph().TryElements(call.In(i + 1));
    const bool is_nothing =
        known != nullptr && std::all_of(known->whole.begin(), known->whole.end(), [](int64_t z) { return z == 0; });
    if (!is_nothing) parameters.zero = HONE_TRY(call.build.Reshape(call.In(i + 1), shape));
  }
  return parameters;
}

Result<ValueId> Quantized8(OperatorCall& call, ValueId x, size_t scale, DType dtype, int64_t axis) {
  Quantized parameters = HONE_TRY(ParametersOf(call, x, scale, axis));
  parameters.type = dtype;
  return Quantize(call.build, parameters);
}

// Operand x, whose scale and zero point are i and i + 1, as floats.
Result<ValueId> Dequantized(OperatorCall& call, size_t x, size_t i, int64_t axis, DType to = DType::kF32) {
  const DType dtype = call.build.dtype(call.In(x));
  if (!IsPlain(dtype)) return call.build.Unsupported(fmt::format("quantised numbers of {}", Name(dtype)));
  if (call.Has(i + 1) && call.build.dtype(call.In(i + 1)) != dtype)
    return call.build.Invalid(
        fmt::format("a zero point of {} for {}, wanted one type", Name(call.build.dtype(call.In(i + 1))), Name(dtype)));
  Quantized q = HONE_TRY(ParametersOf(call, call.In(x), i, axis));
  if (q.zero && dtype == DType::kI32 && call.build.graph().is_constant(q.zero))
    return call.build.Invalid("a zero point that is not 0, of whole numbers of 32 bits");
  return Dequantize(call.build, q, to);
}

// Bytes with a scale, and a zero point if there is one, for each block of them along an axis that the block divides: as
// with dimensions of their own for the blocks and for what is in one. none: other numbers, blocks that end early.
Result<ValueId> DequantizedInBlocks(OperatorCall& call, DType to) {
  Builder& build = call.build;
  const Shape x = call.shape(0);
  const auto axis = static_cast<size_t>(HONE_TRY(call.Axis(call.Whole("axis", 1), static_cast<int64_t>(x.size()))));
  const int64_t block = call.Whole("block_size", 0);
  Shape cut = x;
  cut[axis] /= block;
  cut.insert(cut.begin() + static_cast<std::ptrdiff_t>(axis) + 1, block);
  if (!IsByte(build.dtype(call.In(0))) || x[axis] % block != 0 || !CheckShape(cut)) return ValueId();
  if (call.Has(2) && build.dtype(call.In(2)) != build.dtype(call.In(0)))
    return build.Invalid("a zero point of another type than the numbers'");
  Shape one = cut;
  one[axis + 1] = 1;
  if (CountOf(call.shape(1)) != CountOf(one)) return ValueId();  // one for all
  Quantized q{HONE_TRY(build.Reshape(call.In(0), cut)), {}, {}, build.dtype(call.In(0))};
  q.scale = HONE_TRY(build.Cast(HONE_TRY(build.Reshape(call.In(1), one)), DType::kF32));
  if (call.Has(2)) q.zero = HONE_TRY(build.Reshape(call.In(2), one));
  return build.Reshape(HONE_TRY(Dequantize(build, q, to)), x);
}

}  // namespace

Result<ValueId> BlockOfEach(Builder& build, int64_t extent, int64_t block) {
  constexpr int64_t kMost = int64_t{1} << 24;
  if (extent > kMost)
    return Error{ErrorKind::kLimit, fmt::format("blocks along {} elements; hone's limit is {}", extent, kMost), ""};
  std::vector<int64_t> blocks;
  for (int64_t k = 0; k < extent; ++k) blocks.push_back(k / block);
  return build.Constant(WholeNumbers(blocks, {extent}));
}

namespace {

// Scale or zero point i of x, which Parameters takes, as it broadcasts to x; one of blocks for each element along them.
Result<ValueId> Spread(OperatorCall& call, size_t i) {
  Builder& build = call.build;
  const Shape x = call.shape(0), own = call.shape(i);
  if (CountOf(own) == 1) return build.Reshape(call.In(i), {});
  const int64_t axis = HONE_TRY(call.Axis(call.Whole("axis", 1), call.rank(0))), extent = x[static_cast<size_t>(axis)];
  if (const int64_t block = call.Whole("block_size", 0); block > 0) {
    return build.Gather(call.In(i), HONE_TRY(BlockOfEach(build, extent, block)), axis);
  }
  Shape shape(x.size() - static_cast<size_t>(axis), 1);
  shape[0] = extent;
  return build.Reshape(call.In(i), shape);
}

// Floats have a zero point for its type alone.
Result<void> CheckIsZero(OperatorCall& call, size_t i) {
  if (call.Has(i) && !IsFloat(call.build.dtype(call.In(i))))
    return call.build.Invalid("a zero point of whole numbers, of floats");
  const Numbers* known = call.Has(i) ? call.build.graph().TryElements(call.In(i)) : nullptr;
  if (known == nullptr || std::all_of(known->real.begin(), known->real.end(), [](double z) { return z == 0; }))
    return {};
  return call.build.Invalid("a zero point that is not 0, of floats");
}

// To a type of fewer bits than kernels know.
Result<Outputs> QuantizeSmall(OperatorCall& call, const SmallType& type) {
  Builder& build = call.build;
  HONE_TRY(CheckScale(call, 1));
  HONE_TRY(CheckZeroPoint(call, 2, 1));
  HONE_TRY(Parameters::Of(call, call.shape(0), call.shape(1)));
  if (call.Has(2) && build.dtype(call.In(2)) != type.held_as) return build.Invalid("a zero point of another type");
  const ValueId x = HONE_TRY(build.Cast(call.In(0), DType::kF32));
  const ValueId scale = HONE_TRY(build.Cast(HONE_TRY(Spread(call, 1)), DType::kF32));
  if (type.is_float()) {
    HONE_TRY(CheckIsZero(call, 2));
    SmallRounding rounding{call.Whole("saturate", 1) != 0, SmallRounding::Mode::kNearest};
    return Outputs{HONE_TRY(CastTo(build, type, HONE_TRY(build.Binary("div", x, scale)), rounding))};
  }
  const ValueId zero = call.Has(2) ? HONE_TRY(Spread(call, 2)) : ValueId();
  ValueId y = HONE_TRY(Quantize(build, {x, scale, zero, type.held_as}));
  y = HONE_TRY(build.Binary("max", y, build.Scalar(static_cast<double>(type.lowest()), type.held_as)));
  return Outputs{HONE_TRY(build.Binary("min", y, build.Scalar(static_cast<double>(type.highest()), type.held_as)))};
}

Result<Outputs> QuantizeLinear(OperatorCall& call) {
  DType dtype = DType::kU8;
  if (const int64_t wanted = call.Whole("output_dtype", 0); wanted != 0) {
    if (const SmallType* small = SmallTypeOf(wanted); small != nullptr) return QuantizeSmall(call, *small);
    const std::optional<DType> known = ElementTypeOf(wanted);
    if (!known) return call.build.Unsupported(fmt::format("ONNX's element type {}", wanted));
    dtype = *known;
  }
  if (call.Has(2)) dtype = call.build.dtype(call.In(2));
  if (IsFloat(dtype) || dtype == DType::kBool) return call.build.Invalid("it wants a type of whole numbers");
  HONE_TRY(CheckScale(call, 1));
  HONE_TRY(CheckZeroPoint(call, 2, 1));
  const Shape x = call.shape(0);
  const Parameters parameters = HONE_TRY(Parameters::Of(call, x, call.shape(1)));
  if (IsPlain(dtype) && call.Whole("block_size", 0) == 0 && IsFloat(call.build.dtype(call.In(0))))
    return Outputs{HONE_TRY(Quantized8(call, call.In(0), 1, dtype, call.Whole("axis", 1)))};
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, x);
    for (size_t i = 0; i < out.whole.size(); ++i) {
      const size_t at = parameters.At(i);
      out.whole[i] = Rounded(in[0]->RealAt(i), in[1]->RealAt(at), in.size() > 2 ? in[2]->whole[at] : 0, dtype);
    }
    return std::vector{std::move(out)};
  };
  std::vector<ValueId> inputs = {call.In(0), call.In(1)};
  if (call.Has(2)) inputs.push_back(call.In(2));
  return call.build.Host({"QuantizeLinear", ".rw", {{dtype, x}}, compute}, inputs);
}

Result<Outputs> DequantizeLinear(OperatorCall& call) {
  const DType dtype = call.build.dtype(call.In(1));
  if (!IsFloat(dtype)) return call.build.Invalid("it wants a scale of floats");
  HONE_TRY(CheckScale(call, 1, call.Whole("block_size", 0) > 0));
  HONE_TRY(CheckZeroPoint(call, 2, 1));
  const Shape x = call.shape(0);
  const Parameters parameters = HONE_TRY(Parameters::Of(call, x, call.shape(1)));
  if (IsFloat(call.build.dtype(call.In(0)))) {  // of 8 bits and fewer
    HONE_TRY(CheckIsZero(call, 2));
    const ValueId scale = HONE_TRY(call.build.Cast(HONE_TRY(Spread(call, 1)), DType::kF32));
    const ValueId y = HONE_TRY(call.build.Binary("mul", call.In(0), scale));
    return Outputs{HONE_TRY(call.build.Cast(y, dtype))};
  }
  if (IsPlain(call.build.dtype(call.In(0))) && call.Whole("block_size", 0) == 0)
    return Outputs{HONE_TRY(Dequantized(call, 0, 1, call.Whole("axis", 1), dtype))};
  if (call.Whole("block_size", 0) > 0)
    if (const ValueId y = HONE_TRY(DequantizedInBlocks(call, dtype))) return Outputs{y};
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, x);
    for (size_t i = 0; i < out.real.size(); ++i) {
      const size_t at = parameters.At(i);
      const int64_t zero = in.size() > 2 ? in[2]->whole[at] : 0;
      out.real[i] = static_cast<double>(in[0]->whole[i] - zero) * in[1]->real[at];
    }
    return std::vector{std::move(out)};
  };
  std::vector<ValueId> inputs = {call.In(0), call.In(1)};
  if (call.Has(2)) inputs.push_back(call.In(2));
  return call.build.Host({"DequantizeLinear", "wrw", {{dtype, x}}, compute}, inputs);
}

// The range of what comes, 0 included, on 256 steps: values, scale, zero point. Of nothing but zeros the scale is 1, as
// in onnxruntime: ONNX's formula divides 0 by 0.
Result<Outputs> DynamicQuantizeLinear(OperatorCall& call) {
  Builder& build = call.build;
  const ValueId x = call.In(0);
  if (build.dtype(x) != DType::kF32) return build.Invalid("it wants f32");
  std::vector<int64_t> axes(call.shape(0).size());
  std::iota(axes.begin(), axes.end(), 0);
  const ValueId zero = build.Scalar(0, DType::kF32);
  auto end = [&](std::string_view function) -> Result<ValueId> {
    const ValueId extreme = HONE_TRY(build.Reduce(function, x, axes));
    return build.Binary(function, HONE_TRY(build.Reshape(extreme, {})), zero);
  };
  const ValueId least = HONE_TRY(end("min")), most = HONE_TRY(end("max"));
  const ValueId range = HONE_TRY(build.Binary("sub", most, least));
  const ValueId step = HONE_TRY(build.Binary("div", range, build.Scalar(255, DType::kF32)));
  const ValueId scale =
      HONE_TRY(build.Select(HONE_TRY(build.Binary("eq", range, zero)), build.Scalar(1, DType::kF32), step));
  const ValueId point = HONE_TRY(Quantize(build, {HONE_TRY(build.Unary("neg", least)), scale, {}, DType::kU8}));
  return Outputs{HONE_TRY(Quantize(build, {x, scale, point, DType::kU8})), scale, point};
}

// ---- Products of whole numbers

// Operand x less its zero point (which may be missing), in 32 bits. A vector of zero points belongs to a dimension.
Result<ValueId> CentredOperand(OperatorCall& call, size_t x, size_t zero, size_t dimension) {
  const DType dtype = call.build.dtype(call.In(x));
  if (dimension >= call.shape(x).size())
    return call.build.Invalid(fmt::format("it multiplies {}, wanted a matrix or more", ShapeText(call.shape(x))));
  if (dtype != DType::kU8 && dtype != DType::kI8)
    return call.build.Invalid(fmt::format("it multiplies {}, wanted bytes", Name(dtype)));
  if (!call.Has(zero)) return Centre(call.build, call.In(x), {});
  Shape shape = call.shape(zero);
  if (CountOf(shape) == 1) {
    shape = {};
  } else if (shape.size() == 1) {
    const Shape& own = call.shape(x);
    if (own[dimension] != shape[0])
      return call.build.Invalid(fmt::format("{} zero points for {}", shape[0], ShapeText(own)));
    shape.assign(own.size() - dimension, 1);
    shape[0] = own[dimension];
  }
  return Centre(call.build, call.In(x), HONE_TRY(call.build.Reshape(call.In(zero), shape)));
}

Result<Outputs> MatMulInteger(OperatorCall& call) {
  const size_t rows = call.rank(0) < 2 ? 0 : call.shape(0).size() - 2;  // of a vector its one dimension
  const ValueId a = HONE_TRY(CentredOperand(call, 0, 2, rows));
  const ValueId b = HONE_TRY(CentredOperand(call, 1, 3, std::max<size_t>(call.shape(1).size(), 1) - 1));
  return Outputs{HONE_TRY(Apply(call, "MatMul", {a, b}))};
}

// onnxruntime's, of 16 bits.
Result<Outputs> MatMulInteger16(OperatorCall& call) {
  std::vector<ValueId> operands;
  for (size_t i : {0, 1}) {
    const DType dtype = call.build.dtype(call.In(i));
    if (dtype != DType::kI16 && dtype != DType::kU16)
      return call.build.Invalid(fmt::format("it multiplies {}, wanted whole numbers of 16 bits", Name(dtype)));
    operands.push_back(HONE_TRY(call.build.Cast(call.In(i), DType::kI32)));
  }
  return Outputs{HONE_TRY(Apply(call, "MatMul", std::move(operands)))};
}

Result<Outputs> ConvInteger(OperatorCall& call) {
  const ValueId x = HONE_TRY(CentredOperand(call, 0, 2, 1)), w = HONE_TRY(CentredOperand(call, 1, 3, 0));
  return Outputs{HONE_TRY(Apply(call, "Conv", {x, w}))};
}

// onnxruntime's: the product of bytes as floats, with a bias.
Result<Outputs> MatMulIntegerToFloat(OperatorCall& call) {
  for (size_t i : {2, 3}) HONE_TRY(CheckScale(call, i));
  const ValueId a = HONE_TRY(CentredOperand(call, 0, 4, call.shape(0).size() - 2));
  const ValueId b = HONE_TRY(CentredOperand(call, 1, 5, call.shape(1).size() - 1));
  ValueId y = HONE_TRY(call.build.Cast(HONE_TRY(Apply(call, "MatMul", {a, b})), DType::kF32));
  y = HONE_TRY(call.build.Binary("mul", y, HONE_TRY(call.build.Binary("mul", call.In(2), call.In(3)))));
  if (call.Has(6)) y = HONE_TRY(call.build.Binary("add", y, call.In(6)));
  return Outputs{y};
}

// onnxruntime's: of floats, which become bytes first, and bytes: a, b, scale and zero point of b, a bias.
Result<Outputs> DynamicQuantizeMatMul(OperatorCall& call) {
  OperatorCall first(call.build.graph(), call.node(), {call.In(0)}, call.opset());
  const Outputs a = HONE_TRY(DynamicQuantizeLinear(first));
  std::vector<ValueId> inputs = {a[0], call.In(1), a[1], call.In(2), a[2]};
  for (size_t i : {3, 4}) inputs.push_back(call.Has(i) ? call.In(i) : ValueId());
  return Outputs{HONE_TRY(Apply(call, "com.microsoft.MatMulIntegerToFloat", std::move(inputs)))};
}

// ---- An operator on dequantised operands, whose result is quantised: network/graph/fold_quantized finds it again

Result<Outputs> Requantized(OperatorCall& call, ValueId y, size_t scale, int64_t axis = 0) {
  if (!call.Has(scale + 1)) return Outputs{HONE_TRY(Quantized8(call, y, scale, DType::kU8, axis))};
  const DType dtype = call.build.dtype(call.In(scale + 1));
  if (dtype != DType::kU8 && dtype != DType::kI8)
    return call.build.Invalid(fmt::format("a zero point of {}, wanted one of bytes", Name(dtype)));
  return Outputs{HONE_TRY(Quantized8(call, y, scale, dtype, axis))};
}

// A bias of 32 bits, whose scale is the product of two others.
Result<ValueId> DequantizedBias(OperatorCall& call, size_t bias, size_t x_scale, size_t w_scale, double factor) {
  if (call.build.dtype(call.In(bias)) != DType::kI32) return call.build.Invalid("its bias is not of 32 bits");
  ValueId scale =
      HONE_TRY(call.build.Binary("mul", HONE_TRY(call.build.Reshape(call.In(x_scale), {})), call.In(w_scale)));
  if (factor != 1) scale = HONE_TRY(call.build.Binary("mul", scale, call.build.Scalar(factor, DType::kF32)));
  if (CountOf(call.build.shape(scale)) == 1) scale = HONE_TRY(call.build.Reshape(scale, {}));
  return Dequantize(call.build, {call.In(bias), scale, {}, DType::kI32}, DType::kF32);
}

// x, its scale and zero point; w, its scale (one for all, or one an output channel) and zero point; the result's; bias.
Result<Outputs> QLinearConv(OperatorCall& call) {
  for (size_t i : {1, 6})
    if (CountOf(call.shape(i)) != 1) return call.build.Invalid("a scale or zero point is no scalar");
  std::vector<ValueId> inputs = {HONE_TRY(Dequantized(call, 0, 1, 1)), HONE_TRY(Dequantized(call, 3, 4, 0))};
  if (call.Has(8)) inputs.push_back(HONE_TRY(DequantizedBias(call, 8, 1, 4, 1)));
  return Requantized(call, HONE_TRY(Apply(call, "Conv", std::move(inputs))), 6);
}

Result<Outputs> QLinearMatMul(OperatorCall& call) {
  const ValueId a = HONE_TRY(Dequantized(call, 0, 1, -2)), b = HONE_TRY(Dequantized(call, 3, 4, -1));
  return Requantized(call, HONE_TRY(Apply(call, "MatMul", {a, b})), 6);
}

// onnxruntime's: alpha·A·B + C; floats where no scale of the result is given.
Result<Outputs> QGemm(OperatorCall& call) {
  const int64_t channel = call.Whole("transB", 0) != 0 ? 0 : 1;
  std::vector<ValueId> inputs = {HONE_TRY(Dequantized(call, 0, 1, 1)), HONE_TRY(Dequantized(call, 3, 4, channel))};
  if (call.Has(6)) inputs.push_back(HONE_TRY(DequantizedBias(call, 6, 1, 4, call.Real("alpha", 1))));
  const ValueId y = HONE_TRY(Apply(call, "Gemm", std::move(inputs)));
  return call.Has(7) ? Requantized(call, y, 7) : Outputs{y};
}

// Images [N, …, C] with their channels first, or back.
Result<ValueId> WithChannels(Builder& build, ValueId x, bool is_first) {
  const auto rank = static_cast<int64_t>(build.shape(x).size());
  if (rank < 3) return build.Invalid("it wants images");
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + 1, is_first ? order.end() - 1 : order.begin() + 2, order.end());
  return build.Transpose(x, std::move(order));
}

// onnxruntime's QLinearAdd and so on: an operator of one or two operands, each with scale and zero point, then the
// result's.
template <size_t kOperands>
Result<Outputs> QLinear(OperatorCall& call) {
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < kOperands; ++i) {
    if (!call.Has(3 * i) || !call.Has(3 * i + 1)) return call.build.Invalid("an operand or a scale is missing");
    inputs.push_back(HONE_TRY(Dequantized(call, 3 * i, 3 * i + 1, 0)));
  }
  if (!call.Has(3 * kOperands)) return call.build.Invalid("the result's scale is missing");
  const bool is_last = call.Whole("channels_last", 0) != 0;  // of pools
  if (is_last) inputs[0] = HONE_TRY(WithChannels(call.build, inputs[0], true));
  const std::string op = call.node().op.substr(std::string_view("QLinear").size());
  ValueId y = HONE_TRY(Apply(call, op, std::move(inputs)));
  if (is_last) y = HONE_TRY(WithChannels(call.build, y, false));
  return Requantized(call, y, 3 * kOperands);
}

// A condition, and then two operands.
Result<Outputs> QLinearWhere(OperatorCall& call) {
  const ValueId a = HONE_TRY(Dequantized(call, 1, 2, 0)), b = HONE_TRY(Dequantized(call, 4, 5, 0));
  return Requantized(call, HONE_TRY(Apply(call, "Where", {call.In(0), a, b})), 7);
}

// Here the result's come first.
Result<Outputs> QLinearConcat(OperatorCall& call) {
  std::vector<ValueId> inputs;
  for (size_t i = 2; i + 1 < call.input_count(); i += 3) {
    if (!call.Has(i) || !call.Has(i + 1)) return call.build.Invalid("an operand or a scale is missing");
    inputs.push_back(HONE_TRY(Dequantized(call, i, i + 1, 0)));
  }
  return Requantized(call, HONE_TRY(Apply(call, "Concat", std::move(inputs))), 0);
}

}  // namespace

std::vector<Operator> QuantizedOperators() {
  std::vector<Operator> table = {{"QuantizeLinear", 2, QuantizeLinear},
                                 {"DequantizeLinear", 2, DequantizeLinear},
                                 {"com.microsoft.QuantizeLinear", 2, QuantizeLinear},
                                 {"com.microsoft.DequantizeLinear", 2, DequantizeLinear},
                                 {"DynamicQuantizeLinear", 1, DynamicQuantizeLinear},
                                 {"MatMulInteger", 2, MatMulInteger},
                                 {"com.microsoft.MatMulInteger16", 2, MatMulInteger16},
                                 {"ConvInteger", 2, ConvInteger},
                                 {"com.microsoft.MatMulIntegerToFloat", 4, MatMulIntegerToFloat},
                                 {"com.microsoft.DynamicQuantizeMatMul", 3, DynamicQuantizeMatMul},
                                 {"com.microsoft.QLinearWhere", 9, QLinearWhere},
                                 {"QLinearConv", 8, QLinearConv},
                                 {"QLinearMatMul", 8, QLinearMatMul},
                                 {"com.microsoft.QGemm", 6, QGemm},
                                 {"com.microsoft.QLinearConcat", 5, QLinearConcat}};
  for (std::string_view op : {"com.microsoft.QLinearAdd", "com.microsoft.QLinearMul"})
    table.push_back({op, 7, QLinear<2>});
  for (std::string_view op :
       {"com.microsoft.QLinearGlobalAveragePool", "com.microsoft.QLinearAveragePool", "com.microsoft.QLinearSigmoid",
        "com.microsoft.QLinearLeakyRelu", "com.microsoft.QLinearSoftmax"})
    table.push_back({op, 4, QLinear<1>});
  return table;
}

}  // namespace hone
