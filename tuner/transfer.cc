#include "tuner/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "codegen/default_schedule.h"
#include "ir/parse.h"
#include "ir/specialize.h"

namespace hone {
namespace {

std::string KindOf(const std::string& site) { return site.substr(site.rfind('.') + 1); }

// Options that are names, not sizes: near means nothing among them.
bool IsName(const Choice& choice) {
  static const std::set<std::string, std::less<>> kNames = {"rule", "im2col", "vector_axis", "winograd"};
  return choice.is_flag || kNames.contains(KindOf(choice.site));
}

// Largest of several sizes: the donor took all there was.
bool IsAll(const Choice& choice) { return choice.options.size() > 2 && choice.value == choice.options.back(); }

int64_t NearestSize(const Choice& choice, int64_t wanted) {
  auto log = [](int64_t value) { return std::log2(1 + static_cast<double>(std::max<int64_t>(0, value))); };
  return *std::min_element(choice.options.begin(), choice.options.end(), [&](int64_t a, int64_t b) {
    return std::abs(log(a) - log(wanted)) < std::abs(log(b) - log(wanted));
  });
}

// What a decision of the donor's comes to among the options here; `why` if it is another value.
int64_t Follow(const Choice& donor, const Choice& here, FitWay way, bool is_same_class, std::string& why) {
  const bool is_preferred = donor.value == donor.preferred;
  if (is_preferred && (way == FitWay::kDeviations || (IsName(here) && !is_same_class))) {
    if (here.preferred != donor.value) why = "as the rules prefer, there as here";
    return here.preferred;
  }
  const bool is_option = std::binary_search(here.options.begin(), here.options.end(), donor.value);
  if (IsName(here)) {
    if (is_option) return donor.value;
    why = "there is no such option";
    return here.preferred;
  }
  if (IsAll(donor) && IsAll({here.site, here.options, 0, here.options.back(), false})) {
    if (here.options.back() != donor.value) why = "all there is";
    return here.options.back();
  }
  if (is_option) return donor.value;
  int64_t nearest = NearestSize(here, donor.value);
  why = fmt::format("the nearest option to {}", donor.value);
  return nearest;
}

// What to expect of a fit before its program is looked at, log2: donors gained by their schedules, and their neighbours
// do as long as they are near. On three models (docs/transfer.md) fits within a class won 6 to 12 % below a distance of
// 1, nothing at 1 to 2, and lost 5 to 15 % at 2.
double Prior(const Transfer& transfer) {
  constexpr double kGain = 0.1, kOtherClass = 2;
  return kGain * (1 - transfer.distance - (transfer.is_same_class ? 0 : kOtherClass));
}

// What is added to the gain that a trusted model sees, log2: the donor's own, as far as it is near, less the risk,
// which grows with the distance; what is promised of a fit from far away is more often wrong.
double Evidence(const Transfer& transfer) {
  constexpr double kLead = 0.03, kRisk = 0.03, kFarthest = 8;
  const double gain = transfer.donor->gain * std::exp2(-transfer.distance);
  return (transfer.is_same_class ? gain : gain / 2) - kLead - kRisk * std::min(transfer.distance, kFarthest);
}

}  // namespace

std::string_view FitWayName(FitWay way) {
  switch (way) {
    case FitWay::kDefault: return "default";
    case FitWay::kSteps: return "steps";
    case FitWay::kDecisions: return "decisions";
    case FitWay::kDeviations: return "deviations";
  }
  return "?";
}

Result<std::vector<Choice>> DecisionsOf(const Donor& donor, const Target& target) {
  Kernel kernel = Specialize(HONE_TRY(ParseKernel(donor.canonical)));
  Plan plan = HONE_TRY(PlanSchedule(kernel, target, HONE_TRY(ParseChoices(ChoicesOf(donor.schedule)))));
  return std::move(plan.choices);
}

Chooser FollowDecisions(std::vector<Choice> decisions, FitWay way, bool is_same_class, std::vector<FitNote>* notes) {
  struct State {
    std::vector<Choice> decisions;
    std::vector<bool> used;
  };
  auto state = std::make_shared<State>();
  state->used.resize(decisions.size());
  state->decisions = std::move(decisions);
  return [state, way, is_same_class, notes](const Choice& here) {
    // By site within a class; else the first of its kind that was not followed yet.
    std::optional<size_t> found;
    for (size_t i = 0; i < state->decisions.size() && !found; ++i)
      if (is_same_class && state->decisions[i].site == here.site) found = i;
    for (size_t i = 0; i < state->decisions.size() && !found; ++i)
      if (!state->used[i] && KindOf(state->decisions[i].site) == KindOf(here.site)) found = i;
    if (!found) return here.preferred;
    const Choice& donor = state->decisions[*found];
    state->used[*found] = true;
    FitNote note;
    note.step = fmt::format("{}={}", donor.site, donor.value);
    const int64_t value = Follow(donor, here, way, is_same_class, note.why);
    note.now = fmt::format("{}={}", here.site, value);
    note.fate = note.why.empty() ? FitNote::Fate::kKept : FitNote::Fate::kChanged;
    if (notes != nullptr) notes->push_back(std::move(note));
    return value;
  };
}

std::vector<Transfer> MakeTransfers(const Space& space, const std::vector<Neighbour>& neighbours,
                                    const TransferOptions& options) {
  std::vector<Transfer> transfers;
  std::map<uint64_t, size_t> programs;
  std::map<std::string, size_t> schedules;  // donors agree often: what was lowered once is not lowered again
  auto add = [&](Transfer transfer, Result<Plan> plan) {
    const size_t index = transfers.size();
    if (!plan) {
      transfer.refused = plan.error().Text();
    } else if (auto [known, is_new] = schedules.try_emplace(PrintSchedule(plan->schedule), index); !is_new) {
      const Transfer& first = transfers[known->second];
      transfer.refused = first.refused;
      transfer.candidate = first.candidate;
      if (first.refused.empty()) transfer.same_as = first.same_as.value_or(known->second);
    } else if (Result<Candidate> made =
                   transfer.donor ? space.Complete(std::move(plan->choices), plan->schedule) : space.Default();
               !made) {
      transfer.refused = made.error().Text();
    } else {
      auto [first, is_first] = programs.try_emplace(made->program, index);
      if (!is_first) transfer.same_as = first->second;
      transfer.candidate = *std::move(made);
    }
    transfers.push_back(std::move(transfer));
  };
  add({}, PlanSchedule(space.kernel(), space.target(), {}));
  for (const Neighbour& neighbour : neighbours) {
    if (transfers.size() > options.most) break;
    const Donor& donor = *neighbour.donor;
    auto begin = [&](FitWay way) {
      Transfer transfer;
      transfer.way = way;
      transfer.donor = neighbour.donor;
      transfer.is_same_class = neighbour.is_same_class;
      transfer.distance = neighbour.distance;
      return transfer;
    };
    if (neighbour.is_same_class) {
      Transfer transfer = begin(FitWay::kSteps);
      auto fit = [&]() -> Result<Fit> {
        Kernel kernel = Specialize(HONE_TRY(ParseKernel(donor.canonical)));
        return FitToShape(kernel, HONE_TRY(ParseSchedule(donor.schedule)), space.kernel(), options.mode,
                          options.workers);
      }();
      if (fit) transfer.notes = std::move(fit->notes);
      add(std::move(transfer), fit ? Plan{std::move(fit->schedule), {}, {}} : Result<Plan>(fit.error()));
    }
    if (options.mode == FitMode::kStrict) continue;
    Result<std::vector<Choice>> decisions = DecisionsOf(donor, space.target());
    for (FitWay way : {FitWay::kDecisions, FitWay::kDeviations}) {
      Transfer transfer = begin(way);
      Result<Plan> plan = decisions
                              ? PlanSchedule(space.kernel(), space.target(),
                                             FollowDecisions(*decisions, way, neighbour.is_same_class, &transfer.notes))
                              : Result<Plan>(decisions.error());
      add(std::move(transfer), std::move(plan));
    }
  }
  return transfers;
}

std::vector<size_t> RankTransfers(std::vector<Transfer>& transfers, const CostModel* model) {
  std::vector<size_t> order;
  std::vector<std::vector<float>> rows;
  const std::vector<float>* standard = nullptr;
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (!transfers[i].IsCandidate()) continue;
    if (!transfers[i].donor) standard = &transfers[i].candidate.features;
    order.push_back(i);
    rows.push_back(transfers[i].candidate.features);
  }
  Result<std::optional<Gains>> gains = std::optional<Gains>();
  if (model != nullptr && standard != nullptr) gains = model->Gain(*standard, rows);
  const Gains* known = gains && *gains ? &**gains : nullptr;
  for (size_t i = 0; i < order.size(); ++i) {
    Transfer& transfer = transfers[order[i]];
    if (known != nullptr) transfer.predicted = known->log2[i];
    if (!transfer.donor) continue;  // nothing is gained over itself
    const double trust = known != nullptr ? known->trust : 0;
    transfer.gain = trust * (transfer.predicted.value_or(0) + Evidence(transfer)) + (1 - trust) * Prior(transfer);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return transfers[a].gain > transfers[b].gain; });
  return order;
}

}  // namespace hone
