#include "ir/interpret_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace hone {
namespace {

constexpr double kMaxDouble = std::numeric_limits<double>::max();
constexpr double kTwoOverSqrtPi = 1.1283791670955126;

// Infinite and NaN values carry no error.
double Sane(double value, double magnitude) { return std::abs(value) <= kMaxDouble ? magnitude : 0; }

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

int64_t Wrap(DType type, uint64_t value) {
  return type == DType::kI32 ? static_cast<int32_t>(static_cast<uint32_t>(value)) : static_cast<int64_t>(value);
}

// Both results are possible when the operands are this close.
double ExtremeMagnitude(bool takes_second, double a, double ma, double b, double mb, double tolerance) {
  if (std::abs(a - b) <= tolerance * (ma + mb)) return std::max(ma, mb);
  return takes_second ? mb : ma;
}

bool TakesSecond(Op op, double a, double b) { return std::isnan(b) || (op == Op::kMax ? b > a : b < a); }

double Saturate(double whole, DType type) {
  switch (type) {
    case DType::kI8: return std::clamp(whole, -128.0, 127.0);
    case DType::kI32: return std::clamp(whole, -0x1p31, 0x1p31 - 1);
    default: return std::clamp(whole, -0x1p62, 0x1p62);
  }
}

double Truncate(double x, DType type) { return std::isnan(x) ? 0 : Saturate(std::trunc(x), type); }

double PowMagnitude(double a, double ma, double b, double mb, double v) {
  double by_base = b == 0 ? 0 : std::abs(b * std::pow(a, b - 1)) * ma;
  double by_exponent = v == 0 || mb == 0 ? 0 : std::abs(v * std::log(std::abs(a))) * mb;
  return std::max(std::abs(v), by_base + by_exponent);
}

// √ is too steep near 0 for a derivative: the bound is the value at the end of the interval.
double SqrtMagnitude(double x, double m, double v, double tolerance) {
  double steep = v > 0 ? m / (2 * v) : std::numeric_limits<double>::infinity();
  double whole = m > 0 && tolerance > 0 ? std::sqrt(std::max(x, 0.0) + tolerance * m) / tolerance : 0;
  return std::max(v, std::min(steep, whole));
}

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
    for (size_t lane = 0; lane < n; ++lane) scratch[i][lane] = factor * m[lane];
    return scratch[i];
  }
};

template <typename Value, typename Magnitude>
void Unary(const Operands& in, const Column& out, const Value& value, const Magnitude& magnitude) {
  const double* x = in.value(0);
  const double* m = in.magnitude(0);
  for (size_t i = 0; i < in.n; ++i) {
    double v = value(x[i]);
    out.value[i] = v;
    out.magnitude[i] = Sane(v, magnitude(x[i], m[i], v));
  }
}

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

void RunFloat(const Instruction& instruction, const Operands& in, const Register& result, const Column& out) {
  size_t n = in.n;
  double tolerance = in.tolerance;
  double* v = out.value;
  double* m = out.magnitude;
  switch (instruction.op) {
    case Op::kAdd:
    case Op::kSub: {
      const double *a = in.value(0), *b = in.value(1), *ma = in.magnitude(0), *mb = in.magnitude(1);
      double sign = instruction.op == Op::kAdd ? 1 : -1;
      for (size_t i = 0; i < n; ++i) v[i] = a[i] + sign * b[i];
      for (size_t i = 0; i < n; ++i) m[i] = Sane(v[i], ma[i] + mb[i]);
      return;
    }
    case Op::kMul: {
      const double *a = in.value(0), *b = in.value(1);
      for (size_t i = 0; i < n; ++i) v[i] = a[i] * b[i];
      if (result.plain) return;
      const double *ma = in.magnitude(0), *mb = in.magnitude(1);
      for (size_t i = 0; i < n; ++i) m[i] = Sane(v[i], ma[i] * mb[i]);
      return;
    }
    case Op::kDiv: {
      const double *a = in.value(0), *b = in.value(1), *ma = in.magnitude(0), *mb = in.magnitude(1);
      double factor = in.regs[1]->exact ? 0 : 1;  // a divisor without error adds nothing
      for (size_t i = 0; i < n; ++i) {
        v[i] = a[i] / b[i];
        double divisor = std::abs(b[i]);
        // Over an infinite divisor the quotient is exactly 0.
        double size = (ma[i] + factor * std::abs(v[i]) * mb[i]) / divisor;
        m[i] = divisor <= kMaxDouble ? Sane(v[i], std::max(std::abs(v[i]), size)) : 0;
      }
      return;
    }
    case Op::kMin:
    case Op::kMax: {
      const double *a = in.value(0), *b = in.value(1), *ma = in.magnitude(0), *mb = in.magnitude(1);
      for (size_t i = 0; i < n; ++i) {
        bool second = TakesSecond(instruction.op, a[i], b[i]);
        m[i] = ExtremeMagnitude(second, a[i], ma[i], b[i], mb[i], tolerance);
        v[i] = second ? b[i] : a[i];
      }
      return;
    }
    case Op::kPow: {
      const double *a = in.value(0), *b = in.value(1), *ma = in.magnitude(0), *mb = in.magnitude(1);
      for (size_t i = 0; i < n; ++i) {
        v[i] = std::pow(a[i], b[i]);
        m[i] = Sane(v[i], PowMagnitude(a[i], ma[i], b[i], mb[i], v[i]));
      }
      return;
    }
    case Op::kSelect: return FloatSelect(in, result, out);
    case Op::kAbs: {
      const double* x = in.value(0);
      for (size_t i = 0; i < n; ++i) v[i] = std::abs(x[i]);
      if (!result.plain) std::copy_n(in.magnitude(0), n, m);
      return;
    }
    case Op::kExp:
      return Unary(
          in, out, [](double x) { return std::exp(x); }, [](double, double a, double f) { return std::max(f, f * a); });
    case Op::kLog:
      return Unary(
          in, out, [](double x) { return std::log(x); },
          [](double x, double a, double f) { return std::max(std::abs(f), a / std::abs(x)); });
    case Op::kSqrt:
      return Unary(
          in, out, [](double x) { return std::sqrt(x); },
          [&](double x, double a, double f) { return SqrtMagnitude(x, a, f, tolerance); });
    case Op::kRsqrt:
      return Unary(
          in, out, [](double x) { return 1 / std::sqrt(x); },
          [](double x, double a, double f) { return std::max(f, 0.5 * f * a / std::abs(x)); });
    case Op::kTanh:
      return Unary(
          in, out, [](double x) { return std::tanh(x); },
          [](double, double a, double f) { return std::max(std::abs(f), (1 - f * f) * a); });
    case Op::kErf:
      return Unary(
          in, out, [](double x) { return std::erf(x); },
          [](double x, double a, double f) { return std::max(std::abs(f), kTwoOverSqrtPi * std::exp(-x * x) * a); });
    case Op::kFloor: {
      const double* x = in.value(0);
      if (result.plain) {
        for (size_t i = 0; i < n; ++i) v[i] = std::floor(x[i]);
        return;
      }
      const double* e = in.error(0);
      for (size_t i = 0; i < n; ++i) {
        v[i] = std::floor(x[i]);
        double jump = std::floor(x[i] + e[i]) - std::floor(x[i] - e[i]);
        m[i] = Sane(v[i], std::max(std::abs(v[i]), jump / tolerance));
      }
      return;
    }
    case Op::kCast: {
      if (in.regs[0]->is_float) {
        std::copy_n(in.value(0), n, v);
        if (!result.plain) std::copy_n(in.magnitude(0), n, m);
        return;
      }
      const int64_t* x = in.integer(0);
      for (size_t i = 0; i < n; ++i) v[i] = static_cast<double>(x[i]);
      if (result.plain) return;
      const double* slack = in.slack(0);
      for (size_t i = 0; i < n; ++i) m[i] = std::abs(v[i]) + slack[i] / tolerance;
      return;
    }
    default: HONE_CHECK(!"operation on floats");
  }
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
    for (size_t i = 0; i < in.n; ++i) {
      if (type == DType::kI8)
        out.integer[i] = static_cast<int8_t>(static_cast<uint8_t>(x[i]));
      else
        out.integer[i] = Wrap(type, static_cast<uint64_t>(x[i]));
    }
    if (result.has_slack) std::copy_n(in.slack(0), in.n, out.magnitude);
    return;
  }
  const double* x = in.value(0);
  for (size_t i = 0; i < in.n; ++i) out.integer[i] = static_cast<int64_t>(Truncate(x[i], type));
  if (!result.has_slack) return;
  const double* e = in.error(0);
  for (size_t i = 0; i < in.n; ++i) out.magnitude[i] = Truncate(x[i] + e[i], type) - Truncate(x[i] - e[i], type);
}

// Slack of arithmetic on integers; a wrap-around is not foreseen.
double IntegerSlack(Op op, int64_t a, double sa, int64_t b, double sb) {
  switch (op) {
    case Op::kMul: return std::abs(static_cast<double>(a)) * sb + std::abs(static_cast<double>(b)) * sa + sa * sb;
    case Op::kFloorDiv: return sa > 0 ? sa / static_cast<double>(b) + 1 : 0;
    case Op::kMod: return sa > 0 ? static_cast<double>(b - 1) : 0;
    case Op::kMin:
    case Op::kMax: return std::max(sa, sb);
    case Op::kAnd:
    case Op::kOr: return std::max(sa, sb);
    default: return sa + sb;
  }
}

void IntegerBinary(const Instruction& instruction, const Operands& in, const Register& result, const Column& out) {
  const int64_t *a = in.integer(0), *b = in.integer(1);
  DType type = instruction.type;
  auto fill = [&](const auto& f) {
    for (size_t i = 0; i < in.n; ++i) out.integer[i] = f(a[i], b[i]);
  };
  auto bits = [](int64_t x) { return static_cast<uint64_t>(x); };
  switch (instruction.op) {
    case Op::kAdd: fill([&](int64_t x, int64_t y) { return Wrap(type, bits(x) + bits(y)); }); break;
    case Op::kSub: fill([&](int64_t x, int64_t y) { return Wrap(type, bits(x) - bits(y)); }); break;
    case Op::kMul: fill([&](int64_t x, int64_t y) { return Wrap(type, bits(x) * bits(y)); }); break;
    case Op::kFloorDiv: fill([](int64_t x, int64_t y) { return FloorDiv(x, y); }); break;
    case Op::kMod: fill([](int64_t x, int64_t y) { return FloorMod(x, y); }); break;
    case Op::kMin: fill([](int64_t x, int64_t y) { return std::min(x, y); }); break;
    case Op::kMax: fill([](int64_t x, int64_t y) { return std::max(x, y); }); break;
    case Op::kAnd: fill([](int64_t x, int64_t y) { return int64_t{x && y}; }); break;
    case Op::kOr: fill([](int64_t x, int64_t y) { return int64_t{x || y}; }); break;
    default: HONE_CHECK(!"operation on integers");
  }
  if (!result.has_slack) return;
  const double *sa = in.slack(0), *sb = in.slack(1);
  for (size_t i = 0; i < in.n; ++i) out.magnitude[i] = IntegerSlack(instruction.op, a[i], sa[i], b[i], sb[i]);
}

void RunInteger(const Instruction& instruction, const Operands& in, const Register& result, const Column& out) {
  switch (instruction.op) {
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe: return Compare(instruction, in, result, out);
    case Op::kCast: return CastToInteger(instruction, in, result, out);
    case Op::kNot:
    case Op::kAbs: {
      const int64_t* x = in.integer(0);
      for (size_t i = 0; i < in.n; ++i) {
        uint64_t negated = ~static_cast<uint64_t>(x[i]) + 1;
        out.integer[i] = instruction.op == Op::kNot ? x[i] == 0 : x[i] < 0 ? Wrap(instruction.type, negated) : x[i];
      }
      if (result.has_slack) std::copy_n(in.slack(0), in.n, out.magnitude);
      return;
    }
    case Op::kSelect: {
      const int64_t *c = in.integer(0), *a = in.integer(1), *b = in.integer(2);
      for (size_t i = 0; i < in.n; ++i) out.integer[i] = c[i] ? a[i] : b[i];
      if (!result.has_slack) return;
      const double *sc = in.slack(0), *sa = in.slack(1), *sb = in.slack(2);
      for (size_t i = 0; i < in.n; ++i) {
        double apart = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        out.magnitude[i] = sc[i] > 0 ? apart + std::max(sa[i], sb[i]) : c[i] ? sa[i] : sb[i];
      }
      return;
    }
    default: return IntegerBinary(instruction, in, result, out);
  }
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
    for (size_t i = 0; i < n; ++i) {
      uint64_t a = static_cast<uint64_t>(integer_), b = static_cast<uint64_t>(x[i]);
      if (reduction_ == Reduction::kSum) {
        integer_ = Wrap(type_, a + b), magnitude_ += slack[i];
      } else if (reduction_ == Reduction::kProd) {
        magnitude_ = IntegerSlack(Op::kMul, integer_, magnitude_, x[i], slack[i]), integer_ = Wrap(type_, a * b);
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
      bool second = TakesSecond(reduction_ == Reduction::kMin ? Op::kMin : Op::kMax, value_, x[i]);
      magnitude_ = ExtremeMagnitude(second, value_, magnitude_, x[i], m[i], tolerance_);
      if (second) value_ = x[i];
    }
  }
}

Reference ReductionState::Result() const {
  if (!IsFloat(type_)) return {static_cast<double>(integer_), magnitude_};
  return {value_, Sane(value_, magnitude_)};
}

}  // namespace hone
