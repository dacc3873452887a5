#include "tuner/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/hash.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"
#include "ir/schedule/schedule.h"
#include "tuner/features.h"

namespace hone {
namespace {

// Longer code takes longer to compile than its trial can be worth, and crowds the instruction cache.
constexpr int64_t kMostInstructions = 3'000;

// How often a mutation moves to a neighbouring option instead of any.
constexpr double kStep = 0.6;

int64_t AnyOption(const Choice& choice, Rng& rng) { return choice.options[rng.Below(choice.options.size())]; }

int64_t NearOption(const Choice& choice, int64_t from, Rng& rng) {
  auto at = std::lower_bound(choice.options.begin(), choice.options.end(), from) - choice.options.begin();
  auto last = static_cast<int64_t>(choice.options.size()) - 1;
  int64_t next = std::clamp<int64_t>(at + (rng.Chance(0.5) ? 1 : -1), 0, last);
  return choice.options[static_cast<size_t>(next)];
}

// The option that is nearest to `wanted`.
int64_t Nearest(const Choice& choice, int64_t wanted) {
  return *std::min_element(choice.options.begin(), choice.options.end(),
                           [&](int64_t a, int64_t b) { return std::llabs(a - wanted) < std::llabs(b - wanted); });
}

uint64_t HashOf(const LoopProgram& program) {
  Digest64 digest = Hash64(PrintProgram(program, ProgramText::kHashed));
  uint64_t hash = 0;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

// Values by site: how one list of choices is repeated under other decisions.
std::map<std::string, int64_t, std::less<>> Values(const std::vector<Choice>& choices) {
  std::map<std::string, int64_t, std::less<>> values;
  for (const Choice& choice : choices) values[choice.site] = choice.value;
  return values;
}

}  // namespace

Result<Space> Space::Open(const std::string& kernel, const Target& target, Pins pins) {
  Space space(Specialize(HONE_TRY(ParseKernel(kernel))), target);
  uint64_t nodes = 0;
  for (const Stage& stage : space.kernel_.stages) nodes += stage.body.nodes();
  if (nodes > kMostNodes) {
    return Error{ErrorKind::kLimit,
                 fmt::format("{} operands and operators; schedules are thought about up to {}, and larger kernels have "
                             "their defaults",
                             nodes, kMostNodes),
                 space.kernel_.name};
  }
  space.limits_.instructions = kMostInstructions;
  space.pins_ = std::move(pins);
  Kernel largest = space.kernel_;
  for (hone::Size& size : largest.sizes) size.lo = size.hi;
  space.flops_ = FlopCount(largest);
  return space;
}

Result<Plan> Space::PlanBy(const Chooser& chooser) const {
  if (!pins_) return PlanSchedule(kernel_, target_, chooser);
  return PlanSchedule(kernel_, target_, [&](const Choice& choice) {
    if (std::optional<int64_t> value = pins_(choice)) return *value;
    return chooser ? chooser(choice) : choice.preferred;
  });
}

Result<Candidate> Space::Make(const Chooser& chooser) const {
  // The default is what was served already: however long, it belongs to the space.
  return Complete(HONE_TRY(PlanBy(chooser)), chooser ? limits_ : LowerLimits{});
}

Result<Candidate> Space::Complete(Plan plan) const { return Complete(std::move(plan), limits_); }

Result<Candidate> Space::Complete(Plan plan, const LowerLimits& limits) const {
  ScheduledKernel scheduled = HONE_TRY(ApplySchedule(kernel_, plan.schedule));
  LoopProgram program = HONE_TRY(Lower(scheduled, limits));
  return Candidate{std::move(plan.choices), PrintSchedule(plan.schedule), HashOf(program),
                   ExtractFeatures(program, target_)};
}

Result<Candidate> Space::Read(std::string_view schedule) const {
  return Complete(Plan{HONE_TRY(ParseSchedule(schedule)), {}, {}});
}

Result<Candidate> Space::Parse(std::string_view choices) const { return Make(HONE_TRY(ParseChoices(choices))); }

Result<uint64_t> Space::ProgramOf(std::string_view schedule) const {
  ScheduledKernel scheduled = HONE_TRY(ApplySchedule(kernel_, HONE_TRY(ParseSchedule(schedule))));
  return HashOf(HONE_TRY(Lower(scheduled)));
}

Result<Plan> Space::Sample(Rng& rng) const {
  // Some samples stay near the default: with many decisions, all at random is seldom good.
  double share = rng.Uniform();
  return PlanBy([&](const Choice& choice) { return rng.Chance(share) ? AnyOption(choice, rng) : choice.preferred; });
}

Result<Plan> Space::Mutate(const Candidate& parent, Rng& rng) const {
  if (parent.choices.empty()) return PlanBy([](const Choice& choice) { return choice.preferred; });
  auto values = Values(parent.choices);
  std::map<std::string, bool, std::less<>> changed;
  for (uint64_t n = 1 + (rng.Chance(0.4) ? rng.Below(3) : 0); n > 0; --n)
    changed[parent.choices[rng.Below(parent.choices.size())].site] = true;
  return PlanBy([&](const Choice& choice) {
    auto known = values.find(choice.site);
    if (changed.contains(choice.site))
      return known != values.end() && rng.Chance(kStep) ? NearOption(choice, known->second, rng)
                                                        : AnyOption(choice, rng);
    return known == values.end() ? choice.preferred : Nearest(choice, known->second);
  });
}

Result<Plan> Space::Cross(const Candidate& a, const Candidate& b, Rng& rng) const {
  auto of_a = Values(a.choices), of_b = Values(b.choices);
  std::map<std::string, bool> from_a;  // by stage: decisions about one stage belong together
  return PlanBy([&](const Choice& choice) {
    std::string stage = choice.site.substr(0, choice.site.find('.'));
    auto [side, is_new] = from_a.try_emplace(stage, false);
    if (is_new) side->second = rng.Chance(0.5);
    bool take_a = rng.Chance(0.9) ? side->second : !side->second;
    const auto& values = take_a ? of_a : of_b;
    auto known = values.find(choice.site);
    return known == values.end() ? choice.preferred : Nearest(choice, known->second);
  });
}

double Space::Size() const {
  Result<Plan> plan = PlanSchedule(kernel_, target_, {});
  double size = 1;
  if (plan)
    for (const Choice& choice : plan->choices) size *= static_cast<double>(choice.options.size());
  return size;
}

}  // namespace hone
