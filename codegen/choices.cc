#include "codegen/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <map>
#include <utility>

namespace hone {
namespace {

constexpr std::string_view kComment = "# choices: ";

// By the last word of a site.
constexpr std::pair<std::string_view, std::string_view> kMeanings[] = {
    {"block", "tiles of rows that a task passes its panels over"},
    {"by_filters", "tasks are blocks of filters, not of rows"},
    {"chains", "independent accumulators of the reduction"},
    {"copy_rows", "rows are copied apart, so that they do not evict each other"},
    {"direct", "the vector operand is read where it lies, not packed"},
    {"divided_rows", "workers share a row: for fewer rows than workers"},
    {"filter_tiles", "register tiles of filters in a task"},
    {"im2col", "how windows are read: 0 in place, 1 from columns in memory, 2 from columns in the panel"},
    {"lanes", "lanes of a vector"},
    {"masked", "padding by masks, without a padded copy"},
    {"online", "elements of a row whose two statistics are taken while it is read once; 0: a pass for each"},
    {"outer_peel", "the same as peel along the second axis"},
    {"outer_rows", "rows of the register tile along the second axis"},
    {"own_rows", "each task pads its own rows"},
    {"pack_rows", "constant rows are packed ahead of time"},
    {"panels_outside", "panels in the outermost loop, rows inside"},
    {"peel", "rows left over by the tiles have a smaller tile of their own"},
    {"prefetch", "bytes ahead of what is read that the caches are told to fetch; 0: they guess"},
    {"reduction_block", "steps of the reduction done at once; 0: all"},
    {"rows", "rows of the register tile"},
    {"rows_together", "rows that are worked on together"},
    {"rule", "the first rule tried: 0 contraction, 1 window, 2 rows"},
    {"shift", "the last vector of a row starts early and computes some outputs again, instead of masks"},
    {"tile_rows", "rows of Winograd tiles in a block"},
    {"trim", "terms of padding are left out: 0 not, 1 where a loop can, 2 where copies of its body can, too"},
    {"unroll", "steps of the inner loop in one piece of code"},
    {"unroll_window", "the window is unrolled whole"},
    {"vector_axis", "the axis that vectors run along, by position"},
    {"vectors", "vectors of the register tile"},
    {"winograd", "outputs of a Winograd tile along an axis; 0: direct"},
};

}  // namespace

std::string_view DecisionMeaning(std::string_view site) {
  std::string_view decision = site.substr(site.rfind('.') + 1);
  auto found = std::ranges::find(kMeanings, decision, [](const auto& entry) { return entry.first; });
  return found == std::end(kMeanings) ? "" : found->second;
}

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
