#include "client/cli/plain_text.h"

#include <algorithm>
#include <cstdint>

namespace hone::cli {
namespace {

bool IsPlain(uint32_t code) {
  if (code < 0x20) return code == '\t' || code == '\n';
  return !(code >= 0x7f && code < 0xa0) && !(code >= 0xd800 && code <= 0xdfff) && code != 0xfffe && code != 0xffff &&
         code <= 0x10ffff;
}

}  // namespace

size_t PlainCharacter(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return IsPlain(lead) ? 1 : 0;
  const size_t bytes = lead >= 0xf0 && lead < 0xf8   ? 4
                       : lead >= 0xe0 && lead < 0xf0 ? 3
                       : lead >= 0xc0 && lead < 0xe0 ? 2
                                                     : 0;
  if (bytes == 0 || bytes > text.size()) return 0;
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return 0;
    code = code << 6 | (next & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // shorter ways to say the same are refused
  return code >= kLeast[bytes] && IsPlain(code) ? bytes : 0;
}

std::string Plain(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string plain;
  plain.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = PlainCharacter(text);
    if (bytes == 0) {
      const auto byte = static_cast<unsigned char>(text[0]);
      plain += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      plain += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return plain;
}

std::string PlainLine(std::string_view text) {
  std::string line = Plain(text);
  std::replace_if(line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

}  // namespace hone::cli
