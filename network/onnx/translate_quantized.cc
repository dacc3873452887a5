// Numbers as narrow integers with a scale and a zero point.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/graph/dtype_traits.h"
#include "ir/graph/element.h"
#include "network/graph/walk.h"
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
      wanted[static_cast<size_t>(axis)] = (x[static_cast<size_t>(axis)] + block - 1) / block;
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
int64_t Quantized(double x, double scale, int64_t zero, DType dtype) {
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

Result<Outputs> QuantizeLinear(OperatorCall& call) {
  DType dtype = DType::kU8;
  if (call.Has(2)) {
    dtype = call.build.dtype(call.In(2));
  } else if (const int64_t wanted = call.Whole("output_dtype", 0); wanted != 0) {
    const std::optional<DType> known = ElementTypeOf(wanted);
    if (!known) return call.build.Unsupported(fmt::format("ONNX's element type {}", wanted));
    dtype = *known;
  }
  if (IsFloat(dtype) || dtype == DType::kBool) return call.build.Invalid("it wants a type of whole numbers");
  HONE_TRY(CheckZeroPoint(call, 2, 1));
  const Shape x = call.shape(0);
  const Parameters parameters = HONE_TRY(Parameters::Of(call, x, call.shape(1)));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, x);
    for (size_t i = 0; i < out.whole.size(); ++i) {
      const size_t at = parameters.At(i);
      out.whole[i] = Quantized(in[0]->RealAt(i), in[1]->RealAt(at), in.size() > 2 ? in[2]->whole[at] : 0, dtype);
    }
    return std::vector{std::move(out)};
  };
  std::vector<ValueId> inputs = {call.In(0), call.In(1)};
  if (call.Has(2)) inputs.push_back(call.In(2));
  return call.build.Host({"QuantizeLinear", {{dtype, x}}, compute}, inputs);
}

Result<Outputs> DequantizeLinear(OperatorCall& call) {
  const DType dtype = call.build.dtype(call.In(1));
  if (!IsFloat(dtype) || IsFloat(call.build.dtype(call.In(0))))
    return call.build.Invalid("it wants whole numbers and a scale of floats");
  HONE_TRY(CheckZeroPoint(call, 2, 1));
  const Shape x = call.shape(0);
  const Parameters parameters = HONE_TRY(Parameters::Of(call, x, call.shape(1)));
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
  return call.build.Host({"DequantizeLinear", {{dtype, x}}, compute}, inputs);
}

// The range of what comes, 0 included, on 256 steps: values, scale, zero point.
Result<Outputs> DynamicQuantizeLinear(OperatorCall& call) {
  const Shape x = call.shape(0);
  if (call.build.dtype(call.In(0)) != DType::kF32) return call.build.Invalid("it wants f32");
  auto compute = [=](Arguments in) -> Computed {
    double least = 0, most = 0;
    for (double value : in[0]->real) {
      least = std::min(least, value);
      most = std::max(most, value);
    }
    Numbers out = MakeNumbers(DType::kU8, x), scale = MakeNumbers(DType::kF32, {}), zero = MakeNumbers(DType::kU8, {});
    scale.real[0] = RoundedTo(DType::kF32, RoundedTo(DType::kF32, most - least) / 255);
    if (scale.real[0] > 0) {
      zero.whole[0] = Quantized(-least, scale.real[0], 0, DType::kU8);
      for (size_t i = 0; i < out.whole.size(); ++i)
        out.whole[i] = Quantized(in[0]->real[i], scale.real[0], zero.whole[0], DType::kU8);
    }
    return std::vector{std::move(out), std::move(scale), std::move(zero)};
  };
  return call.build.Host({"DynamicQuantizeLinear", {{DType::kU8, x}, {DType::kF32, {}}, {DType::kU8, {}}}, compute},
                         {call.In(0)});
}

// Whole numbers less their zero point (-1: none), in 32 bits. A vector of zero points belongs to rows of the first
// operand and to columns of the second.
Result<ValueId> Centred(OperatorCall& call, ValueId x, ValueId zero, bool by_rows) {
  ValueId wide = HONE_TRY(call.build.Cast(x, DType::kI32));
  if (!zero) return wide;
  ValueId point = HONE_TRY(call.build.Cast(zero, DType::kI32));
  Shape shape = call.build.shape(point);
  if (CountOf(shape) == 1) shape = {};
  if (by_rows && shape.size() == 1) shape.push_back(1);
  point = HONE_TRY(call.build.Reshape(point, shape));
  return call.build.Binary("sub", wide, point);
}

Result<ValueId> WholeProduct(OperatorCall& call, size_t a, size_t a_zero, size_t b, size_t b_zero) {
  if (call.rank(a) < 2 || call.rank(b) < 2) return call.build.Unsupported("a product of whole numbers with a vector");
  auto zero_of = [&](size_t i) { return call.Has(i) ? call.In(i) : ValueId(); };
  Node node;
  node.kind = NodeKind::kMatMul;
  node.inputs = {HONE_TRY(Centred(call, call.In(a), zero_of(a_zero), true)),
                 HONE_TRY(Centred(call, call.In(b), zero_of(b_zero), false))};
  return call.build.Add(std::move(node));
}

Result<Outputs> MatMulInteger(OperatorCall& call) { return Outputs{HONE_TRY(WholeProduct(call, 0, 2, 1, 3))}; }

// The product of whole numbers times a_scale · b_scale / y_scale, quantised.
Result<Outputs> QLinearMatMul(OperatorCall& call) {
  for (size_t i : {1, 4, 6})
    if (CountOf(call.shape(i)) != 1) return call.build.Unsupported("a scale for each row or column");
  ValueId product = HONE_TRY(WholeProduct(call, 0, 2, 3, 5));
  const Shape shape = call.build.shape(product);
  const DType dtype = call.build.dtype(call.In(7));
  if (IsFloat(dtype) || dtype == DType::kBool) return call.build.Invalid("it wants a type of whole numbers");
  if (CountOf(call.shape(7)) != 1) return call.build.Invalid("the zero point of the result is no scalar");
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    const double scale = in[3]->real[0] / (in[1]->real[0] * in[2]->real[0]);
    for (size_t i = 0; i < out.whole.size(); ++i)
      out.whole[i] = Quantized(static_cast<double>(in[0]->whole[i]), scale, in[4]->whole[0], dtype);
    return std::vector{std::move(out)};
  };
  for (size_t i : {1, 4, 6})
    if (!IsFloat(call.build.dtype(call.In(i)))) return call.build.Invalid("its scales are no floats");
  return call.build.Host({"QLinearMatMul", {{dtype, shape}}, compute},
                         {product, call.In(1), call.In(4), call.In(6), call.In(7)});
}

// x, its scale and zero point; w, its scale (one for all, or one an output channel) and zero point; the result's; bias.
Result<Outputs> QLinearConv(OperatorCall& call) {
  ValueId y = HONE_TRY(ConvolveWholes(call, {call.In(0), call.In(2)}, {call.In(3), call.In(5)}, 3));
  const Shape shape = call.build.shape(y);
  const DType dtype = call.build.dtype(call.In(7));
  if (IsFloat(dtype) || dtype == DType::kBool) return call.build.Invalid("it wants a type of whole numbers");
  for (size_t i : {1, 4, 6})
    if (!IsFloat(call.build.dtype(call.In(i)))) return call.build.Invalid("its scales are no floats");
  for (size_t i : {1, 6, 7})
    if (CountOf(call.shape(i)) != 1) return call.build.Invalid("a scale or zero point is no scalar");
  const int64_t channels = shape[1], scales = CountOf(call.shape(4));
  if (scales != 1 && scales != channels)
    return call.build.Invalid(fmt::format("{} scales for {} channels", scales, channels));
  if (call.Has(8) && call.shape(8) != Shape{channels}) return call.build.Invalid("the bias is not one a channel");
  const int64_t plane = shape[0] * channels == 0 ? 1 : std::max<int64_t>(CountOf(shape) / (shape[0] * channels), 1);
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    for (size_t i = 0; i < out.whole.size(); ++i) {
      const auto channel = static_cast<size_t>(static_cast<int64_t>(i) / plane % channels);
      const double bias = in.size() > 5 ? in[5]->RealAt(channel) : 0;
      const double scale = in[3]->real[0] / (in[1]->real[0] * in[2]->real[scales == 1 ? 0 : channel]);
      out.whole[i] = Quantized(in[0]->real[i] + bias, scale, in[4]->whole[0], dtype);
    }
    return std::vector{std::move(out)};
  };
  std::vector<ValueId> inputs = {y, call.In(1), call.In(4), call.In(6), call.In(7)};
  if (call.Has(8)) inputs.push_back(call.In(8));
  return call.build.Host({"QLinearConv", {{dtype, shape}}, compute}, inputs);
}

}  // namespace

std::vector<Operator> QuantizedOperators() {
  return {{"QuantizeLinear", 2, QuantizeLinear},
          {"DequantizeLinear", 2, DequantizeLinear},
          {"DynamicQuantizeLinear", 1, DynamicQuantizeLinear},
          {"MatMulInteger", 2, MatMulInteger},
          {"QLinearConv", 8, QLinearConv},
          {"QLinearMatMul", 8, QLinearMatMul}};
}

}  // namespace hone
