// What each kind of node computes, straight from its definition: constants are folded with it, and whole networks are
// checked with it. Nothing here knows kernels or their language.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "base/check.h"
#include "model/graph.h"

namespace hone {
namespace {

using Arguments = std::span<const Numbers* const>;

std::vector<int64_t> StridesOf(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// Strides under which `shape` is read as the larger `out`: 0 where it broadcasts.
std::vector<int64_t> BroadcastStrides(const Shape& shape, const Shape& out) {
  std::vector<int64_t> own = StridesOf(shape), strides(out.size(), 0);
  for (size_t i = 0; i < shape.size(); ++i) {
    size_t d = shape.size() - 1 - i;
    if (shape[d] != 1) strides[out.size() - 1 - i] = own[d];
  }
  return strides;
}

// Calls visit(i, offsets) for every element i of `shape`, row-major, with Σ index·stride for each set of strides.
template <size_t kSets, typename Visit>
void ForEach(const Shape& shape, const std::array<std::vector<int64_t>, kSets>& strides, const Visit& visit) {
  int64_t count = CountOf(shape);
  std::array<int64_t, kSets> offsets{};
  std::array<int64_t, 8> index{};  // as many dimensions as CheckShape allows
  HONE_CHECK(shape.size() <= index.size());
  for (int64_t i = 0; i < count; ++i) {
    visit(static_cast<size_t>(i), offsets);
    for (size_t d = shape.size(); d-- > 0;) {
      for (size_t s = 0; s < kSets; ++s) offsets[s] += strides[s][d];
      if (++index[d] < shape[d]) break;
      for (size_t s = 0; s < kSets; ++s) offsets[s] -= strides[s][d] * shape[d];
      index[d] = 0;
    }
  }
}

void CopyElement(const Numbers& x, int64_t from, Numbers& out, size_t to) {
  if (out.is_real()) {
    out.real[to] = x.real[static_cast<size_t>(from)];
  } else {
    out.whole[to] = x.whole[static_cast<size_t>(from)];
  }
}

Numbers ReadStrided(const Numbers& x, const Shape& shape, std::vector<int64_t> strides, int64_t base) {
  Numbers out = MakeNumbers(x.dtype, shape);
  ForEach<1>(shape, {std::move(strides)},
             [&](size_t i, const auto& offsets) { CopyElement(x, base + offsets[0], out, i); });
  return out;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double UnaryReal(std::string_view f, double x) {
  if (f == "neg") return -x;
  if (f == "relu") return x < 0 ? 0 : x;  // NaN stays
  if (f == "relu6") return x < 0 ? 0 : x > 6 ? 6 : x;
  if (f == "sigmoid") return Sigmoid(x);
  if (f == "silu") return x * Sigmoid(x);
  if (f == "hardswish") return x * std::min(std::max(x + 3, 0.0), 6.0) / 6;
  if (f == "gelu") return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (f == "gelu_tanh") return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  if (f == "tanh") return std::tanh(x);
  if (f == "exp") return std::exp(x);
  if (f == "log") return std::log(x);
  if (f == "sqrt") return std::sqrt(x);
  if (f == "rsqrt") return 1 / std::sqrt(x);
  if (f == "erf") return std::erf(x);
  if (f == "abs") return std::abs(x);
  if (f == "floor") return std::floor(x);
  HONE_CHECK(false);
}

int64_t UnaryWhole(std::string_view f, int64_t x) {
  if (f == "neg") return static_cast<int64_t>(-static_cast<uint64_t>(x));
  if (f == "abs") return x < 0 ? static_cast<int64_t>(-static_cast<uint64_t>(x)) : x;
  if (f == "relu") return std::max<int64_t>(x, 0);
  if (f == "not") return x == 0;
  if (f == "floor") return x;
  return static_cast<int64_t>(UnaryReal(f, static_cast<double>(x)));
}

template <typename T>
T Compare(std::string_view f, T a, T b, bool* known) {
  *known = true;
  if (f == "eq") return a == b;
  if (f == "ne") return a != b;
  if (f == "lt") return a < b;
  if (f == "le") return a <= b;
  if (f == "gt") return a > b;
  if (f == "ge") return a >= b;
  *known = false;
  return 0;
}

double BinaryReal(std::string_view f, double a, double b) {
  if (f == "add") return a + b;
  if (f == "sub") return a - b;
  if (f == "mul") return a * b;
  if (f == "div") return a / b;
  if (f == "pow") return std::pow(a, b);
  if (f == "min") return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
  if (f == "max") return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
  if (f == "mod") return a - std::floor(a / b) * b;
  HONE_CHECK(false);
}

// Wraps around; a division by zero gives 0, as nothing else is defined.
int64_t BinaryWhole(std::string_view f, int64_t a, int64_t b) {
  auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  if (f == "add") return static_cast<int64_t>(ua + ub);
  if (f == "sub") return static_cast<int64_t>(ua - ub);
  if (f == "mul") return static_cast<int64_t>(ua * ub);
  if (f == "div") return b == 0 ? 0 : b == -1 ? static_cast<int64_t>(-ua) : a / b;  // towards zero
  if (f == "mod") {
    if (b == 0 || b == -1) return 0;
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
  if (f == "min") return std::min(a, b);
  if (f == "max") return std::max(a, b);
  if (f == "and") return a != 0 && b != 0;
  if (f == "or") return a != 0 || b != 0;
  if (f == "pow") return static_cast<int64_t>(std::pow(static_cast<double>(a), static_cast<double>(b)));
  HONE_CHECK(false);
}

Numbers Binary(const Node& node, Arguments in, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  const Numbers &a = *in[0], &b = *in[1];
  ForEach<2>(type.shape, {BroadcastStrides(a.shape, type.shape), BroadcastStrides(b.shape, type.shape)},
             [&](size_t i, const auto& at) {
               auto x = static_cast<size_t>(at[0]), y = static_cast<size_t>(at[1]);
               bool compared = false;
               if (a.is_real()) {
                 double truth = Compare(node.function, a.real[x], b.real[y], &compared);
                 if (compared) {
                   out.whole[i] = truth != 0;
                 } else {
                   out.real[i] = BinaryReal(node.function, a.real[x], b.real[y]);
                 }
               } else {
                 int64_t truth = Compare(node.function, a.whole[x], b.whole[y], &compared);
                 out.whole[i] = compared ? truth : BinaryWhole(node.function, a.whole[x], b.whole[y]);
               }
             });
  return out;
}

Numbers Select(Arguments in, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  ForEach<3>(type.shape,
             {BroadcastStrides(in[0]->shape, type.shape), BroadcastStrides(in[1]->shape, type.shape),
              BroadcastStrides(in[2]->shape, type.shape)},
             [&](size_t i, const auto& at) {
               bool first = in[0]->whole[static_cast<size_t>(at[0])] != 0;
               CopyElement(first ? *in[1] : *in[2], first ? at[1] : at[2], out, i);
             });
  return out;
}

Numbers Cast(const Numbers& x, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  size_t count = x.real.size() + x.whole.size();
  for (size_t i = 0; i < count; ++i) {
    if (out.is_real()) {
      out.real[i] = type.dtype == DType::kF32 ? static_cast<double>(static_cast<float>(x.RealAt(i))) : x.RealAt(i);
    } else if (type.dtype == DType::kBool) {
      out.whole[i] = x.RealAt(i) != 0;
    } else if (!x.is_real()) {
      out.whole[i] = type.dtype == DType::kI32  ? static_cast<int32_t>(x.whole[i])
                     : type.dtype == DType::kI8 ? static_cast<int8_t>(x.whole[i])
                                                : x.whole[i];
    } else {
      constexpr double kMost = 9.2e18;
      out.whole[i] = std::isnan(x.real[i]) ? 0 : static_cast<int64_t>(std::clamp(x.real[i], -kMost, kMost));
    }
  }
  return out;
}

// ---- contractions and windows

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

// Has the machine's threads call body(i) for 0 … count-1, in any order.
template <typename Body>
void InParallel(int64_t count, double work, const Body& body) {
  constexpr double kWorthAThread = 1e7;  // multiplications
  auto threads =
      static_cast<int64_t>(work < kWorthAThread ? 1U : std::clamp(std::thread::hardware_concurrency(), 1U, 64U));
  std::atomic<int64_t> next{0};
  auto run = [&] {
    for (int64_t i; (i = next.fetch_add(1)) < count;) body(i);
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < std::min(threads, count); ++i) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
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
  InParallel(type.shape[0] * type.shape[1], work, [&](int64_t plane) {
    int64_t n = plane / type.shape[1], o = plane % type.shape[1];
    std::vector<double> sums(static_cast<size_t>(rows * columns),
                             in.size() > 2 ? in[2]->RealAt(static_cast<size_t>(o)) : 0.0);
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
          for (int64_t z = first; z < last; ++z) sum[z] += factor * line[z * stride];
        }
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) Store(sums[i], out, static_cast<size_t>(plane) * sums.size() + i);
  });
  return out;
}

Numbers MatMul(const Node& node, Arguments in, const TensorType& type) {
  const Numbers &a = *in[0], &b = *in[1];
  Numbers out = MakeNumbers(type.dtype, type.shape);
  Reals left(a), right(b);
  int64_t m = type.shape[type.shape.size() - 2], n = type.shape.back(), k = a.shape.back();
  Shape batch(type.shape.begin(), type.shape.end() - 2);
  auto batch_strides = [&](const Numbers& operand) {
    Shape own(operand.shape.begin(), operand.shape.end() - 2);
    return BroadcastStrides(own, batch);
  };
  double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  ForEach<2>(batch, {batch_strides(a), batch_strides(b)}, [&](size_t index, const auto& at) {
    const double* matrix = right.data() + at[1] * k * n;
    // Columns in blocks, so that one row of a has work for several threads.
    constexpr int64_t kBlock = 64;
    int64_t blocks = (n + kBlock - 1) / kBlock;
    InParallel(m * blocks, work, [&](int64_t task) {
      int64_t row = task / blocks, begin = task % blocks * kBlock, end = std::min(n, begin + kBlock);
      const double* line = left.data() + (at[0] * m + row) * k;
      double sums[kBlock] = {};
      for (int64_t i = 0; i < k && !node.flag; ++i) {
        for (int64_t column = begin; column < end; ++column) sums[column - begin] += line[i] * matrix[i * n + column];
      }
      for (int64_t column = begin; column < end && node.flag; ++column) {
        for (int64_t i = 0; i < k; ++i) sums[column - begin] += line[i] * matrix[column * k + i];
      }
      for (int64_t column = begin; column < end; ++column) {
        Store(sums[column - begin], out, index * static_cast<size_t>(m * n) + static_cast<size_t>(row * n + column));
      }
    });
  });
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
    double total = 0, top = -std::numeric_limits<double>::infinity();
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
  std::vector<bool> begun(static_cast<size_t>(CountOf(type.shape)), false);
  std::string_view f = node.function == "mean" || node.function == "sum" ? "add"
                       : node.function == "prod"                         ? "mul"
                                                                         : std::string_view(node.function);
  ForEach<1>(x.shape, {into}, [&](size_t i, const auto& at) {
    auto to = static_cast<size_t>(at[0]);
    if (x.is_real()) {
      out.real[to] = begun[to] ? BinaryReal(f, out.real[to], x.real[i]) : x.real[i];
    } else {
      out.whole[to] = begun[to] ? BinaryWhole(f, out.whole[to], x.whole[i]) : x.whole[i];
    }
    begun[to] = true;
  });
  if (node.function == "mean") {
    int64_t count = CountOf(x.shape) / std::max<int64_t>(CountOf(type.shape), 1);
    for (double& value : out.real) value /= static_cast<double>(count);
    for (int64_t& value : out.whole) value /= count;
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
    double top = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t i = 0; i < extent; ++i) top = std::max(top, x.real[static_cast<size_t>(at[0] + i * step)]);
    for (int64_t i = 0; i < extent; ++i) {
      auto to = static_cast<size_t>(at[0] + i * step);
      total += out.real[to] = std::exp(x.real[to] - top);
    }
    for (int64_t i = 0; i < extent; ++i) out.real[static_cast<size_t>(at[0] + i * step)] /= total;
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

// ---- data movement

Numbers Slice(const Node& node, const Numbers& x, const TensorType& type) {
  std::vector<int64_t> strides = StridesOf(x.shape);
  int64_t base = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    base += node.starts[d] * strides[d];
    strides[d] *= node.steps[d];
  }
  return ReadStrided(x, type.shape, std::move(strides), base);
}

Numbers Pad(const Node& node, const Numbers& x, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  std::fill(out.real.begin(), out.real.end(), node.fill);
  std::fill(out.whole.begin(), out.whole.end(), static_cast<int64_t>(node.fill));
  std::vector<int64_t> to = StridesOf(type.shape);
  ForEach<1>(x.shape, {to}, [&](size_t i, const auto& at) {
    int64_t rest = static_cast<int64_t>(i), target = 0;
    (void)at;
    for (size_t d = x.shape.size(); d-- > 0;) {
      int64_t index = rest % x.shape[d] + node.starts[d];
      rest /= x.shape[d];
      if (index < 0 || index >= type.shape[d]) return;
      target += index * to[d];
    }
    CopyElement(x, static_cast<int64_t>(i), out, static_cast<size_t>(target));
  });
  return out;
}

Numbers Concat(const Node& node, Arguments in, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  auto axis = static_cast<size_t>(node.axis);
  std::vector<int64_t> strides = StridesOf(type.shape);
  int64_t begin = 0;
  for (const Numbers* x : in) {
    ForEach<1>(x->shape, {strides}, [&](size_t i, const auto& at) {
      CopyElement(*x, static_cast<int64_t>(i), out, static_cast<size_t>(begin * strides[axis] + at[0]));
    });
    begin += x->shape[axis];
  }
  return out;
}

Result<Numbers> Gather(const Node& node, Arguments in, const TensorType& type) {
  const Numbers &x = *in[0], &indices = *in[1];
  Numbers out = MakeNumbers(type.dtype, type.shape);
  auto axis = static_cast<size_t>(node.axis);
  int64_t extent = x.shape[axis], inner = 1, outer = 1;
  for (size_t d = 0; d < axis; ++d) outer *= x.shape[d];
  for (size_t d = axis + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  size_t to = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t index : indices.whole) {
      if (index < -extent || index >= extent) {
        return Error{ErrorKind::kInvalid, fmt::format("index {} of {} elements", index, extent), ""};
      }
      if (index < 0) index += extent;
      for (int64_t i = 0; i < inner; ++i) CopyElement(x, (o * extent + index) * inner + i, out, to++);
    }
  }
  return out;
}

Result<Numbers> GatherElements(const Node& node, Arguments in, const TensorType& type) {
  const Numbers &x = *in[0], &indices = *in[1];
  Numbers out = MakeNumbers(type.dtype, type.shape);
  auto axis = static_cast<size_t>(node.axis);
  std::vector<int64_t> strides = StridesOf(x.shape), others = strides;
  others[axis] = 0;
  int64_t extent = x.shape[axis], wrong = 0;
  ForEach<1>(type.shape, {others}, [&](size_t i, const auto& at) {
    int64_t index = indices.whole[i];
    if (index < -extent || index >= extent) {
      wrong = index;
      return;
    }
    CopyElement(x, at[0] + (index < 0 ? index + extent : index) * strides[axis], out, i);
  });
  if (wrong != 0) return Error{ErrorKind::kInvalid, fmt::format("index {} of {} elements", wrong, extent), ""};
  return out;
}

}  // namespace

Result<Numbers> Evaluate(const Node& node, Arguments in, const TensorType& type) {
  const Numbers& x = *in[0];
  switch (node.kind) {
    case NodeKind::kConv: return Conv(node, in, type);
    case NodeKind::kMatMul: return MatMul(node, in, type);
    case NodeKind::kMaxPool:
    case NodeKind::kAveragePool: return Pool(node, x, type);
    case NodeKind::kReduce: return Reduce(node, x, type);
    case NodeKind::kSoftmax: return Softmax(node, x, type);
    case NodeKind::kLayerNorm: return LayerNorm(node, in, type);
    case NodeKind::kUnary: {
      Numbers out = MakeNumbers(type.dtype, type.shape);
      for (size_t i = 0; i < out.real.size(); ++i) out.real[i] = UnaryReal(node.function, x.real[i]);
      for (size_t i = 0; i < out.whole.size(); ++i) out.whole[i] = UnaryWhole(node.function, x.whole[i]);
      return out;
    }
    case NodeKind::kBinary: return Binary(node, in, type);
    case NodeKind::kSelect: return Select(in, type);
    case NodeKind::kCast: return Cast(x, type);
    case NodeKind::kTranspose: {
      std::vector<int64_t> own = StridesOf(x.shape), strides;
      for (int64_t axis : node.axes) strides.push_back(own[static_cast<size_t>(axis)]);
      return ReadStrided(x, type.shape, std::move(strides), 0);
    }
    case NodeKind::kSlice: return Slice(node, x, type);
    case NodeKind::kPad: return Pad(node, x, type);
    case NodeKind::kConcat: return Concat(node, in, type);
    case NodeKind::kGather: return Gather(node, in, type);
    case NodeKind::kGatherElements: return GatherElements(node, in, type);
    case NodeKind::kExpand: return ReadStrided(x, type.shape, BroadcastStrides(x.shape, type.shape), 0);
    case NodeKind::kReshape: {
      Numbers out = x;
      out.shape = type.shape;
      return out;
    }
  }
  return Error{};
}

}  // namespace hone
