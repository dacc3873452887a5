// Signals: Fourier transforms, windows, mel weights.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>

#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using evaluating::Lines;
using Computed = Result<std::vector<Numbers>>;

// a − b·cos(2πi/N) + c·cos(4πi/N)
Result<Outputs> SignalWindow(OperatorCall& call) {
  const double size = HONE_TRY(call.OneNumber(0, "its size"));
  if (!(size >= 0 && size <= 1e8)) return call.build.Invalid(fmt::format("a window of {}", size));
  const std::string& op = call.node().op;
  const double a = op == "BlackmanWindow" ? 0.42 : op == "HannWindow" ? 0.5 : 25.0 / 46;
  const double b = op == "BlackmanWindow" ? 0.5 : 1 - a, c = op == "BlackmanWindow" ? 0.08 : 0;
  const double period = call.Whole("periodic", 1) != 0 ? size : size - 1;
  const std::optional<DType> wanted = ElementTypeOf(call.Whole("output_datatype", 1));
  if (!wanted || !IsFloat(*wanted))
    return call.build.Unsupported(fmt::format("ONNX's element type {}", call.Whole("output_datatype", 1)));
  const DType dtype = *wanted;
  Numbers numbers = MakeNumbers(dtype, {static_cast<int64_t>(size)});
  for (size_t i = 0; i < numbers.real.size(); ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / period;
    numbers.real[i] = a - b * std::cos(angle) + c * std::cos(2 * angle);
  }
  return Outputs{call.build.Constant(numbers)};
}

struct Transform {
  int64_t axis = 0, length = 1;
  bool is_inverse = false;

  // What element n adds to element k.
  std::complex<double> Factor(int64_t n, int64_t k) const {
    const double turn = static_cast<double>(k * n % length) / static_cast<double>(length);
    const std::complex<double> factor = std::polar(1.0, (is_inverse ? 2 : -2) * std::numbers::pi * turn);
    return is_inverse ? factor / static_cast<double>(length) : factor;
  }
};

constexpr int64_t kMostFactors = int64_t{1} << 22;

// x[…, n along the axis, …, parts] times factors[to·parts of the result, from·parts], which takes the first `from`
// elements.
Result<Outputs> Along(Builder& build, ValueId value, size_t axis, int64_t from, const Numbers& factors,
                      int64_t to_parts) {
  const Shape x = build.shape(value);
  const int64_t parts = x.back();
  if (from < x[axis]) value = HONE_TRY(build.Slice(value, axis, 0, from));
  // The dimension next to the last one, and back; the exchange is its own inverse.
  std::vector<int64_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[axis], order[x.size() - 2]);
  value = HONE_TRY(build.Transpose(value, order));
  Shape moved = build.shape(value);
  value = HONE_TRY(build.Reshape(value, {CountOf(moved) / (from * parts), from * parts}));
  value = HONE_TRY(build.MatMul(value, build.Constant(factors), true));
  moved[x.size() - 2] = factors.shape[0] / to_parts;
  moved.back() = to_parts;
  return Outputs{HONE_TRY(build.Transpose(HONE_TRY(build.Reshape(value, moved)), order))};
}

// As a product with a matrix of all factors, real and imaginary parts side by side.
Result<Outputs> FourierByMatrix(OperatorCall& call, const Transform& transform, const Shape& shape) {
  const Shape x = call.shape(0);
  const auto axis = static_cast<size_t>(transform.axis);
  const int64_t parts = x.back(), from = std::min(x[axis], transform.length), to = shape[axis];
  Numbers factors = MakeNumbers(call.build.dtype(call.In(0)), {to * 2, from * parts});
  for (int64_t k = 0; k < to; ++k) {
    for (int64_t n = 0; n < from; ++n) {
      const std::complex<double> factor = transform.Factor(n, k);
      const auto real = static_cast<size_t>((2 * k * from + n) * parts);
      const auto imaginary = real + static_cast<size_t>(from * parts);
      factors.real[real] = factor.real();
      factors.real[imaginary] = factor.imag();
      if (parts == 1) continue;
      factors.real[real + 1] = -factor.imag();
      factors.real[imaginary + 1] = factor.real();
    }
  }
  return Along(call.build, call.In(0), axis, from, factors, 2);
}

// Real elements from the lower half of their transform; the upper half is its mirror's conjugate.
Result<Outputs> RealInverse(OperatorCall& call, size_t axis, int64_t length) {
  const Shape x = call.shape(0);
  if (x.back() != 2) return call.build.Invalid("its last dimension is not 2");
  const int64_t from = std::min(x[axis], length / 2 + 1);
  if (from < 1 || 2 * from * length > kMostFactors)
    return call.build.Unsupported(fmt::format("the inverse of one side of {} elements", length));
  Numbers factors = MakeNumbers(call.build.dtype(call.In(0)), {length, from * 2});
  const Transform transform{static_cast<int64_t>(axis), length, true};
  for (int64_t k = 0; k < length; ++k) {
    for (int64_t n = 0; n < from; ++n) {
      const double weight = n == 0 || 2 * n == length ? 1 : 2;
      const std::complex<double> factor = weight * transform.Factor(n, k);
      const auto at = static_cast<size_t>((k * from + n) * 2);
      factors.real[at] = factor.real();
      factors.real[at + 1] = -factor.imag();
    }
  }
  return Along(call.build, call.In(0), axis, from, factors, 1);
}

// The discrete Fourier transform along a dimension, by its definition; the last dimension holds real and imaginary
// part.
Result<Outputs> Fourier(OperatorCall& call) {
  const Shape x = call.shape(0);
  const int64_t rank = call.rank(0);
  if (rank < 2 || (x.back() != 1 && x.back() != 2)) return call.build.Invalid("its last dimension is not 1 or 2");
  int64_t axis = call.Whole("axis", call.opset() < 20 ? 1 : -2);
  if (call.Has(2)) {
    const std::vector<int64_t> given = HONE_TRY(call.ConstantInput(2, "the axis"));
    if (given.size() != 1) return call.build.Invalid("the axis is no single number");
    axis = given[0];
  }
  axis = HONE_TRY(call.Axis(axis, rank));
  if (axis == rank - 1) return call.build.Invalid("it transforms the dimension of real and imaginary parts");
  const bool is_inverse = call.Whole("inverse", 0) != 0, is_onesided = call.Whole("onesided", 0) != 0;
  int64_t length = x[static_cast<size_t>(axis)];
  if (is_inverse && is_onesided) length = std::max<int64_t>(2 * (length - 1), 1);
  if (call.Has(1)) {
    const std::vector<int64_t> given = HONE_TRY(call.ConstantInput(1, "the length"));
    if (given.size() != 1 || given[0] < 1 || given[0] > (1 << 20)) return call.build.Invalid("the length cannot be");
    length = given[0];
  }
  Shape shape = x;
  shape[static_cast<size_t>(axis)] = is_onesided ? length / 2 + 1 : length;
  shape.back() = 2;
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype)) return call.build.Invalid("it wants floats");
  if (is_inverse && is_onesided) return RealInverse(call, static_cast<size_t>(axis), length);
  const Transform transform{axis, length, is_inverse};
  const int64_t factors =
      2 * shape[static_cast<size_t>(axis)] * std::min(x[static_cast<size_t>(axis)], length) * x.back();
  if (factors <= kMostFactors && CountOf(x) > 0) return FourierByMatrix(call, transform, shape);
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    // Pairs of numbers are complex ones: a line has every second element.
    Shape from_shape(x.begin(), x.end() - 1), to_shape(shape.begin(), shape.end() - 1);
    const Lines from(from_shape, axis), to(to_shape, axis);
    const auto parts = static_cast<size_t>(x.back());
    for (int64_t i = 0; i < to.count(); ++i) {
      for (int64_t k = 0; k < to.extent; ++k) {
        std::complex<double> sum = 0;
        for (int64_t n = 0; n < std::min(from.extent, length); ++n) {
          const size_t at = from.At(i, n) * parts;
          const std::complex<double> value(in[0]->real[at], parts == 2 ? in[0]->real[at + 1] : 0);
          sum += value * transform.Factor(n, k);
        }
        out.real[to.At(i, k) * 2] = sum.real();
        out.real[to.At(i, k) * 2 + 1] = sum.imag();
      }
    }
    return std::vector{std::move(out)};
  };
  const double steps = static_cast<double>(CountOf(shape)) * static_cast<double>(length);
  return call.build.Host({"DFT", "r", {{dtype, shape}}, compute, steps}, {call.In(0)});
}

// Transforms of parts of a real signal that begin `step` elements apart: a convolution whose filters are the window
// times the factors.
Result<Outputs> ShortTimeFourier(OperatorCall& call) {
  Builder& build = call.build;
  const Shape x = call.shape(0);
  if (x.size() != 3 && x.size() != 2) return build.Invalid("it wants a signal of 2 or 3 dimensions");
  if (x.size() == 3 && x[2] != 1) return build.Unsupported("a complex signal");
  const DType dtype = build.dtype(call.In(0));
  if (!IsFloat(dtype)) return build.Invalid("it wants floats");
  auto number = [&](size_t i, std::string_view what) -> Result<int64_t> {
    const std::vector<int64_t> given = HONE_TRY(call.ConstantInput(i, what));
    if (given.size() != 1 || given[0] < 1 || given[0] > (1 << 20))
      return build.Invalid(fmt::format("{} cannot be", what));
    return given[0];
  };
  const int64_t step = HONE_TRY(number(1, "the step"));
  int64_t length = call.Has(3) ? HONE_TRY(number(3, "the length")) : 0;
  if (call.Has(2)) {
    if (call.rank(2) != 1 || (length != 0 && call.shape(2)[0] != length))
      return build.Invalid(fmt::format("a window of {} for parts of {}", ShapeText(call.shape(2)), length));
    length = call.shape(2)[0];
  }
  if (length < 1 || length > x[1]) return build.Invalid(fmt::format("parts of {} of a signal of {}", length, x[1]));
  const int64_t bins = call.Whole("onesided", 1) != 0 ? length / 2 + 1 : length;
  if (2 * bins * length > kMostFactors) return build.Unsupported(fmt::format("parts of {} elements", length));
  Numbers factors = MakeNumbers(dtype, {bins * 2, 1, 1, length});
  const Transform transform{1, length, false};
  for (int64_t k = 0; k < bins; ++k) {
    for (int64_t n = 0; n < length; ++n) {
      const std::complex<double> factor = transform.Factor(n, k);
      factors.real[static_cast<size_t>(2 * k * length + n)] = factor.real();
      factors.real[static_cast<size_t>((2 * k + 1) * length + n)] = factor.imag();
    }
  }
  ValueId filters = build.Constant(factors);
  if (call.Has(2)) filters = HONE_TRY(build.Binary("mul", filters, call.In(2)));
  Node conv;
  conv.kind = NodeKind::kConv;
  conv.window = {1, length};
  conv.stride = {1, step};
  conv.dilation = {1, 1};
  conv.pads = {0, 0, 0, 0};
  conv.inputs = {HONE_TRY(build.Reshape(call.In(0), {x[0], 1, 1, x[1]})), filters};
  ValueId y = HONE_TRY(build.Add(std::move(conv)));
  const int64_t parts = build.shape(y)[3];
  y = HONE_TRY(build.Transpose(HONE_TRY(build.Reshape(y, {x[0], bins * 2, parts})), {0, 2, 1}));
  return Outputs{HONE_TRY(build.Reshape(y, {x[0], parts, bins, 2}))};
}

// Triangles over the bins of a spectrum, equally far apart on the mel scale.
Result<Outputs> MelWeights(OperatorCall& call) {
  double given[5];
  for (size_t i = 0; i < 5; ++i) {
    const Numbers& number = *HONE_TRY(call.Known(i, "one of its numbers"));
    if (CountOf(number.shape) != 1) return call.build.Invalid("its numbers are no scalars");
    given[i] = number.RealAt(0);
  }
  const auto [bands, length, rate, lower, upper] = given;
  if (!(bands >= 1 && bands <= 1e5 && length >= 2 && length <= 1e6 && rate > 0 && lower >= 0 && upper > lower))
    return call.build.Invalid("its numbers cannot be");
  const std::optional<DType> dtype = ElementTypeOf(call.Whole("output_datatype", 1));
  if (!dtype || !IsFloat(*dtype)) return call.build.Unsupported("a result that holds no floats");
  const auto bins = static_cast<int64_t>(length) / 2 + 1, columns = static_cast<int64_t>(bands);
  HONE_TRY(CheckShape({bins, columns}));
  if (bins * columns > (int64_t{1} << 26)) return call.build.Unsupported("weights of more than 2^26 elements");
  auto mel_of = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double step = (mel_of(upper) - mel_of(lower)) / (bands + 2);
  constexpr int64_t kFarthest = int64_t{1} << 52;  // of an edge, in bins; there are far fewer
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < columns + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (mel_of(lower) + static_cast<double>(i) * step) / 2595) - 1);
    const double edge = std::floor((length + 1) * hertz / rate);
    edges.push_back(edge < static_cast<double>(kFarthest) ? static_cast<int64_t>(edge) : kFarthest);
  }
  Numbers out = MakeNumbers(*dtype, {bins, columns});
  auto set = [&](int64_t bin, int64_t column, double weight) {
    if (bin >= 0 && bin < bins) out.real[static_cast<size_t>(bin * columns + column)] = weight;
  };
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t low = edges[static_cast<size_t>(column)], middle = edges[static_cast<size_t>(column) + 1];
    const int64_t high = edges[static_cast<size_t>(column) + 2];
    if (low == middle) set(middle, column, 1);
    for (int64_t bin = low; bin < std::min(middle, bins); ++bin)
      set(bin, column, static_cast<double>(bin - low) / static_cast<double>(middle - low));
    if (low != middle) set(middle, column, 1);
    for (int64_t bin = middle; bin < std::min(high, bins); ++bin)
      set(bin, column, static_cast<double>(high - bin) / static_cast<double>(high - middle));
  }
  return Outputs{call.build.Constant(out)};
}

}  // namespace

std::vector<Operator> SignalOperators() {
  return {{"HannWindow", 1, SignalWindow},     {"HammingWindow", 1, SignalWindow},
          {"BlackmanWindow", 1, SignalWindow}, {"DFT", 1, Fourier},
          {"STFT", 2, ShortTimeFourier},       {"MelWeightMatrix", 5, MelWeights}};
}

}  // namespace hone
