// Nodes that compute each element from those at its place.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/graph/element.h"
#include "network/graph/evaluate_internal.h"

namespace hone::evaluating {
namespace {

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

}  // namespace

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

Numbers Unary(const Node& node, const Numbers& x, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  for (size_t i = 0; i < out.real.size(); ++i) out.real[i] = UnaryReal(node.function, x.real[i]);
  for (size_t i = 0; i < out.whole.size(); ++i) out.whole[i] = UnaryWhole(node.function, x.whole[i]);
  return out;
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
      out.real[i] = RoundedTo(type.dtype, x.RealAt(i));
    } else if (type.dtype == DType::kBool) {
      out.whole[i] = x.RealAt(i) != 0;
    } else if (!x.is_real()) {
      out.whole[i] = VisitElement(type.dtype, [&]<typename T>(std::type_identity<T>) {
        if constexpr (std::is_integral_v<T>) return static_cast<int64_t>(static_cast<T>(x.whole[i]));
        return int64_t{0};
      });
    } else {
      constexpr double kMost = 9.2e18;
      out.whole[i] = std::isnan(x.real[i]) ? 0 : static_cast<int64_t>(std::clamp(x.real[i], -kMost, kMost));
    }
  }
  return out;
}

}  // namespace hone::evaluating
