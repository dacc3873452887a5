#include "ir/graph/kernel.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "ir/graph/op_traits.h"

namespace hone {
namespace {

// Exact corner values of an operation that is monotonic in each argument.
template <typename F>
std::optional<ExtentRange> Corners(ExtentRange a, ExtentRange b, const F& f) {
  ExtentRange range{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  for (int64_t x : {a.lo, a.hi})
    for (int64_t y : {b.lo, b.hi}) {
      int64_t value = 0;
      if (f(x, y, &value)) return std::nullopt;
      range.lo = std::min(range.lo, value);
      range.hi = std::max(range.hi, value);
    }
  return range;
}

}  // namespace

std::optional<ExtentRange> CheckedExtent(const Kernel& kernel, const Expr& e) {
  if (e.op() == Op::kInt) return ExtentRange{e.int_value(), e.int_value()};
  if (e.op() == Op::kSize) {
    const Size& size = kernel.sizes[static_cast<size_t>(e.int_value())];
    return ExtentRange{size.lo, size.hi};
  }
  if (e.type() != DType::kI64 || e.args().size() != 2) return std::nullopt;
  std::optional<ExtentRange> a = CheckedExtent(kernel, e.arg(0)), b = CheckedExtent(kernel, e.arg(1));
  if (!a || !b) return std::nullopt;
  switch (e.op()) {
    case Op::kAdd:
      return Corners(*a, *b, [](int64_t x, int64_t y, int64_t* r) { return __builtin_add_overflow(x, y, r); });
    case Op::kSub:
      return Corners(*a, *b, [](int64_t x, int64_t y, int64_t* r) { return __builtin_sub_overflow(x, y, r); });
    case Op::kMul:
      return Corners(*a, *b, [](int64_t x, int64_t y, int64_t* r) { return __builtin_mul_overflow(x, y, r); });
    case Op::kMin: return ExtentRange{std::min(a->lo, b->lo), std::min(a->hi, b->hi)};
    case Op::kMax: return ExtentRange{std::max(a->lo, b->lo), std::max(a->hi, b->hi)};
    case Op::kFloorDiv:
      if (b->lo <= 0) return std::nullopt;
      return Corners(*a, *b, [](int64_t x, int64_t y, int64_t* r) { return *r = FloorDiv(x, y), false; });
    case Op::kMod:
      if (b->lo <= 0) return std::nullopt;
      if (a->lo == a->hi && b->lo == b->hi) return ExtentRange{FloorMod(a->lo, b->lo), FloorMod(a->lo, b->lo)};
      return ExtentRange{0, b->hi - 1};
    default: return std::nullopt;
  }
}

namespace {

ExtentRange RangeOf(const Kernel& kernel, const Expr& extent) {
  std::optional<ExtentRange> range = CheckedExtent(kernel, extent);
  HONE_CHECK(range.has_value());
  return *range;
}

}  // namespace

std::string_view AccuracyName(Accuracy accuracy) {
  switch (accuracy) {
    case Accuracy::kStrict: return "strict";
    case Accuracy::kRelaxed: return "relaxed";
    case Accuracy::kFast: return "fast";
  }
  return "";
}

std::optional<Accuracy> ParseAccuracy(std::string_view name) {
  for (Accuracy accuracy : {Accuracy::kStrict, Accuracy::kRelaxed, Accuracy::kFast})
    if (AccuracyName(accuracy) == name) return accuracy;
  return std::nullopt;
}

int64_t EvalExtent(const Kernel& kernel, const Expr& extent) {
  ExtentRange range = RangeOf(kernel, extent);
  HONE_CHECK(range.lo == range.hi);
  return range.lo;
}

int64_t UpperExtent(const Kernel& kernel, const Expr& extent) { return RangeOf(kernel, extent).hi; }
int64_t LowerExtent(const Kernel& kernel, const Expr& extent) { return RangeOf(kernel, extent).lo; }

std::vector<int> DynamicSizes(const Kernel& kernel) {
  std::vector<int> sizes;
  for (size_t i = 0; i < kernel.sizes.size(); ++i)
    if (!kernel.sizes[i].is_constant()) sizes.push_back(static_cast<int>(i));
  return sizes;
}

bool IsStatic(const Kernel& kernel) {
  return std::all_of(kernel.sizes.begin(), kernel.sizes.end(), [](const Size& s) { return s.is_constant(); });
}

std::vector<int> SizesByFirstUse(const Kernel& kernel) {
  std::vector<int> order;
  std::vector<bool> mentioned(kernel.sizes.size(), false);
  auto mention = [&](const Expr& expr) {
    if (!expr.Has(Op::kSize)) return;
    Walk(expr, [&](const Expr& e) {
      if (e.op() != Op::kSize || mentioned[static_cast<size_t>(e.int_value())]) return;
      mentioned[static_cast<size_t>(e.int_value())] = true;
      order.push_back(static_cast<int>(e.int_value()));
    });
  };
  for (TensorId id : kernel.operands) {
    const Tensor& tensor = kernel.tensors[id];
    for (const Expr& extent : tensor.declared) mention(extent);
    for (const Expr& extent : tensor.shape) mention(extent);
  }
  for (const Stage& stage : kernel.stages) {
    for (const Expr& extent : kernel.tensors[stage.output].shape) mention(extent);
    for (const Axis& axis : stage.reduce_axes) mention(axis.extent);
    mention(stage.body);
  }
  return order;
}

namespace {

template <typename T, typename Same>
bool SameList(const T& a, const T& b, const Same& same) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

bool SameAxis(const Axis& a, const Axis& b) { return a.name == b.name && SameExpr(a.extent, b.extent); }

}  // namespace

bool SameKernel(const Kernel& a, const Kernel& b) {
  auto same_size = [](const Size& x, const Size& y) { return x.name == y.name && x.lo == y.lo && x.hi == y.hi; };
  auto same_tensor = [](const Tensor& x, const Tensor& y) {
    return x.name == y.name && x.dtype == y.dtype && x.kind == y.kind && x.is_const == y.is_const &&
           SameList(x.shape, y.shape, SameExpr) && SameList(x.declared, y.declared, SameExpr);
  };
  auto same_stage = [](const Stage& x, const Stage& y) {
    return x.output == y.output && x.reduction == y.reduction && SameList(x.axes, y.axes, SameAxis) &&
           SameList(x.reduce_axes, y.reduce_axes, SameAxis) && SameExpr(x.body, y.body);
  };
  return a.name == b.name && a.operands == b.operands && a.options.accuracy == b.options.accuracy &&
         a.options.threads == b.options.threads && SameList(a.sizes, b.sizes, same_size) &&
         SameList(a.tensors, b.tensors, same_tensor) && SameList(a.stages, b.stages, same_stage);
}

std::vector<int64_t> StaticShape(const Kernel& kernel, const Tensor& tensor) {
  std::vector<int64_t> shape;
  for (const Expr& extent : tensor.shape) shape.push_back(EvalExtent(kernel, extent));
  return shape;
}

int64_t ElementCount(const Kernel& kernel, const Tensor& tensor) {
  int64_t count = 1;
  for (const Expr& extent : tensor.shape) count *= EvalExtent(kernel, extent);
  return count;
}

const Stage* ProducerOf(const Kernel& kernel, TensorId tensor) {
  for (const Stage& stage : kernel.stages)
    if (stage.output == tensor) return &stage;
  return nullptr;
}

TensorId OnlyInputOf(const Kernel& kernel, const Stage& stage) {
  TensorId found;
  bool one = true;
  IdVector<TensorId, bool> visited(kernel.tensors.size());  // a stage that many read is looked at once
  auto visit = [&](auto&& self, const Stage& at) -> void {
    Walk(at.body, [&](const Expr& e) {
      if (e.op() != Op::kLoad || visited[e.tensor()]) return;
      const TensorId tensor = e.tensor();
      visited[tensor] = true;
      if (const Stage* producer = ProducerOf(kernel, tensor)) return self(self, *producer);
      one &= !found || found == tensor;
      found = tensor;
    });
  };
  visit(visit, stage);
  return one ? found : TensorId();
}

double FlopCount(const Kernel& kernel) {
  double total = 0;
  for (const Stage& stage : kernel.stages) {
    double points = 1, per_point = 0;
    for (const Axis& axis : stage.axes) points *= static_cast<double>(EvalExtent(kernel, axis.extent));
    for (const Axis& axis : stage.reduce_axes) points *= static_cast<double>(EvalExtent(kernel, axis.extent));
    if (stage.reduction != Reduction::kNone) per_point += 1;
    auto is_index = [](const Expr& e) {
      return e.type() == DType::kI64 || (e.type() == DType::kBool && e.arg(0).type() == DType::kI64);
    };
    Walk(stage.body, [&](const Expr& e) {
      const OpTraits& traits = TraitsOf(e.op());
      const bool computes = traits.typing != Typing::kOwn && traits.takes != TypeSet::kBools;
      if (computes && !is_index(e)) per_point += 1;
    });
    total += points * per_point;
  }
  return total;
}

}  // namespace hone
