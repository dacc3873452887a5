// docs/protocol.md against the code: its dump is a frame, its numbers are the messages', and its grammar reads what the
// code writes, field by field.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>
#include <sstream>

#include "base/file.h"
#include "client/protocol.h"

namespace hone {
namespace {

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

using Fields = std::vector<std::pair<std::string, std::string>>;  // name, type

std::map<std::string, Fields> Grammar() {
  std::istringstream words(BlockWith(Document(), "GetRequest "));
  std::map<std::string, Fields> rules;
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

  std::map<std::string, Fields> rules_;
  std::string_view rest_;
  bool ended_ = false;
};

template <typename Message>
void ExpectReads(const char* name, const Message& message, const std::string& wanted) {
  std::string number = std::to_string(static_cast<int>(Message::kType));
  EXPECT_NE(Document().find("| " + number + " | " + name + " |"), std::string::npos) << name << " is " << number;
  std::string body = EncodeBody(message);
  Reader reader(body);
  EXPECT_EQ(reader.Rule(name), wanted) << name;
  EXPECT_EQ(reader.rest(), "") << name;
}

RecordRow Row() { return {"f", "c", "k", "t", "o", true, 1.5, 2, 3, -4}; }
const char kRow[] =
    "fingerprint=f class_name=c kernel=k target=t origin=o pinned=1 expected_us=1.5 artifact_bytes=2 requests=3 "
    "last_used_s=-4";

TEST(ProtocolDocument, ItsGrammarReadsEveryMessage) {
  ExpectReads("ErrorReply", ErrorReply{ErrorKind::kBusy, "m", "w", 5}, "kind=7 message=m where=w retry_after_ms=5");
  ExpectReads("HelloRequest", HelloRequest{2, 3, "me"}, "min_version=2 max_version=3 client=me");
  ExpectReads("HelloReply", HelloReply{1, "it"}, "version=1 server=it");
  ExpectReads("GetRequest", GetRequest{"k", "t", 4, 5, true, false},
              "kernel=k target=t threads=4 budget_us=5 no_compile=1 no_artifact=0");
  ExpectReads("GetReply", GetReply{"f", "c", "t", true, false, "o", 2.5, "d", 6, "m", {{"a", 1}, {"b", 2}}, 0.5},
              "fingerprint=f class_name=c target=t hit=1 pinned=0 origin=o expected_us=2.5 digest=d size=6 manifest=m "
              "steps=[{step=a us=1}{step=b us=2}] confidence=0.5");
  ExpectReads("StatusRequest", StatusRequest{}, "");
  ExpectReads(
      "StatusReply", StatusReply{"v", -1, 2.5, "s", "c", {"x", "y"}, 3, "p", 4, 5, 6, "i", "t", 7, 8, 9},
      "version=v pid=-1 uptime_s=2.5 socket=s cache=c targets=[xy] cache_bytes=3 cache_problem=p records=4 hits=5 "
      "misses=6 idle_state=i tuning=t builders=7 connections=8 queued=9");
  ExpectReads("HealthRequest", HealthRequest{}, "");
  ExpectReads("HealthReply", HealthReply{1, 2, {{"c", "h", true}}},
              "losses=1 quarantined=2 children=[{child=c holds=h complete=1}]");
  ExpectReads("StatsRequest", StatsRequest{}, "");
  ExpectReads("StatsReply", StatsReply{{{"a", 1.5}}}, "stats=[{name=a value=1.5}]");
  ExpectReads("ListRequest", ListRequest{"c"}, "class_prefix=c");
  ExpectReads("ListReply", ListReply{{Row()}, true}, std::string("rows=[{") + kRow + "}] more=1");
  ExpectReads("ShowRequest", ShowRequest{"f"}, "fingerprint=f");
  ExpectReads(
      "ShowReply", ShowReply{Row(), "c", "s", {{"a", "b"}}, {{"d", "e"}}},
      std::string("row={") + kRow + "} canonical=c schedule=s facts=[{name=a value=b}] reasons=[{name=d value=e}]");
  ExpectReads("EditRequest", EditRequest{EditAction::kUnpin, "f"}, "action=3 fingerprint=f");
  ExpectReads("EditReply", EditReply{"f"}, "fingerprint=f");
  ExpectReads("VerifyRequest", VerifyRequest{true}, "run=1");
  ExpectReads("VerifyReply", VerifyReply{{{"f", "c", "t", true, false, 0.5, "p"}}, 6, 7, true},
              "rows=[{fingerprint=f class_name=c target=t ok=1 ran=0 max_rel_err=0.5 problem=p}] total=6 "
              "without_artifact=7 more=1");
  ExpectReads("TextRequest", TextRequest{TextKind::kCode, {"k", true}},
              "what=2 name={kernel=k is_fingerprint=1 threads=0}");
  ExpectReads("TextReply", TextReply{"f", "t"}, "fingerprint=f text=t");
  ExpectReads("TuneRequest", TuneRequest{"k", 1, 2, 3, 4, "t"},
              "kernel=k threads=1 trials=2 time_us=3 seed=4 target=t");
  ExpectReads(
      "TuneReply", TuneReply{1, 2, 3, 4.5, 5.5, 6.5, true, "f", "o", "s", 7.5, 8.5},
      "trials=1 valid=2 wanted=3 elapsed_s=4.5 start_us=5.5 best_us=6.5 more=1 fingerprint=f origin=o stopped=s "
      "served_us=7.5 ratio=8.5");
}

TEST(ProtocolDocument, ItsGrammarReadsWatching) {
  ExpectReads("WatchRequest", WatchRequest{true, "f", "t", "d"}, "watch=1 fingerprint=f target=t digest=d");
  ExpectReads("WatchReply", WatchReply{true}, "is_current=1");
  ExpectReads("NewerNotice", NewerNotice{"f", "t", "d"}, "fingerprint=f target=t digest=d");
  ExpectReads("CallsRequest", CallsRequest{{{1, 2}, {3, 4}}}, "counts=[{watch=1 calls=2}{watch=3 calls=4}]");
  ExpectReads("CallsReply", CallsReply{}, "");
  ExpectReads("PredictRequest", PredictRequest{"k", 2}, "kernel=k threads=2");
  ExpectReads("PredictReply", PredictReply{"f", "c", {1, 2, 3}, {4, 5, 6}, "o", 7, 8},
              "fingerprint=f class_name=c by_default={expected_us=1 low_us=2 high_us=3} served={expected_us=4 low_us=5 "
              "high_us=6} origin=o measured_us=7 flops=8");
  TopReply top{"i", "k", true, 1, 2, 3, 4.5, 5.5, 6.5, 7, 8, 9, 10, 11, 12, {{"t", 1, 2, 3, 4, 1.5, true}}};
  ExpectReads("TopReply", top,
              "idle_state=i kernel=k by_request=1 trials=1 valid=2 wanted=3 elapsed_s=4.5 start_us=5.5 best_us=6.5 "
              "all_trials=7 failed_trials=8 refined=9 interrupts=10 refinable=11 waiting=12 "
              "tasks=[{kernel=t calls=1 time_us=2 expected_us=3 trials=4 won=1.5 is_refined=1}]");
  ExpectReads("TopRequest", TopRequest{}, "");
}

TEST(ProtocolDocument, ItsGrammarReadsExplanations) {
  ExpectReads("ExplainRequest", ExplainRequest{{"k", true, 2}}, "name={kernel=k is_fingerprint=1 threads=2}");
  ExplainReply explained;
  explained.row = Row();
  explained.threads = 1;
  explained.reasons = {{"a", "b"}};
  explained.roofline = {1, 2, 3, "f", 4, 5, "l"};
  explained.default_us = 6;
  explained.won_ratio = 7;
  explained.idle_ratio = 8;
  explained.trials = 9;
  explained.verdicts = {{"v", 10}};
  explained.history = {{11, 12, -13}};
  explained.space_size = 14;
  explained.choices = {{"s", "m", true, -1, 2, {3, 4}, 5, 6, 7, 8, 9}};
  explained.rules = {{"r", "s", true, "w"}};
  explained.transfer = {0.5, {{"w", "d", "k", true, 1.5, 2.5, 3.5, true, 4, "r"}}, {{"f", "s", "n", "y"}}};
  explained.heirs = {"h"};
  ExpectReads(
      "ExplainReply", explained,
      std::string("row={") + kRow +
          "} threads=1 reasons=[{name=a value=b}] roofline={flops=1 operand_bytes=2 time_us=3 time_from=f "
          "peak_gflops=4 read_gb_s=5 level=l} default_us=6 won_ratio=7 idle_ratio=8 trials=9 "
          "verdicts=[{name=v value=10}] history=[{trial=11 best_us=12 at_s=-13}] space_size=14 "
          "choices=[{site=s meaning=m is_flag=1 value=-1 preferred=2 options=[34] measured_ratio=5 trials_ratio=6 "
          "trials_with=7 trials_without=8 model_ratio=9}] rules=[{rule=r stage=s applied=1 why=w}] "
          "transfer={confidence=0.5 guesses=[{way=w donor=d kernel=k same_class=1 distance=1.5 gain=2.5 "
          "measured_us=3.5 chosen=1 changed=4 refused=r}] notes=[{fate=f step=s now=n why=y}]} heirs=[h]");
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
