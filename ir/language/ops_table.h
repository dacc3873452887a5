// The table of library operations: attributes, and the statements that each stands for.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/language/lex.h"

namespace hone {

enum class AttributeKind : uint8_t {
  kSize,    // at least 1, may be a range
  kCount,   // at least 1, one value
  kFlag,    // 0 or 1
  kPair,    // n or [h, w], at least 1
  kMargin,  // n, [h, w] or [top, left, bottom, right], at least 0
  kReal,
  kOption,  // at least 0, one value: it decides the text, and is no size of the kernel
  kWord,    // one of some words, as kOption
};

struct Attribute {
  std::string_view name;
  AttributeKind kind;
  // "": must be given; "=R": as another attribute (windows: as R and S); of a word all that there are, parted by "|",
  // the first of which is the default.
  std::string_view default_text;
};

// What was given for an attribute, or its default.
struct AttributeValue {
  std::vector<int64_t> numbers;  // kSize: lo, hi; kPair: h, w; kMargin: top, left, bottom, right
  double real = 0;
  std::string text;  // kWord
  Position position;
};

struct Attributes {
  std::map<std::string_view, AttributeValue> values;
  std::string_view file;  // for the place of an error

  int64_t Lo(std::string_view name) const { return values.at(name).numbers[0]; }
  const AttributeValue& operator[](std::string_view name) const { return values.at(name); }
};

// Texts with placeholders: $T element type, $A element type of sums and of what arithmetic makes, $E element type of
// what an epilogue adds, $C "const " for constant operands, $Y the tensor that the operation fills. A result of $A that
// is to be a narrow float is converted at the end.
struct OperationText {
  std::string name;  // for Kernel::name
  std::string inputs;
  std::vector<std::string> output;   // dimensions as declared
  std::vector<std::string> view;     // as stages index them; empty: the same
  std::vector<std::string> indices;  // names of the index variables, one per dimension that stages index
  std::vector<size_t> channel;       // which of these dimensions a bias runs over; empty: none
  std::string abbreviations;         // appended to `where`: ", OH=…"
  std::string body;
  std::string output_type = "$A";
  bool floats_only = false;  // for these attributes
};

struct Operation {
  std::string_view name;
  std::span<const Attribute> attributes;
  bool floats_only;
  Result<OperationText> (*text)(const Attributes& attributes);
};

std::span<const Operation> OperationTable();

// Images with their channels last, [N, H, W, C], in what comes in and goes out; weights stay as they are. False: the
// operation is not one of an image, or sees it in groups.
bool PutChannelsLast(OperationText& text);

struct Epilogue {
  std::string_view name;
  std::string_view text;     // $V the value so far, $B the operand's element
  std::string_view operand;  // its name; "": takes none
  bool over_channel;         // the operand has the output's channel alone
  bool floats_only;
};

std::span<const Epilogue> EpilogueTable();

}  // namespace hone
