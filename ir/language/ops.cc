#include "ir/language/ops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ir/graph/dtype_traits.h"
#include "ir/graph/type.h"
#include "ir/language/ops_table.h"

namespace hone {
namespace {

constexpr size_t kMaxEpilogues = 32;

struct Word {
  std::string_view name;
  Position position;
};

// name(attribute=value, …)+epilogue+…, as read.
struct Call {
  Word operation;
  struct Given {
    Word name;
    std::vector<Token> numbers;  // one, or the items of a list
    bool is_list = false;
    std::optional<Token> hi;  // of a range
    bool negative = false;
  };
  std::vector<Given> attributes;
  std::vector<Word> epilogues;
};

class CallParser {
 public:
  CallParser(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Result<Call> Run();

 private:
  Result<void> Advance() {
    Result<Token> next = NextToken(text_, &offset_, &position_);
    if (next) {
      token_ = *next;
      return {};
    }
    Error error = std::move(next).error();
    error.where = WhereText(file_, position_);
    return error;
  }
  Error Wanted(std::string_view wanted) const {
    return Error{ErrorKind::kInvalid, fmt::format("saw {}, wanted {}", token_.Describe(), wanted),
                 WhereText(file_, token_.position)};
  }
  Result<Token> Scalar(Call::Given& given);

  std::string_view text_, file_;
  size_t offset_ = 0;
  Position position_;
  Token token_;
};

Result<Token> CallParser::Scalar(Call::Given& given) {
  if (token_.Is("-")) {
    given.negative = true;
    HONE_TRY(Advance());
  }
  if (token_.kind != TokenKind::kInt && token_.kind != TokenKind::kFloat && token_.kind != TokenKind::kName)
    return Wanted(fmt::format("the value of {}", given.name.name));
  Token token = token_;
  HONE_TRY(Advance());
  return token;
}

Result<Call> CallParser::Run() {
  Call call;
  HONE_TRY(Advance());
  if (token_.kind != TokenKind::kName)
    return Wanted("a library operation, as in matmul(M=64,N=64,K=64), or \"kernel\"");
  call.operation = {token_.text, token_.position};
  HONE_TRY(Advance());
  if (!token_.Is("(")) return Wanted(fmt::format("\"(\" and the sizes, as in {}(M=64,N=64)", call.operation.name));
  HONE_TRY(Advance());
  while (!token_.Is(")")) {
    if (token_.kind != TokenKind::kName) return Wanted("an attribute, as in M=64, or \")\"");
    Call::Given given{
        .name = {token_.text, token_.position}, .numbers = {}, .is_list = false, .hi = {}, .negative = false};
    HONE_TRY(Advance());
    if (!token_.Is("=")) return Wanted(fmt::format("\"=\" and the value of {}", given.name.name));
    HONE_TRY(Advance());
    if (token_.Is("[")) {
      given.is_list = true;
      do {
        HONE_TRY(Advance());
        given.numbers.push_back(HONE_TRY(Scalar(given)));
      } while (token_.Is(",") && given.numbers.size() < 8);
      if (!token_.Is("]")) return Wanted("\"]\" to close the list");
      HONE_TRY(Advance());
    } else {
      given.numbers.push_back(HONE_TRY(Scalar(given)));
      if (token_.Is("..")) {
        HONE_TRY(Advance());
        given.hi = HONE_TRY(Scalar(given));
      }
    }
    if (call.attributes.size() >= 64) return Wanted("at most 64 attributes");
    call.attributes.push_back(std::move(given));
    if (token_.Is(")")) break;
    if (!token_.Is(",")) return Wanted("\",\" or \")\"");
    HONE_TRY(Advance());
  }
  HONE_TRY(Advance());
  while (token_.Is("+")) {
    HONE_TRY(Advance());
    if (token_.kind != TokenKind::kName) return Wanted(fmt::format("an epilogue: {}", fmt::join(EpilogueNames(), " ")));
    call.epilogues.push_back({token_.text, token_.position});
    if (call.epilogues.size() > kMaxEpilogues) return Wanted(fmt::format("at most {} epilogues", kMaxEpilogues));
    HONE_TRY(Advance());
  }
  if (token_.kind != TokenKind::kEnd) return Wanted("\"+\" and an epilogue, or the end of the text");
  return call;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at; (at = text.find(from)) != std::string_view::npos; text.remove_prefix(at + from.size())) {
    out += text.substr(0, at);
    out += to;
  }
  return out += text;
}

// Of an attribute that is a word.
std::vector<std::string_view> WordsOf(const Attribute& attribute) {
  std::vector<std::string_view> words;
  for (std::string_view left = attribute.default_text; !left.empty();) {
    const size_t end = std::min(left.find('|'), left.size());
    words.push_back(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return words;
}

class Expander {
 public:
  Expander(Call call, std::string_view file, const ParseLimits& limits)
      : call_(std::move(call)), file_(file), limits_(limits) {}

  Result<Expansion> Run();

 private:
  Error At(Position position, std::string message, ErrorKind kind = ErrorKind::kInvalid) const {
    return Error{kind, std::move(message), WhereText(file_, position)};
  }
  Result<int64_t> WholeNumber(const Call::Given& given, const Token& token, int64_t least);
  Result<AttributeValue> Read(const Attribute& attribute, const Call::Given& given);
  Result<void> ReadAttributes();
  Result<bool> ReadCommon(const Call::Given& given);
  Result<void> Defaults();
  Result<void> AddEpilogues(OperationText& text);
  std::string Usage() const;
  std::string WhereClause(const OperationText& text) const;

  Call call_;
  std::string_view file_;
  const ParseLimits& limits_;
  const Operation* operation_ = nullptr;
  Attributes attributes_;
  bool is_const_ = false, has_channels_last_ = false;
  Position layout_position_;
  DType dtype_ = DType::kF32;
  std::string accuracy_ = "strict";
  int64_t threads_ = 0;
};

std::string Expander::Usage() const {
  std::string usage(operation_->name);
  usage += "(";
  for (const Attribute& attribute : operation_->attributes) {
    if (usage.back() != '(') usage += ", ";
    usage +=
        fmt::format("{}={}", attribute.name, attribute.default_text.starts_with('=') ? "" : attribute.default_text);
  }
  return usage + ")";
}

Result<int64_t> Expander::WholeNumber(const Call::Given& given, const Token& token, int64_t least) {
  if (token.kind != TokenKind::kInt)
    return At(token.position, fmt::format("saw {}={}, wanted a whole number", given.name.name, token.Shown()));
  if (given.negative)
    return At(token.position, fmt::format("saw {}=-{}, wanted at least {}", given.name.name, token.Shown(), least));
  if (token.int_value < least)
    return At(token.position, fmt::format("saw {}={}, wanted at least {}", given.name.name, token.int_value, least));
  if (token.int_value > limits_.size)
    return At(token.position,
              fmt::format("saw {}={}, hone's limit for a size is {}", given.name.name, token.int_value, limits_.size),
              ErrorKind::kLimit);
  return token.int_value;
}

Result<AttributeValue> Expander::Read(const Attribute& attribute, const Call::Given& given) {
  AttributeValue value;
  value.position = given.numbers.empty() ? given.name.position : given.numbers[0].position;
  bool takes_list = attribute.kind == AttributeKind::kPair || attribute.kind == AttributeKind::kMargin;
  if (given.is_list && !takes_list)
    return At(value.position, fmt::format("saw a list for {}, wanted one number", attribute.name));
  if (given.hi && attribute.kind != AttributeKind::kSize)
    return At(value.position,
              fmt::format("saw a range for {}, wanted one number; sizes may be ranges", attribute.name));
  if (attribute.kind == AttributeKind::kReal) {
    const Token& token = given.numbers[0];
    if (token.kind == TokenKind::kName || given.negative)
      return At(value.position, fmt::format("saw {}={}{}, wanted a number, at least 0", attribute.name,
                                            given.negative ? "-" : "", token.Shown()));
    value.real = token.kind == TokenKind::kInt ? static_cast<double>(token.int_value) : token.float_value;
    return value;
  }
  if (attribute.kind == AttributeKind::kWord) {
    const std::vector<std::string_view> words = WordsOf(attribute);
    const Token& token = given.numbers[0];
    if (given.negative || std::find(words.begin(), words.end(), token.text) == words.end())
      return At(value.position, fmt::format("saw {}={}{}, wanted {}", attribute.name, given.negative ? "-" : "",
                                            token.Shown(), fmt::join(words, ", ")));
    value.text = token.text;
    return value;
  }
  const bool may_be_0 = attribute.kind == AttributeKind::kFlag || attribute.kind == AttributeKind::kMargin ||
                        attribute.kind == AttributeKind::kOption;
  const int64_t least = may_be_0 ? 0 : 1;
  for (const Token& token : given.numbers) value.numbers.push_back(HONE_TRY(WholeNumber(given, token, least)));
  switch (attribute.kind) {
    case AttributeKind::kSize:
      value.numbers.resize(2, value.numbers.front());
      if (given.hi) value.numbers[1] = HONE_TRY(WholeNumber(given, *given.hi, least));
      if (value.numbers[1] < value.numbers[0])
        return At(value.position, fmt::format("saw {}={}..{}, wanted a range that goes up", attribute.name,
                                              value.numbers[0], value.numbers[1]));
      break;
    case AttributeKind::kFlag:
      if (value.numbers[0] > 1)
        return At(value.position, fmt::format("saw {}={}, wanted 0 or 1", attribute.name, value.numbers[0]));
      break;
    case AttributeKind::kPair:
      if (value.numbers.size() > 2)
        return At(value.position,
                  fmt::format("saw {} numbers for {}, wanted one or [h, w]", value.numbers.size(), attribute.name));
      value.numbers.resize(2, value.numbers.front());
      break;
    case AttributeKind::kMargin:
      if (value.numbers.size() == 3 || value.numbers.size() > 4)
        return At(value.position, fmt::format("saw {} numbers for {}, wanted one, [h, w] or [top, left, bottom, right]",
                                              value.numbers.size(), attribute.name));
      if (value.numbers.size() < 4) {
        int64_t vertical = value.numbers.front(), horizontal = value.numbers.back();
        value.numbers = {vertical, horizontal, vertical, horizontal};
      }
      break;
    default: break;
  }
  return value;
}

// Attributes that every operation takes; false if this is not one of them.
Result<bool> Expander::ReadCommon(const Call::Given& given) {
  std::string_view name = given.name.name;
  const Token& token = given.numbers[0];
  std::string saw = fmt::format("saw {}={}{}", name, given.negative ? "-" : "", token.Shown());
  bool plain = !given.is_list && !given.hi && !given.negative;
  if (name == "const") {
    if (!plain || token.kind != TokenKind::kInt || token.int_value > 1)
      return At(token.position, saw + ", wanted 0 or 1");
    is_const_ = token.int_value == 1;
  } else if (name == "threads") {
    if (!plain || token.kind != TokenKind::kInt || token.int_value > limits_.threads)
      return At(token.position, fmt::format("{}, wanted a number from 0 to {}", saw, limits_.threads));
    threads_ = token.int_value;
  } else if (name == "accuracy") {
    if (!plain || !ParseAccuracy(token.text)) return At(token.position, saw + ", wanted strict, relaxed or fast");
    accuracy_ = token.text;
  } else if (name == "dtype") {
    std::optional<DType> dtype = plain ? ParseDType(token.text) : std::nullopt;
    if (dtype && !TraitsOf(*dtype).is_computed)
      return At(token.position, fmt::format("{} is not on this target yet; use dtype=f32", token.text),
                ErrorKind::kUnsupported);
    if (!dtype || dtype == DType::kBool || dtype == DType::kI64)
      return At(token.position, fmt::format("{}, wanted {}", saw, ElementTypes(/*numbers=*/true)));
    dtype_ = *dtype;
  } else if (name == "layout") {
    if (plain && (token.text == "nchw8c" || token.text == "nchw16c"))
      return At(token.position, fmt::format("layout {} is not on this target yet; use nchw or nhwc", token.text),
                ErrorKind::kUnsupported);
    if (!plain || (token.text != "nchw" && token.text != "nhwc"))
      return At(token.position, saw + ", wanted nchw or nhwc");
    layout_position_ = token.position;
    has_channels_last_ = token.text == "nhwc";
  } else {
    return false;
  }
  return true;
}

Result<void> Expander::ReadAttributes() {
  std::vector<std::string_view> seen;
  for (const Call::Given& given : call_.attributes) {
    if (std::find(seen.begin(), seen.end(), given.name.name) != seen.end())
      return At(given.name.position, fmt::format("attribute {} is given twice", given.name.name));
    seen.push_back(given.name.name);
    auto it = std::find_if(operation_->attributes.begin(), operation_->attributes.end(),
                           [&](const Attribute& attribute) { return attribute.name == given.name.name; });
    if (it != operation_->attributes.end()) {
      attributes_.values[it->name] = HONE_TRY(Read(*it, given));
    } else if (!HONE_TRY(ReadCommon(given))) {
      return At(given.name.position,
                fmt::format("unknown attribute \"{}\", wanted {} and const, dtype, accuracy, threads "
                            "or layout",
                            given.name.name, Usage()));
    }
  }
  return Defaults();
}

Result<void> Expander::Defaults() {
  for (const Attribute& attribute : operation_->attributes) {
    if (attributes_.values.count(attribute.name)) continue;
    AttributeValue value;
    value.position = call_.operation.position;
    if (attribute.default_text.empty())
      return At(call_.operation.position, fmt::format("{} is missing, wanted {}", attribute.name, Usage()));
    if (attribute.default_text == "=R") {
      value.numbers.push_back(attributes_.Lo("R"));
      value.numbers.push_back(attributes_.Lo("S"));
    } else if (attribute.kind == AttributeKind::kReal) {
      value.real = std::stod(std::string(attribute.default_text));
    } else if (attribute.kind == AttributeKind::kWord) {
      value.text = WordsOf(attribute).front();
    } else {
      value.numbers.assign(attribute.kind == AttributeKind::kMargin ? 4 : 2, attribute.default_text[0] - '0');
    }
    attributes_.values[attribute.name] = value;
  }
  return {};
}

std::string Expander::WhereClause(const OperationText& text) const {
  std::vector<std::string> sizes;
  for (const Attribute& attribute : operation_->attributes) {
    const std::vector<int64_t>& n = attributes_[attribute.name].numbers;
    switch (attribute.kind) {
      case AttributeKind::kSize:
        sizes.push_back(n[0] == n[1] ? fmt::format("{}={}", attribute.name, n[0])
                                     : fmt::format("{}={}..{}", attribute.name, n[0], n[1]));
        break;
      case AttributeKind::kCount:
        sizes.push_back(fmt::format("{}={}", attribute.name == "groups" ? "G" : attribute.name, n[0]));
        break;
      case AttributeKind::kPair: {
        std::string_view stem = attribute.name == "stride" ? "s" : "d";
        sizes.push_back(fmt::format("{0}h={1}, {0}w={2}", stem, n[0], n[1]));
        break;
      }
      case AttributeKind::kMargin:
        sizes.push_back(fmt::format("pt={}, pl={}, pb={}, pr={}", n[0], n[1], n[2], n[3]));
        break;
      case AttributeKind::kFlag:
      case AttributeKind::kReal:
      case AttributeKind::kOption:
      case AttributeKind::kWord: break;
    }
  }
  return fmt::format("{}{}", fmt::join(sizes, ", "), text.abbreviations);
}

// One element-wise stage for the whole chain, after the operation's own last stage.
Result<void> Expander::AddEpilogues(OperationText& text) {
  bool whole_numbers = !IsFloat(dtype_);
  std::string element = fmt::format("[{}]", fmt::join(text.indices, ", "));
  std::string value = "acc" + element;
  std::vector<std::string> names;
  bool arithmetic = false;
  for (const Word& word : call_.epilogues) {
    auto epilogues = EpilogueTable();
    auto it = std::find_if(epilogues.begin(), epilogues.end(), [&](const Epilogue& e) { return e.name == word.name; });
    if (it == epilogues.end())
      return At(word.position,
                fmt::format("unknown epilogue \"{}\", wanted {}", word.name, fmt::join(EpilogueNames(), " ")));
    if (it->floats_only && whole_numbers)
      return At(word.position,
                fmt::format("{} is a function of floats, and dtype={} computes in integers; use f32 or f64", word.name,
                            Name(dtype_)));
    if (it->over_channel && text.channel.empty())
      return At(word.position, fmt::format("{} has no channel for a bias", operation_->name));
    text.name += fmt::format("+{}", word.name);
    std::string operand;
    if (!it->operand.empty()) {
      arithmetic = true;
      std::string name(it->operand);
      for (int i = 2; std::find(names.begin(), names.end(), name) != names.end(); ++i)
        name = fmt::format("{}{}", it->operand, i);
      names.push_back(name);
      std::vector<std::string> view, indices;
      const std::vector<std::string>& whole = text.view.empty() ? text.output : text.view;
      if (it->over_channel) {
        for (size_t d : text.channel) view.push_back(whole[d]), indices.push_back(text.indices[d]);
        // The channel's declared dimension: the last of a matrix, the second of an image.
        std::string declared = text.view.empty() ? view[0] : text.output[1];
        text.inputs += fmt::format(", $C{}: $E[{}]", name, declared);
        if (!text.view.empty()) text.inputs += fmt::format(" as [{}]", fmt::join(view, ", "));
      } else {
        text.inputs += fmt::format(", {}: $E[{}]", name, fmt::join(text.output, ", "));
        if (!text.view.empty()) text.inputs += fmt::format(" as [{}]", fmt::join(text.view, ", "));
        indices = text.indices;
      }
      operand = fmt::format("{}[{}]", name, fmt::join(indices, ", "));
    }
    value = Replace(Replace(it->text, "$V", value), "$B", operand);
  }
  // Sums of a narrow float are floats of the wider type, and its results are rounded once, at the end.
  const bool rounds = IsNarrowFloat(dtype_) && (text.output_type == "$A" || !call_.epilogues.empty());
  if (call_.epilogues.empty() && !rounds) {
    text.body = Replace(text.body, "$Y", "y");
    return {};
  }
  if (rounds) value = "$T(" + value + ")";
  std::string acc =
      fmt::format("  acc: {}[{}]\n", text.output_type, fmt::join(text.view.empty() ? text.output : text.view, ", "));
  text.body = acc + Replace(text.body, "$Y", "acc") + fmt::format("  y{} = {}\n", element, value);
  if (rounds)
    text.output_type = "$T";
  else if (arithmetic)
    text.output_type = "$A";
  return {};
}

Result<Expansion> Expander::Run() {
  auto operations = OperationTable();
  auto it = std::find_if(operations.begin(), operations.end(),
                         [&](const Operation& operation) { return operation.name == call_.operation.name; });
  if (it == operations.end())
    return At(call_.operation.position,
              fmt::format("unknown operation \"{}\", wanted one of {}, or a kernel in the kernel "
                          "language",
                          call_.operation.name, fmt::join(OperationNames(), " ")));
  operation_ = &*it;
  attributes_.file = file_;
  HONE_TRY(ReadAttributes());
  auto wants_floats = [&] {
    return At(call_.operation.position,
              fmt::format("{} is a function of floats, saw dtype={}; use f32 or f64", operation_->name, Name(dtype_)));
  };
  if (operation_->floats_only && !IsFloat(dtype_)) return wants_floats();
  OperationText text = HONE_TRY(operation_->text(attributes_));
  if (text.floats_only && !IsFloat(dtype_)) return wants_floats();
  if (has_channels_last_ && !PutChannelsLast(text))
    return At(layout_position_, fmt::format("{} has no layout nhwc: that is of images, of convolutions without groups "
                                            "and of pools",
                                            operation_->name));
  HONE_TRY(AddEpilogues(text));

  std::string with =
      accuracy_ == "strict" && threads_ == 0 ? "" : fmt::format(" with accuracy={}, threads={}", accuracy_, threads_);
  std::string view = text.view.empty() ? "" : fmt::format(" as [{}]", fmt::join(text.view, ", "));
  std::string source =
      fmt::format("kernel \"{}\"({}) -> y: {}[{}]{}\nwhere {}{} {{\n{}}}\n", text.name, text.inputs, text.output_type,
                  fmt::join(text.output, ", "), view, WhereClause(text), with, text.body);
  source = Replace(source, "$LOWEST", IsFloat(dtype_) ? "-inf" : fmt::format("{}", TraitsOf(dtype_).lowest));
  source = Replace(source, "$T", Name(dtype_));
  source = Replace(source, "$A", Name(TraitsOf(dtype_).accumulator));
  source = Replace(source, "$E", Name(IsFloat(dtype_) ? dtype_ : TraitsOf(dtype_).accumulator));
  source = Replace(source, "$C", is_const_ ? "const " : "");
  return Expansion{text.name, std::move(source), call_.operation.position};
}

}  // namespace

Result<Expansion> ExpandOperation(std::string_view text, std::string_view file, const ParseLimits& limits) {
  Call call = HONE_TRY(CallParser(text, file).Run());
  return Expander(std::move(call), file, limits).Run();
}

std::vector<std::string_view> OperationNames() {
  std::vector<std::string_view> names;
  for (const Operation& operation : OperationTable()) names.push_back(operation.name);
  return names;
}

std::vector<std::string_view> EpilogueNames() {
  std::vector<std::string_view> names;
  for (const Epilogue& epilogue : EpilogueTable()) names.push_back(epilogue.name);
  return names;
}

}  // namespace hone
