#include "client/cli/report/markup.h"

#include "base/check.h"
#include "client/cli/plain_text.h"

namespace hone::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    const size_t bytes = PlainCharacter(text);
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
