#include "client/cli/report/markup.h"

#include <cstdint>

#include "base/check.h"

namespace hone::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool IsCharacterOfXml(uint32_t code) {
  if (code < 0x20) return code == '\t' || code == '\n' || code == '\r';
  return code != 0x7f && !(code >= 0xd800 && code <= 0xdfff) && code != 0xfffe && code != 0xffff && code <= 0x10ffff;
}

// Bytes of the UTF-8 character at the front; 0: it is none, or none that XML has.
size_t CharacterBytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return IsCharacterOfXml(lead) ? 1 : 0;
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
  return code >= kLeast[bytes] && IsCharacterOfXml(code) ? bytes : 0;
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0) {
      out += kReplacement;
      text.remove_prefix(1);
      continue;
    }
    switch (text[0]) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

void Markup::Tag(std::string_view name, Attributes attributes, std::string_view end) {
  out_ += '<';
  out_ += name;
  for (const Attribute& attribute : attributes) {
    out_ += ' ';
    out_ += attribute.name;
    out_ += "=\"" + Escaped(attribute.value) + '"';
  }
  out_ += end;
}

Markup& Markup::Open(std::string_view name, Attributes attributes) {
  Tag(name, attributes, ">");
  open_.emplace_back(name);
  return *this;
}

Markup& Markup::Close(std::string_view name) {
  HONE_CHECK(!open_.empty() && open_.back() == name);
  open_.pop_back();
  out_ += "</" + std::string(name) + ">";
  return *this;
}

Markup& Markup::Text(std::string_view text) {
  out_ += Escaped(text);
  return *this;
}

Markup& Markup::Element(std::string_view name, std::string_view text, Attributes attributes) {
  return Open(name, attributes).Text(text).Close(name);
}

Markup& Markup::Empty(std::string_view name, Attributes attributes) {
  Tag(name, attributes, "/>");
  return *this;
}

Markup& Markup::Raw(std::string_view markup) {
  out_ += markup;
  return *this;
}

std::string Markup::Take() && {
  HONE_CHECK(open_.empty());
  return std::move(out_);
}

}  // namespace hone::cli
