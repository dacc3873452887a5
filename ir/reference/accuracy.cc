#include "ir/reference/accuracy.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_set>
#include <vector>

#include "ir/graph/dtype_traits.h"

namespace hone {

namespace {

int64_t PointsOf(const Kernel& kernel, const Stage& stage) {
  int64_t points = 1;
  for (const Axis& axis : stage.reduce_axes) points *= EvalExtent(kernel, axis.extent);
  return points;
}

}  // namespace

int64_t LongestReduction(const Kernel& kernel) {
  int64_t longest = 1;
  for (const Stage& stage : kernel.stages) longest = std::max(longest, PointsOf(kernel, stage));
  return longest;
}

namespace {

// How many roundings of one size a reduction's amount to: those of a sum of K terms as √K, since they have both signs
// and sums on the way are smaller than the terms' absolute values; those of a product all weigh in full.
double RoundingsOf(const Kernel& kernel) {
  double most = 1;
  for (const Stage& stage : kernel.stages) {
    const auto points = static_cast<double>(PointsOf(kernel, stage));
    most = std::max(most, stage.reduction == Reduction::kProd ? points : std::sqrt(points));
  }
  return most;
}

// The conversion that a stage's value is, or may be: under what chooses one of its operands.
void FindLast(const Expr& e, std::unordered_set<const ExprNode*>& last) {
  if (!IsNarrowFloat(e.type()) || !last.insert(e.id()).second) return;
  if (e.op() == Op::kSelect || e.op() == Op::kMin || e.op() == Op::kMax)
    for (const Expr& arg : e.args()) FindLast(arg, last);
}

// What roundings to narrow floats add to the tolerance where their values are computed with: a unit of each. The last
// one of a result is not among them, which Allowed counts.
double InnerRoundings(const Kernel& kernel) {
  IdVector<TensorId, bool> read(kernel.tensors.size());
  std::unordered_set<const ExprNode*> seen;
  std::vector<Expr> conversions;
  std::function<void(const Expr&)> visit = [&](const Expr& e) {
    if (!seen.insert(e.id()).second) return;
    if (e.op() == Op::kLoad) read[e.tensor()] = true;
    if (e.op() == Op::kCast && IsNarrowFloat(e.type())) conversions.push_back(e);
    for (const Expr& arg : e.args()) visit(arg);
  };
  for (const Stage& stage : kernel.stages) visit(stage.body);
  std::unordered_set<const ExprNode*> last;
  for (const Stage& stage : kernel.stages) {
    const bool is_result = kernel.tensors[stage.output].kind == TensorKind::kOutput;
    if (is_result && !read[stage.output]) FindLast(stage.body, last);
  }
  double sum = 0;
  for (const Expr& conversion : conversions)
    if (!last.contains(conversion.id())) sum += TraitsOf(conversion.type()).unit_roundoff;
  return sum;
}

}  // namespace

double FloatTolerance(const Kernel& kernel, Accuracy accuracy, DType type) {
  const double unit = TraitsOf(TraitsOf(type).accumulator).unit_roundoff;
  double tolerance = InnerRoundings(kernel);
  switch (accuracy) {
    case Accuracy::kStrict: return tolerance + (4 + RoundingsOf(kernel)) * unit;
    case Accuracy::kRelaxed: return tolerance + 1e-4;
    case Accuracy::kFast: return tolerance + 1e-2;
  }
  return tolerance;
}

double Tolerance(const Kernel& kernel, Accuracy accuracy) {
  bool any = false;
  DType coarsest = DType::kF64;
  auto meet = [&](DType type) {
    if (IsFloat(type) && TraitsOf(type).unit_roundoff > TraitsOf(coarsest).unit_roundoff) coarsest = type;
  };
  for (const Tensor& tensor : kernel.tensors) {
    any |= tensor.kind == TensorKind::kOutput && IsFloat(tensor.dtype);
    meet(tensor.dtype);
  }
  if (!any) return 0;
  for (const Stage& stage : kernel.stages) Walk(stage.body, [&](const Expr& e) { meet(e.type()); });
  return FloatTolerance(kernel, accuracy, coarsest);
}

double Allowed(const Reference& reference, DType type, double tolerance) {
  if (!IsFloat(type)) return 0;
  if (!IsNarrowFloat(type)) return tolerance;
  const double unit = TraitsOf(type).unit_roundoff, size = std::abs(reference.value);
  if (!(reference.magnitude > 0) || !std::isfinite(size)) return tolerance;
  // What is rounded is y, which may be that much larger than r.
  return tolerance * (1 + unit) + unit * size / reference.magnitude;
}

double RelativeError(double y, const Reference& reference, DType type) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  double r = reference.value;
  if (y == r || (std::isnan(y) && std::isnan(r))) return 0;
  if (!IsFloat(type)) return std::abs(y - r) <= reference.magnitude ? 0 : kInfinite;
  if (std::isinf(y) && std::abs(r) >= TraitsOf(type).largest && std::signbit(y) == std::signbit(r)) return 0;
  if (!std::isfinite(y) || !std::isfinite(r)) return kInfinite;
  double difference = std::abs(y - r);
  if (difference <= TraitsOf(type).underflow) return 0;
  return reference.magnitude > 0 ? difference / reference.magnitude : kInfinite;
}

}  // namespace hone
