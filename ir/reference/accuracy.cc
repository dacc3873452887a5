#include "ir/reference/accuracy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/graph/dtype_traits.h"

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
  const DTypeTraits& traits = TraitsOf(type);
  const double stored = traits.accumulator == type ? 0 : traits.unit_roundoff;  // rounded once more
  switch (accuracy) {
    case Accuracy::kRelaxed: return 1e-4 + stored;
    case Accuracy::kFast: return 1e-2 + stored;
    case Accuracy::kStrict: break;
  }
  return (4 + std::sqrt(static_cast<double>(LongestReduction(kernel)))) * TraitsOf(traits.accumulator).unit_roundoff +
         stored;
}

double Tolerance(const Kernel& kernel, Accuracy accuracy) {
  bool any = false;
  DType coarsest = DType::kF64;
  for (const Tensor& tensor : kernel.tensors) {
    if (!IsFloat(tensor.dtype)) continue;
    any |= tensor.kind == TensorKind::kOutput;
    if (TraitsOf(tensor.dtype).unit_roundoff > TraitsOf(coarsest).unit_roundoff) coarsest = tensor.dtype;
  }
  if (!any) return 0;
  return FloatTolerance(kernel, accuracy, coarsest);
}

double RelativeError(double y, const Reference& reference, DType type) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  double r = reference.value;
  if (y == r || (std::isnan(y) && std::isnan(r))) return 0;
  if (!IsFloat(type)) return std::abs(y - r) <= reference.magnitude ? 0 : kInfinite;
  if (std::isinf(y) && std::abs(r) >= TraitsOf(type).largest && std::signbit(y) == std::signbit(r)) return 0;
  if (!std::isfinite(y) || !std::isfinite(r)) return kInfinite;
  double difference = std::abs(y - r);
  if (difference <= TraitsOf(type).smallest) return 0;
  return reference.magnitude > 0 ? difference / reference.magnitude : kInfinite;
}

}  // namespace hone
