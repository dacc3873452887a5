#include "tuner/case_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/clock.h"
#include "codegen/rules/plan_cases.h"
#include "ir/graph/print.h"
#include "tuner/head_to_head.h"

namespace hone {
namespace {

constexpr int kFewestTrials = 8;  // of a case, and of the outline: fewer tell nothing
constexpr size_t kVerdicts = static_cast<size_t>(Verdict::kDisturbed) + 1;
constexpr int kFinalRounds = 3;  // among a case's fastest trials
constexpr int kDuelRounds = 15;  // against what is served
constexpr size_t kMostWidths = 3;
constexpr double kHopelessWidth = 1.3;  // times the best width's cost for a large size, by the model
constexpr double kHopelessRows = 2;     // times the best cost of one row of the output

// What must stay as it is for all cases to read the same packed constants, and for a case to suit its sizes.
std::optional<int64_t> Pinned(const CasesOutline& outline, int64_t rows, const Choice& choice) {
  if (outline.size < 0) return std::nullopt;
  const std::string_view decision = std::string_view(choice.site).substr(choice.site.rfind('.') + 1);
  if (decision == "direct" || decision == "pack_rows") return choice.preferred;
  const int64_t wanted = decision == "vectors"       ? outline.vectors
                         : decision == "vector_axis" ? outline.vector_axis.value
                         : decision == "rows"        ? rows
                                                     : -1;
  if (wanted < 0 || !std::binary_search(choice.options.begin(), choice.options.end(), wanted)) return std::nullopt;
  return wanted;
}

// The kernel for the sizes of one case, as text.
std::string TextOfCase(const Kernel& kernel, int size, const ScheduleCase& scheduled) {
  Kernel narrowed = KeepPackable(kernel);
  if (size >= 0) {
    const SizeRange hull = scheduled.Hull();
    narrowed.sizes[static_cast<size_t>(size)].lo = hull.lo;
    narrowed.sizes[static_cast<size_t>(size)].hi = hull.hi;
  }
  return PrintKernel(narrowed);
}

// A value in the middle that the case is for.
int64_t MiddleOf(const ScheduleCase& scheduled) {
  const SizeRange hull = scheduled.Hull();
  const int64_t middle = hull.lo + (hull.hi - hull.lo) / 2;
  for (const SizeRange& range : scheduled.ranges)
    if (range.hi >= middle) return std::max(range.lo, middle);
  return hull.hi;
}

}  // namespace

// What goes on from turn to turn of one search.
struct CasesMemory {
  struct OfCase {
    bool has_begun = false, is_over = false;
    int trials = 0;                     // that it may make
    std::chrono::milliseconds time{0};  // that it may take; 0: unlimited
    SearchState state;
    SearchResult result;  // so far
  };
  std::map<std::pair<int64_t, int64_t>, double> tiles;  // microseconds, as they were timed; 0: they could not be
  CasesOutline outline;
  ScheduleCases cases;               // with what was found so far
  int size = -1;                     // that tells the cases apart
  std::vector<OfCase> each;          // empty until the outline is drawn
  SearchResult outlining;            // what that took
  double start_us = 0, best_us = 0;  // means over the sizes of the cases that are over
  double elapsed_us = 0;             // in the turns that are over
};

namespace {

class CaseSearcher {
 public:
  CaseSearcher(const Kernel& kernel, const Target& target, const EvaluatorMaker& make_rig, CostModel* model,
               const SearchOptions& options, const SearchWatcher& watcher, std::stop_token stop, CasesMemory& memory)
      : kernel_(kernel),
        target_(target),
        make_rig_(make_rig),
        model_(model),
        options_(options),
        watcher_(watcher),
        stop_(std::move(stop)),
        memory_(memory) {}

  Result<CasesFound> Run(const std::string& served) {
    const ScheduleCases known = HONE_TRY(ParseScheduleCases(served));
    HONE_TRY(FindCaseSize(kernel_, known));
    if (memory_.each.empty()) HONE_TRY(Outline(known));
    samples_ = SampleCases(kernel_, memory_.size, memory_.cases);
    for (size_t index : MostSizesFirst()) {
      if (IsOver()) break;
      HONE_TRY(RunCase(index));
    }
    const bool is_done = !memory_.each.empty() &&
                         std::all_of(memory_.each.begin(), memory_.each.end(), [](auto& one) { return one.is_over; });
    const bool is_over = IsOver();
    CasesFound found;
    found.cases = memory_.each.empty() ? known : memory_.cases;
    for (const ScheduleCase& one : found.cases.cases)
      found.is_new.push_back(std::none_of(known.cases.begin(), known.cases.end(), [&](const ScheduleCase& old) {
        return old.ranges == one.ranges && old.steps == one.steps;
      }));
    found.search = Sum();
    memory_.elapsed_us = ElapsedUs();
    SearchResult& search = found.search;
    search.stopped = stop_.stop_requested() && !is_done ? "interrupted"
                     : is_over && !is_done              ? fmt::format("{:.0f} s", search.progress.elapsed_s)
                     : search.exhausted                 ? "the space is exhausted"
                                                        : fmt::format("{} trials", search.progress.trials);
    return found;
  }

 private:
  double ElapsedUs() const { return memory_.elapsed_us + watch_.Microseconds(); }

  bool IsOver() const {
    return stop_.stop_requested() ||
           (options_.time.count() > 0 && ElapsedUs() >= static_cast<double>(options_.time.count()) * 1e3);
  }

  // Of the outline and all cases.
  SearchResult Sum() const {
    SearchResult sum = memory_.outlining;
    sum.verdicts.resize(kVerdicts);
    sum.exhausted = !memory_.each.empty();
    for (const CasesMemory::OfCase& one : memory_.each) {
      sum.progress.trials += one.result.progress.trials;
      sum.progress.valid += one.result.progress.valid;
      for (size_t v = 0; v < one.result.verdicts.size(); ++v) sum.verdicts[v] += one.result.verdicts[v];
      sum.exhausted &= one.result.exhausted;
    }
    sum.progress.start_us = memory_.start_us;
    sum.progress.best_us = memory_.best_us;
    sum.progress.elapsed_s = ElapsedUs() / 1e6;
    return sum;
  }

  // Of the cases; none before they are known.
  std::vector<size_t> MostSizesFirst() const {
    std::vector<size_t> order(memory_.each.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return samples_[a].share > samples_[b].share; });
    return order;
  }

  // Which sizes have a schedule of their own: as served, if searched before; else by what register tiles take,
  // measured.
  // Interrupted, it leaves what it measured.
  Result<void> Outline(const ScheduleCases& known) {
    CasesOutline& outline = memory_.outline;
    outline = OutlineCases(kernel_, target_);
    const bool was_searched = std::any_of(known.cases.begin(), known.cases.end(),
                                          [](const ScheduleCase& one) { return !one.choices.empty(); });
    if (was_searched) {
      // The widths and rows are in the choices; the sizes stay where they are.
      memory_.cases = known;
      outline.size = HONE_TRY(FindCaseSize(kernel_, known));
      outline.cases.clear();
      for (const ScheduleCase& one : known.cases) outline.cases.push_back({one.ranges, ValueOf(one.choices, "rows")});
      for (const ScheduleCase& one : known.cases)
        if (const int64_t vectors = ValueOf(one.choices, "vectors"); vectors > 0) outline.vectors = vectors;
    } else {
      if (std::optional<RowCosts> model = ModelRowCosts(kernel_, target_)) {
        RowCosts costs = HONE_TRY(MeasureRows(*model));
        if (stop_.stop_requested()) return {};
        if (!costs.cost.empty()) outline = OutlineBy(kernel_, costs);
      }
      memory_.cases = HONE_TRY(SchedulesOf(kernel_, target_, outline, false));
    }
    memory_.size = outline.size;
    memory_.each.resize(memory_.cases.cases.size());
    return {};
  }

  // "acc.rows=6 acc.block=2" → 6; 0 if it is not there.
  static int64_t ValueOf(std::string_view choices, std::string_view decision) {
    const std::string wanted = fmt::format(".{}=", decision);
    const size_t at = choices.find(wanted);
    return at == std::string_view::npos ? 0 : std::atoll(std::string(choices.substr(at + wanted.size())).c_str());
  }

  // What a row of tiles takes, for each width and number of rows that may be worth it: code for all sizes from that
  // number on, timed at a multiple of it in the middle. Empty if one row could not be measured, or there are too few
  // trials for that.
  Result<RowCosts> MeasureRows(const RowCosts& model) {
    const Size& size = kernel_.sizes[static_cast<size_t>(model.size)];
    double best_each = std::numeric_limits<double>::infinity();
    for (auto& [tile, cost] : model.cost) best_each = std::min(best_each, cost / static_cast<double>(tile.second));
    RowCosts costs{model.size, model.vector_axis, {}};
    int left = options_.trials * 2 / 5;
    if (left < kFewestTrials) left = 0;
    // Wide tiles of many rows first: what matters most is measured, however few trials there are.
    for (int64_t vectors : WidthsOf(model, best_each)) {
      for (auto& [tile, cost] : model.cost) {
        if (tile.first != vectors || left <= 0 || IsOver()) continue;
        const int64_t rows = tile.second, lo = std::max(size.lo, rows);
        int64_t value = (size.lo + size.hi) / 2 / rows * rows;
        if (value < lo) value = (lo + rows - 1) / rows * rows;
        if (value > size.hi) continue;
        // Few rows are for small sizes.
        if (rows > 1 && cost / static_cast<double>(rows) > kHopelessRows * best_each) {
          costs.cost[tile] = 0;  // in the model's proportion to one that is measured; below
          continue;
        }
        --left;
        const double us = HONE_TRY(TileUs(model, tile, lo, value));
        if (us > 0) costs.cost[tile] = us / static_cast<double>(value / rows);
      }
    }
    // Those of few rows, by the measured ones of the same width.
    for (auto& [tile, cost] : costs.cost) {
      if (cost > 0) continue;
      double ratio = 0;
      for (auto& [other, measured] : costs.cost)
        if (other.first == tile.first && measured > 0) ratio = measured / model.cost.at(other);
      cost = ratio * model.cost.at(tile);
    }
    std::erase_if(costs.cost, [](const auto& entry) { return entry.second <= 0; });
    // A width has to serve the least size, too.
    std::set<int64_t> whole;
    for (auto& [tile, cost] : costs.cost)
      if (tile.second <= size.lo) whole.insert(tile.first);
    std::erase_if(costs.cost, [&](const auto& entry) { return !whole.contains(entry.first.first); });
    return costs;
  }

  // Vectors of tiles that the model does not think hopeless, the most promising first.
  static std::vector<int64_t> WidthsOf(const RowCosts& model, double best_each) {
    std::map<int64_t, double> each;
    for (auto& [tile, cost] : model.cost) {
      auto [known, is_new] = each.try_emplace(tile.first, cost / static_cast<double>(tile.second));
      known->second = std::min(known->second, cost / static_cast<double>(tile.second));
    }
    std::vector<int64_t> widths;
    for (auto& [vectors, cost] : each)
      if (cost <= kHopelessWidth * best_each) widths.push_back(vectors);
    std::sort(widths.begin(), widths.end(), [&](int64_t a, int64_t b) { return each[a] < each[b]; });
    if (widths.size() > kMostWidths) widths.resize(kMostWidths);
    return widths;
  }

  // The same, or 0 if it cannot be timed; measured once. Errors: measuring itself does not work.
  Result<double> TileUs(const RowCosts& model, std::pair<int64_t, int64_t> tile, int64_t lo, int64_t value) {
    if (auto known = memory_.tiles.find(tile); known != memory_.tiles.end()) return known->second;
    Result<double> us = TimeTile(model, tile, lo, value);
    if (!us && (us.error().kind == ErrorKind::kUnavailable || us.error().kind == ErrorKind::kInternal))
      return std::move(us).error();
    if (!stop_.stop_requested()) memory_.tiles[tile] = us.value_or(0);
    return us.value_or(0);
  }

  // Microseconds at one size by tiles of so many vectors and rows, in code for lo and more.
  Result<double> TimeTile(const RowCosts& model, std::pair<int64_t, int64_t> tile, int64_t lo, int64_t value) {
    const Size& size = kernel_.sizes[static_cast<size_t>(model.size)];
    const CasesOutline outline{model.size, {{{{lo, size.hi}}, tile.second}}, tile.first, model.vector_axis};
    ScheduleCase scheduled{{{lo, size.hi}}, {}, {}};
    const std::string text = TextOfCase(kernel_, model.size, scheduled);
    Space space = HONE_TRY(Space::Open(text, target_, [&](const Choice& choice) -> std::optional<int64_t> {
      return Pinned(outline, tile.second, choice);
    }));
    Candidate candidate = HONE_TRY(space.Default());
    for (const Choice& choice : candidate.choices)
      if ((choice.site.ends_with(".rows") && choice.value != tile.second) ||
          (choice.site.ends_with(".vectors") && choice.value != tile.first))
        return Error{ErrorKind::kInvalid, "no such tile in the space", choice.site};
    std::unique_ptr<Evaluator> base = HONE_TRY(make_rig_(text));
    const CaseSample sample = SampleCases(kernel_, model.size, {size.name, {scheduled}})[0];
    std::vector<int64_t> sizes = SizesInCase(sample.sizes, scheduled, model.size);
    if (!sizes.empty() && lo < size.hi) sizes[PositionOf(model.size)] = value;
    EvaluatorAtSizes evaluator(*base, sizes);
    MeasureOptions measure;
    measure.workers = options_.workers;
    std::vector<Candidate> batch;
    batch.push_back(std::move(candidate));
    std::vector<Trial> trials = HONE_TRY(MeasureBatch(evaluator, std::move(batch), measure, stop_, watcher_.on_trial));
    if (trials.empty()) return Error{ErrorKind::kTimeout, "stopped", ""};
    SearchProgress& progress = memory_.outlining.progress;
    ++progress.trials;
    memory_.outlining.verdicts.resize(kVerdicts);
    ++memory_.outlining.verdicts[static_cast<size_t>(trials[0].verdict)];
    if (trials[0].verdict != Verdict::kTimed) return Error{ErrorKind::kRunFailed, trials[0].why, ""};
    ++progress.valid;
    return trials[0].time_us;
  }

  // Among the dynamic sizes.
  size_t PositionOf(int size) const {
    size_t position = 0;
    for (int s = 0; s < size; ++s) position += kernel_.sizes[static_cast<size_t>(s)].is_constant() ? 0 : 1;
    return position;
  }

  // Of the sizes of the whole kernel those that are still dynamic in a case.
  std::vector<int64_t> SizesInCase(std::vector<int64_t> sizes, const ScheduleCase& scheduled, int size) const {
    if (size >= 0 && scheduled.Hull().lo == scheduled.Hull().hi)
      sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(PositionOf(size)));
    return sizes;
  }

  // What a case may cost: its part of what is left for those that have not begun.
  void Begin(size_t index) {
    auto weight = [&](size_t i) { return 0.5 / static_cast<double>(samples_.size()) + 0.5 * samples_[i].share; };
    double weights = 0;
    int64_t waiting = 0;
    for (size_t i = 0; i < samples_.size(); ++i)
      if (!memory_.each[i].has_begun) weights += weight(i), ++waiting;
    CasesMemory::OfCase& one = memory_.each[index];
    one.has_begun = true;
    const int left = std::max(0, options_.trials - Sum().progress.trials);
    one.trials =
        waiting == 1 ? left : std::min(left, std::max(kFewestTrials, static_cast<int>(left * weight(index) / weights)));
    one.is_over = one.trials == 0;
    if (options_.time.count() > 0)
      one.time = std::chrono::milliseconds(
          std::max<int64_t>(1, (options_.time.count() - static_cast<int64_t>(ElapsedUs() / 1e3)) / waiting));
  }

  Result<void> RunCase(size_t index) {
    CasesMemory::OfCase& one = memory_.each[index];
    if (!one.has_begun) Begin(index);
    if (one.is_over) return {};
    ScheduleCase& scheduled = memory_.cases.cases[index];
    const CaseSample& sample = samples_[index];
    const std::string text = TextOfCase(kernel_, memory_.size, scheduled);
    const CasesOutline& outline = memory_.outline;
    const int64_t rows = index < outline.cases.size() && outline.cases[index].rows > 0 ? outline.cases[index].rows : -1;
    Space space = HONE_TRY(
        Space::Open(text, target_, [&outline, rows](const Choice& choice) { return Pinned(outline, rows, choice); }));
    std::unique_ptr<Evaluator> base = HONE_TRY(make_rig_(text));
    EvaluatorAtSizes evaluator(*base, SizesInCase(sample.sizes, scheduled, memory_.size));

    SearchOptions options = options_;
    options.trials = one.trials;
    options.time = one.time;
    options.group += index;
    options.seed += index;
    options.known.clear();
    options.seeds.clear();  // they are of the whole kernel
    if (!scheduled.choices.empty()) options.known.push_back(scheduled.choices);
    SearchWatcher watcher = watcher_;
    watcher.on_round = [&](const SearchProgress& now) {
      one.result.progress = now;
      if (!watcher_.on_round) return;
      SearchProgress all = Sum().progress;
      all.start_us = now.start_us;
      all.best_us = now.best_us;
      watcher_.on_round(all);
    };
    one.result = HONE_TRY(Search(space, evaluator, model_, options, watcher, stop_, &one.state));
    if (stop_.stop_requested()) return {};
    one.is_over = one.result.top.empty() || HONE_TRY(Duel(index, evaluator, one.result, sample.share));
    if (one.is_over) one.state = {};
    return {};
  }

  // The fastest trial against what is served. False if it was interrupted.
  Result<bool> Duel(size_t index, Evaluator& evaluator, const SearchResult& result, double share) {
    ScheduleCase& scheduled = memory_.cases.cases[index];
    BuiltArtifact old_code = HONE_TRY(evaluator.Build(PrintSchedule(scheduled.steps)));
    std::vector<BuiltArtifact> codes;
    std::vector<const SealedMemfd*> files;
    for (const Trial& trial : result.top) codes.push_back(HONE_TRY(evaluator.Build(trial.candidate.schedule)));
    for (const BuiltArtifact& code : codes) files.push_back(&code.object);
    const size_t first = Fastest(evaluator, files, options_.workers, kFinalRounds, stop_).value_or(0);
    if (codes[first].digest == old_code.digest) {
      memory_.start_us += share * result.top[first].time_us;
      memory_.best_us += share * result.top[first].time_us;
      return true;
    }
    Result<HeadToHead> compared =
        Compare(evaluator, old_code.object, codes[first].object, options_.workers, kDuelRounds, stop_);
    // A machine that is not quiet enough keeps what it has.
    if (!compared && (compared.error().kind == ErrorKind::kBusy || compared.error().kind == ErrorKind::kTimeout))
      return !stop_.stop_requested();
    HeadToHead duel = HONE_TRY(std::move(compared));
    const bool is_better = duel.low > 1;
    memory_.start_us += share * duel.old_us;
    memory_.best_us += share * (is_better ? duel.new_us : duel.old_us);
    if (!is_better) return true;
    const Candidate& best = result.top[first].candidate;
    scheduled.steps = HONE_TRY(ParseSchedule(best.schedule));
    scheduled.choices = PrintChoices(best.choices);
    return true;
  }

  const Kernel& kernel_;
  const Target& target_;
  const EvaluatorMaker& make_rig_;
  CostModel* const model_;
  const SearchOptions& options_;
  const SearchWatcher& watcher_;
  const std::stop_token stop_;
  CasesMemory& memory_;
  Stopwatch watch_;
  std::vector<CaseSample> samples_;
};

}  // namespace

Result<CheckReport> EvaluatorAtSizes::Check(const SealedMemfd& artifact, const CheckOptions& options) {
  CheckOptions there = options;
  there.sizes = sizes_;
  return evaluator_.Check(artifact, there);
}

Result<RunTiming> EvaluatorAtSizes::Time(const SealedMemfd& artifact, const TimeOptions& options) {
  TimeOptions there = options;
  there.sizes = sizes_;
  return evaluator_.Time(artifact, there);
}

std::vector<CaseSample> SampleCases(const Kernel& kernel, int size, const ScheduleCases& cases) {
  std::vector<CaseSample> samples;
  for (const ScheduleCase& scheduled : cases.cases) {
    CaseSample sample;
    sample.share = 1;
    for (size_t s = 0; s < kernel.sizes.size(); ++s) {
      const Size& own = kernel.sizes[s];
      if (own.is_constant()) continue;
      if (static_cast<int>(s) != size) {
        sample.sizes.push_back(own.lo + (own.hi - own.lo) / 2);
        continue;
      }
      sample.sizes.push_back(MiddleOf(scheduled));
      double values = 0;
      for (const SizeRange& range : scheduled.ranges) values += static_cast<double>(range.hi - range.lo + 1);
      sample.share = values / static_cast<double>(own.hi - own.lo + 1);
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

Result<CasesFound> SearchCases(const Kernel& kernel, const Target& target, const std::string& served,
                               const EvaluatorMaker& make_rig, CostModel* model, const SearchOptions& options,
                               const SearchWatcher& watcher, std::stop_token stop, CasesState* state) {
  CasesState own;
  std::shared_ptr<CasesMemory>& memory = state != nullptr ? state->memory : own.memory;
  if (!memory) memory = std::make_shared<CasesMemory>();
  return CaseSearcher(kernel, target, make_rig, model, options, watcher, std::move(stop), *memory).Run(served);
}

}  // namespace hone
