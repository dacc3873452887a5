// onnxruntime's operators (com.microsoft) that are ONNX's in other words: from exporters that were before ONNX had
// them, of channels that come last, with weights of bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using Computed = Result<std::vector<Numbers>>;

constexpr int64_t kMostPlaces = 1 << 26;  // that a tensor's windows read

std::vector<ValueId> InputsOf(const OperatorCall& call) {
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < call.input_count(); ++i) inputs.push_back(call.Has(i) ? call.In(i) : ValueId());
  return inputs;
}

// Of the same name and meaning as ONNX's today.
Result<Outputs> AsOfOnnx(OperatorCall& call) { return Outputs{HONE_TRY(Apply(call, call.node().op, InputsOf(call)))}; }

// Its step may be left out.
Result<Outputs> Range(OperatorCall& call) {
  std::vector<ValueId> inputs = InputsOf(call);
  inputs.resize(3);
  if (!inputs[2]) inputs[2] = call.build.Scalar(1, call.build.dtype(inputs[0]));
  return Outputs{HONE_TRY(Apply(call, "Range", std::move(inputs)))};
}

// An operator of images [N, …, C], as one of images [N, C, …].
Result<Outputs> OfLastChannels(OperatorCall& call, const std::string& op) {
  Builder& build = call.build;
  const int64_t rank = call.rank(0);
  if (rank < 3) return build.Invalid("it wants images");
  std::vector<int64_t> in = {0, rank - 1}, out = {0};
  for (int64_t d = 1; d + 1 < rank; ++d) in.push_back(d);
  for (int64_t d = 2; d < rank; ++d) out.push_back(d);
  out.push_back(1);
  std::vector<ValueId> inputs = InputsOf(call);
  inputs[0] = HONE_TRY(build.Transpose(inputs[0], std::move(in)));
  const ValueId y = HONE_TRY(Apply(call, op, std::move(inputs)));
  return Outputs{HONE_TRY(build.Transpose(y, std::move(out)))};
}

Result<Outputs> NhwcMaxPool(OperatorCall& call) { return OfLastChannels(call, "MaxPool"); }

Result<Outputs> QLinearConv(OperatorCall& call) {
  return call.Whole("channels_last", 0) != 0 ? OfLastChannels(call, "QLinearConv") : AsOfOnnx(call);
}

// One more dimension of 1, at a place that is an operand.
Result<Outputs> ExpandDims(OperatorCall& call) {
  const std::vector<int64_t> given = HONE_TRY(call.ConstantInput(1, "the axis"));
  if (given.size() != 1) return call.build.Invalid(fmt::format("{} axes, wanted one", given.size()));
  Shape shape = call.shape(0);
  shape.insert(shape.begin() + HONE_TRY(call.Axis(given[0], call.rank(0) + 1)), 1);
  HONE_TRY(CheckShape(shape));
  return Outputs{HONE_TRY(call.build.Reshape(call.In(0), std::move(shape)))};
}

// Windows of `size` elements along a dimension, `step` apart, which become the last one.
Result<Outputs> UnfoldTensor(OperatorCall& call) {
  const int64_t axis = HONE_TRY(call.Axis(call.Whole("dim", -1), call.rank(0)));
  const int64_t extent = call.shape(0)[static_cast<size_t>(axis)], size = call.Whole("size", 0);
  const int64_t step = call.Whole("step", 1);
  if (size < 1 || step < 1 || size > extent)
    return call.build.Invalid(fmt::format("windows of {}, {} apart, of {} elements", size, step, extent));
  const int64_t count = (extent - size) / step + 1;
  Shape shape = call.shape(0);
  shape[static_cast<size_t>(axis)] = count;
  shape.push_back(size);
  HONE_TRY(CheckShape(shape));
  if (count > kMostPlaces / size)
    return Error{ErrorKind::kLimit, fmt::format("{} windows of {}; hone's limit is {}", count, size, kMostPlaces), ""};
  std::vector<int64_t> which;
  for (int64_t i = 0; i < count * size; ++i) which.push_back(i / size * step + i % size);
  const ValueId windows =
      HONE_TRY(call.build.Gather(call.In(0), call.build.Constant(WholeNumbers(which, {count, size})), axis));
  std::vector<int64_t> order;
  for (int64_t d = 0; d <= call.rank(0); ++d)
    if (d != axis + 1) order.push_back(d);
  order.push_back(axis + 1);
  return Outputs{HONE_TRY(call.build.Transpose(windows, std::move(order)))};
}

// Its pads are the operand before the bias.
Result<Outputs> ConvTransposeWithPads(OperatorCall& call) {
  OnnxNode node = call.node();
  node.op = "ConvTranspose";
  node.domain.clear();
  if (call.Has(2)) {
    OnnxAttribute pads;
    pads.name = "pads";
    pads.kind = OnnxAttribute::Kind::kInts;
    pads.wholes = HONE_TRY(call.ConstantInput(2, "its pads"));
    std::erase_if(node.attributes, [](const OnnxAttribute& each) { return each.name == "pads"; });
    node.attributes.push_back(std::move(pads));
  }
  std::vector<ValueId> inputs = {call.In(0), call.In(1)};
  if (call.Has(3)) inputs.push_back(call.In(3));
  OperatorCall conv(call.build.graph(), node, std::move(inputs), call.opset());
  return FindOperator(node.op)->translate(conv);
}

// Words [batch, length], scores [batch, words]: of words that would end a run of `ngram_size` which was there before,
// −∞.
Result<Outputs> NGramRepeatBlock(OperatorCall& call) {
  const Shape words = call.shape(0), scores = call.shape(1);
  const int64_t run = call.Whole("ngram_size", 0);
  if (words.size() != 2 || scores.size() != 2 || words[0] != scores[0] || run < 1)
    return call.build.Invalid(fmt::format("runs of {} in {} for scores {}", run, ShapeText(words), ShapeText(scores)));
  const DType dtype = call.build.dtype(call.In(1));
  HostOperation host{"NGramRepeatBlock", "wr", {{dtype, scores}}};
  host.compute = [=](Arguments in) -> Computed {
    Numbers out = *in[1];
    for (int64_t b = 0; b < words[0]; ++b) {
      const auto row = in[0]->whole.begin() + b * words[1];
      for (int64_t i = 0; i + run <= words[1]; ++i) {
        if (!std::equal(row + i, row + i + run - 1, row + words[1] - run + 1)) continue;
        const int64_t word = row[i + run - 1];
        if (word < 0 || word >= scores[1])
          return Error{ErrorKind::kInvalid, fmt::format("word {} of {}", word, scores[1]), ""};
        out.real[static_cast<size_t>(b * scores[1] + word)] = -std::numeric_limits<double>::infinity();
      }
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host(std::move(host), {call.In(0), call.In(1)});
}

// Distances of all rows of a from all rows of b.
Result<Outputs> Distances(OperatorCall& call) {
  Builder& build = call.build;
  const Shape a = call.shape(0), b = call.shape(1);
  const std::string metric = call.Text("metric", "sqeuclidean");
  if (a.size() != 2 || b.size() != 2 || a[1] != b[1])
    return build.Invalid(fmt::format("rows of {} and {}", ShapeText(a), ShapeText(b)));
  if (metric != "sqeuclidean" && metric != "euclidean") return build.Unsupported("metric=" + metric);
  ValueId y = HONE_TRY(build.Binary("sub", HONE_TRY(build.Reshape(call.In(0), {a[0], 1, a[1]})),
                                    HONE_TRY(build.Reshape(call.In(1), {1, b[0], b[1]}))));
  y = HONE_TRY(build.Reduce("sum", HONE_TRY(build.Binary("mul", y, y)), {2}));
  y = HONE_TRY(build.Reshape(y, {a[0], b[0]}));
  return Outputs{metric == "euclidean" ? HONE_TRY(build.Unary("sqrt", y)) : y};
}

// Of one matrix of n × n, by elimination with the largest pivots.
void Invert(int64_t n, std::vector<double> a, double* inverse) {
  auto at = [n](int64_t row, int64_t column) { return static_cast<size_t>(row * n + column); };
  for (int64_t i = 0; i < n * n; ++i) inverse[i] = i / n == i % n ? 1 : 0;
  for (int64_t c = 0; c < n; ++c) {
    int64_t pivot = c;
    for (int64_t r = c + 1; r < n; ++r)
      if (std::abs(a[at(r, c)]) > std::abs(a[at(pivot, c)])) pivot = r;
    for (int64_t k = 0; k < n; ++k) {
      std::swap(a[at(c, k)], a[at(pivot, k)]);
      std::swap(inverse[at(c, k)], inverse[at(pivot, k)]);
    }
    const double by = a[at(c, c)];
    for (int64_t k = 0; k < n; ++k) {
      a[at(c, k)] /= by;
      inverse[at(c, k)] /= by;
    }
    for (int64_t r = 0; r < n; ++r) {
      const double factor = r == c ? 0 : a[at(r, c)];
      for (int64_t k = 0; factor != 0 && k < n; ++k) {
        a[at(r, k)] -= factor * a[at(c, k)];
        inverse[at(r, k)] -= factor * inverse[at(c, k)];
      }
    }
  }
}

Result<Outputs> Inverse(OperatorCall& call) {
  const Shape x = call.shape(0);
  if (x.size() < 2 || x[x.size() - 1] != x[x.size() - 2])
    return call.build.Invalid(fmt::format("{} is no square matrix", ShapeText(x)));
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype)) return call.build.Invalid("it wants floats");
  const int64_t n = x.back(), matrices = n == 0 ? 0 : CountOf(x) / (n * n);
  HostOperation host{"Inverse", "r", {{dtype, x}}};
  host.compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, x);
    for (int64_t i = 0; i < matrices; ++i) {
      const auto begin = in[0]->real.begin() + i * n * n;
      Invert(n, {begin, begin + n * n}, out.real.data() + i * n * n);
    }
    return std::vector{std::move(out)};
  };
  host.steps = static_cast<double>(CountOf(x)) * static_cast<double>(n);
  return call.build.Host(std::move(host), {call.In(0)});
}

// ONNX's LSTM with weights [directions, inputs, 4·hidden] and [directions, hidden, 4·hidden] in bytes, whose scales and
// zero points are one a direction or a column. onnxruntime rounds what comes to bytes, too; here it stays as it is.
Result<Outputs> QuantizedLstm(OperatorCall& call) {
  Builder& build = call.build;
  constexpr size_t kWeights = 1, kOnnxs = 8, kParameters = 8;  // after ONNX's inputs, scale and zero point of both
  std::vector<ValueId> inputs = InputsOf(call);
  for (size_t i : {size_t{0}, size_t{1}}) {
    const size_t at = kParameters + 2 * i;
    const Shape w = call.shape(kWeights + i);
    if (w.size() != 3 || w[0] < 1 || !call.Has(at) || !call.Has(at + 1))
      return build.Invalid("weights want a scale and a zero point");
    ValueId parts[2];
    for (size_t p : {size_t{0}, size_t{1}}) {
      const int64_t count = CountOf(call.shape(at + p));
      if (count != w[0] && count != w[0] * w[2])
        return build.Invalid(
            fmt::format("scales or zero points {} of {}", ShapeText(call.shape(at + p)), ShapeText(w)));
      parts[p] = HONE_TRY(build.Cast(call.In(at + p), DType::kF32));
      parts[p] = HONE_TRY(build.Reshape(parts[p], {w[0], 1, count / w[0]}));
    }
    ValueId real = HONE_TRY(build.Binary("sub", HONE_TRY(build.Cast(inputs[kWeights + i], DType::kF32)), parts[1]));
    inputs[kWeights + i] = HONE_TRY(build.Transpose(HONE_TRY(build.Binary("mul", real, parts[0])), {0, 2, 1}));
  }
  inputs.resize(kOnnxs);
  OnnxNode node = call.node();
  node.op = "LSTM";
  node.domain.clear();
  OperatorCall lstm(build.graph(), node, std::move(inputs), call.opset());
  return FindOperator("LSTM")->translate(lstm);
}

}  // namespace

std::vector<Operator> ContributedOperators() {
  return {{"com.microsoft.Trilu", 1, AsOfOnnx},
          {"com.microsoft.GridSample", 2, AsOfOnnx},
          {"com.microsoft.Pad", 2, AsOfOnnx},
          {"com.microsoft.GatherND", 2, AsOfOnnx},
          {"com.microsoft.Range", 2, Range},
          {"com.microsoft.NhwcMaxPool", 1, NhwcMaxPool},
          {"com.microsoft.QLinearConv", 8, QLinearConv},
          {"com.microsoft.ExpandDims", 2, ExpandDims},
          {"com.microsoft.UnfoldTensor", 1, UnfoldTensor},
          {"com.microsoft.ConvTransposeWithDynamicPads", 2, ConvTransposeWithPads},
          {"com.microsoft.NGramRepeatBlock", 2, NGramRepeatBlock},
          {"com.microsoft.CDist", 2, Distances},
          {"com.microsoft.Inverse", 1, Inverse},
          {"com.microsoft.DynamicQuantizeLSTM", 3, QuantizedLstm}};
}

}  // namespace hone
