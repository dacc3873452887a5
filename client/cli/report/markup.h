// Writes HTML and SVG that is well-formed by construction: every element is closed in its turn and every text and
// attribute is escaped, so that a kernel named "<b>" is a name and nothing else. The result reads as HTML and as XML.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace hone::cli {

// <, >, & and quotes as entities; what XML has no character for (control characters, bytes that are no UTF-8) is
// U+FFFD.
std::string Escaped(std::string_view text);

struct Attribute {
  std::string_view name;
  std::string value;
};

class Markup {
 public:
  using Attributes = std::initializer_list<Attribute>;

  Markup& Open(std::string_view name, Attributes attributes = {});
  // REQUIRES: `name` is the innermost open element.
  Markup& Close(std::string_view name);
  Markup& Text(std::string_view text);
  // Open, Text, Close.
  Markup& Element(std::string_view name, std::string_view text, Attributes attributes = {});
  // One without contents: of HTML's void elements (meta, col …), or of SVG. Others HTML would take for opened.
  Markup& Empty(std::string_view name, Attributes attributes = {});
  // As it is. REQUIRES: `markup` is well-formed.
  Markup& Raw(std::string_view markup);

  // REQUIRES: everything was closed.
  std::string Take() &&;

 private:
  void Tag(std::string_view name, Attributes attributes, std::string_view end);

  std::string out_;
  std::vector<std::string> open_;
};

}  // namespace hone::cli
