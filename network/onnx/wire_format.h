// Messages of protobuf as they are written, for what is read without its library or what its .proto file does not know
// yet (https://protobuf.dev/programming-guides/encoding).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace hone {

struct WireField {
  uint64_t number = 0;
  bool is_bytes = false;  // a length, and that many bytes
  std::string_view tag, whole, body;
};

// Takes the first field off `rest`; nullopt: it is none, or a group.
std::optional<WireField> TakeField(std::string_view& rest);

// Of a message, the fields of one number that are bytes, up to the first thing that is no field.
std::vector<std::string_view> BytesFieldsOf(std::string_view message, uint64_t number);

}  // namespace hone
