#include "network/onnx/symbols.h"

#include <fmt/format.h>

namespace hone {

Result<void> Symbols::Bind(const OnnxValue& input, const Shape& shape) {
  if (!input.type.has_shape) return {};
  const std::vector<OnnxDimension>& dimensions = input.type.dimensions;
  bool fits = dimensions.size() == shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) fits = dimensions[d].value < 0 || dimensions[d].value == shape[d];
  if (!fits)
    return Error{ErrorKind::kInvalid, fmt::format("shape {}, wanted {}", ShapeText(shape), ShapeText(input.type)),
                 "input " + input.name};
  for (size_t d = 0; d < shape.size(); ++d) {
    if (dimensions[d].symbol.empty()) continue;
    const auto& [known, is_new] = sizes_.emplace(dimensions[d].symbol, Size{shape[d], input.name});
    if (known->second.value == shape[d]) continue;
    return Error{ErrorKind::kInvalid,
                 fmt::format("it has {} of \"{}\", input {} has {}", shape[d], dimensions[d].symbol,
                             known->second.input, known->second.value),
                 "input " + input.name};
  }
  return {};
}

Shape Symbols::ShapeOf(const OnnxValue& value) const {
  Shape shape;
  for (const OnnxDimension& dimension : value.type.dimensions) {
    auto known = dimension.value >= 0 ? sizes_.end() : sizes_.find(dimension.symbol);
    shape.push_back(known == sizes_.end() ? dimension.value : known->second.value);
  }
  return shape;
}

std::string ShapeText(const OnnxType& type) {
  if (!type.has_shape) return "not given";
  std::string text;
  for (const OnnxDimension& dimension : type.dimensions) {
    if (!text.empty()) text += "x";
    text += dimension.value >= 0 ? std::to_string(dimension.value) : dimension.symbol.empty() ? "?" : dimension.symbol;
  }
  return text.empty() ? "a scalar" : text;
}

}  // namespace hone
