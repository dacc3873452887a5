#include "network/run/kernel_term.h"

#include <fmt/format.h>

#include <cmath>

#include "ir/graph/dtype_traits.h"

namespace hone {

DType Wide(DType type) { return type == DType::kBool ? type : TraitsOf(type).accumulator; }

std::string Literal(double value, DType dtype) {
  if (dtype == DType::kBool) return value != 0 ? "true" : "false";
  if (!IsFloat(dtype)) return value < 0 ? fmt::format("({:.0f})", value) : fmt::format("{:.0f}", value);
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "(-inf)" : "inf";
  std::string text = fmt::format("{:.9g}", value);
  if (dtype == DType::kF64) text = fmt::format("{:.17g}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return value < 0 || std::signbit(value) ? "(" + text + ")" : text;
}

std::string Shifted(const std::string& index, int64_t by) {
  if (by == 0) return index;
  return by > 0 ? fmt::format("({} + {})", index, by) : fmt::format("({} - {})", index, -by);
}

std::string As(const KernelTerm& term, DType type) {
  if (term.number && Wide(type) == type) return Literal(*term.number, type);
  const DType own = term.number ? Wide(type) : term.type;
  const std::string text = term.number ? Literal(*term.number, own) : term.text;
  if (own == type) return text;
  if (own == DType::kBool) return fmt::format("if({}, {}, {})", text, Literal(1, type), Literal(0, type));
  return fmt::format("{}({})", Name(type), text);
}

DType Common(const KernelTerm& a, const KernelTerm& b) {
  if (a.number) return b.number ? Wide(b.type) : b.type;
  return b.number || a.type == b.type ? a.type : Wide(a.type);
}

}  // namespace hone
