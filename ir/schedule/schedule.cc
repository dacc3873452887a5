// The text form of schedules: a line per step.
#include "ir/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/steps/step_reader.h"
#include "ir/steps/step_type.h"

namespace hone {
namespace {

constexpr size_t kMaxText = 256 << 10;
constexpr size_t kMaxSteps = 2000;

Result<Step> ReadStep(StepReader in) {
  in.Next();
  const StepType* type = FindStepType(in.word());
  if (type == nullptr) return in.Wrong("a step: " + StepVerbs());
  Step step = HONE_TRY(type->read(in));
  if (in.Next()) return in.Wrong("the end of the line");
  return step;
}

}  // namespace

std::string PrintStep(const Step& step) { return TypeOf(step).print(step); }

std::string PrintSchedule(const Schedule& schedule) {
  std::string text;
  for (const Step& step : schedule) text += PrintStep(step) + "\n";
  return text;
}

std::string InWordsOfToday(std::string_view text) {
  std::string today;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::string_view step_text = line.substr(0, line.find('#'));
    Result<Step> step = ReadStep(StepReader(step_text, 1));
    if (step) {
      today += PrintStep(*step);
      if (step_text.size() < line.size()) today.append(" ").append(line.substr(step_text.size()));
    } else {
      today += line;
    }
    if (end < text.size()) today += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return today;
}

bool IsSameSchedule(std::string_view a, std::string_view b) { return a == b || InWordsOfToday(a) == InWordsOfToday(b); }

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
    schedule.push_back(HONE_TRY(ReadStep(StepReader(line, number))));
  }
  return schedule;
}

}  // namespace hone
