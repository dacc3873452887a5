#include "ir/language/lex.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace hone {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

constexpr std::array<std::string_view, 6> kPairs = {"->", "..", "<=", ">=", "==", "!="};
constexpr std::string_view kSymbols = "()[]{},:=+-*/%<>;";

constexpr size_t kNameBytes = 64;
constexpr size_t kStringBytes = 1024;

void SkipBlanks(std::string_view source, size_t* offset, Position* position) {
  bool comment = false;
  for (; *offset < source.size(); ++*offset) {
    char c = source[*offset];
    if (c == '\n') {
      comment = false;
      ++position->line;
      position->column = 1;
      continue;
    }
    if (c == '#') comment = true;
    if (!comment && c != ' ' && c != '\t' && c != '\r') return;
    ++position->column;
  }
}

// digits [. digits] [e [sign] digits]; "1..5" is the number 1, a range's dots and the number 5.
size_t NumberLength(std::string_view text, bool* is_float) {
  size_t n = 0;
  auto digits = [&](size_t from) {
    while (from < text.size() && IsDigit(text[from])) ++from;
    return from;
  };
  n = digits(0);
  *is_float = false;
  if (n + 1 < text.size() && text[n] == '.' && IsDigit(text[n + 1])) {
    *is_float = true;
    n = digits(n + 1);
  }
  if (n < text.size() && (text[n] == 'e' || text[n] == 'E')) {
    size_t exponent = n + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (exponent < text.size() && IsDigit(text[exponent])) {
      *is_float = true;
      n = digits(exponent);
    }
  }
  return n;
}

Error Bad(std::string message) { return Error{ErrorKind::kInvalid, std::move(message), ""}; }

Result<Token> Number(std::string_view rest, Token token) {
  bool is_float = false;
  token.text = rest.substr(0, NumberLength(rest, &is_float));
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.text.size() < rest.size() && (IsLetter(rest[token.text.size()])))
    return Bad(fmt::format("saw \"{}{}\", wanted a number or a name; a name starts with a letter", token.Shown(),
                           rest[token.text.size()]));
  token.kind = is_float ? TokenKind::kFloat : TokenKind::kInt;
  std::errc status =
      is_float ? std::from_chars(begin, end, token.float_value).ec : std::from_chars(begin, end, token.int_value).ec;
  if (status != std::errc()) {
    if (is_float) return Bad(fmt::format("saw {}, wanted a number that a double can hold", token.Shown()));
    return Bad(fmt::format("saw {}, wanted a whole number below 2^63", token.Shown()));
  }
  return token;
}

// What a terminal may take for a command.
bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::string PrintableByte(char c) {
  unsigned char byte = static_cast<unsigned char>(c);
  return byte > 0x20 && byte < 0x7f ? fmt::format("'{}'", c) : fmt::format("byte 0x{:02x}", byte);
}

}  // namespace

std::string WhereText(std::string_view file, Position position) {
  return fmt::format("{}:{}:{}", file, position.line, position.column);
}

std::string Token::Shown() const {
  constexpr size_t kShown = 40;
  return fmt::format("{}{}", text.substr(0, kShown), text.size() > kShown ? "…" : "");
}

std::string Token::Describe() const {
  switch (kind) {
    case TokenKind::kEnd: return "the end of the text";
    case TokenKind::kInt:
    case TokenKind::kFloat: return "the number " + Shown();
    default: return fmt::format("\"{}\"{}", text.substr(0, 40), text.size() > 40 ? "…" : "");
  }
}

Result<Token> NextToken(std::string_view source, size_t* offset, Position* position) {
  SkipBlanks(source, offset, position);
  Token token;
  token.position = *position;
  std::string_view rest = source.substr(*offset);
  if (rest.empty()) return token;
  size_t length = 0;
  if (IsDigit(rest[0]) || (rest[0] == '.' && rest.size() > 1 && IsDigit(rest[1]))) {
    token = HONE_TRY(Number(rest, token));
    length = token.text.size();
  } else if (IsLetter(rest[0])) {
    while (length < rest.size() && (IsLetter(rest[length]) || IsDigit(rest[length]))) ++length;
    token.kind = TokenKind::kName;
    token.text = rest.substr(0, length);
    if (length > kNameBytes) return Bad(fmt::format("saw a name of {} letters, wanted at most {}", length, kNameBytes));
  } else if (rest[0] == '"') {
    size_t end = rest.find_first_of("\"\n", 1);
    if (end == std::string_view::npos || rest[end] == '\n') return Bad("saw a string without its closing quote");
    if (end - 1 > kStringBytes)
      return Bad(fmt::format("saw a string of {} bytes, wanted at most {}", end - 1, kStringBytes));
    token.kind = TokenKind::kString;
    token.text = rest.substr(1, end - 1);
    const auto odd = std::find_if(token.text.begin(), token.text.end(), IsControl);
    if (odd != token.text.end()) {
      return Bad(fmt::format("saw {} in a string, wanted no control characters", PrintableByte(*odd)));
    }
    length = end + 1;
  } else {
    token.kind = TokenKind::kSymbol;
    if (std::find(kPairs.begin(), kPairs.end(), rest.substr(0, 2)) != kPairs.end())
      length = 2;
    else if (kSymbols.find(rest[0]) != std::string_view::npos)
      length = 1;
    token.text = rest.substr(0, length);
    if (length == 0)
      return Bad(fmt::format("saw {}, wanted a name, a number or one of ( ) [ ] {{ }} , : = + - * / % < >",
                             PrintableByte(rest[0])));
  }
  *offset += length;
  position->column += static_cast<int>(length);
  return token;
}

}  // namespace hone
