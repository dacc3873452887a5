// Operators that pick out parts by numbers that are known when the file is read: their results have sizes that such
// numbers decide.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <map>
#include <numbers>
#include <numeric>

#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using evaluating::Lines;
using Computed = Result<std::vector<Numbers>>;

// Elements of a constant; kUnsupported for what is computed when the network runs.
Result<const Numbers*> KnownInput(OperatorCall& call, size_t i, std::string_view what) {
  if (!call.build.graph().is_constant(call.In(i))) return call.Undecided(i, what);
  return call.build.graph().Elements(call.In(i));
}

// The slices along an axis (or elements of all, read as one line) for which a constant says so.
Result<Outputs> Compress(OperatorCall& call) {
  const Numbers condition = *HONE_TRY(KnownInput(call, 1, "the condition"));
  if (condition.is_real() || condition.shape.size() != 1)
    return call.build.Invalid("the condition is no vector of truth values");
  ValueId x = call.In(0);
  int64_t axis = 0;
  if (call.Find("axis") != nullptr) {
    axis = HONE_TRY(call.Axis(call.Whole("axis", 0), call.rank(0)));
  } else {
    x = HONE_TRY(call.build.Reshape(x, {CountOf(call.shape(0))}));
  }
  if (static_cast<int64_t>(condition.whole.size()) > call.build.shape(x)[static_cast<size_t>(axis)])
    return call.build.Invalid(fmt::format("{} conditions for {} along dimension {}", condition.whole.size(),
                                          ShapeText(call.build.shape(x)), axis));
  std::vector<int64_t> picked;
  for (size_t i = 0; i < condition.whole.size(); ++i)
    if (condition.whole[i] != 0) picked.push_back(static_cast<int64_t>(i));
  const auto count = static_cast<int64_t>(picked.size());
  Node node;
  node.kind = NodeKind::kGather;
  node.axis = axis;
  node.inputs = {x, call.build.Constant(WholeNumbers(picked, {count}))};
  return Outputs{HONE_TRY(call.build.Add(std::move(node)))};
}

// Cut or padded with zeros around the middle.
Result<Outputs> CenterCropPad(OperatorCall& call) {
  const std::vector<int64_t> wanted = HONE_TRY(call.ConstantInput(1, "the shape"));
  std::vector<int64_t> axes(static_cast<size_t>(call.rank(0)));
  std::iota(axes.begin(), axes.end(), 0);
  axes = call.Wholes("axes", axes);
  if (axes.size() != wanted.size())
    return call.build.Invalid(fmt::format("{} sizes for {} dimensions", wanted.size(), axes.size()));
  Node cut, pad;
  cut.kind = NodeKind::kSlice;
  cut.extents = call.shape(0);
  cut.starts.assign(cut.extents.size(), 0);
  cut.steps.assign(cut.extents.size(), 1);
  pad.kind = NodeKind::kPad;
  pad.starts.assign(cut.extents.size(), 0);
  pad.extents = cut.extents;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(HONE_TRY(call.Axis(axes[i], call.rank(0))));
    const int64_t from = call.shape(0)[d], to = wanted[i];
    if (to < 0 || to > (int64_t{1} << 40)) return call.build.Invalid(fmt::format("a size of {}", to));
    cut.starts[d] = to < from ? (from - to) / 2 : 0;
    cut.extents[d] = std::min(from, to);
    pad.starts[d] = to > from ? (to - from) / 2 : 0;
    pad.extents[d] = to;
  }
  ValueId x = call.In(0);
  if (cut.extents != call.shape(0)) {
    cut.inputs = {x};
    x = HONE_TRY(call.build.Add(std::move(cut)));
  }
  if (pad.extents != call.build.shape(x)) {
    pad.inputs = {x};
    x = HONE_TRY(call.build.Add(std::move(pad)));
  }
  return Outputs{x};
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

// As a product with a matrix of all factors, real and imaginary parts side by side.
Result<Outputs> FourierByMatrix(OperatorCall& call, const Transform& transform, const Shape& shape) {
  Builder& build = call.build;
  const Shape x = call.shape(0);
  const auto axis = static_cast<size_t>(transform.axis);
  const int64_t parts = x.back(), from = std::min(x[axis], transform.length), to = shape[axis];
  Numbers factors = MakeNumbers(build.dtype(call.In(0)), {to * 2, from * parts});
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
  ValueId value = call.In(0);
  if (from < x[axis]) {
    Node cut;
    cut.kind = NodeKind::kSlice;
    cut.inputs = {value};
    cut.starts.assign(x.size(), 0);
    cut.steps.assign(x.size(), 1);
    cut.extents = x;
    cut.extents[axis] = from;
    value = HONE_TRY(build.Add(std::move(cut)));
  }
  // The dimension next to the last one, and back; the exchange is its own inverse.
  std::vector<int64_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[axis], order[x.size() - 2]);
  value = HONE_TRY(build.Transpose(value, order));
  Shape moved = build.shape(value);
  value = HONE_TRY(build.Reshape(value, {CountOf(moved) / (from * parts), from * parts}));
  Node product;
  product.kind = NodeKind::kMatMul;
  product.flag = true;
  product.inputs = {value, build.Constant(factors)};
  value = HONE_TRY(build.Add(std::move(product)));
  moved[x.size() - 2] = to;
  moved.back() = 2;
  return Outputs{HONE_TRY(build.Transpose(HONE_TRY(build.Reshape(value, moved)), order))};
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
  int64_t length = x[static_cast<size_t>(axis)];
  if (call.Has(1)) {
    const std::vector<int64_t> given = HONE_TRY(call.ConstantInput(1, "the length"));
    if (given.size() != 1 || given[0] < 1 || given[0] > (1 << 20)) return call.build.Invalid("the length cannot be");
    length = given[0];
  }
  const bool is_inverse = call.Whole("inverse", 0) != 0, is_onesided = call.Whole("onesided", 0) != 0;
  if (is_inverse && is_onesided) return call.build.Unsupported("the inverse of one side");
  Shape shape = x;
  shape[static_cast<size_t>(axis)] = is_onesided ? length / 2 + 1 : length;
  shape.back() = 2;
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype)) return call.build.Invalid("it wants floats");
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
  return call.build.Host({"DFT", {{dtype, shape}}, compute, steps}, {call.In(0)});
}

// How often each n-gram of a pool stands in a row of whole numbers, with up to so many others between two of its words.
Result<Outputs> CountGrams(OperatorCall& call) {
  const OnnxAttribute* words = call.Find("pool_int64s");
  if (words == nullptr) return call.build.Unsupported("its pool holds strings");
  const std::vector<int64_t> pool = words->wholes, begins = call.Wholes("ngram_counts", {});
  const std::vector<int64_t> columns = call.Wholes("ngram_indexes", {});
  const int64_t least = call.Whole("min_gram_length", 1), most = call.Whole("max_gram_length", 1);
  const int64_t skips = call.Whole("max_skip_count", 0);
  const std::string mode = call.Text("mode", "TF");
  const OnnxAttribute* weights = call.Find("weights");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") return call.build.Invalid("mode=" + mode);
  if (least < 1 || most < least || most > 64 || skips < 0 || columns.empty())
    return call.build.Invalid("its lengths of n-grams cannot be");
  if (call.rank(0) < 1 || call.rank(0) > 2 || IsFloat(call.build.dtype(call.In(0))))
    return call.build.Invalid("it wants rows of whole numbers");
  std::map<std::vector<int64_t>, size_t> grams;  // → its number
  for (size_t n = 0, number = 0; n < begins.size(); ++n) {
    const int64_t end = n + 1 < begins.size() ? begins[n + 1] : static_cast<int64_t>(pool.size());
    if (begins[n] < 0 || end < begins[n] || end > static_cast<int64_t>(pool.size()))
      return call.build.Invalid("ngram_counts go beyond the pool");
    const auto width = static_cast<int64_t>(n) + 1;
    for (int64_t at = begins[n]; at + width <= end; at += width, ++number)
      if (width >= least && width <= most)
        grams.emplace(std::vector(pool.begin() + at, pool.begin() + at + width), number);
    if (number > columns.size()) return call.build.Invalid("ngram_indexes are fewer than the n-grams");
  }
  if (weights != nullptr && weights->reals.size() != columns.size())
    return call.build.Invalid("weights are not one an n-gram");
  const int64_t width = *std::max_element(columns.begin(), columns.end()) + 1;
  if (*std::min_element(columns.begin(), columns.end()) < 0 || width > (1 << 24))
    return call.build.Invalid("ngram_indexes cannot be");
  const Shape x = call.shape(0);
  Shape shape = x;
  shape.back() = width;
  const std::vector<double> factors = weights != nullptr ? weights->reals : std::vector<double>(columns.size(), 1);
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(DType::kF32, shape);
    const int64_t length = x.back(), rows = length == 0 ? 0 : CountOf(x) / length;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t gap = 1; gap <= skips + 1; ++gap) {
        for (int64_t n = least; n <= most; ++n) {
          if (n == 1 && gap > 1) continue;  // a word has no gaps
          for (int64_t begin = 0; begin + (n - 1) * gap < length; ++begin) {
            std::vector<int64_t> gram;
            for (int64_t k = 0; k < n; ++k)
              gram.push_back(in[0]->whole[static_cast<size_t>(row * length + begin + k * gap)]);
            const auto found = grams.find(gram);
            if (found != grams.end()) out.real[static_cast<size_t>(row * width + columns[found->second])] += 1;
          }
        }
      }
      for (size_t number = 0; number < columns.size() && mode != "TF"; ++number) {
        double& count = out.real[static_cast<size_t>(row * width + columns[number])];
        count = (mode == "IDF" ? std::min(count, 1.0) : count) * factors[number];
      }
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host({"TfIdfVectorizer", {{DType::kF32, shape}}, compute}, {call.In(0)});
}

// Triangles over the bins of a spectrum, equally far apart on the mel scale.
Result<Outputs> MelWeights(OperatorCall& call) {
  double given[5];
  for (size_t i = 0; i < 5; ++i) {
    const Numbers& number = *HONE_TRY(KnownInput(call, i, "one of its numbers"));
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
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < columns + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (mel_of(lower) + static_cast<double>(i) * step) / 2595) - 1);
    edges.push_back(static_cast<int64_t>(std::floor((length + 1) * hertz / rate)));
  }
  Numbers out = MakeNumbers(*dtype, {bins, columns});
  auto set = [&](int64_t bin, int64_t column, double weight) {
    if (bin >= 0 && bin < bins) out.real[static_cast<size_t>(bin * columns + column)] = weight;
  };
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t low = edges[static_cast<size_t>(column)], middle = edges[static_cast<size_t>(column) + 1];
    const int64_t high = edges[static_cast<size_t>(column) + 2];
    if (low == middle) set(middle, column, 1);
    for (int64_t bin = low; bin < middle; ++bin)
      set(bin, column, static_cast<double>(bin - low) / static_cast<double>(middle - low));
    if (low != middle) set(middle, column, 1);
    for (int64_t bin = middle; bin < high; ++bin)
      set(bin, column, static_cast<double>(high - bin) / static_cast<double>(high - middle));
  }
  return Outputs{call.build.Constant(out)};
}

}  // namespace

std::vector<Operator> SelectionOperators() {
  return {{"MelWeightMatrix", 5, MelWeights},
          {"Compress", 2, Compress},
          {"CenterCropPad", 2, CenterCropPad},
          {"DFT", 1, Fourier},
          {"TfIdfVectorizer", 1, CountGrams}};
}

}  // namespace hone
