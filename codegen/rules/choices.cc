#include "codegen/rules/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>

namespace hone {
namespace {

constexpr std::string_view kComment = "# choices: ";

}  // namespace

std::string PrintChoices(const std::vector<Choice>& choices) {
  std::string text;
  for (const Choice& choice : choices) {
    if (choice.value == choice.preferred) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", choice.site, choice.value);
  }
  return text;
}

Result<Chooser> ParseChoices(std::string_view text) {
  std::map<std::string, int64_t, std::less<>> named;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word.empty()) continue;
    size_t equals = word.rfind('=');
    int64_t value = 0;
    std::string_view digits = equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (equals == 0 || digits.empty() || error != std::errc() || end != digits.data() + digits.size())
      return Error{ErrorKind::kInvalid,
                   fmt::format("saw \"{}\", wanted SITE=NUMBER, as in acc.rows=6", word.substr(0, 100)), "choices"};
    named.emplace(word.substr(0, equals), value);
  }
  return Chooser([named = std::move(named)](const Choice& choice) {
    auto found = named.find(choice.site);
    if (found == named.end()) return choice.preferred;
    return *std::min_element(choice.options.begin(), choice.options.end(), [&](int64_t a, int64_t b) {
      return std::llabs(a - found->second) < std::llabs(b - found->second);
    });
  });
}

std::string WithChoices(std::string_view schedule, std::string_view choices) {
  return choices.empty() ? std::string(schedule) : fmt::format("{}{}\n{}", kComment, choices, schedule);
}

std::string ChoicesOf(std::string_view schedule) {
  if (!schedule.starts_with(kComment)) return "";
  schedule.remove_prefix(kComment.size());
  return std::string(schedule.substr(0, schedule.find('\n')));
}

}  // namespace hone
