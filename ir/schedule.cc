// The text form of schedules: a line per step, words separated by blanks.
#include "ir/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

namespace hone {
namespace {

constexpr size_t kMaxText = 256 << 10;
constexpr size_t kMaxSteps = 2000;
constexpr int64_t kMaxFactor = int64_t{1} << 32;

constexpr std::array<std::pair<std::string_view, Scope>, 4> kScopes = {{{"shared", Scope::kShared},
                                                                        {"private", Scope::kPrivate},
                                                                        {"registers", Scope::kRegisters},
                                                                        {"const", Scope::kConst}}};
constexpr std::array<std::pair<std::string_view, Tail>, 4> kTails = {
    {{"pad", Tail::kPad}, {"guard", Tail::kGuard}, {"shift", Tail::kShift}, {"peel", Tail::kPeel}}};

template <typename Table, typename T>
std::string_view NameIn(const Table& table, T value) {
  for (auto& [name, entry] : table)
    if (entry == value) return name;
  return "?";
}

std::string LayoutText(const std::vector<LayoutDim>& layout) {
  std::string text = "[";
  for (const LayoutDim& dim : layout) {
    if (text.size() > 1) text += ", ";
    text += dim.axis;
    if (dim.part == LayoutDim::Part::kQuotient) text += fmt::format("/{}", dim.factor);
    if (dim.part == LayoutDim::Part::kRemainder) text += fmt::format("%{}", dim.factor);
    if (dim.extra != 0) text += fmt::format("+{}", dim.extra);
  }
  return text + "]";
}

std::string Loops(const Step& step) {
  std::string text;
  for (const std::string& name : step.names) text += fmt::format(" {}.{}", step.stage, name);
  return text;
}

// A word as messages show it: its beginning, bytes that are no printable ASCII as \xNN.
std::string Quoted(std::string_view word) {
  constexpr size_t kShown = 60;
  std::string text = "\"";
  for (unsigned char byte : word.substr(0, kShown)) {
    if (byte >= 0x20 && byte < 0x7f)
      text += static_cast<char>(byte);
    else
      text += fmt::format("\\x{:02x}", byte);
  }
  return text + (word.size() > kShown ? "...\"" : "\"");
}

// Reads one line. Words are separated by blanks; "[…]" is one word.
class LineParser {
 public:
  LineParser(std::string_view line, int number) : line_(line), number_(number) {}

  Result<Step> Parse();

 private:
  Error Wrong(std::string_view wanted) const {
    std::string seen = word_.empty() ? "the end of the line" : Quoted(word_);
    return {ErrorKind::kInvalid, fmt::format("saw {}, wanted {}", seen, wanted),
            fmt::format("schedule:{}:{}", number_, column_)};
  }
  bool Next() {
    while (at_ < line_.size() && std::isspace(static_cast<unsigned char>(line_[at_]))) ++at_;
    size_t begin = at_;
    column_ = static_cast<int>(begin) + 1;
    if (at_ < line_.size() && line_[at_] == '[') {
      at_ = std::min(line_.find(']', at_), line_.size() - 1) + 1;
    } else {
      while (at_ < line_.size() && !std::isspace(static_cast<unsigned char>(line_[at_]))) ++at_;
    }
    word_ = line_.substr(begin, at_ - begin);
    return !word_.empty();
  }
  static bool IsName(std::string_view word) {
    return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '.' || c == '+' || c == '\'';
    });
  }
  Result<std::string> Name(std::string_view wanted) {
    if (!Next() || !IsName(word_) || word_.find('.') != std::string_view::npos) return Wrong(wanted);
    return std::string(word_);
  }
  Result<void> Keyword(std::string_view keyword) {
    if (!Next() || word_ != keyword) return Wrong(fmt::format("\"{}\"", keyword));
    return {};
  }
  Result<int64_t> Number(std::string_view text) {
    int64_t value = 0;
    auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxFactor)
      return Wrong("a factor from 1 to 2^32");
    return value;
  }
  // "stage.path"; sets step.stage at the first and demands the same stage after it.
  Result<void> Loop(Step& step) {
    size_t dot = word_.find('.');
    if (!IsName(word_) || dot == std::string_view::npos || dot == 0 || dot + 1 == word_.size())
      return Wrong("a loop, as stage.axis");
    std::string stage(word_.substr(0, dot));
    if (!step.stage.empty() && step.stage != stage) return Wrong(fmt::format("a loop of {}", step.stage.substr(0, 60)));
    step.stage = stage;
    step.names.emplace_back(word_.substr(dot + 1));
    return {};
  }
  Result<void> NextLoop(Step& step) {
    if (!Next()) return Wrong("a loop, as stage.axis");
    return Loop(step);
  }
  Result<std::vector<LayoutDim>> Layout();
  template <typename Table, typename T>
  Result<void> Choice(const Table& table, T& value) {
    std::string names;
    for (auto& [name, entry] : table) {
      if (name == word_) {
        value = entry;
        return {};
      }
      names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    }
    return Wrong("one of " + names);
  }

  std::string_view line_;
  int number_;
  size_t at_ = 0;
  int column_ = 1;
  std::string_view word_;
};

Result<std::vector<LayoutDim>> LineParser::Layout() {
  std::string_view text = word_;
  if (text.size() < 3 || text.front() != '[' || text.back() != ']') return Wrong("a layout, as [o/16, c, o%16]");
  text = text.substr(1, text.size() - 2);
  std::vector<LayoutDim> layout;
  while (true) {
    size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    LayoutDim dim;
    if (size_t plus = part.find('+'); plus != std::string_view::npos) {
      dim.extra = HONE_TRY(Number(part.substr(plus + 1)));
      part = part.substr(0, plus);
    }
    if (size_t op = part.find_first_of("/%"); op != std::string_view::npos) {
      dim.part = part[op] == '/' ? LayoutDim::Part::kQuotient : LayoutDim::Part::kRemainder;
      dim.factor = HONE_TRY(Number(part.substr(op + 1)));
      part = part.substr(0, op);
    }
    if (!IsName(part)) return Wrong("axis names in a layout");
    dim.axis = part;
    layout.push_back(std::move(dim));
    if (comma == std::string_view::npos) return layout;
    text = text.substr(comma + 1);
  }
}

Result<Step> LineParser::Parse() {
  Step step;
  Next();
  std::string_view verb = word_;
  if (verb == "rewrite") {
    step.kind = StepKind::kRewrite;
    step.other = HONE_TRY(Name("a rewrite, such as collapse"));
    step.stage = HONE_TRY(Name("a stage"));
    while (Next()) {
      if (step.factors.empty() && !(word_[0] >= '0' && word_[0] <= '9')) {
        if (!IsName(word_)) return Wrong("an axis");
        step.names.emplace_back(word_);
        continue;
      }
      step.factors.push_back(HONE_TRY(Number(word_)));
    }
  } else if (verb == "inline") {
    step.kind = StepKind::kInline;
    step.stage = HONE_TRY(Name("a stage"));
  } else if (verb == "cache_read") {
    step.kind = StepKind::kCacheRead;
    step.other = HONE_TRY(Name("a tensor"));
    HONE_TRY(Keyword("->"));
    step.result = HONE_TRY(Name("a name for the new stage"));
    HONE_TRY(Keyword("for"));
    step.stage = HONE_TRY(Name("the stage that reads it"));
    Next();
    HONE_TRY(Choice(kScopes, step.scope));
    if (Next()) step.layout = HONE_TRY(Layout());
  } else if (verb == "rfactor") {
    step.kind = StepKind::kRfactor;
    step.stage = HONE_TRY(Name("a stage"));
    step.other = HONE_TRY(Name("a reduction axis"));
    Next();
    step.factors.push_back(HONE_TRY(Number(word_)));
    HONE_TRY(Keyword("->"));
    step.result = HONE_TRY(Name("a name for the new stage"));
  } else if (verb == "split") {
    step.kind = StepKind::kSplit;
    HONE_TRY(NextLoop(step));
    while (Next()) step.factors.push_back(HONE_TRY(Number(word_)));
    if (step.factors.empty()) return Wrong("inner factors");
  } else if (verb == "fuse" || verb == "reorder") {
    step.kind = verb == "fuse" ? StepKind::kFuse : StepKind::kReorder;
    while (Next()) HONE_TRY(Loop(step));
    if (step.names.size() < 2) return Wrong("at least two loops");
  } else if (verb == "parallel") {
    step.kind = StepKind::kParallel;
    HONE_TRY(NextLoop(step));
    int64_t grain = 1;
    if (Next()) {
      if (!word_.starts_with("grain=")) return Wrong("grain=N");
      grain = HONE_TRY(Number(word_.substr(6)));
    }
    step.factors.push_back(grain);
  } else if (verb == "vectorize" || verb == "unroll") {
    step.kind = verb == "unroll" ? StepKind::kUnroll : StepKind::kVectorize;
    while (Next()) HONE_TRY(Loop(step));
    if (step.names.empty()) return Wrong("a loop, as stage.axis");
  } else if (verb == "compute_at") {
    step.kind = StepKind::kComputeAt;
    std::string stage = HONE_TRY(Name("a stage"));
    HONE_TRY(NextLoop(step));
    step.other = std::exchange(step.stage, stage);
  } else if (verb == "store") {
    step.kind = StepKind::kStore;
    step.stage = HONE_TRY(Name("a stage"));
    Next();
    HONE_TRY(Choice(kScopes, step.scope));
    if (Next()) step.layout = HONE_TRY(Layout());
  } else if (verb == "cache_write") {
    step.kind = StepKind::kCacheWrite;
    std::string stage = HONE_TRY(Name("a stage"));
    HONE_TRY(Keyword("at"));
    step.stage = stage;
    HONE_TRY(NextLoop(step));
  } else if (verb == "tail") {
    step.kind = StepKind::kTail;
    HONE_TRY(NextLoop(step));
    Next();
    HONE_TRY(Choice(kTails, step.tail));
  } else if (verb == "prefetch") {
    step.kind = StepKind::kPrefetch;
    step.other = HONE_TRY(Name("a tensor"));
    HONE_TRY(Keyword("for"));
    step.stage = HONE_TRY(Name("the stage that reads it"));
    Next();
    step.factors.push_back(HONE_TRY(Number(word_)));
  } else {
    return Wrong(
        "a step: rewrite inline cache_read rfactor split fuse reorder parallel vectorize unroll compute_at "
        "store cache_write tail prefetch");
  }
  if (Next()) return Wrong("the end of the line");
  return step;
}

}  // namespace

std::string PrintStep(const Step& step) {
  auto layout = [&] { return step.layout.empty() ? "" : " " + LayoutText(step.layout); };
  switch (step.kind) {
    case StepKind::kRewrite:
      return fmt::format("rewrite {} {}{}{}{}{}", step.other, step.stage, step.names.empty() ? "" : " ",
                         fmt::join(step.names, " "), step.factors.empty() ? "" : " ", fmt::join(step.factors, " "));
    case StepKind::kInline: return "inline " + step.stage;
    case StepKind::kCacheRead:
      return fmt::format("cache_read {} -> {} for {} {}{}", step.other, step.result, step.stage,
                         NameIn(kScopes, step.scope), layout());
    case StepKind::kRfactor:
      return fmt::format("rfactor {} {} {} -> {}", step.stage, step.other, step.factors[0], step.result);
    case StepKind::kSplit: return fmt::format("split{} {}", Loops(step), fmt::join(step.factors, " "));
    case StepKind::kFuse: return "fuse" + Loops(step);
    case StepKind::kReorder: return "reorder" + Loops(step);
    case StepKind::kParallel: return fmt::format("parallel{} grain={}", Loops(step), step.factors[0]);
    case StepKind::kVectorize: return "vectorize" + Loops(step);
    case StepKind::kUnroll: return "unroll" + Loops(step);
    case StepKind::kComputeAt: return fmt::format("compute_at {} {}.{}", step.stage, step.other, step.names[0]);
    case StepKind::kStore: return fmt::format("store {} {}{}", step.stage, NameIn(kScopes, step.scope), layout());
    case StepKind::kCacheWrite: return fmt::format("cache_write {} at{}", step.stage, Loops(step));
    case StepKind::kTail: return fmt::format("tail{} {}", Loops(step), NameIn(kTails, step.tail));
    case StepKind::kPrefetch: return fmt::format("prefetch {} for {} {}", step.other, step.stage, step.factors[0]);
  }
  return "";
}

std::string PrintSchedule(const Schedule& schedule) {
  std::string text;
  for (const Step& step : schedule) text += PrintStep(step) + "\n";
  return text;
}

Result<Schedule> ParseSchedule(std::string_view text, int first_line) {
  if (text.size() > kMaxText)
    return Error{ErrorKind::kLimit, fmt::format("{} bytes of schedule, at most {} are allowed", text.size(), kMaxText),
                 "schedule"};
  Schedule schedule;
  for (int number = first_line; !text.empty(); ++number) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (schedule.size() == kMaxSteps)
      return Error{ErrorKind::kLimit, fmt::format("more than {} steps", kMaxSteps), fmt::format("schedule:{}", number)};
    schedule.push_back(HONE_TRY(LineParser(line, number).Parse()));
  }
  return schedule;
}

}  // namespace hone
