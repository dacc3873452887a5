#include "ir/reference/interpret_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/op_reference.h"

namespace hone::interpreted {
namespace {

using reference::Sane;

// The magnitudes of a float operand; written to `scratch` if it has no column of its own.
const double* Magnitudes(const Register& reg, const Column& column, size_t n, double* scratch) {
  if (!reg.plain) return column.magnitude;
  for (size_t i = 0; i < n; ++i) scratch[i] = Sane(column.value[i], std::abs(column.value[i]));
  return scratch;
}

// Slack of an integer operand.
const double* Slacks(const Register& reg, const Column& column, size_t n, double* scratch) {
  if (reg.has_slack) return column.magnitude;
  std::fill(scratch, scratch + n, 0.0);
  return scratch;
}

double Saturate(double whole, DType type) {
  constexpr double kMost = 0x1p62;  // beyond what an index may be, within an int64_t
  const DTypeTraits& traits = TraitsOf(type);
  return std::clamp(whole, std::max(-kMost, static_cast<double>(traits.lowest)),
                    std::min(kMost, static_cast<double>(traits.highest)));
}

double Truncate(double x, DType type) { return std::isnan(x) ? 0 : Saturate(std::trunc(x), type); }

constexpr double kWholeFloats = 0x1p24;  // f32 holds every whole number up to this one

struct Operands {
  const Register* const* regs;
  const Column* args;
  size_t n;
  double tolerance;
  alignas(64) mutable double scratch[3][kBlockLanes];

  const double* value(int i) const { return args[i].value; }
  const double* magnitude(int i) const { return Magnitudes(*regs[i], args[i], n, scratch[i]); }
  const double* slack(int i) const { return Slacks(*regs[i], args[i], n, scratch[i]); }
  const int64_t* integer(int i) const { return args[i].integer; }
  // How far a float operand may be off.
  const double* error(int i) const {
    const double* m = magnitude(i);
    double factor = regs[i]->exact ? 0 : tolerance;
    for (size_t lane = 0; lane < n; ++lane) scratch[i][lane] = factor * (m[lane] - Sure(i, lane));
    return scratch[i];
  }
  // The part of a magnitude that carries no error.
  double Sure(int i, size_t lane) const {
    const double size = std::abs(args[i].value[lane]);
    return regs[i]->whole && size <= kWholeFloats ? size : 0;
  }
};

void FloatSelect(const Operands& in, const Register& result, const Column& out) {
  const int64_t* c = in.integer(0);
  const double *a = in.value(1), *b = in.value(2), *ma = in.magnitude(1), *mb = in.magnitude(2);
  const double* slack = in.slack(0);
  for (size_t i = 0; i < in.n; ++i) {
    out.value[i] = c[i] ? a[i] : b[i];
    double magnitude = c[i] ? ma[i] : mb[i];
    if (slack[i] > 0) magnitude = std::abs(a[i] - b[i]) / in.tolerance + std::max(ma[i], mb[i]);
    if (!result.plain) out.magnitude[i] = Sane(out.value[i], magnitude);
  }
}

// Below its smallest normal number a type's roundings are no part of a number, as those in the tolerance are, but all
// of one size (DTypeTraits::underflow): what that is more.
void Underflow(DType type, const Operands& in, const Column& out) {
  const DTypeTraits& traits = TraitsOf(type);
  const double* error = in.error(0);
  for (size_t i = 0; i < in.n; ++i) {
    const double size = std::abs(out.value[i]);
    const bool may_be_below = size - error[i] < traits.smallest && size + error[i] > 0;
    if (!may_be_below) continue;
    out.magnitude[i] += std::max(traits.underflow - traits.unit_roundoff * size, 0.0) / in.tolerance;
  }
}

// Numbers that a type cannot hold become infinite; what may be either way stays as it is.
void Overflow(DType type, const Operands& in, const Register& result, const Column& out) {
  const DTypeTraits& traits = TraitsOf(type);
  // Half a unit in the last place beyond the largest.
  const double limit = traits.largest * (1 + traits.unit_roundoff / (2 - 2 * traits.unit_roundoff));
  const double* error = in.regs[0]->is_float ? in.error(0) : in.slack(0);
  for (size_t i = 0; i < in.n; ++i) {
    if (!(std::abs(out.value[i]) - error[i] >= limit)) continue;
    out.value[i] = std::copysign(std::numeric_limits<double>::infinity(), out.value[i]);
    if (!result.plain) out.magnitude[i] = 0;
  }
}

// Roundings are part of the tolerance.
void CastToFloat(const Instruction& cast, const Operands& in, const Register& result, const Column& out) {
  if (in.regs[0]->is_float) {
    std::copy_n(in.value(0), in.n, out.value);
    if (!result.plain) std::copy_n(in.magnitude(0), in.n, out.magnitude);
    if (cast.narrows) Underflow(cast.type, in, out);
  } else {
    const int64_t* x = in.integer(0);
    for (size_t i = 0; i < in.n; ++i) out.value[i] = static_cast<double>(x[i]);
    if (!result.plain) {
      const double* slack = in.slack(0);
      for (size_t i = 0; i < in.n; ++i) out.magnitude[i] = std::abs(out.value[i]) + slack[i] / in.tolerance;
    }
  }
  if (cast.narrows) Overflow(cast.type, in, result, out);
}

// Sums and products of small whole numbers are exact: they are off by what their operands are, and no more.
void KeepWhole(Op op, const Operands& in, const Column& out) {
  const double *a = in.value(0), *b = in.value(1), *ma = in.magnitude(0), *mb = in.magnitude(1);
  for (size_t i = 0; i < in.n; ++i) {
    const double size = std::abs(out.value[i]), sa = std::abs(a[i]), sb = std::abs(b[i]);
    if (!(std::max({size, sa, sb}) <= kWholeFloats)) continue;
    const double ea = ma[i] - sa, eb = mb[i] - sb;
    out.magnitude[i] = size + (op == Op::kMul ? sa * eb + sb * ea + ea * eb * in.tolerance : ea + eb);
  }
}

// Lanes of a column that is not exact may be: small whole numbers are. `columns`: of an operation that has run.
void TakeExactLanes(const OpTraits& traits, const Operands& in, FloatColumns columns) {
  alignas(64) double value[kBlockLanes], magnitude[kBlockLanes];
  double* const known = std::exchange(columns.result_magnitude, magnitude);
  columns.result = value;
  for (int i = 0; i < traits.arity; ++i) {
    if (columns.exact[i] || !in.regs[i]->whole) continue;
    columns.exact[i] = true;
    traits.on_floats(columns);
    columns.exact[i] = false;
    for (size_t lane = 0; lane < in.n; ++lane)
      if (in.Sure(i, lane) == columns.magnitude[i][lane]) known[lane] = std::min(known[lane], magnitude[lane]);
  }
}

void RunFloat(const Instruction& instruction, const Operands& in, const Register& result, const Column& out) {
  if (instruction.op == Op::kSelect) return FloatSelect(in, result, out);
  if (instruction.op == Op::kCast) return CastToFloat(instruction, in, result, out);
  const OpTraits& traits = TraitsOf(instruction.op);
  HONE_CHECK(traits.on_floats);
  FloatColumns columns{.lanes = in.n, .tolerance = in.tolerance, .result = out.value};
  if (!result.plain) columns.result_magnitude = out.magnitude;
  for (int i = 0; i < traits.arity; ++i) {
    columns.value[i] = in.value(i);
    columns.exact[i] = in.regs[i]->exact;
    if (!result.plain) columns.magnitude[i] = in.magnitude(i);
  }
  traits.on_floats(columns);
  if (result.plain) return;
  const bool computes = instruction.op == Op::kAdd || instruction.op == Op::kSub || instruction.op == Op::kMul;
  if (!computes) return TakeExactLanes(traits, in, columns);
  if (result.whole) KeepWhole(instruction.op, in, out);
}

void Compare(const Instruction& instruction, const Operands& in, const Register& result, const Column& out) {
  auto run = [&](const auto* a, const auto* b, const double* ea, const double* eb) {
    for (size_t i = 0; i < in.n; ++i) {
      switch (instruction.op) {
        case Op::kEq: out.integer[i] = a[i] == b[i]; break;
        case Op::kNe: out.integer[i] = a[i] != b[i]; break;
        case Op::kLt: out.integer[i] = a[i] < b[i]; break;
        default: out.integer[i] = a[i] <= b[i]; break;
      }
      if (result.has_slack) {
        double reach = ea[i] + eb[i];
        out.magnitude[i] = reach > 0 && std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])) <= reach;
      }
    }
  };
  if (in.regs[0]->is_float)
    run(in.value(0), in.value(1), in.error(0), in.error(1));
  else
    run(in.integer(0), in.integer(1), in.slack(0), in.slack(1));
}

void CastToInteger(const Instruction& instruction, const Operands& in, const Register& result, const Column& out) {
  DType type = instruction.type;
  if (!in.regs[0]->is_float) {
    const int64_t* x = in.integer(0);
    const reference::Wrap wrap(type);
    for (size_t i = 0; i < in.n; ++i) out.integer[i] = wrap(static_cast<uint64_t>(x[i]));
    if (!result.has_slack) return;
    const double* slack = in.slack(0);
    const DTypeTraits& traits = TraitsOf(type);
    const auto lowest = static_cast<double>(traits.lowest), highest = static_cast<double>(traits.highest);
    // What is a little less or more than an end of the type comes out at its other end.
    for (size_t i = 0; i < in.n; ++i) {
      const auto value = static_cast<double>(out.integer[i]);
      const bool is_inside = value - slack[i] >= lowest && value + slack[i] <= highest;
      out.magnitude[i] = is_inside ? slack[i] : highest - lowest;
    }
    return;
  }
  const double* x = in.value(0);
  for (size_t i = 0; i < in.n; ++i) out.integer[i] = static_cast<int64_t>(Truncate(x[i], type));
  if (!result.has_slack) return;
  const double* e = in.error(0);
  for (size_t i = 0; i < in.n; ++i) out.magnitude[i] = Truncate(x[i] + e[i], type) - Truncate(x[i] - e[i], type);
}

void IntegerSelect(const Operands& in, const Register& result, const Column& out) {
  const int64_t *c = in.integer(0), *a = in.integer(1), *b = in.integer(2);
  for (size_t i = 0; i < in.n; ++i) out.integer[i] = c[i] ? a[i] : b[i];
  if (!result.has_slack) return;
  const double *sc = in.slack(0), *sa = in.slack(1), *sb = in.slack(2);
  for (size_t i = 0; i < in.n; ++i) {
    double apart = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    out.magnitude[i] = sc[i] > 0 ? apart + std::max(sa[i], sb[i]) : c[i] ? sa[i] : sb[i];
  }
}

void RunInteger(const Instruction& instruction, const Operands& in, const Register& result, const Column& out) {
  if (instruction.op == Op::kSelect) return IntegerSelect(in, result, out);
  if (instruction.op == Op::kCast) return CastToInteger(instruction, in, result, out);
  if (IsComparison(instruction.op)) return Compare(instruction, in, result, out);
  const OpTraits& traits = TraitsOf(instruction.op);
  HONE_CHECK(traits.on_integers);
  IntegerColumns columns{.lanes = in.n, .type = instruction.type, .result = out.integer};
  if (result.has_slack) columns.result_slack = out.magnitude;
  for (int i = 0; i < traits.arity; ++i) {
    columns.value[i] = in.integer(i);
    if (result.has_slack) columns.slack[i] = in.slack(i);
  }
  traits.on_integers(columns);
}

}  // namespace

void RunColumnOperation(const Instruction& instruction, const Register* const* regs, const Column* args,
                        const Register& result_reg, const Column& result, size_t n, double tolerance) {
  Operands in;
  in.regs = regs;
  in.args = args;
  in.n = n;
  in.tolerance = tolerance;
  if (result_reg.is_float)
    RunFloat(instruction, in, result_reg, result);
  else
    RunInteger(instruction, in, result_reg, result);
}

ReductionState::ReductionState(Reduction reduction, DType type, double tolerance)
    : reduction_(reduction), type_(type), tolerance_(tolerance) {
  if (reduction == Reduction::kMaxOfNumbers) {
    value_ = -std::numeric_limits<double>::infinity();
    empty_ = false;
  }
  if (reduction != Reduction::kProd) return;
  value_ = 1;
  integer_ = 1;
  magnitude_ = IsFloat(type) ? 1 : 0;
}

void ReductionState::Add(const Register& reg, const Column& column, size_t n) {
  alignas(64) double scratch[kBlockLanes];
  if (!reg.is_float) {
    const int64_t* x = column.integer;
    const double* slack = Slacks(reg, column, n, scratch);
    const reference::Wrap wrap(type_);
    for (size_t i = 0; i < n; ++i) {
      uint64_t a = static_cast<uint64_t>(integer_), b = static_cast<uint64_t>(x[i]);
      if (reduction_ == Reduction::kSum) {
        integer_ = wrap(a + b), magnitude_ += slack[i];
      } else if (reduction_ == Reduction::kProd) {
        magnitude_ = reference::ProductSlack(integer_, magnitude_, x[i], slack[i]), integer_ = wrap(a * b);
      } else {
        bool takes = empty_ || (reduction_ == Reduction::kMax ? x[i] > integer_ : x[i] < integer_);
        magnitude_ = std::max(magnitude_, slack[i]);
        if (takes) integer_ = x[i];
        empty_ = false;
      }
    }
    return;
  }
  const double* x = column.value;
  if (reduction_ == Reduction::kSum) {
    // Four chains each, so that additions do not wait for one another.
    double sum[4] = {}, size[4] = {};
    const double* m = reg.plain ? x : column.magnitude;
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
      for (size_t c = 0; c < 4; ++c) sum[c] += x[i + c], size[c] += std::abs(m[i + c]);
    for (; i < n; ++i) sum[0] += x[i], size[0] += std::abs(m[i]);
    value_ += (sum[0] + sum[1]) + (sum[2] + sum[3]);
    magnitude_ += (size[0] + size[1]) + (size[2] + size[3]);
    return;
  }
  const double* m = Magnitudes(reg, column, n, scratch);
  for (size_t i = 0; i < n; ++i) {
    if (reduction_ == Reduction::kProd) {
      value_ *= x[i], magnitude_ *= m[i];
    } else if (empty_) {
      value_ = x[i], magnitude_ = m[i], empty_ = false;
    } else if (reduction_ != Reduction::kMaxOfNumbers || !std::isnan(x[i])) {
      bool second = reference::TakesSecond(reduction_ != Reduction::kMin, value_, x[i]);
      magnitude_ = reference::ExtremeMagnitude(second, value_, magnitude_, x[i], m[i], tolerance_);
      if (second) value_ = x[i];
    }
  }
}

Reference ReductionState::Result() const {
  if (!IsFloat(type_)) return {static_cast<double>(integer_), magnitude_};
  return {value_, Sane(value_, magnitude_)};
}

}  // namespace hone::interpreted
