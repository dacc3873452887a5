#include "ir/reference/input_scale.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace hone {
namespace {

constexpr double kWanted = 32;         // of what becomes a byte
constexpr double kFloats = 0.5;        // root of the mean square of FillInput's floats, …
constexpr double kBytes = 74;          // … of an i8, and of others
constexpr double kSmallest = 0x1p-20;  // of a scale

// About root-mean-square · scale^power: how large a value is, and how it grows with the scale of the float inputs.
struct Magnitude {
  double rms = 1;
  double power = 0;
};

class Estimator {
 public:
  explicit Estimator(const Kernel& kernel) : kernel_(kernel), tensors_(kernel.tensors.size()) {
    for (TensorId id : kernel.tensors.ids()) {
      const DType type = kernel.tensors[id].dtype;
      tensors_[id] = IsFloat(type) ? Magnitude{kFloats, 1} : Magnitude{type == DType::kU8 ? 2 * kBytes : kBytes, 0};
    }
    for (const Stage& stage : kernel.stages) {
      known_.clear();
      Magnitude made = Of(stage.body);
      if (stage.reduction == Reduction::kSum) {
        double terms = 1;
        for (const Axis& axis : stage.reduce_axes) terms *= static_cast<double>(UpperExtent(kernel, axis.extent));
        made.rms *= std::sqrt(terms);
      }
      tensors_[stage.output] = made;
    }
  }

  double scale() const { return scale_; }

 private:
  Magnitude Of(const Expr& e) {
    if (auto found = known_.find(e.id()); found != known_.end()) return found->second;
    return known_[e.id()] = Compute(e);
  }

  Magnitude Larger(const Expr& a, const Expr& b) {
    const Magnitude x = Of(a), y = Of(b);
    return x.rms >= y.rms ? x : y;
  }

  Magnitude Compute(const Expr& e) {
    switch (e.op()) {
      case Op::kInt: return {std::abs(static_cast<double>(e.int_value())), 0};
      case Op::kFloat: return {std::abs(e.float_value()), 0};
      case Op::kLoad: return tensors_[e.tensor()];
      case Op::kPad:
      case Op::kAbs:
      case Op::kFloor:
      case Op::kRound: return Of(e.arg(0));
      case Op::kAdd:
      case Op::kSub:
      case Op::kMin:
      case Op::kMax: return Larger(e.arg(0), e.arg(1));
      case Op::kSelect: return Larger(e.arg(1), e.arg(2));
      case Op::kMul: {
        const Magnitude a = Of(e.arg(0)), b = Of(e.arg(1));
        return {a.rms * b.rms, a.power + b.power};
      }
      case Op::kDiv: {
        const Magnitude a = Of(e.arg(0)), b = Of(e.arg(1));
        return {b.rms > 0 ? a.rms / b.rms : a.rms, a.power - b.power};
      }
      case Op::kSqrt: {
        const Magnitude a = Of(e.arg(0));
        return {std::sqrt(a.rms), a.power / 2};
      }
      case Op::kCast: return Cast(e);
      default:
        for (const Expr& arg : e.args()) Of(arg);
        return {1, 0};
    }
  }

  Magnitude Cast(const Expr& e) {
    const Magnitude from = Of(e.arg(0));
    if (!IsFloat(e.arg(0).type()) || (e.type() != DType::kI8 && e.type() != DType::kU8)) return from;
    if (from.power > 0 && from.rms > kWanted)
      scale_ = std::min(scale_, std::exp2(std::floor(std::log2(kWanted / from.rms) / from.power)));
    return {kBytes, 0};
  }

  const Kernel& kernel_;
  IdVector<TensorId, Magnitude> tensors_;
  std::unordered_map<const ExprNode*, Magnitude> known_;
  double scale_ = 1;
};

}  // namespace

double InputScale(const Kernel& kernel) {
  const double scale = Estimator(kernel).scale();
  return std::isfinite(scale) ? std::max(kSmallest, scale) : 1;
}

}  // namespace hone
