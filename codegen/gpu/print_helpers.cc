#include "codegen/gpu/print_helpers.h"

#include <cmath>

#include "codegen/gpu/print_warp.h"
#include "ir/graph/element.h"

namespace hone {
namespace {

// Words that some dialect has for itself, among those that a stage may be called.
constexpr std::string_view kReserved[] = {
    "abs",    "args",  "bool",   "block",  "buffer", "case",    "char",    "constant", "const",  "default", "do",
    "double", "else",  "exp",    "fabs",   "float",  "floor",   "fma",     "for",      "global", "half",    "if",
    "in",     "inout", "input",  "int",    "kernel", "layout",  "local",   "log",      "long",   "main",    "max",
    "min",    "mix",   "out",    "output", "pow",    "precise", "private", "return",   "sample", "shared",  "short",
    "signed", "sqrt",  "static", "step",   "switch", "tanh",    "texture", "this",     "uint",   "uniform", "unsigned",
    "void",   "while", "bx",     "by",     "bz",     "tx",      "ty",      "tz",       "erf",    "sum",     "dot"};

// How numbers, or vectors of so many lanes, are spelled.
struct Spelled {
  const Dialect& dialect;
  int lanes = 1;

  std::string Type(DType type) const {
    return std::string(lanes == 1 ? dialect.Of(type).value : dialect.Of(type).Vector(lanes));
  }
  std::string To(DType type, const std::string& x) const {
    return Fill(lanes == 1 ? dialect.cast : dialect.vectors.convert, Type(type), x);
  }
  std::string Bits(const std::string& x) const {
    return lanes == 1 ? Fill(dialect.f32.bits, x) : Fill(dialect.vectors.bits, x, lanes);
  }
  std::string Number(const std::string& x) const {
    return lanes == 1 ? Fill(dialect.f32.from_bits, x) : Fill(dialect.vectors.from_bits, x, lanes);
  }
};

// Floats of 16 bits are such integers; what they are as an f32, and the nearest one of an f32 (of two the even one).
std::string NarrowText(const Spelled& spelled, const std::string& name, DType narrow, bool widens) {
  const Dialect& dialect = spelled.dialect;
  const std::string memory = spelled.Type(narrow), wide = spelled.Type(DType::kF32), whole = spelled.Type(DType::kI32);
  const std::string_view own = narrow == DType::kF16 ? dialect.f16_conversions[widens ? 0 : 1] : "";
  std::string body;
  if (!own.empty()) {
    body = own;
  } else if (widens && narrow == DType::kBF16) {
    body = "return " + spelled.Number(spelled.To(DType::kI32, "x") + " << 16") + ";";
  } else if (widens) {
    body = fmt::format(
        "{} h = {}, e = h & 31744, s = (h & 32768) << 16, m = (h & 32767) << 13; return e == 0 ? {} : {};", whole,
        spelled.To(DType::kI32, "x"),
        spelled.Number(spelled.Bits("(" + spelled.To(DType::kF32, "(h & 1023)") + " * 5.9604644775390625e-8f)") +
                       " | s"),
        spelled.Number("s | (e == 31744 ? m | 2139095040 : m + 939524096)"));
  } else {
    const std::string rounded =
        narrow == DType::kBF16
            ? "b > 2139095040 ? b >> 16 | 64 : (b + 32767 + (b >> 16 & 1)) >> 16"
            : fmt::format(
                  "b > 2139095040 ? 32256 : b >= 1199566848 ? 31744 : b < 947912704 ? {} : (b - 939524096 + "
                  "4095 + (b >> 13 & 1)) >> 13",
                  spelled.To(DType::kI32, Fill(dialect.f32.round, spelled.Number("b") + " * 16777216.0f")));
    body = fmt::format("{} b = {}, s = b >> 16 & 32768; b = b & 2147483647; return {};", whole, spelled.Bits("x"),
                       spelled.To(narrow, fmt::format("s | ({})", rounded)));
  }
  return fmt::format("{}{} hone_{}({} x) {{ {} }}\n", dialect.function, widens ? wide : memory, name,
                     widens ? memory : wide, body);
}

}  // namespace

std::span<const std::string_view> ReservedWords() { return kReserved; }

std::string ConstantText(const Dialect& dialect, const straight::Value& value) {
  const DialectType& type = dialect.Of(value.type);
  if (value.type == DType::kBool) return value.number != 0 ? "true" : "false";
  if (value.type == DType::kF16) return Fill(dialect.cast, type.value, Half(value.real).bits());
  if (value.type == DType::kBF16) return Fill(dialect.cast, type.value, BFloat16(value.real).bits());
  if (!IsFloat(value.type)) {
    // In GLSL a number is no byte by itself.
    if (IsByte(value.type) && dialect.is_shader) return Fill(dialect.cast, type.value, value.number);
    if (value.number == INT32_MIN && value.type != DType::kI64) return "(-2147483647 - 1)";
    if (value.number == INT64_MIN) return Fill("(-9223372036854775807{0} - 1)", type.suffix);
    return Fill(value.number < 0 ? "({}{})" : "{}{}", value.number, type.suffix);
  }
  const DialectFloat& spelled = value.type == DType::kF64 ? dialect.f64 : dialect.f32;
  if (std::isnan(value.real)) return std::string(spelled.nan);
  if (std::isinf(value.real)) return (value.real < 0 ? "(-" : "(") + std::string(spelled.infinity) + ")";
  std::string digits =
      value.type == DType::kF32 ? fmt::format("{}", static_cast<float>(value.real)) : fmt::format("{}", value.real);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return Fill(std::signbit(value.real) ? "({}{})" : "{}{}", digits, type.suffix);
}

std::string HelperText(const Dialect& dialect, const std::string& name) {
  const std::string type_name = name.substr(name.rfind('_') + 1);
  const size_t by = type_name.find('x');
  const int lanes = by == std::string::npos ? 1 : std::stoi(type_name.substr(by + 1));
  const DType type = ParseDType(type_name.substr(0, by)).value();
  const std::string what = name.substr(0, name.rfind('_'));
  if (what == "word" && type == DType::kF32)  // CUDA's alone, as the next one: rounded to what tensor cores take
    return fmt::format("{}unsigned hone_{}(float x) {{ unsigned y; {}; return y; }}\n", dialect.function, name,
                       R"(asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x)))");
  if (const std::string matrices = MatricesText(dialect.function, name); !matrices.empty()) return matrices;
  if (what == "word") {
    const std::string_view vector = dialect.Of(type).Vector(static_cast<int>(4 / ByteSize(type)));
    return fmt::format("{}unsigned hone_{}({} x) {{ return *reinterpret_cast<const unsigned*>(&x); }}\n",
                       dialect.function, name, vector);
  }
  const Spelled spelled{dialect, lanes};
  if (IsNarrowFloat(type)) return NarrowText(spelled, name, type, true);
  if (what.ends_with("_of"))
    if (const DType made = ParseDType(what.substr(0, what.find('_'))).value(); IsNarrowFloat(made))
      return NarrowText(spelled, name, made, false);
  const std::string t = spelled.Type(type), suffix(IsFloat(type) ? dialect.Of(type).suffix : "");
  auto two = [&](const std::string& result) {
    return fmt::format("{}{} hone_{}({} a, {} b) {{ return {}; }}\n", dialect.function, t, name, t, t, result);
  };
  if (what == "max") return two(IsFloat(type) ? "a != a || a > b ? a : b" : "a > b ? a : b");
  if (what == "min") return two(IsFloat(type) ? "a != a || a < b ? a : b" : "a < b ? a : b");
  if (what == "larger") return two("b > a ? b : a");
  if (what == "abs")
    return fmt::format("{}{} hone_{}({} x) {{ return {}; }}\n", dialect.function, t, name, t,
                       Fill(dialect.cast, t, "x < 0 ? " + Fill(dialect.wrapping, "0", "-", "x") + " : x"));
  // i32_of_f32: towards zero, saturating, NaN is 0.
  const DType to = ParseDType(what.substr(0, what.find('_'))).value();
  const std::string result = spelled.Type(to);
  const std::string bound = to == DType::kI8 ? "128.0" : "2147483648.0";
  const std::string most = to == DType::kI8 ? "127" : "2147483647";
  const std::string cut = fmt::format("x != x ? 0 : x >= {0}{1} ? {2} : x <= -{0}{1} ? -{2} - 1 : {3}", bound, suffix,
                                      most, spelled.To(DType::kI32, "x"));
  return fmt::format("{}{} hone_{}({} x) {{ return {}; }}\n", dialect.function, result, name, t,
                     lanes > 1 && to == DType::kI32 ? cut : spelled.To(to, cut));
}

}  // namespace hone
