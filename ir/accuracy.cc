#include "ir/accuracy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hone {

int64_t LongestReduction(const Kernel& kernel) {
  int64_t longest = 1;
  for (const Stage& stage : kernel.stages) {
    int64_t points = 1;
    for (const Axis& axis : stage.reduce_axes) points *= EvalExtent(kernel, axis.extent);
    longest = std::max(longest, points);
  }
  return longest;
}

double FloatTolerance(const Kernel& kernel, Accuracy accuracy, DType type) {
  switch (accuracy) {
    case Accuracy::kRelaxed: return 1e-4;
    case Accuracy::kFast: return 1e-2;
    case Accuracy::kStrict: break;
  }
  double rounding = type == DType::kF64 ? 0x1p-53 : 0x1p-24;
  return (4 + std::sqrt(static_cast<double>(LongestReduction(kernel)))) * rounding;
}

double Tolerance(const Kernel& kernel, Accuracy accuracy) {
  bool any = false, all_double = true;
  for (TensorId id : kernel.operands) {
    const Tensor& tensor = kernel.tensors[static_cast<size_t>(id)];
    if (!IsFloat(tensor.dtype)) continue;
    any |= tensor.kind == TensorKind::kOutput;
    all_double &= tensor.dtype == DType::kF64;
  }
  if (!any) return 0;
  for (const Tensor& tensor : kernel.tensors) all_double &= !IsFloat(tensor.dtype) || tensor.dtype == DType::kF64;
  return FloatTolerance(kernel, accuracy, all_double ? DType::kF64 : DType::kF32);
}

double RelativeError(double y, const Reference& reference, DType type) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  double r = reference.value;
  if (y == r || (std::isnan(y) && std::isnan(r))) return 0;
  if (!IsFloat(type)) return std::abs(y - r) <= reference.magnitude ? 0 : kInfinite;
  bool narrow = type == DType::kF32;
  double largest = narrow ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  double smallest = narrow ? std::numeric_limits<float>::min() : std::numeric_limits<double>::min();
  if (std::isinf(y) && std::abs(r) >= largest && std::signbit(y) == std::signbit(r)) return 0;
  if (!std::isfinite(y) || !std::isfinite(r)) return kInfinite;
  double difference = std::abs(y - r);
  if (difference <= smallest) return 0;
  return reference.magnitude > 0 ? difference / reference.magnitude : kInfinite;
}

}  // namespace hone
