#include "ir/steps/step_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "ir/steps/old_words.h"

namespace hone {
namespace {

constexpr int64_t kMaxFactor = int64_t{1} << 32;
constexpr std::string_view kSwizzledWord = "swizzled";

constexpr std::array<std::pair<std::string_view, Scope>, 6> kScopes = {{{"workspace", Scope::kWorkspace},
                                                                        {"per_worker", Scope::kPerWorker},
                                                                        {"block", Scope::kBlock},
                                                                        {"registers", Scope::kRegisters},
                                                                        {"const", Scope::kConst},
                                                                        {"output", Scope::kOutput}}};
constexpr std::array<std::pair<std::string_view, Tail>, 4> kTails = {
    {{"pad", Tail::kPad}, {"guard", Tail::kGuard}, {"shift", Tail::kShift}, {"peel", Tail::kPeel}}};

constexpr std::array<std::pair<std::string_view, LaunchAxis>, 8> kLaunchAxes = {
    {{"block.x", LaunchAxis::kBlockX},
     {"block.y", LaunchAxis::kBlockY},
     {"block.z", LaunchAxis::kBlockZ},
     {"thread.x", LaunchAxis::kThreadX},
     {"thread.y", LaunchAxis::kThreadY},
     {"thread.z", LaunchAxis::kThreadZ},
     {"lane.x", LaunchAxis::kLaneX},
     {"subgroup.x", LaunchAxis::kSubGroupX}}};

template <typename Table, typename T>
std::string_view NameIn(const Table& table, T value) {
  for (auto& [name, entry] : table)
    if (entry == value) return name;
  return "?";
}

// The value of a word that the reader has gone to.
template <typename T, size_t kCount>
Result<T> Choice(const StepReader& in, std::string_view word,
                 const std::array<std::pair<std::string_view, T>, kCount>& table) {
  std::string names;
  for (auto& [name, value] : table) {
    if (name == word) return value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  return in.Wrong("one of " + names);
}

bool IsName(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == '+' || c == '\'';
  });
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

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

bool StepReader::Next() {
  while (at_ < line_.size() && std::isspace(static_cast<unsigned char>(line_[at_]))) ++at_;
  const size_t begin = at_;
  column_ = static_cast<int>(begin) + 1;
  if (at_ < line_.size() && line_[at_] == '[') {
    at_ = std::min(line_.find(']', at_), line_.size() - 1) + 1;
  } else {
    while (at_ < line_.size() && !std::isspace(static_cast<unsigned char>(line_[at_]))) ++at_;
  }
  word_ = line_.substr(begin, at_ - begin);
  return !word_.empty();
}

Error StepReader::Wrong(std::string_view wanted) const {
  const std::string seen = word_.empty() ? "the end of the line" : Quoted(word_);
  return {ErrorKind::kInvalid, fmt::format("saw {}, wanted {}", seen, wanted),
          fmt::format("schedule:{}:{}", number_, column_)};
}

Result<std::string> StepReader::AnyName(std::string_view wanted) const {
  if (!IsName(word_)) return Wrong(wanted);
  return std::string(word_);
}

Result<std::string> StepReader::Name(std::string_view wanted) {
  if (!Next() || !IsName(word_) || word_.find('.') != std::string_view::npos) return Wrong(wanted);
  return std::string(word_);
}

Result<void> StepReader::Keyword(std::string_view keyword) {
  if (!Next() || word_ != keyword) return Wrong(fmt::format("\"{}\"", keyword));
  return {};
}

Result<int64_t> StepReader::NumberIn(std::string_view text) const {
  int64_t value = 0;
  const char* last = text.data() + text.size();
  auto [end, code] = std::from_chars(text.data(), last, value);
  if (code != std::errc() || end != last || value < 1 || value > kMaxFactor) return Wrong("a factor from 1 to 2^32");
  return value;
}

Result<int64_t> StepReader::Number() {
  Next();
  return NumberIn(word_);
}

Result<Scope> StepReader::StorageScope() {
  Next();
  return Choice(*this, ScopeOfToday(word_), kScopes);
}

Result<Tail> StepReader::TailChoice() {
  Next();
  return Choice(*this, word_, kTails);
}

Result<LaunchAxis> StepReader::AxisOfLaunch() {
  Next();
  return Choice(*this, word_, kLaunchAxes);
}

Result<std::string> StepReader::LoopHere(std::string& stage) const {
  const size_t dot = word_.find('.');
  if (!IsName(word_) || dot == std::string_view::npos || dot == 0 || dot + 1 == word_.size())
    return Wrong("a loop, as stage.axis");
  const std::string_view named = word_.substr(0, dot);
  if (!stage.empty() && stage != named) return Wrong(fmt::format("a loop of {}", stage.substr(0, 60)));
  stage = named;
  return std::string(word_.substr(dot + 1));
}

Result<std::string> StepReader::Loop(std::string& stage) {
  if (!Next()) return Wrong("a loop, as stage.axis");
  return LoopHere(stage);
}

Result<std::vector<std::string>> StepReader::Loops(std::string& stage) {
  std::vector<std::string> loops;
  while (Next()) loops.push_back(HONE_TRY(LoopHere(stage)));
  return loops;
}

Result<LayoutDim> StepReader::LayoutPart(std::string_view part) const {
  LayoutDim dim;
  if (part.ends_with(kSwizzledWord) && part.size() > kSwizzledWord.size() &&
      part[part.size() - kSwizzledWord.size() - 1] == ' ') {
    part = Trimmed(part.substr(0, part.size() - kSwizzledWord.size()));
    dim.is_swizzled = true;
  } else if (size_t plus = part.find('+'); plus != std::string_view::npos) {
    dim.extra = HONE_TRY(NumberIn(part.substr(plus + 1)));
    part = part.substr(0, plus);
  }
  if (size_t op = part.find_first_of("/%"); op != std::string_view::npos) {
    dim.part = part[op] == '/' ? LayoutDim::Part::kQuotient : LayoutDim::Part::kRemainder;
    dim.factor = HONE_TRY(NumberIn(part.substr(op + 1)));
    part = part.substr(0, op);
  }
  if (!IsName(part)) return Wrong("axis names in a layout");
  dim.axis = part;
  return dim;
}

Result<std::vector<LayoutDim>> StepReader::OptionalLayout() {
  std::vector<LayoutDim> layout;
  if (!Next()) return layout;
  std::string_view text = word_;
  if (text.size() < 3 || text.front() != '[' || text.back() != ']') return Wrong("a layout, as [o/16, c, o%16]");
  text = text.substr(1, text.size() - 2);
  while (true) {
    const size_t comma = text.find(',');
    layout.push_back(HONE_TRY(LayoutPart(Trimmed(text.substr(0, comma)))));
    if (comma == std::string_view::npos) return layout;
    text = text.substr(comma + 1);
  }
}

std::string_view ScopeName(Scope scope) { return NameIn(kScopes, scope); }
std::string_view LaunchAxisName(LaunchAxis axis) { return NameIn(kLaunchAxes, axis); }
std::string_view TailName(Tail tail) { return NameIn(kTails, tail); }

std::string LayoutText(const std::vector<LayoutDim>& layout) {
  if (layout.empty()) return "";
  std::string text;
  for (const LayoutDim& dim : layout) {
    text += text.empty() ? " [" : ", ";
    text += dim.axis;
    if (dim.part == LayoutDim::Part::kQuotient) text += fmt::format("/{}", dim.factor);
    if (dim.part == LayoutDim::Part::kRemainder) text += fmt::format("%{}", dim.factor);
    if (dim.is_swizzled)
      text += fmt::format(" {}", kSwizzledWord);
    else if (dim.extra != 0)
      text += fmt::format("+{}", dim.extra);
  }
  return text + "]";
}

std::string LoopsText(const std::string& stage, const std::vector<std::string>& loops) {
  std::string text;
  for (const std::string& loop : loops) text += fmt::format(" {}.{}", stage, loop);
  return text;
}

}  // namespace hone
