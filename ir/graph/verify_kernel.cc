#include "ir/graph/verify_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ir/graph/bounds.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/op_traits.h"
#include "ir/graph/print.h"

namespace hone {
namespace {

// Work that proofs may take in one kernel (ir/graph/bounds.h), and what a visit of a node under a condition counts of
// it. It bounds time and memory alike.
constexpr int64_t kProofBudget = 8'000'000;
constexpr int64_t kVisitWork = 16;

bool IsOnlyConverted(DType type) { return IsNarrowFloat(type) || type == DType::kU8; }

// Arguments and types of one node, its arguments being right. Loads are checked against their tensor elsewhere.
bool NodeIsWellTyped(const Expr& e) {
  const OpTraits& traits = TraitsOf(e.op());
  const DType type = e.type();
  auto arg = [&](size_t i) { return e.arg(i).type(); };
  if (traits.arity >= 0 && e.args().size() != static_cast<size_t>(traits.arity)) return false;
  const bool alike = std::all_of(e.args().begin(), e.args().end(), [&](const Expr& a) { return a.type() == arg(0); });
  switch (traits.typing) {
    case Typing::kAlike:
      // Arithmetic on these is arithmetic on what they are converted to: it rounds or wraps where the kernel says so.
      if (IsOnlyConverted(type) && traits.error_flow != ErrorFlow::kChooses) return false;
      return alike && arg(0) == type && Contains(traits.takes, type);
    case Typing::kCompares: return alike && type == DType::kBool && Contains(traits.takes, arg(0));
    case Typing::kOwn: break;
  }
  switch (e.op()) {
    case Op::kInt: return !IsFloat(type);
    case Op::kFloat: return IsFloat(type);
    case Op::kSize:
    case Op::kAxis: return type == DType::kI64;
    case Op::kLoad: return true;
    case Op::kPad:
      return e.arg(0).op() == Op::kLoad && arg(0) == type && arg(1) == type &&
             (e.arg(1).op() == Op::kInt || e.arg(1).op() == Op::kFloat);
    case Op::kSelect: return arg(0) == DType::kBool && arg(1) == type && arg(2) == type;
    case Op::kCast: return type != DType::kBool;
    default: return false;
  }
}

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel)
      : kernel_(kernel), ranges_(DynamicSizes(kernel)), written_(kernel.tensors.size()) {}

  std::optional<Violation> Run() {
    CheckSizes();
    if (!found_) CheckTensors();
    for (stage_ = StageId(0); !found_ && kernel_.stages.contains(stage_); ++stage_) CheckStage();
    for (TensorId id : kernel_.tensors.ids())
      if (!found_ && !written_[id]) Fail(fmt::format("no stage fills {}", kernel_.tensors[id].name));
    return std::move(found_);
  }

 private:
  void Fail(std::string message, const ExprNode* node = nullptr) {
    if (found_) return;
    const StageId stage = std::clamp(stage_, StageId(0), std::max(StageId(0), kernel_.stages.last()));
    found_ = Violation{Error{ErrorKind::kInvalid, std::move(message), fmt::format("stage {}", stage.value + 1)}, stage,
                       node};
  }

  void CheckSizes() {
    for (const Size& size : kernel_.sizes)
      if (size.lo < 0 || size.hi < size.lo)
        Fail(fmt::format("size {} has the range {}..{}", size.name, size.lo, size.hi));
  }

  void CheckExtent(const Expr& extent, std::string_view what) {
    bool over_sizes = static_cast<bool>(extent);
    if (over_sizes)
      Walk(extent, [&](const Expr& e) {
        bool allowed = e.op() == Op::kInt || e.op() == Op::kSize || IsIndexArithmetic(e.op());
        over_sizes &= allowed && e.type() == DType::kI64 && NodeIsWellTyped(e) &&
                      (e.op() != Op::kSize || static_cast<uint64_t>(e.int_value()) < kernel_.sizes.size());
      });
    if (!over_sizes) return Fail(fmt::format("{} is not an expression over sizes", what));
    std::optional<ExtentRange> range = CheckedExtent(kernel_, extent);
    if (!range || range->lo < 1)
      Fail(fmt::format("{} is {}, wanted at least 1", what, range ? fmt::format("{}", range->lo) : "not a number"));
  }

  void CheckTensors() {
    auto check_all = [&](const std::vector<Expr>& dims, const Tensor& tensor) {
      for (size_t d = 0; d < dims.size() && !found_; ++d)
        CheckExtent(dims[d], fmt::format("dimension {} of {}", d + 1, tensor.name));
    };
    for (const Tensor& tensor : kernel_.tensors) {
      check_all(tensor.declared, tensor);
      check_all(tensor.shape, tensor);
    }
    IdVector<TensorId, bool> listed(kernel_.tensors.size());
    bool outputs = false;
    for (TensorId id : kernel_.operands) {
      if (!kernel_.tensors.contains(id) || listed[id])
        return Fail("the list of operands names no tensor, or one twice");
      TensorKind kind = kernel_.tensors[id].kind;
      listed[id] = true;
      if (kind == TensorKind::kIntermediate || (kind == TensorKind::kInput && outputs))
        return Fail("operands are inputs, then outputs");
      outputs |= kind == TensorKind::kOutput;
      written_[id] = kind == TensorKind::kInput;
    }
    if (!outputs) Fail("a kernel has at least one output");
    for (TensorId id : kernel_.tensors.ids())
      if (!listed[id] && kernel_.tensors[id].kind != TensorKind::kIntermediate)
        Fail(fmt::format("{} is not in the list of operands", kernel_.tensors[id].name));
  }

  void CheckStage() {
    const Stage& stage = kernel_.stages[stage_];
    if (!kernel_.tensors.contains(stage.output)) return Fail("a stage writes no tensor");
    const Tensor& output = kernel_.tensors[stage.output];
    if (output.kind == TensorKind::kInput) return Fail(fmt::format("input {} is written", output.name));
    if (written_[stage.output]) return Fail(fmt::format("{} is written twice", output.name));
    if (stage.axes.size() != output.shape.size())
      return Fail(
          fmt::format("{} has {} dimensions, its stage {} axes", output.name, output.shape.size(), stage.axes.size()));
    for (size_t d = 0; d < stage.axes.size(); ++d)
      if (!SameExpr(stage.axes[d].extent, output.shape[d]))
        return Fail(
            fmt::format("axis {} of {} has another extent than its dimension", stage.axes[d].name, output.name));
    for (const Axis& axis : stage.reduce_axes) CheckExtent(axis.extent, fmt::format("the range of {}", axis.name));
    if ((stage.reduction == Reduction::kNone) != stage.reduce_axes.empty())
      return Fail(fmt::format("{} has reduction axes without a reduction, or the reverse", output.name));
    if (!stage.body || stage.body.type() != output.dtype ||
        (stage.reduction != Reduction::kNone && output.dtype == DType::kBool))
      return Fail(fmt::format("the value of {} has another type than the tensor", output.name));
    if ((stage.reduction == Reduction::kSum || stage.reduction == Reduction::kProd) && IsOnlyConverted(output.dtype))
      return Fail(fmt::format("{} sums up in {}, wanted a tensor of {}", output.name, Name(output.dtype),
                              Name(TraitsOf(output.dtype).accumulator)));
    std::unordered_set<const ExprNode*> seen;
    CheckForm(stage, stage.body, seen);
    if (found_) return;
    checked_.clear();
    BoundsProver prover(kernel_, stage, ranges_, &budget_);
    if (budget_ <= 0) return Fail(TooHard(stage));
    CheckAccesses(stage, stage.body, prover);
    written_[stage.output] = true;
  }

  // Types, arities and references of every node.
  void CheckForm(const Stage& stage, const Expr& e, std::unordered_set<const ExprNode*>& seen) {
    if (found_ || !seen.insert(e.id()).second) return;
    for (const Expr& arg : e.args()) {
      if (!arg) return Fail("an operand is missing");
      CheckForm(stage, arg, seen);
    }
    if (found_) return;
    if (!NodeIsWellTyped(e))
      return Fail(fmt::format("the operands of {} do not fit its type {}", OpName(e.op()), Name(e.type())));
    uint64_t value = static_cast<uint64_t>(e.int_value());
    if (e.op() == Op::kSize && value >= kernel_.sizes.size())
      return Fail("an expression names a size that is not there");
    if (e.op() == Op::kAxis && value >= stage.axis_count())
      return Fail("an expression names an axis that is not there");
    if (e.op() != Op::kLoad) return;
    if (value >= kernel_.tensors.size()) return Fail("an expression reads a tensor that is not there");
    const Tensor& tensor = kernel_.tensors[e.tensor()];
    if (!written_[e.tensor()])
      return Fail(fmt::format("{} is read before the stage that fills it", tensor.name), e.id());
    if (e.args().size() != tensor.shape.size())
      return Fail(
          fmt::format("{} has {} dimensions, saw {} indices", tensor.name, tensor.shape.size(), e.args().size()),
          e.id());
    if (e.type() != tensor.dtype)
      return Fail(fmt::format("a load of {} has another type than the tensor", tensor.name), e.id());
    for (const Expr& arg : e.args())
      if (arg.type() != DType::kI64) return Fail(fmt::format("an index of {} is not an integer", tensor.name), e.id());
  }

  // An access that was proven without an assumption needs no second look, however often its node is shared.
  void CheckAccesses(const Stage& stage, const Expr& e, BoundsProver& prover) {
    if (found_ || e.args().empty() || checked_.count(e.id())) return;
    if (conditions_ == 0) checked_.insert(e.id());
    // Shared nodes under conditions are looked at once per way to them; this bounds the ways.
    if (conditions_ > 0) budget_ -= kVisitWork;
    if (budget_ <= 0) return Fail(TooHard(stage));
    switch (e.op()) {
      case Op::kSelect:
        CheckAccesses(stage, e.arg(0), prover);
        for (int side : {1, 2}) {
          prover.Assume(e.arg(0), side == 1);
          ++conditions_;
          CheckAccesses(stage, e.arg(static_cast<size_t>(side)), prover);
          --conditions_;
          prover.Forget();
        }
        break;
      case Op::kPad:
        for (const Expr& index : e.arg(0).args()) {
          CheckAccesses(stage, index, prover);
          CheckIndex(stage, index, prover);
        }
        return;
      default:
        for (const Expr& arg : e.args()) CheckAccesses(stage, arg, prover);
        break;
    }
    if (found_) return;
    if (e.op() == Op::kLoad)
      CheckLoad(stage, e, prover);
    else if (e.type() == DType::kI64)
      CheckIndex(stage, e, prover);
    else if (e.op() == Op::kFloorDiv || e.op() == Op::kMod)
      CheckDivisor(stage, e, prover);
  }

  std::string Shown(const Stage& stage, const Expr& e) const { return Shortened(PrintExpr(kernel_, stage, e)); }

  std::string TooHard(const Stage& stage) const {
    return fmt::format("the accesses of {} are too hard to prove; simplify its conditions",
                       kernel_.tensors[stage.output].name);
  }

  void CheckIndex(const Stage& stage, const Expr& e, BoundsProver& prover) {
    if (found_ || prover.FormOf(e)) return;
    if (budget_ <= 0) return Fail(TooHard(stage));
    bool divides = e.op() == Op::kFloorDiv || e.op() == Op::kMod;
    std::optional<BoundsProver::Form> divisor = divides ? prover.FormOf(e.arg(1)) : std::nullopt;
    if (divisor && prover.RangeOf(*divisor).lo < 1) return CheckDivisor(stage, e, prover);
    Fail(fmt::format("index arithmetic {} may not fit into 60 bits", Shown(stage, e)), e.id());
  }

  void CheckDivisor(const Stage& stage, const Expr& e, BoundsProver& prover) {
    if (e.arg(1).op() == Op::kInt && e.arg(1).int_value() >= 1) return;
    std::optional<BoundsProver::Form> divisor = e.type() == DType::kI64 ? prover.FormOf(e.arg(1)) : std::nullopt;
    if (divisor && prover.RangeOf(*divisor).lo >= 1) return;
    if (e.arg(1).op() == Op::kCast && e.arg(1).arg(0).type() == DType::kI64) {
      divisor = prover.FormOf(e.arg(1).arg(0));
      if (divisor && prover.RangeOf(*divisor).lo >= 1 && prover.RangeOf(*divisor).hi < (int64_t{1} << 31)) return;
    }
    if (budget_ <= 0) return Fail(TooHard(stage));
    Fail(fmt::format("division by zero: the divisor of {} may be {}, wanted a positive constant or size",
                     Shown(stage, e), divisor ? fmt::format("{}", prover.RangeOf(*divisor).lo) : "anything"),
         e.id());
  }

  void CheckLoad(const Stage& stage, const Expr& load, BoundsProver& prover) {
    const Tensor& tensor = kernel_.tensors[load.tensor()];
    for (size_t d = 0; d < load.args().size() && !found_; ++d) {
      const Expr& index = load.arg(d);
      CheckIndex(stage, index, prover);
      std::optional<BoundsProver::Form> form = prover.FormOf(index), extent = prover.FormOf(tensor.shape[d]);
      if (found_) return;
      if (budget_ <= 0) return Fail(TooHard(stage));
      if (!form || !extent)
        return Fail(fmt::format("dimension {} of {} does not fit into 60 bits", d + 1, tensor.name));
      std::optional<BoundsProver::Form> room = prover.Difference(*extent, *form);
      if (room) room->constant -= 1;
      const bool is_below = prover.RangeOf(*form).hi < prover.RangeOf(*extent).lo;
      bool above = prover.NonNegative(*form), below = is_below || (room && prover.NonNegative(*room));
      if (above && below) continue;
      if (budget_ <= 0) return Fail(TooHard(stage));
      BoundsProver::Range range = prover.RangeOf(*form);
      std::string text = Shown(stage, index);
      std::string size = Shortened(PrintExtent(kernel_, tensor.shape[d]));
      ExtentRange elements = *CheckedExtent(kernel_, tensor.shape[d]);
      std::string count = elements.lo == elements.hi ? fmt::format("{}", elements.lo) : size;
      if (index.Has(Op::kLoad))
        return Fail(fmt::format("index {} of {} is read from data ({}); wrap it in clamp(…, 0, {} - 1)", d + 1,
                                tensor.name, text, size),
                    load.id());
      Fail(fmt::format("index {} of {} is {}, which ranges over {}..{}, but the dimension has {} element{}; write "
                       "pad({}[…], 0) or guard it with if(…)",
                       d + 1, tensor.name, text, range.lo, range.hi, count, count == "1" ? "" : "s", tensor.name),
           load.id());
    }
  }

  const Kernel& kernel_;
  const std::vector<int> ranges_;  // the sizes that are ranges
  IdVector<TensorId, bool> written_;
  StageId stage_ = StageId(0);
  int conditions_ = 0;
  int64_t budget_ = kProofBudget;
  std::unordered_set<const ExprNode*> checked_;
  std::optional<Violation> found_;
};

}  // namespace

std::optional<Violation> FindViolation(const Kernel& kernel) { return Verifier(kernel).Run(); }

Result<void> VerifyKernel(const Kernel& kernel) {
  if (std::optional<Violation> violation = FindViolation(kernel)) return std::move(violation->error);
  return {};
}

}  // namespace hone
