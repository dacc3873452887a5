// docs/protocol.md against the code: its dump is a frame, its numbers are the messages', and its grammar reads what the
// code writes, field by field.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>
#include <regex>
#include <sstream>

#include "base/file.h"
#include "client/protocol/protocol.h"
#include "tests/client/protocol/sample_messages.h"

namespace hone {
namespace {

using testing::FieldList;

std::string Document() {
  Result<std::string> text = ReadFile(HONE_SOURCE_DIR "/docs/protocol.md", 1 << 20);
  EXPECT_TRUE(text) << text.error().Text();
  return text.value_or("");
}

// The code block that has `text` in it.
std::string BlockWith(const std::string& document, const std::string& text) {
  std::istringstream lines(document);
  std::string block;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      if (inside && block.find(text) != std::string::npos) return block;
      inside = !inside;
      block.clear();
    } else if (inside) {
      block += line + "\n";
    }
  }
  ADD_FAILURE() << "no block with " << text;
  return "";
}

std::map<std::string, FieldList> Grammar() {
  std::istringstream words(BlockWith(Document(), "GetRequest "));
  std::map<std::string, FieldList> rules;
  std::string rule, before;
  for (std::string word; words >> word; before = word) {
    if (word == "::=") {
      rule = before;
      rules[rule];
    } else if (size_t colon = word.find(':'); colon != std::string::npos) {
      rules[rule].push_back({word.substr(0, colon), word.substr(colon + 1)});
    }
  }
  return rules;
}

// Reads bytes by the document's grammar into text: "kernel=k threads=2 steps=[{step=parse us=1.5}]".
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rules_(Grammar()), rest_(bytes) {}

  std::string Rule(const std::string& name) {
    if (!rules_.contains(name)) return "(no rule " + name + ")";
    std::string text;
    for (const auto& [field, type] : rules_[name]) text += (text.empty() ? "" : " ") + field + "=" + Value(type);
    return text;
  }
  std::string_view rest() const { return rest_; }

 private:
  uint64_t Number(size_t width) {
    if (rest_.size() < width) return ended_ = true, 0;
    uint64_t value = 0;
    for (size_t i = width; i > 0; --i) value = value << 8 | static_cast<unsigned char>(rest_[i - 1]);
    rest_.remove_prefix(width);
    return value;
  }
  std::string Value(const std::string& type) {
    if (ended_) return "(ended)";
    if (type == "u8" || type == "bool") return std::to_string(Number(1));
    if (type == "u16") return std::to_string(Number(2));
    if (type == "u32") return std::to_string(Number(4));
    if (type == "u64") return std::to_string(Number(8));
    if (type == "i64") return std::to_string(static_cast<int64_t>(Number(8)));
    if (type == "f64") {
      std::ostringstream text;
      text << std::bit_cast<double>(Number(8));
      return text.str();
    }
    if (type == "string") {
      size_t size = std::min(Number(4), uint64_t{rest_.size()});
      std::string text(rest_.substr(0, size));
      rest_.remove_prefix(size);
      return text;
    }
    if (!type.ends_with('*')) return "{" + Rule(type) + "}";
    std::string text = "[";
    for (uint64_t count = Number(4); count > 0 && !ended_; --count) text += Value(type.substr(0, type.size() - 1));
    return text + "]";
  }

  std::map<std::string, FieldList> rules_;
  std::string_view rest_;
  bool ended_ = false;
};

// A message's fields as Reader reads them.
template <typename T>
std::string TextOf(const T& value) {
  std::ostringstream text;
  if constexpr (testing::Fielded<T>) {
    std::vector<std::string> names = testing::FieldNames<T>();
    auto add = [&, i = size_t{0}]<typename Field>(const Field& field) mutable {
      text << (i == 0 ? "" : " ") << names.at(i) << "=";
      text << (testing::Fielded<Field> ? "{" + TextOf(field) + "}" : TextOf(field));
      ++i;
    };
    std::apply([&](const auto&... fields) { (add(fields), ...); }, value.Fields());
  } else if constexpr (std::is_enum_v<T>) {
    text << static_cast<int>(value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    text << value;
  } else {
    using Element = typename T::value_type;
    for (const Element& each : value) text << (testing::Fielded<Element> ? "{" + TextOf(each) + "}" : TextOf(each));
    return "[" + text.str() + "]";
  }
  return text.str();
}

TEST(ProtocolDocument, ItsGrammarIsTheCodes) {
  std::map<std::string, FieldList> of_code;
  AllMessages::ForEach([&]<typename Message>() { testing::AddGrammar<Message>(of_code); });
  const std::map<std::string, FieldList> of_document = Grammar();
  for (const auto& [name, fields] : of_code) {
    auto rule = of_document.find(name);
    ASSERT_NE(rule, of_document.end()) << name << " is not in the document";
    EXPECT_EQ(rule->second, fields) << name;
  }
  for (const auto& [name, fields] : of_document) EXPECT_TRUE(of_code.contains(name)) << name << " is not in the code";
}

TEST(ProtocolDocument, ItsGrammarReadsEveryMessage) {
  AllMessages::ForEach([]<typename Message>() {
    const Message message = testing::Sample<Message>();
    const std::string body = EncodeBody(message), name(MessageTraits<Message>::kName);
    Reader reader(body);
    EXPECT_EQ(reader.Rule(name), TextOf(message)) << name;
    EXPECT_EQ(reader.rest(), "") << name;
  });
}

TEST(ProtocolDocument, ItsNumbersAreTheCodes) {
  const std::string document = Document();
  std::map<std::string, int> of_document, of_code;
  const std::regex entry(R"(\| (\d+) \| (\w+(?:Request|Reply|Notice)) (?=\|))");
  for (std::sregex_iterator match(document.begin(), document.end(), entry), end; match != end; ++match)
    of_document[(*match)[2]] = std::stoi((*match)[1]);
  AllMessages::ForEach(
      [&]<typename M>() { of_code[std::string(MessageTraits<M>::kName)] = static_cast<int>(kTypeOf<M>); });
  EXPECT_EQ(of_document, of_code);
}

TEST(ProtocolDocument, ItSaysWhichRequestsHaveManyReplies) {
  std::istringstream lines(Document());
  std::string sentence;
  for (std::string line; std::getline(lines, line);)
    if (size_t end = line.find(": answered by several replies"); end != std::string::npos)
      sentence = line.substr(0, end);
  AllMessages::ForEach([&]<typename M>() {
    if constexpr (requires { MessageTraits<M>::kReplies; }) {
      const std::string name(MessageTraits<M>::kName);
      EXPECT_EQ(sentence.find("`" + name + "`") != std::string::npos, MessageTraits<M>::kReplies == Replies::kMany)
          << name;
    }
  });
}

TEST(ProtocolDocument, ItsDumpIsAFrame) {
  std::string frame = EncodeFrame(7, GetRequest{"add(M=1,N=2)", "", 2, 50'000, false, false});
  std::string dump;
  for (size_t i = 0; i < frame.size(); ++i) {
    char digits[4];
    snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(frame[i]));
    dump += std::string(digits) + (i % 16 == 15 || i + 1 == frame.size() ? "\n" : " ");
  }
  EXPECT_EQ(BlockWith(Document(), "48 4f 4e 45"), dump);
}

// "1,052,672"
std::string Grouped(size_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

TEST(ProtocolDocument, ItsLimitsAndErrorKindsAreTheCodes) {
  std::string document = Document();
  EXPECT_NE(document.find("body is at most " + Grouped(kRequestLimit)), std::string::npos);
  EXPECT_NE(document.find("a reply's at most " + Grouped(kReplyLimit)), std::string::npos);
  EXPECT_NE(document.find("The header is " + std::to_string(kFrameHeaderBytes) + " bytes"), std::string::npos);
  EXPECT_NE(document.find("the last " + std::to_string(kGetTailBytes) + " bytes of the body"), std::string::npos);
  EXPECT_NE(document.find("This is version " + std::to_string(kProtocolMax)), std::string::npos);
  for (int kind = 1; kind <= static_cast<int>(ErrorKind::kInternal); ++kind) {
    std::string row = "\n| " + std::to_string(kind) + " | " + std::string(ErrorKindName(ErrorKind(kind))) + " |";
    EXPECT_NE(document.find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace hone
