// The cache's own small files: text, and a last line with its CRC-32C by which one flipped bit is set right.
//
//   file ::= text "crc " hex:8 "\n"
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hone {

std::string EncodeSmallFile(std::string_view text);

struct SmallFile {
  std::string text;
  bool mended = false;  // a bit was flipped: write it anew
};
// nullopt: has no such line, or does not fit it even with one bit set right.
std::optional<SmallFile> DecodeSmallFile(std::string_view file);

}  // namespace hone
