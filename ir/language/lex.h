// Words of the kernel language, one at a time, each with its place. A comment runs from # to the end of its line; line
// ends mean nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hone {

struct Position {
  int line = 1;
  int column = 1;  // in bytes
};

// "file:line:column".
std::string WhereText(std::string_view file, Position position);

enum class TokenKind : uint8_t {
  kEnd,
  kName,    // letters, digits, _; not starting with a digit
  kInt,     // int_value
  kFloat,   // float_value
  kString,  // between double quotes, on one line; text without the quotes
  kSymbol,  // ( ) [ ] { } , : = + - * / % < > <= >= == != -> .. ;
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  // borrowed from the source
  Position position;
  int64_t int_value = 0;
  double float_value = 0;

  bool Is(std::string_view symbol) const { return kind == TokenKind::kSymbol && text == symbol; }
  bool IsWord(std::string_view word) const { return kind == TokenKind::kName && text == word; }
  // For messages: its text, shortened; and `"x"`, `the number 3`, `the end of the text`.
  std::string Shown() const;
  std::string Describe() const;
};

// Reads the next token from `source` at *offset and moves both. kInvalid for bytes that start no token, numbers beyond
// 63 bits, names beyond 64 letters, and strings beyond 1 KiB or without an end; the error's `where` is left to the
// caller, who knows the file: *position is at the offending place then.
Result<Token> NextToken(std::string_view source, size_t* offset, Position* position);

}  // namespace hone
