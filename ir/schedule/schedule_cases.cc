#include "ir/schedule/schedule_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"
#include "ir/graph/specialize.h"

namespace hone {
namespace {

constexpr std::string_view kHeader = "case";
constexpr std::string_view kChoices = "# choices: ";
constexpr size_t kMostRanges = 4096;  // of all cases together
constexpr size_t kMostText = 1 << 20;
constexpr size_t kMostChecked = 48;
constexpr int64_t kLargestSize = int64_t{1} << 40;

std::string RangeText(const SizeRange& range) {
  return range.lo == range.hi ? fmt::format("{}", range.lo) : fmt::format("{}..{}", range.lo, range.hi);
}

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view FirstWord(std::string_view line) {
  size_t begin = 0;
  while (begin < line.size() && IsBlank(line[begin])) ++begin;
  size_t end = begin;
  while (end < line.size() && !IsBlank(line[end]) && line[end] != '#') ++end;
  return line.substr(begin, end - begin);
}

// One header: "case M=1..4 9 12..16".
class HeaderParser {
 public:
  HeaderParser(std::string_view line, int number) : line_(line.substr(0, line.find('#'))), number_(number) {}

  Result<void> Parse(ScheduleCases& cases, ScheduleCase& scheduled) {
    Next();
    HONE_CHECK(word_ == kHeader);
    std::string_view first = Next() ? word_ : std::string_view();
    size_t equals = first.find('=');
    std::string_view name = first.substr(0, equals);
    bool is_name = equals != std::string_view::npos && !name.empty() &&
                   std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    if (!is_name) return Wrong("a size and its values, as M=1..16");
    if (cases.size.empty()) cases.size = name;
    if (cases.size != name) return Wrong(fmt::format("a case of {}, as the ones before", cases.size.substr(0, 60)));
    word_.remove_prefix(equals + 1);
    column_ += static_cast<int>(equals) + 1;
    do {
      SizeRange range = HONE_TRY(Range());
      std::vector<SizeRange>& ranges = scheduled.ranges;
      if (!ranges.empty() && range.lo <= ranges.back().hi + 1)
        return Wrong(fmt::format("values beyond {}, with a gap", ranges.back().hi));
      ranges.push_back(range);
    } while (Next());
    return {};
  }

 private:
  Error Wrong(std::string_view wanted) const {
    std::string seen = "the end of the line";
    if (!word_.empty()) {
      seen = "\"";
      for (unsigned char byte : word_.substr(0, 60))
        seen += byte >= 0x20 && byte < 0x7f ? std::string(1, static_cast<char>(byte)) : fmt::format("\\x{:02x}", byte);
      seen += word_.size() > 60 ? "...\"" : "\"";
    }
    return {ErrorKind::kInvalid, fmt::format("saw {}, wanted {}", seen, wanted),
            fmt::format("schedule:{}:{}", number_, column_)};
  }
  bool Next() {
    while (at_ < line_.size() && IsBlank(line_[at_])) ++at_;
    size_t begin = at_;
    while (at_ < line_.size() && !IsBlank(line_[at_])) ++at_;
    column_ = static_cast<int>(begin) + 1;
    word_ = line_.substr(begin, at_ - begin);
    return !word_.empty();
  }
  Result<SizeRange> Range() {
    constexpr std::string_view kWanted = "a value from 0 to 2^40, or two as 1..16";
    SizeRange range;
    const char* end = word_.data() + word_.size();
    auto [after, code] = std::from_chars(word_.data(), end, range.lo);
    if (code != std::errc()) return Wrong(kWanted);
    range.hi = range.lo;
    if (after != end) {
      if (end - after < 3 || after[0] != '.' || after[1] != '.') return Wrong(kWanted);
      auto [last, second] = std::from_chars(after + 2, end, range.hi);
      if (second != std::errc() || last != end) return Wrong(kWanted);
    }
    if (range.lo < 0 || range.hi > kLargestSize) return Wrong(kWanted);
    if (range.lo > range.hi) return Wrong("the smaller value first");
    return range;
  }

  std::string_view line_;
  int number_;
  size_t at_ = 0;
  int column_ = 1;
  std::string_view word_;
};

}  // namespace

bool HasCases(std::string_view text) {
  while (!text.empty()) {
    size_t end = text.find('\n');
    if (FirstWord(text.substr(0, end)) == kHeader) return true;
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return false;
}

std::string PrintScheduleCases(const ScheduleCases& cases) {
  std::string text;
  for (const ScheduleCase& scheduled : cases.cases) {
    if (!scheduled.ranges.empty()) {
      text += fmt::format("{} {}=", kHeader, cases.size);
      for (const SizeRange& range : scheduled.ranges)
        text += fmt::format("{}{}", &range == &scheduled.ranges.front() ? "" : " ", RangeText(range));
      text += "\n";
    }
    if (!scheduled.choices.empty()) text += fmt::format("{}{}\n", kChoices, scheduled.choices);
    text += PrintSchedule(scheduled.steps);
  }
  return text;
}

Result<ScheduleCases> ParseScheduleCases(std::string_view text) {
  if (text.size() > kMostText)
    return Error{ErrorKind::kLimit, fmt::format("{} bytes of schedule, at most {} are allowed", text.size(), kMostText),
                 "schedule"};
  ScheduleCases cases;
  const bool has_cases = HasCases(text);
  size_t ranges = 0;
  int number = 1;  // of the line that `text` begins with
  do {
    ScheduleCase scheduled;
    if (has_cases) {
      // What comes before the first header: comments.
      std::string_view line;
      while (true) {
        size_t end = text.find('\n');
        line = text.substr(0, end);
        text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
        std::string_view word = FirstWord(line);
        if (word == kHeader) break;
        if (!word.empty())
          return Error{ErrorKind::kInvalid, "a step before the first case: wanted \"case\", a size and its values",
                       fmt::format("schedule:{}:1", number)};
        ++number;
      }
      HONE_TRY(HeaderParser(line, number++).Parse(cases, scheduled));
    }
    size_t end = 0;  // of this case's steps
    int lines = 0;
    while (end < text.size()) {
      std::string_view line = text.substr(end, text.find('\n', end) - end);
      if (has_cases && FirstWord(line) == kHeader) break;
      if (scheduled.choices.empty() && line.starts_with(kChoices)) scheduled.choices = line.substr(kChoices.size());
      end = std::min(text.size(), end + line.size() + 1);
      ++lines;
    }
    scheduled.steps = HONE_TRY(ParseSchedule(text.substr(0, end), number));
    number += lines;
    text = text.substr(end);
    ranges += scheduled.ranges.size();
    cases.cases.push_back(std::move(scheduled));
    if (cases.cases.size() > kMostCases || ranges > kMostRanges)
      return Error{ErrorKind::kLimit, fmt::format("more than {} cases, or {} ranges in them", kMostCases, kMostRanges),
                   fmt::format("schedule:{}", number)};
  } while (!text.empty());
  return cases;
}

Result<int> FindCaseSize(const Kernel& kernel, const ScheduleCases& cases) {
  auto invalid = [](std::string message) { return Error{ErrorKind::kInvalid, std::move(message), "schedule"}; };
  if (cases.size.empty()) return -1;
  size_t s = 0;
  while (s < kernel.sizes.size() && kernel.sizes[s].name != cases.size) ++s;
  if (s == kernel.sizes.size())
    return invalid(fmt::format("cases of {}: the kernel has no such size", cases.size.substr(0, 60)));
  const Size& size = kernel.sizes[s];
  if (size.is_constant()) return invalid(fmt::format("cases of {}: it is always {}", size.name, size.lo));
  std::vector<SizeRange> all;
  for (const ScheduleCase& scheduled : cases.cases)
    all.insert(all.end(), scheduled.ranges.begin(), scheduled.ranges.end());
  std::sort(all.begin(), all.end(), [](const SizeRange& a, const SizeRange& b) { return a.lo < b.lo; });
  int64_t next = size.lo;
  for (const SizeRange& range : all) {
    if (range.lo < next)
      return invalid(range.lo < size.lo
                         ? fmt::format("{}={} is below the range, which begins at {}", size.name, range.lo, size.lo)
                         : fmt::format("{}={} is in two cases", size.name, range.lo));
    if (range.lo > size.hi)
      return invalid(fmt::format("{}={} is above the range, which ends at {}", size.name, range.lo, size.hi));
    if (range.lo > next) break;
    next = range.hi + 1;
  }
  if (next <= size.hi) return invalid(fmt::format("{}={} is in no case", size.name, next));
  if (next > size.hi + 1)
    return invalid(fmt::format("{}={} is above the range, which ends at {}", size.name, next - 1, size.hi));
  return static_cast<int>(s);
}

Kernel KeepPackable(Kernel kernel) {
  for (Tensor& tensor : kernel.tensors)
    tensor.is_const = tensor.is_const && std::all_of(tensor.shape.begin(), tensor.shape.end(), [&](const Expr& extent) {
                        return LowerExtent(kernel, extent) == UpperExtent(kernel, extent);
                      });
  return kernel;
}

Kernel KernelOfCase(const Kernel& kernel, int size, const ScheduleCase& scheduled) {
  Kernel narrowed = KeepPackable(kernel);
  if (size < 0) return Specialize(std::move(narrowed));
  const SizeRange hull = scheduled.Hull();
  narrowed.sizes[static_cast<size_t>(size)].lo = hull.lo;
  narrowed.sizes[static_cast<size_t>(size)].hi = hull.hi;
  return Specialize(std::move(narrowed));
}

Result<Kernel> AtSizes(Kernel kernel, const std::vector<int64_t>& values) {
  size_t next = 0;
  for (Size& size : kernel.sizes) {
    if (size.is_constant()) continue;
    if (next == values.size())
      return Error{ErrorKind::kInvalid, fmt::format("no value for {}, which is {}..{}", size.name, size.lo, size.hi),
                   "sizes"};
    const int64_t value = values[next++];
    if (value < size.lo || value > size.hi)
      return Error{ErrorKind::kInvalid,
                   fmt::format("{}={} is out of its range, {}..{}", size.name, value, size.lo, size.hi), "sizes"};
    size.lo = size.hi = value;
  }
  if (next != values.size())
    return Error{ErrorKind::kInvalid, fmt::format("{} values for {} sizes that are ranges", values.size(), next),
                 "sizes"};
  return kernel;
}

Result<std::vector<std::vector<int64_t>>> SizesToCheck(const Kernel& kernel, std::string_view schedule) {
  if (IsStatic(kernel)) return std::vector<std::vector<int64_t>>{{}};
  ScheduleCases cases = HONE_TRY(ParseScheduleCases(schedule));
  const int case_size = HONE_TRY(FindCaseSize(kernel, cases));
  std::vector<SizeRange> dynamic;  // in their order
  size_t by = 0;                   // whose value chooses the case
  for (size_t s = 0; s < kernel.sizes.size(); ++s) {
    const Size& size = kernel.sizes[s];
    if (size.is_constant()) continue;
    if (static_cast<int>(s) == case_size) by = dynamic.size();
    dynamic.push_back({size.lo, size.hi});
  }
  if (case_size < 0) cases.cases[0].ranges = {dynamic[by]};

  std::vector<std::vector<int64_t>> lists;
  auto add = [&](std::vector<int64_t> values) {
    if (std::find(lists.begin(), lists.end(), values) == lists.end()) lists.push_back(std::move(values));
  };
  // The other sizes go along, from one end of their ranges to the other.
  auto add_along = [&](int64_t value, SizeRange hull) {
    const double share =
        hull.lo == hull.hi ? 1 : static_cast<double>(value - hull.lo) / static_cast<double>(hull.hi - hull.lo);
    std::vector<int64_t> values;
    for (const SizeRange& range : dynamic)
      values.push_back(range.lo + static_cast<int64_t>(share * static_cast<double>(range.hi - range.lo)));
    values[by] = value;
    add(std::move(values));
  };
  // Some at the lower ends of their ranges and the others at the upper ones, so that of any two each is the smaller one
  // once: code that takes one for the other is right where they are equal.
  auto add_mixed = [&](SizeRange hull) {
    for (size_t bit = 1; bit < dynamic.size(); bit *= 2)
      for (bool is_lower : {true, false}) {
        std::vector<int64_t> values;
        for (size_t s = 0; s < dynamic.size(); ++s) {
          const SizeRange& range = s == by ? hull : dynamic[s];
          values.push_back(((s & bit) != 0) == is_lower ? range.lo : range.hi);
        }
        add(std::move(values));
      }
  };

  // The largest of all first: it needs the most memory, and says what a call takes at most.
  add_along(dynamic[by].hi, dynamic[by]);
  const size_t each = std::max<size_t>(3, kMostChecked / cases.cases.size());
  for (const ScheduleCase& scheduled : cases.cases) {
    const SizeRange hull = scheduled.Hull();
    std::vector<int64_t> values;
    for (const SizeRange& range : scheduled.ranges) {
      values.push_back(range.lo);
      values.push_back(range.hi);
    }
    // Inside the range around the hull's middle.
    for (const SizeRange& range : scheduled.ranges)
      if (range.hi >= hull.lo + (hull.hi - hull.lo) / 2) {
        values.push_back(range.lo + (range.hi - range.lo) * 5 / 8);
        break;
      }
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    const size_t count = std::min(each, values.size());
    for (size_t i = 0; i < count; ++i) add_along(values[count == 1 ? 0 : i * (values.size() - 1) / (count - 1)], hull);
    add_mixed(hull);
  }
  return lists;
}

}  // namespace hone
