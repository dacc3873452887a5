#include "codegen/gpu/print_helpers.h"

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

}  // namespace

std::span<const std::string_view> ReservedWords() { return kReserved; }

std::string HelperText(const Dialect& dialect, const std::string& name) {
  const DType type = ParseDType(name.substr(name.rfind('_') + 1)).value();
  const std::string what = name.substr(0, name.rfind('_'));
  const std::string t(dialect.Of(type).value), suffix(IsFloat(type) ? dialect.Of(type).suffix : "");
  auto two = [&](const std::string& result) {
    return fmt::format("{}{} hone_{}({} a, {} b) {{ return {}; }}\n", dialect.function, t, name, t, t, result);
  };
  if (what == "max") return two(IsFloat(type) ? "a != a || a > b ? a : b" : "a > b ? a : b");
  if (what == "min") return two(IsFloat(type) ? "a != a || a < b ? a : b" : "a < b ? a : b");
  if (what == "larger") return two("b > a ? b : a");
  if (what == "abs")
    return fmt::format("{}{} hone_{}({} x) {{ return {}; }}\n", dialect.function, t, name, t,
                       Fill(dialect.cast, t, "x < 0 ? -x : x"));
  // i32_of_f32: towards zero, saturating, NaN is 0.
  const DType to = ParseDType(what.substr(0, what.find('_'))).value();
  const std::string result(dialect.Of(to).value);
  const std::string bound = to == DType::kI8 ? "128.0" : "2147483648.0";
  const std::string most = to == DType::kI8 ? "127" : "2147483647";
  return fmt::format("{0}{1} hone_{2}({3} x) {{ return {4}; }}\n", dialect.function, result, name, t,
                     Fill(dialect.cast, result,
                          fmt::format("x != x ? 0 : x >= {0}{1} ? {2} : x <= -{0}{1} ? -{2} - 1 : {3}", bound, suffix,
                                      most, Fill(dialect.cast, "int", "x"))));
}

}  // namespace hone
