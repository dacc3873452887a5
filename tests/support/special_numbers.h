// Kernels whose results tell NaN, infinities, both zeros and the smallest numbers apart, and operands full of them.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/element.h"
#include "ir/graph/kernel.h"

namespace hone {

struct SpecialKernel {
  std::string text;
  // All pairs of special numbers, in operands of 256 elements; or a few of them in rows of 16 among ordinary ones.
  enum class Data { kPairs, kRows } data = Data::kPairs;
};

// Of f32 or f64. A zero's sign is seen in 1 / x. What kernels leave open is not asked: which zero
// min and max give of two, and the sign of a sum of zeros.
inline std::vector<SpecialKernel> SpecialKernels(std::string_view type) {
  std::vector<SpecialKernel> kernels;
  const auto in = [&](std::string text) {
    for (size_t at = 0; (at = text.find("TYPE", at)) != std::string::npos;) text.replace(at, 4, type);
    return text;
  };
  for (const char* value :
       {"if(a[i] == 0.0 and b[i] == 0.0, max(a[i], b[i]), 1.0 / max(a[i], b[i]))",
        "if(a[i] == 0.0 and b[i] == 0.0, min(a[i], b[i]), 1.0 / min(a[i], b[i]))",
        "if(a[i] == 0.0, relu(a[i]), 1.0 / relu(a[i])) + relu6(b[i])",
        "clamp(a[i], -0.75, 1.5) + clamp(b[i], 1.5, 2.0)",
        "if(a[i] < b[i], 1.0, 0.0) + if(a[i] <= b[i], 2.0, 0.0) + if(a[i] == b[i], 4.0, 0.0) + if(a[i] != b[i], 8.0, "
        "0.0) + if(a[i] > b[i], 16.0, 0.0) + if(a[i] >= b[i], 32.0, 0.0) + if(not (a[i] < b[i]), 64.0, 0.0)",
        "1.0 / if(a[i] < b[i], -a[i], abs(b[i]))", "a[i] + b[i] + 1.0 / (a[i] * b[i])",
        "a[i] - b[i] + 1.0 / (a[i] - b[i] * 0.0)", "a[i] / b[i]", "1.0 / (a[i] + b[i]) + 0.0 * a[i]",
        "sqrt(a[i]) + rsqrt(b[i])", "if(a[i] < b[i], 1.0 / sqrt(a[i]), 1.0 / (b[i] * 1.0))", "exp(a[i]) + exp(-b[i])",
        "log(a[i]) - log(b[i])", "if(a[i] < b[i], 1.0 / tanh(a[i]), 1.0 / erf(b[i]))",
        "if(a[i] < b[i], 1.0 / sin(a[i]), cos(b[i]))", "1.0 / floor(a[i]) + 1.0 / round(b[i])",
        "sigmoid(a[i]) + silu(b[i]) + gelu(a[i]) + hardswish(b[i])"})
    kernels.push_back(
        {in(std::string("kernel k(a: TYPE[N], b: TYPE[N]) -> y: TYPE[N] where N=256 { y[i] = ") + value + " }")});
  if (type == "f32")
    for (const char* value : {"f32(i32(a[i])) + f32(u8(b[i])) + f32(i8(a[i]))",
                              "if(a[i] != 0.0 and abs(a[i]) < 1e-7, 0.0, 1.0 / f32(f16(a[i]))) + f32(bf16(b[i]))"})
      kernels.push_back(
          {in(std::string("kernel k(a: TYPE[N], b: TYPE[N]) -> y: TYPE[N] where N=256 { y[i] = ") + value + " }")});
  const std::string dtype = std::string(",dtype=") + std::string(type) + ")";
  for (const char* operation :
       {"maxpool2d(N=1,C=5,H=16,W=16,R=3,S=3,stride=1,pad=1", "softmax(M=80,N=16", "layer_norm(M=80,N=16",
        "reduce_sum(M=80,N=16", "matmul(M=80,N=16,K=16", "conv2d(C=5,H=16,W=16,O=3,R=3,S=3,pad=1"})
    kernels.push_back({operation + dtype, SpecialKernel::Data::kRows});
  for (const char* value : {"1.0 / (max(n) (if(x[m, n] == 0.0, 0.0, x[m, n]) - 0.25))", "1.0 / (min(n) x[m, n] + 0.75)",
                            "1.0 / prod(n) x[m, n]"})
    kernels.push_back(
        {in(std::string("kernel k(x: TYPE[M, N]) -> y: TYPE[M] where M=80, N=16 { y[m] = ") + value + " }"),
         SpecialKernel::Data::kRows});
  return kernels;
}

// Operand number `operand` of such a kernel.
inline void FillSpecial(DType type, SpecialKernel::Data data, size_t operand, std::span<std::byte> bytes) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  // What is computed of them on the way leaves no type's range.
  const double normal = type == DType::kF64 ? 0x1p-1022 : 0x1p-126, large = type == DType::kF64 ? 0x1p1000 : 0x1p120;
  const bool is_pairs = data == SpecialKernel::Data::kPairs;
  const std::array<double, 16> special{0.0,
                                       -0.0,
                                       nan,
                                       inf,
                                       -inf,
                                       1.0,
                                       -1.0,
                                       is_pairs ? normal : 3.0,
                                       -2.5,
                                       is_pairs ? large : 4.0,
                                       is_pairs ? -large : -4.0,
                                       is_pairs ? normal * 0.375 : 1.25,
                                       is_pairs ? normal * -0.5 : -8.0,
                                       -2.0,
                                       0.75,
                                       3.0};
  const size_t count = bytes.size() / static_cast<size_t>(ByteSize(type));
  for (size_t i = 0; i < count; ++i) {
    double value = special[(operand == 0 ? i / special.size() : i) % special.size()];
    if (data == SpecialKernel::Data::kRows) {
      // Rows 0 … 15 have one of a kind, the next have it throughout, and others two kinds or more.
      const size_t row = i / 16, place = (i * 7 + operand) % 16;
      const bool is_special = operand == 0 && row % 80 < 16   ? place == row % 16
                              : operand == 0 && row % 80 < 32 ? true
                              : operand == 0                  ? place % 5 == 0
                                                              : i % 37 == 36;
      value = is_special ? special[(row % 80 < 32 ? row : row + i * 3) % special.size()]
                         : (static_cast<double>(i * 11 % 16) - 7.5) / 8;
    }
    StoreElement(type, value, bytes.data(), i);
  }
}

}  // namespace hone
