// What the scheduling rules leave open. A rule asks at each decision and names what it would take itself: following
// that everywhere gives the default schedule, drawing at random samples the space of schedules, repeating a list of
// choices with one of them changed mutates. The rules are the only description of the space, and all it holds is legal
// by construction, as far as a rule can see.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

// What a rule leaves open about a stage, as it says where it asks. Texts are literals.
struct Decision {
  enum class Kind : uint8_t {
    kAmount,       // options are sizes or counts: the nearest one is nearly the same
    kAlternative,  // options are ways of doing it, by number: stored, so no number changes its meaning
  };
  std::string_view name;     // "rows". Stored
  std::string_view meaning;  // "rows of the register tile": for people
  Kind kind = Kind::kAmount;
  bool grows_code = false;  // more of it is more code: what ModestSchedule takes as little of as it can
  bool operator==(const Decision&) const = default;
};

struct Choice {
  std::string site;              // "acc.rows": the stage, then the decision; unique within a plan
  std::vector<int64_t> options;  // ascending, at least two
  int64_t preferred = 0;         // one of them: the rule's own
  int64_t value = 0;             // one of them: what was taken
  bool is_flag = false;          // the options mean no and yes
  Decision decision = {};
  bool operator==(const Choice&) const = default;
};

// Why a rule took a stage, or why not: what `hone explain` tells.
struct RuleNote {
  std::string rule;   // "contraction"
  std::string stage;  // that it was tried on
  bool applied = false;
  std::string why;
  bool operator==(const RuleNote&) const = default;
};

// Takes one of choice.options. choice.value is choice.preferred when it is called. Later decisions depend on earlier
// ones: the same site may have other options, or not come up at all.
using Chooser = std::function<int64_t(const Choice& choice)>;

// "acc.rows=6 acc.vectors=2": those that are not as preferred, in the order that they came up. "" is the default.
std::string PrintChoices(const std::vector<Choice>& choices);

// A chooser that takes what the text names where that is an option, the nearest one where it is not, and what the rule
// prefers where the text says nothing. kInvalid: not such a text, with the word.
Result<Chooser> ParseChoices(std::string_view text);

// A schedule's text with the choices that led to it, as a comment before the first step; and back: "" if there is none.
std::string WithChoices(std::string_view schedule, std::string_view choices);
std::string ChoicesOf(std::string_view schedule);

}  // namespace hone
