#include "base/small_file.h"

#include <fmt/format.h>

#include "base/crc32c.h"

namespace hone {
namespace {

constexpr size_t kMostBytes = 4096;
constexpr size_t kLineBytes = 4 + 8 + 1;

bool IsSound(std::string_view file) {
  if (file.size() < kLineBytes) return false;
  const std::string_view text = file.substr(0, file.size() - kLineBytes);
  return file == EncodeSmallFile(text);
}

}  // namespace

std::string EncodeSmallFile(std::string_view text) { return fmt::format("{}crc {:08x}\n", text, Crc32c(text)); }

std::optional<SmallFile> DecodeSmallFile(std::string_view file) {
  if (file.size() < kLineBytes || file.size() > kMostBytes) return std::nullopt;
  std::string bytes(file);
  auto text = [&] { return bytes.substr(0, bytes.size() - kLineBytes); };
  if (IsSound(bytes)) return SmallFile{text(), false};
  for (char& byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      byte = static_cast<char>(byte ^ 1 << bit);
      if (IsSound(bytes)) return SmallFile{text(), true};
      byte = static_cast<char>(byte ^ 1 << bit);
    }
  }
  return std::nullopt;
}

}  // namespace hone
