// What each kind of node computes, straight from its definition: constants are folded with it, and whole networks are
// checked with it. Nothing here knows kernels or their language.
#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "base/parallel.h"
#include "ir/graph/dtype_traits.h"
#include "network/graph/evaluate_internal.h"

namespace hone {
namespace evaluating {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A tensor's elements as doubles: its own, or converted.
class Reals {
 public:
  explicit Reals(const Numbers& numbers) {
    if (!numbers.is_real()) converted_.assign(numbers.whole.begin(), numbers.whole.end());
    data_ = numbers.is_real() ? numbers.real.data() : converted_.data();
  }
  Reals(const Reals&) = delete;
  Reals& operator=(const Reals&) = delete;
  const double* data() const { return data_; }

 private:
  std::vector<double> converted_;
  const double* data_;
};

void Store(double value, Numbers& out, size_t to) {
  if (out.is_real()) {
    out.real[to] = value;
  } else {
    out.whole[to] = static_cast<int64_t>(value);
  }
}

// Threads for so many multiplications.
int ThreadsFor(double work) {
  constexpr double kWorthAThread = 1e7;
  return work < kWorthAThread ? 1 : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 64U));
}

// A plane of the output at a time: for each element of the window, the columns that it reaches inside the input.
Numbers Conv(const Node& node, Arguments in, const TensorType& type) {
  const Numbers &x = *in[0], &w = *in[1];
  Numbers out = MakeNumbers(type.dtype, type.shape);
  Reals inputs(x), weights(w);
  int64_t per_group = w.shape[1], outputs_per_group = w.shape[0] / node.groups;
  int64_t height = x.shape[2], width = x.shape[3], rows = type.shape[2], columns = type.shape[3];
  int64_t stride = node.stride[1], window = w.shape[2] * w.shape[3];
  double work = static_cast<double>(CountOf(type.shape)) * static_cast<double>(per_group * window);
  ForEachIndex(static_cast<size_t>(type.shape[0] * type.shape[1]), ThreadsFor(work), [&](size_t index) {
    const auto plane = static_cast<int64_t>(index);
    int64_t n = plane / type.shape[1], o = plane % type.shape[1];
    // What lies outside holds `fill`: all of the window does, and what lies inside counts less that.
    double outside = in.size() > 2 ? in[2]->RealAt(static_cast<size_t>(o)) : 0.0;
    if (node.fill != 0)
      for (int64_t i = 0; i < per_group * window; ++i)
        outside += node.fill * weights.data()[o * per_group * window + i];
    std::vector<double> sums(static_cast<size_t>(rows * columns), outside);
    for (int64_t c = 0; c < per_group; ++c) {
      const double* channel = inputs.data() + (n * x.shape[1] + o / outputs_per_group * per_group + c) * height * width;
      for (int64_t at = 0; at < window; ++at) {
        double factor = weights.data()[(o * per_group + c) * window + at];
        int64_t shift = at % w.shape[3] * node.dilation[1] - node.pads[1];
        // Columns z with 0 ≤ z·stride + shift < width.
        int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
        int64_t last = shift >= width ? 0 : std::min(columns, (width - shift + stride - 1) / stride);
        for (int64_t row = 0; row < rows; ++row) {
          int64_t y = row * node.stride[0] - node.pads[0] + at / w.shape[3] * node.dilation[0];
          if (y < 0 || y >= height) continue;
          const double* line = channel + y * width + shift;
          double* sum = sums.data() + row * columns;
          for (int64_t z = first; z < last; ++z) sum[z] += factor * (line[z * stride] - node.fill);
        }
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) Store(sums[i], out, static_cast<size_t>(plane) * sums.size() + i);
  });
  return out;
}

// Elements of reals or of whole numbers, whose sums and products wrap around.
template <typename T>
void MultiplyMatrices(const Node& node, const Numbers& a, const Numbers& b, const TensorType& type, const T* left,
                      const T* right, T* out) {
  int64_t m = type.shape[type.shape.size() - 2], n = type.shape.back(), k = a.shape.back();
  Shape batch(type.shape.begin(), type.shape.end() - 2);
  auto batch_strides = [&](const Numbers& operand) {
    Shape own(operand.shape.begin(), operand.shape.end() - 2);
    return BroadcastStrides(own, batch);
  };
  double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  ForEach<2>(batch, {batch_strides(a), batch_strides(b)}, [&](size_t index, const auto& at) {
    const T* matrix = right + at[1] * k * n;
    // Columns in blocks, so that one row of a has work for several threads.
    constexpr int64_t kBlock = 64;
    int64_t blocks = (n + kBlock - 1) / kBlock;
    ForEachIndex(static_cast<size_t>(m * blocks), ThreadsFor(work), [&](size_t piece) {
      const auto task = static_cast<int64_t>(piece);
      int64_t row = task / blocks, begin = task % blocks * kBlock, end = std::min(n, begin + kBlock);
      const T* line = left + (at[0] * m + row) * k;
      T sums[kBlock] = {};
      for (int64_t i = 0; i < k && !node.flag; ++i) {
        for (int64_t column = begin; column < end; ++column) sums[column - begin] += line[i] * matrix[i * n + column];
      }
      for (int64_t column = begin; column < end && node.flag; ++column) {
        for (int64_t i = 0; i < k; ++i) sums[column - begin] += line[i] * matrix[column * k + i];
      }
      for (int64_t column = begin; column < end; ++column)
        out[index * static_cast<size_t>(m * n) + static_cast<size_t>(row * n + column)] = sums[column - begin];
    });
  });
}

Numbers MatMul(const Node& node, Arguments in, const TensorType& type) {
  const Numbers &a = *in[0], &b = *in[1];
  Numbers out = MakeNumbers(type.dtype, type.shape);
  if (out.is_real()) {
    MultiplyMatrices(node, a, b, type, a.real.data(), b.real.data(), out.real.data());
  } else {  // without a sign, so that what wraps around is defined
    auto bits = [](const Numbers& numbers) { return reinterpret_cast<const uint64_t*>(numbers.whole.data()); };
    MultiplyMatrices(node, a, b, type, bits(a), bits(b), reinterpret_cast<uint64_t*>(out.whole.data()));
  }
  return out;
}

Numbers Pool(const Node& node, const Numbers& x, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  bool is_max = node.kind == NodeKind::kMaxPool;
  int64_t height = x.shape[2], width = x.shape[3];
  ForEach<0>(type.shape, {}, [&](size_t i, const auto&) {
    auto index = static_cast<int64_t>(i);
    int64_t column = index % type.shape[3], row = index / type.shape[3] % type.shape[2];
    int64_t plane = index / (type.shape[2] * type.shape[3]) * height * width;
    double total = 0, top = -kInfinity;
    int64_t count = 0;
    for (int64_t r = 0; r < node.window[0]; ++r) {
      for (int64_t s = 0; s < node.window[1]; ++s) {
        int64_t y = row * node.stride[0] - node.pads[0] + r * node.dilation[0];
        int64_t z = column * node.stride[1] - node.pads[1] + s * node.dilation[1];
        // Padding counts if asked for; what hangs over the padded input (ceil) never does.
        if (y < height + node.pads[2] && z < width + node.pads[3] && node.flag) ++count;
        if (y < 0 || y >= height || z < 0 || z >= width) continue;
        double value = x.RealAt(static_cast<size_t>(plane + y * width + z));
        if (!node.flag) ++count;
        total += value;
        top = std::isnan(value) || value > top ? value : top;
      }
    }
    double result = is_max ? top : total / static_cast<double>(count);
    if (out.is_real()) {
      out.real[i] = result;
    } else {
      out.whole[i] = static_cast<int64_t>(result);
    }
  });
  return out;
}

// ---- rows

Numbers Reduce(const Node& node, const Numbers& x, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  std::vector<int64_t> into = BroadcastStrides(type.shape, x.shape);
  const std::string& name = node.function;
  std::string_view f = name == "mean" || name == "sum" ? "add" : name == "prod" ? "mul" : std::string_view(name);
  const DTypeTraits& traits = TraitsOf(x.dtype);
  // What is left of no elements, and changes no others.
  const double infinity = name == "max" ? -kInfinity : kInfinity;
  const int64_t end = x.dtype == DType::kU64 ? (name == "max" ? 0 : -1)
                      : name == "max"        ? traits.lowest
                                             : traits.highest;
  const bool is_extreme = name == "max" || name == "min";
  if (x.is_real()) {
    std::fill(out.real.begin(), out.real.end(), is_extreme ? infinity : name == "prod" ? 1 : 0);
    const auto function = BinaryReal(f);
    ForEach<1>(x.shape, {into}, [&](size_t i, const auto& at) {
      double& to = out.real[static_cast<size_t>(at[0])];
      to = function(to, x.real[i]);
    });
  } else {
    std::fill(out.whole.begin(), out.whole.end(), is_extreme ? end : name == "prod" ? 1 : 0);
    const auto function = BinaryWhole(f, x.dtype);
    ForEach<1>(x.shape, {into}, [&](size_t i, const auto& at) {
      int64_t& to = out.whole[static_cast<size_t>(at[0])];
      to = function(to, x.whole[i]);
    });
  }
  if (node.function == "mean") {
    int64_t count = CountOf(x.shape) / std::max<int64_t>(CountOf(type.shape), 1);
    for (double& value : out.real) value /= static_cast<double>(count);
    for (int64_t& value : out.whole) value = count == 0 ? 0 : value / count;
  }
  return out;
}

Numbers Softmax(const Node& node, const Numbers& x, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  auto axis = static_cast<size_t>(node.axis);
  int64_t step = StridesOf(x.shape)[axis], extent = x.shape[axis];
  Shape rest = x.shape;
  rest[axis] = 1;
  ForEach<1>(rest, {StridesOf(x.shape)}, [&](size_t, const auto& at) {
    double top = -kInfinity, total = 0;
    for (int64_t i = 0; i < extent; ++i) top = std::max(top, x.real[static_cast<size_t>(at[0] + i * step)]);
    for (int64_t i = 0; i < extent; ++i) {
      auto to = static_cast<size_t>(at[0] + i * step);
      total += out.real[to] = std::exp(x.real[to] - top);
    }
    for (int64_t i = 0; i < extent; ++i) {
      auto to = static_cast<size_t>(at[0] + i * step);
      out.real[to] = node.flag ? x.real[to] - top - std::log(total) : out.real[to] / total;
    }
  });
  return out;
}

Numbers LayerNorm(const Node& node, Arguments in, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  const Numbers& x = *in[0];
  size_t n = in[1]->real.size();
  for (size_t begin = 0; begin < x.real.size(); begin += n) {
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n; ++i) mean += x.real[begin + i];
    mean /= static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) squares += (x.real[begin + i] - mean) * (x.real[begin + i] - mean);
    double scale = 1 / std::sqrt(squares / static_cast<double>(n) + node.epsilon);
    for (size_t i = 0; i < n; ++i) {
      out.real[begin + i] = (x.real[begin + i] - mean) * scale * in[1]->real[i] + (in.size() > 2 ? in[2]->real[i] : 0);
    }
  }
  return out;
}

}  // namespace

Numbers WidenedWeights(const Node& node, Arguments in) {
  const bool is_packed = node.function == "u4";
  const int64_t rows = node.groups * node.extents[0], columns = node.extents[1];
  const int64_t block = node.axis > 0 ? node.axis : columns;
  Numbers weights = MakeNumbers(in[0]->dtype, {rows, columns});
  if (node.function == "same") {
    weights.real = in[1]->real;
    return weights;
  }
  const double middle = is_packed ? 8 : node.function == "u8" ? 128 : 0;
  const bool has_zero = in.size() > (node.flag ? 4 : 3);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto parameter = static_cast<size_t>(i / columns * (columns / block) + i % columns / block);
    int64_t whole = in[1]->whole[static_cast<size_t>(is_packed ? i / 2 : i)];
    if (is_packed) whole = i % 2 == 0 ? whole & 15 : whole >> 4;
    const double zero = has_zero ? static_cast<double>(in[3]->whole[parameter]) : middle;
    weights.real[static_cast<size_t>(i)] = (static_cast<double>(whole) - zero) * in[2]->real[parameter];
  }
  return weights;
}

namespace {

Numbers Dense(const Node& node, Arguments in, const TensorType& type) {
  const Numbers weights = WidenedWeights(node, in);
  if (!node.flag) {
    const Numbers* const operands[] = {in[0], &weights};
    Node product;
    product.flag = true;
    return MatMul(product, operands, type);
  }
  Numbers out = MakeNumbers(type.dtype, type.shape);
  const auto n = static_cast<size_t>(node.extents[0]), k = static_cast<size_t>(node.extents[1]);
  for (size_t row = 0; row < in.back()->whole.size(); ++row) {
    const auto expert = static_cast<size_t>(std::clamp<int64_t>(in.back()->whole[row], 0, node.groups - 1));
    for (size_t column = 0; column < n; ++column)
      for (size_t i = 0; i < k; ++i)
        out.real[row * n + column] += in[0]->real[row * k + i] * weights.real[(expert * n + column) * k + i];
  }
  return out;
}

}  // namespace
}  // namespace evaluating

namespace {

Result<Numbers> EvaluateExactly(const Node& node, std::span<const Numbers* const> in, const TensorType& type) {
  using namespace evaluating;
  if (node.kind == NodeKind::kHost) return std::move(HONE_TRY(node.host->compute(in))[static_cast<size_t>(node.axis)]);
  const Numbers& x = *in[0];
  switch (node.kind) {
    case NodeKind::kConv: return Conv(node, in, type);
    case NodeKind::kMatMul: return MatMul(node, in, type);
    case NodeKind::kDense: return Dense(node, in, type);
    case NodeKind::kMaxPool:
    case NodeKind::kAveragePool: return Pool(node, x, type);
    case NodeKind::kReduce: return Reduce(node, x, type);
    case NodeKind::kSoftmax: return Softmax(node, x, type);
    case NodeKind::kLayerNorm: return LayerNorm(node, in, type);
    case NodeKind::kUnary: return Unary(node, x, type);
    case NodeKind::kBinary: return Binary(node, in, type);
    case NodeKind::kSelect: return Select(in, type);
    case NodeKind::kCast: return Cast(x, type);
    case NodeKind::kTranspose: return Transpose(node, x, type);
    case NodeKind::kSlice: return Slice(node, x, type);
    case NodeKind::kPad: return Pad(node, x, type);
    case NodeKind::kConcat: return Concat(node, in, type);
    case NodeKind::kGather: return Gather(node, in, type);
    case NodeKind::kGatherElements: return GatherElements(node, in, type);
    case NodeKind::kExpand: return Expand(x, type);
    case NodeKind::kReshape: {
      Numbers out = x;
      out.shape = type.shape;
      return out;
    }
    case NodeKind::kHost: break;  // above
  }
  return Error{};
}

}  // namespace

Result<Numbers> Evaluate(const Node& node, std::span<const Numbers* const> in, const TensorType& type) {
  Numbers result = HONE_TRY(EvaluateExactly(node, in, type));
  SettleInType(result);
  return result;
}

}  // namespace hone
