// Elementary functions as straight code, by the same polynomials as on the CPU (codegen/llvm/math_exp.cc,
// math_log.cc, math_trig.cc and math_pow.cc explain the methods): no device's own functions, whose accuracy differs
// from driver to driver. pow of f32 takes its logarithm in two parts, as that of f64 does, since devices may lack f64.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>

#include "codegen/gpu/launch_maker.h"
#include "codegen/math_tables.h"
#include "ir/graph/op_traits.h"

namespace hone::straight {
namespace {

using namespace math_tables;

class Math {
 public:
  Math(Builder& builder, DType type) : b_(builder), type_(type) {}

  ValueId Exp(ValueId x) { return ExpInRange(AtMost(AtLeast(x, is_f64() ? -746 : -104), is_f64() ? 710 : 89)); }

  ValueId Tanh(ValueId x) {
    const ValueId magnitude = AtMost(Abs(x), is_f64() ? 19.5 : 9.25);  // tanh rounds to 1 from there on
    const ValueId e = Expm1InRange(Add(magnitude, magnitude));
    return CopySign(Div(e, Add(e, Const(2))), x);
  }

  ValueId Erf(ValueId x) {
    const ValueId magnitude = AtMost(Abs(x), is_f64() ? 5.95 : 3.93);  // erf rounds to 1 from there on
    const ValueId t =
        is_f64() ? Div(Horner(magnitude, kErfPF64), Horner(magnitude, kErfQF64)) : Horner(magnitude, kErfF32);
    const ValueId negative = Make(Do::kNeg, {magnitude});
    return CopySign(Expm1InRange(Fma(negative, t, negative)), x);
  }

  ValueId Log(ValueId x) {
    const auto [mantissa, e] = SplitExponent(x);
    const ValueId f = Sub(mantissa, Const(1));
    const ValueId small = Add(f, Fma(e, Const(Low()), LogTail(f)));
    const ValueId result = Fma(e, Const(High()), small);
    // Infinity and NaN give themselves, zero −∞, negative numbers NaN.
    const ValueId zero = Const(0), infinity = Const(HUGE_VAL);
    const ValueId finite = Select(Make(Do::kLt, DType::kBool, {x, infinity}), result, x);
    const ValueId special = Select(Make(Do::kEq, DType::kBool, {x, zero}), Const(-HUGE_VAL),
                                   Const(std::numeric_limits<double>::quiet_NaN()));
    return Select(Make(Do::kLe, DType::kBool, {x, zero}), special, finite);
  }

  ValueId Sin(ValueId x) {
    const ValueId magnitude = Abs(x);
    const ValueId sign = Make(Do::kBitXor, bits_type(), {ToBits(x), ToBits(magnitude)});
    return FromBits(Make(Do::kBitXor, bits_type(), {ToBits(SinOf(magnitude, 0)), sign}));
  }
  ValueId Cos(ValueId x) { return SinOf(Abs(x), 1); }

  // With C's special cases, in the order of codegen/llvm/math_pow.cc.
  ValueId Pow(ValueId x, ValueId y) {
    const ValueId magnitude = Abs(x), zero = Const(0), one = Const(1), infinity = Const(HUGE_VAL);
    const ValueId whole = Make(Do::kFloor, {y}), half = Mul(y, Const(0.5));
    const ValueId is_odd = Both(Test(Do::kEq, whole, y), Test(Do::kNe, Make(Do::kFloor, {half}), half));
    const ValueId one_forever = Both(Test(Do::kEq, magnitude, one), Test(Do::kEq, Abs(y), infinity));
    const ValueId negative = Both(Test(Do::kLt, x, zero), Test(Do::kLt, Const(-HUGE_VAL), x));
    ValueId power = Select(one_forever, one, PowOfMagnitude(magnitude, y));
    power = Select(Both(negative, Test(Do::kNe, whole, y)), Const(std::numeric_limits<double>::quiet_NaN()), power);
    power = Select(is_odd, CopySign(power, x), power);
    const ValueId always_one = Make(Do::kOr, DType::kBool, {Test(Do::kEq, y, zero), Test(Do::kEq, x, one)});
    return Select(always_one, one, power);
  }

 private:
  struct TwoParts {
    ValueId high, low;
  };
  struct Rounded {
    ValueId value, bits;
  };
  struct Split {
    ValueId mantissa, exponent;
  };

  bool is_f64() const { return type_ == DType::kF64; }
  DType bits_type() const { return is_f64() ? DType::kI64 : DType::kI32; }
  int mantissa_bits() const { return is_f64() ? 52 : 23; }
  double Magic() const { return is_f64() ? 0x1.8p52 : 0x1.8p23; }
  double High() const { return is_f64() ? 0x1.62e42feep-1 : 0x1.62e4p-1; }  // of ln 2, in two parts
  double Low() const { return is_f64() ? 0x1.a39ef35793c76p-33 : 0x1.7f7d1cf79abcap-20; }

  ValueId Make(Do what, std::vector<ValueId> args) { return b_.Make(what, type_, std::move(args)); }
  ValueId Make(Do what, DType type, std::vector<ValueId> args) { return b_.Make(what, type, std::move(args)); }
  ValueId Const(double value) { return b_.Constant(type_, 0, value); }
  ValueId Int(int64_t value) { return b_.Constant(bits_type(), value, 0); }
  ValueId Add(ValueId a, ValueId b) { return Make(Do::kAdd, {a, b}); }
  ValueId Sub(ValueId a, ValueId b) { return Make(Do::kSub, {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return Make(Do::kMul, {a, b}); }
  ValueId Div(ValueId a, ValueId b) { return Make(Do::kDiv, {a, b}); }
  ValueId Fma(ValueId a, ValueId b, ValueId c) { return Make(Do::kFma, {a, b, c}); }
  ValueId Abs(ValueId a) { return Make(Do::kAbs, {a}); }
  ValueId CopySign(ValueId a, ValueId b) { return Make(Do::kCopySign, {a, b}); }
  ValueId Select(ValueId c, ValueId a, ValueId b) { return Make(Do::kSelect, {c, a, b}); }
  ValueId Test(Do what, ValueId a, ValueId b) { return Make(what, DType::kBool, {a, b}); }
  ValueId Both(ValueId a, ValueId b) { return Make(Do::kAnd, DType::kBool, {a, b}); }
  ValueId AtLeast(ValueId x, double bound) {
    return Select(Make(Do::kLt, DType::kBool, {x, Const(bound)}), Const(bound), x);
  }
  ValueId AtMost(ValueId x, double bound) {
    return Select(Make(Do::kLt, DType::kBool, {Const(bound), x}), Const(bound), x);
  }
  ValueId ToBits(ValueId x) { return Make(Do::kBits, bits_type(), {x}); }
  ValueId FromBits(ValueId x) { return Make(Do::kBits, {x}); }
  ValueId BitsOf(double value) {
    return Int(is_f64() ? std::bit_cast<int64_t>(value) : std::bit_cast<int32_t>(static_cast<float>(value)));
  }
  ValueId IntAdd(ValueId a, ValueId b) { return Make(Do::kAdd, bits_type(), {a, b}); }
  ValueId ShiftLeft(ValueId a) { return Make(Do::kShiftLeft, bits_type(), {a, b_.Int(mantissa_bits())}); }

  ValueId Horner(ValueId x, std::span<const double> c) {
    ValueId sum = Const(c.back());
    for (size_t i = c.size() - 1; i-- > 0;) sum = Fma(sum, x, Const(c[i]));
    return sum;
  }

  Rounded RoundScaled(ValueId x, double factor) {
    const ValueId shifted = Fma(x, Const(factor), Const(Magic()));
    return {Sub(shifted, Const(Magic())), ToBits(shifted)};
  }
  ValueId PowerOfTwo(ValueId bits) { return FromBits(IntAdd(ShiftLeft(bits), BitsOf(1))); }
  // In two factors, the second of which rounds.
  ValueId Scale(ValueId p, const Rounded& n) {
    const ValueId half = ToBits(Fma(n.value, Const(0.5), Const(Magic())));
    const ValueId rest = Make(Do::kSub, bits_type(), {n.bits, half});
    return Mul(Mul(p, PowerOfTwo(half)), PowerOfTwo(rest));
  }

  std::pair<Rounded, ValueId> Reduce(ValueId x) {
    const Rounded n = RoundScaled(x, 0x1.71547652b82fep+0);
    return {n, Fma(n.value, Const(-Low()), Fma(n.value, Const(-High()), x))};
  }
  ValueId ExpInRange(ValueId x) {
    const auto [n, r] = Reduce(x);
    return Scale(is_f64() ? Horner(r, kExpF64) : Horner(r, kExpF32), n);
  }
  ValueId Expm1InRange(ValueId x) {
    const auto [n, r] = Reduce(x);
    const ValueId q = is_f64() ? Horner(r, kExpm1F64) : Horner(r, kExpm1F32);
    const ValueId p = Fma(Mul(r, r), q, r);
    const ValueId scale = PowerOfTwo(n.bits);
    return Fma(scale, p, Sub(scale, Const(1)));
  }

  std::pair<ValueId, ValueId> TwoSum(ValueId a, ValueId b) {
    const ValueId sum = Add(a, b);
    const ValueId of_b = Sub(sum, a);
    return {sum, Add(Sub(a, Sub(sum, of_b)), Sub(b, of_b))};
  }
  ValueId LessFours(ValueId x) { return Fma(Make(Do::kRound, {Mul(x, Const(0.25))}), Const(-4), x); }
  // |x| less so many times π/2, and bits that end in that number's.
  std::pair<ValueId, ValueId> ReduceAngle(ValueId magnitude) {
    const ValueId scaled = Mul(magnitude, Const(is_f64() ? kTwoOverPiScaleF64 : kTwoOverPiScaleF32));
    ValueId sum = Const(0), low_sum = Const(0), whole = Const(0);
    auto add = [&](ValueId part) {
      const auto [total, error] = TwoSum(sum, part);
      sum = total;
      low_sum = Add(low_sum, error);
    };
    for (double piece : is_f64() ? std::span<const double>(kTwoOverPiF64) : std::span<const double>(kTwoOverPiF32)) {
      const ValueId product = Mul(scaled, Const(piece));
      const ValueId rest = Fma(scaled, Const(piece), Make(Do::kNeg, {product}));
      add(LessFours(product));
      const ValueId quarters = RoundScaled(sum, 1).value;
      sum = Sub(sum, quarters);
      whole = Add(whole, quarters);
      add(LessFours(rest));
      std::tie(sum, low_sum) = TwoSum(sum, low_sum);
    }
    const ValueId quarters = RoundScaled(sum, 1).value;
    const ValueId n = RoundScaled(Add(whole, quarters), 1).bits;
    const auto [r, r_low] = TwoSum(Sub(sum, quarters), low_sum);
    const auto [high, low] = is_f64() ? kHalfPiF64 : kHalfPiF32;
    const ValueId t = Fma(r, Const(high), Fma(r, Const(low), Mul(r_low, Const(high))));
    const ValueId is_small = Make(Do::kLt, DType::kBool, {magnitude, Const(0.785)});
    return {Select(is_small, magnitude, t), Make(Do::kSelect, bits_type(), {is_small, Int(0), n})};
  }
  // sin((n + r) π/2) for x's n and r, `ahead` quadrants further on; without its sign but for that of the quadrant.
  ValueId SinOf(ValueId magnitude, int64_t ahead) {
    const auto [t, n] = ReduceAngle(magnitude);
    const ValueId square = Mul(t, t);
    const ValueId sine = Fma(Mul(t, square), is_f64() ? Horner(square, kSinF64) : Horner(square, kSinF32), t);
    const ValueId bend = is_f64() ? Horner(square, kCosF64) : Horner(square, kCosF32);
    const ValueId cosine = Fma(Fma(bend, square, Const(-0.5)), square, Const(1));
    const ValueId quadrant = IntAdd(n, Int(ahead));
    const ValueId is_odd = Make(Do::kEq, DType::kBool, {Make(Do::kBitAnd, bits_type(), {quadrant, Int(1)}), Int(1)});
    const ValueId second = Make(Do::kBitAnd, bits_type(), {quadrant, Int(2)});
    const ValueId sign = Make(Do::kShiftLeft, bits_type(), {second, b_.Int(is_f64() ? 62 : 30)});
    return FromBits(Make(Do::kBitXor, bits_type(), {ToBits(Select(is_odd, cosine, sine)), sign}));
  }

  ValueId LogTail(ValueId f) {
    if (!is_f64()) return Mul(Mul(f, f), Horner(f, kLogF32));
    const ValueId s = Div(f, Add(f, Const(2)));
    const ValueId z = Mul(s, s);
    const ValueId r = Mul(z, Horner(z, kLogF64));
    const ValueId h = Mul(Mul(f, Const(0.5)), f);
    return Sub(Mul(s, Add(h, r)), h);
  }
  Split SplitExponent(ValueId x) {
    const ValueId tiny = Make(Do::kLt, DType::kBool, {x, Const(is_f64() ? 0x1p-1022 : 0x1p-126)});
    const double two_to_mantissa = is_f64() ? 0x1p52 : 0x1p23, bias = is_f64() ? 1023 : 127;
    const ValueId normal = Select(tiny, Mul(x, Const(two_to_mantissa)), x);
    const int64_t distance = is_f64() ? std::bit_cast<int64_t>(1.0) - std::bit_cast<int64_t>(0.75)
                                      : std::bit_cast<int32_t>(1.0f) - std::bit_cast<int32_t>(0.75f);
    const ValueId moved = IntAdd(ToBits(normal), Int(distance));
    const ValueId biased = Make(Do::kShiftRight, bits_type(), {moved, b_.Int(mantissa_bits())});
    const ValueId converted = FromBits(Make(Do::kBitOr, bits_type(), {biased, BitsOf(two_to_mantissa)}));
    const ValueId offset = Select(tiny, Const(two_to_mantissa + bias + mantissa_bits()), Const(two_to_mantissa + bias));
    const ValueId field = Make(Do::kBitAnd, bits_type(), {moved, Int((int64_t{1} << mantissa_bits()) - 1)});
    return {FromBits(IntAdd(field, BitsOf(0.75))), Sub(converted, offset)};
  }

  // |a| ≥ |b| or a = 0.
  TwoParts FastTwoSum(ValueId a, ValueId b) {
    const ValueId high = Add(a, b);
    return {high, Sub(b, Sub(high, a))};
  }
  TwoParts TwoProduct(ValueId a, ValueId b) {
    const ValueId high = Mul(a, b);
    return {high, Fma(a, b, Make(Do::kNeg, {high}))};
  }
  // e ln 2 + 2 s (1 + z/3 + z² P(z)), s = f / (2 + f): relative to what it is off by 2⁻³⁶ (f32), 2⁻⁶⁴ (f64). −∞ of
  // zero, infinity and NaN of themselves, in the high part.
  TwoParts LogInTwoParts(ValueId x) {
    const auto [mantissa, exponent] = SplitExponent(x);
    ValueId e = Select(Test(Do::kLt, x, Const(HUGE_VAL)), exponent, x);
    e = Select(Test(Do::kEq, x, Const(0)), Const(-HUGE_VAL), e);
    const ValueId f = Sub(mantissa, Const(1)), divisor = Add(mantissa, Const(1));
    const ValueId divisor_low = Sub(mantissa, Sub(divisor, Const(1)));
    const ValueId s = Div(f, divisor), minus_s = Make(Do::kNeg, {s});
    const ValueId s_low = Div(Fma(minus_s, divisor_low, Fma(minus_s, divisor, f)), divisor);

    const double third = is_f64() ? 0x1.5555555555555p-2 : 0x1.555556p-2;
    const double third_low = is_f64() ? 0x1.5555555555555p-56 : -0x1.555556p-27;
    auto [z, z_low] = TwoProduct(s, s);
    z_low = Fma(Add(s, s), s_low, z_low);
    auto [u, u_low] = TwoProduct(z, Const(third));
    u_low = Fma(z_low, Const(third), Fma(z, Const(third_low), u_low));
    const ValueId p = is_f64() ? Horner(z, kLogPowF64) : Horner(z, kLogPowF32);
    auto [w, w_low] = FastTwoSum(u, Mul(Mul(z, z), p));
    w_low = Add(w_low, u_low);

    const ValueId twice = Add(s, s), twice_low = Add(s_low, s_low);
    auto [t, t_low] = TwoProduct(twice, w);
    t_low = Add(Fma(twice, w_low, t_low), Fma(twice_low, w, twice_low));
    const TwoParts log_m = FastTwoSum(twice, t);
    const TwoParts total = FastTwoSum(Mul(e, Const(High())), log_m.high);
    return {total.high, Add(Add(total.low, log_m.low), Fma(e, Const(Low()), t_low))};
  }
  // x ≥ 0; NaN where 0 · ∞ appears.
  ValueId PowOfMagnitude(ValueId x, ValueId y) {
    const TwoParts log = LogInTwoParts(x);
    auto [t, t_low] = TwoProduct(y, log.high);
    t_low = Fma(y, log.low, t_low);
    // Beyond this the result is 0 or ∞ whatever the low part, which is NaN when the high one is infinite.
    t_low = Select(Test(Do::kLt, Abs(t), Const(is_f64() ? 800 : 120)), t_low, Const(0));
    const auto [n, r] = Reduce(AtMost(AtLeast(t, is_f64() ? -746 : -104), is_f64() ? 710 : 89));
    const ValueId rest = Add(r, t_low);
    return Scale(is_f64() ? Horner(rest, kExpF64) : Horner(rest, kExpF32), n);
  }

  Builder& b_;
  const DType type_;
};

}  // namespace

Result<int64_t> FunctionFor(Program& program, Op op, DType type) {
  for (size_t i = 0; i < program.functions.size(); ++i)
    if (const Function& known = program.functions[i]; known.op == op && known.type == type && known.lanes == 1)
      return static_cast<int64_t>(i);
  Function function;
  function.name = fmt::format("hone_{}_{}", OpName(op), Name(type));
  function.op = op;
  function.type = type;
  Builder builder(function.code);
  const ValueId x = builder.Given({.what = Do::kArgument, .type = type, .number = 0});
  function.params = {x};
  if (op == Op::kPow) function.params.push_back(builder.Given({.what = Do::kArgument, .type = type, .number = 1}));
  Math math(builder, type);
  switch (op) {
    case Op::kExp: function.result = math.Exp(x); break;
    case Op::kTanh: function.result = math.Tanh(x); break;
    case Op::kErf: function.result = math.Erf(x); break;
    case Op::kLog: function.result = math.Log(x); break;
    case Op::kSin: function.result = math.Sin(x); break;
    case Op::kCos: function.result = math.Cos(x); break;
    case Op::kPow: function.result = math.Pow(x, function.params[1]); break;
    default: return Error{ErrorKind::kUnsupported, std::string(OpName(op)) + " in code for a GPU", ""};
  }
  builder.Finish();
  program.functions.push_back(std::move(function));
  return static_cast<int64_t>(program.functions.size()) - 1;
}

}  // namespace hone::straight
