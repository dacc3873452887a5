#include "network/onnx/wire_format.h"

#include <algorithm>

namespace hone {
namespace {

std::optional<uint64_t> TakeVarint(std::string_view& rest) {
  uint64_t value = 0;
  for (size_t i = 0; i < std::min<size_t>(rest.size(), 10); ++i) {
    const auto byte = static_cast<unsigned char>(rest[i]);
    value |= uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) {
      rest.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<WireField> TakeField(std::string_view& rest) {
  const std::string_view begin = rest;
  const std::optional<uint64_t> tag = TakeVarint(rest);
  if (!tag || *tag > UINT32_MAX || *tag >> 3 == 0) return std::nullopt;
  WireField field;
  field.number = *tag >> 3;
  field.tag = begin.substr(0, begin.size() - rest.size());
  std::optional<uint64_t> size;
  switch (*tag & 7) {
    case 0: size = TakeVarint(rest) ? std::optional<uint64_t>(0) : std::nullopt; break;
    case 1: size = 8; break;
    case 2:
      size = TakeVarint(rest);
      field.is_bytes = true;
      break;
    case 5: size = 4; break;
    default: break;  // groups
  }
  if (!size || *size > rest.size()) return std::nullopt;
  field.body = rest.substr(0, *size);
  rest.remove_prefix(*size);
  field.whole = begin.substr(0, begin.size() - rest.size());
  return field;
}

std::vector<std::string_view> BytesFieldsOf(std::string_view message, uint64_t number) {
  std::vector<std::string_view> found;
  while (!message.empty()) {
    const std::optional<WireField> field = TakeField(message);
    if (!field) break;
    if (field->number == number && field->is_bytes) found.push_back(field->body);
  }
  return found;
}

}  // namespace hone
