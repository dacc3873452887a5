#include "tuner/ranked_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "base/parallel.h"
#include "codegen/device_kinds.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

std::string KindOf(const std::string& site) { return site.substr(site.rfind('.') + 1); }

// Options that are names, not sizes: near means nothing among them.
bool IsName(const Choice& choice) { return choice.is_flag || choice.decision.kind == Decision::Kind::kAlternative; }

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
// 1, nothing at 1 to 2, and lost 5 to 15 % at 2. Those donors had gained little. What one has gained beyond 1.4 times
// was won over rules that are wrong about its like, whatever the shape, and is halved with every doubling.
double Prior(const Transfer& transfer) {
  constexpr double kGain = 0.1, kOtherClass = 2, kMuch = 0.5;
  const double much = std::max(0.0, transfer.donor->gain - kMuch) * std::exp2(-transfer.distance);
  return kGain * (1 - transfer.distance - (transfer.is_same_class ? 0 : kOtherClass)) +
         (transfer.is_same_class ? much : much / 2);
}

// What is added to the gain that a trusted model sees, log2: the donor's own, as far as it is near, less the risk,
// which grows with the distance; what is promised of a fit from far away is more often wrong. More so on devices: what
// the model sees of a program are its loops, not which of them are threads and blocks. On OpenCL a fit from 2.2
// doublings away that was to gain 3 % took 1.6 times as long (docs/lab/gpus.md).
double Evidence(const Transfer& transfer) {
  constexpr double kLead = 0.01, kRisk = 0.01, kRiskOnDevices = 0.05, kFarthest = 8;
  const double gain = transfer.donor->gain * std::exp2(-transfer.distance);
  const double risk = KindOfTarget(transfer.donor->target) == kCpuKind ? kRisk : kRiskOnDevices;
  return (transfer.is_same_class ? gain : gain / 2) - kLead - risk * std::min(transfer.distance, kFarthest);
}

// A fit that is not lowered yet.
struct Draft {
  Transfer transfer;
  Result<Plan> plan;
};

// Tiles and lanes were made for the vectors and registers of one instruction set: on another they run at half the speed
// (docs/transfer.md), however much they look like a gain to trees that have not seen it. Decisions carry over.
Result<Fit> FitSteps(const Donor& donor, const Space& space, const TransferOptions& options) {
  const Target target = HONE_TRY(ParseTarget(donor.target));
  if (!HaveSameRegisters(target, space.target()))
    return Error{ErrorKind::kUnsupported,
                 fmt::format("its tiles are made for the vectors and registers of {}", ArchitectureName(target)), ""};
  Kernel kernel = Specialize(HONE_TRY(ParseKernel(donor.canonical)));
  return FitToShape(kernel, HONE_TRY(ParseSchedule(donor.schedule)), space.kernel(), options.mode, options.workers);
}

std::vector<Draft> DraftsOf(const Space& space, const Neighbour& neighbour, const TransferOptions& options) {
  std::vector<Draft> drafts;
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
    Result<Fit> fit = FitSteps(*neighbour.donor, space, options);
    if (fit) transfer.notes = std::move(fit->notes);
    drafts.push_back({std::move(transfer), fit ? Plan{std::move(fit->schedule), {}, {}} : Result<Plan>(fit.error())});
  }
  if (options.mode == FitMode::kStrict) return drafts;
  Result<std::vector<Choice>> decisions = DecisionsOf(*neighbour.donor, space.target());
  for (FitWay way : {FitWay::kDecisions, FitWay::kDeviations}) {
    Transfer transfer = begin(way);
    Result<Plan> plan = decisions
                            ? PlanSchedule(space.kernel(), space.target(),
                                           FollowDecisions(*decisions, way, neighbour.is_same_class, &transfer.notes))
                            : Result<Plan>(decisions.error());
    drafts.push_back({std::move(transfer), std::move(plan)});
  }
  return drafts;
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
  std::vector<std::vector<Draft>> drafts(neighbours.size());
  ForEachIndex(neighbours.size(), options.threads, [&](size_t i) {
    if (!options.IsOver()) drafts[i] = DraftsOf(space, neighbours[i], options);
  });
  std::vector<Draft> all;
  all.push_back({{}, PlanSchedule(space.kernel(), space.target(), {})});
  for (size_t i = 0; i < drafts.size() && all.size() <= options.most; ++i)
    std::move(drafts[i].begin(), drafts[i].end(), std::back_inserter(all));
  // Donors agree often: what was lowered once is not lowered again.
  std::map<std::string, size_t> schedules;
  std::vector<size_t> first_with(all.size()), distinct;  // `all`'s indices
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].plan) continue;
    auto [known, is_new] = schedules.try_emplace(PrintSchedule(all[i].plan->schedule), i);
    first_with[i] = known->second;
    if (is_new) distinct.push_back(i);
  }
  std::vector<std::optional<Result<Candidate>>> made(all.size());
  ForEachIndex(distinct.size(), options.threads, [&](size_t d) {
    const size_t i = distinct[d];
    if (options.IsOver()) return;
    made[i] = all[i].transfer.donor ? space.Complete(*std::move(all[i].plan)) : space.Default();
  });
  std::map<uint64_t, size_t> programs;
  std::vector<Transfer> transfers;
  for (size_t i = 0; i < all.size(); ++i) {
    Transfer& transfer = transfers.emplace_back(std::move(all[i].transfer));
    if (!all[i].plan) {
      transfer.refused = all[i].plan.error().Text();
    } else if (size_t first = first_with[i]; first != i) {
      transfer.refused = transfers[first].refused;
      transfer.candidate = transfers[first].candidate;
      if (transfer.refused.empty()) transfer.same_as = transfers[first].same_as.value_or(first);
    } else if (!made[i]) {
      transfer.refused = "there was no time for it";
    } else if (!*made[i]) {
      transfer.refused = made[i]->error().Text();
    } else {
      transfer.candidate = **std::move(made[i]);
      auto [known, is_first] = programs.try_emplace(transfer.candidate.program, i);
      if (!is_first) transfer.same_as = known->second;
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
