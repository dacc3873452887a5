// Nodes that compute each element from those at its place.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/graph/element.h"
#include "network/graph/evaluate_internal.h"
#include "network/graph/whole_functions.h"

namespace hone::evaluating {
namespace {

template <typename Function>
struct Named {
  std::string_view name;
  Function function;
};

template <typename Function, size_t kCount>
Function FunctionIn(const Named<Function> (&table)[kCount], std::string_view name) {
  for (const Named<Function>& row : table)
    if (row.name == name) return row.function;
  return nullptr;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Tanh3(double x) { return std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); }

constexpr Named<double (*)(double)> kUnaryReal[] = {
    {"neg", [](double x) { return -x; }},
    {"relu", [](double x) { return x < 0 ? 0 : x; }},  // NaN stays
    {"relu6", [](double x) { return x < 0   ? 0
                                    : x > 6 ? 6
                                            : x; }},
    {"sigmoid", Sigmoid},
    {"silu", [](double x) { return x * Sigmoid(x); }},
    {"hardswish", [](double x) { return x * std::min(std::max(x + 3, 0.0), 6.0) / 6; }},
    {"gelu", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
    {"gelu_tanh", [](double x) { return 0.5 * x * (1 + Tanh3(x)); }},
    {"tanh", [](double x) { return std::tanh(x); }},
    {"exp", [](double x) { return std::exp(x); }},
    {"log", [](double x) { return std::log(x); }},
    {"sqrt", [](double x) { return std::sqrt(x); }},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
    {"erf", [](double x) { return std::erf(x); }},
    {"abs", [](double x) { return std::abs(x); }},
    {"floor", [](double x) { return std::floor(x); }},
    {"round", [](double x) { return std::nearbyint(x); }},
    {"sin", [](double x) { return std::sin(x); }},
    {"cos", [](double x) { return std::cos(x); }}};

constexpr Named<double (*)(double, double)> kBinaryReal[] = {
    {"add", [](double a, double b) { return a + b; }},
    {"sub", [](double a, double b) { return a - b; }},
    {"mul", [](double a, double b) { return a * b; }},
    {"div", [](double a, double b) { return a / b; }},
    {"pow", [](double a, double b) { return std::pow(a, b); }},
    {"min", [](double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); }},
    {"max", [](double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }},
    {"mod", [](double a, double b) { return a - std::floor(a / b) * b; }},
    {"fmod", [](double a, double b) { return std::fmod(a, b); }}};

// Calls visit(i, a, b) with the elements of two operands, which broadcast, as numbers of type T.
template <typename T, typename From, typename Visit>
void ForEachPair(const std::vector<From>& a, const std::vector<From>& b, Arguments in, const Shape& shape,
                 const Visit& visit) {
  ForEach<2>(shape, {BroadcastStrides(in[0]->shape, shape), BroadcastStrides(in[1]->shape, shape)},
             [&](size_t i, const auto& at) {
               visit(i, static_cast<T>(a[static_cast<size_t>(at[0])]), static_cast<T>(b[static_cast<size_t>(at[1])]));
             });
}

template <typename T, typename From>
Numbers Compared(std::string_view name, const std::vector<From>& a, const std::vector<From>& b, Arguments in,
                 const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  bool (*function)(T, T) = nullptr;
  WithComparison<T>(name, [&](auto compare) { function = compare; });
  ForEachPair<T>(a, b, in, type.shape, [&](size_t i, T x, T y) { out.whole[i] = function(x, y); });
  return out;
}

}  // namespace

double (*BinaryReal(std::string_view name))(double, double) {
  const auto function = FunctionIn(kBinaryReal, name);
  HONE_CHECK(function != nullptr);
  return function;
}

int64_t (*BinaryWhole(std::string_view name, DType dtype))(int64_t, int64_t) {
  int64_t (*function)(int64_t, int64_t) = nullptr;
  HONE_CHECK(WithBinaryWhole(name, dtype == DType::kU64, [&](auto of_two) { function = of_two; }));
  return function;
}

Numbers Unary(const Node& node, const Numbers& x, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  const auto real = FunctionIn(kUnaryReal, node.function);
  if (out.is_real()) {
    HONE_CHECK(real != nullptr);
    std::transform(x.real.begin(), x.real.end(), out.real.begin(), real);
    return out;
  }
  if (WithUnaryWhole(node.function, [&](auto function) {
        std::transform(x.whole.begin(), x.whole.end(), out.whole.begin(), function);
      }))
    return out;
  HONE_CHECK(real != nullptr);
  for (size_t i = 0; i < out.whole.size(); ++i) out.whole[i] = static_cast<int64_t>(real(x.RealAt(i)));
  return out;
}

Numbers Binary(const Node& node, Arguments in, const TensorType& type) {
  const Numbers &a = *in[0], &b = *in[1];
  if (WithComparison<double>(node.function, [](auto) {})) {
    if (a.is_real()) return Compared<double>(node.function, a.real, b.real, in, type);
    if (a.dtype == DType::kU64) return Compared<uint64_t>(node.function, a.whole, b.whole, in, type);
    return Compared<int64_t>(node.function, a.whole, b.whole, in, type);
  }
  Numbers out = MakeNumbers(type.dtype, type.shape);
  if (a.is_real()) {
    const auto function = BinaryReal(node.function);
    ForEachPair<double>(a.real, b.real, in, type.shape,
                        [&](size_t i, double x, double y) { out.real[i] = function(x, y); });
  } else {
    const auto function = BinaryWhole(node.function, a.dtype);
    ForEachPair<int64_t>(a.whole, b.whole, in, type.shape,
                         [&](size_t i, int64_t x, int64_t y) { out.whole[i] = function(x, y); });
  }
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

int64_t Truncated(double x, DType dtype) {
  if (std::isnan(x)) return 0;
  if (dtype == DType::kU64) {
    if (x <= 0) return 0;
    return x >= 0x1p64 ? -1 : static_cast<int64_t>(static_cast<uint64_t>(x));
  }
  const DTypeTraits& traits = TraitsOf(dtype);
  if (x <= static_cast<double>(traits.lowest)) return traits.lowest;
  return x >= static_cast<double>(traits.highest) ? traits.highest : static_cast<int64_t>(x);
}

Numbers Cast(const Numbers& x, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  size_t count = x.real.size() + x.whole.size();
  for (size_t i = 0; i < count; ++i) {
    if (out.is_real()) {
      out.real[i] = RoundedTo(type.dtype, x.RealAt(i));
    } else if (type.dtype == DType::kBool) {
      out.whole[i] = x.RealAt(i) != 0;
    } else if (x.is_real()) {
      out.whole[i] = Truncated(x.real[i], type.dtype);
    } else {
      out.whole[i] = x.whole[i];  // wraps around in a narrower type: SettleInType
    }
  }
  return out;
}

}  // namespace hone::evaluating
