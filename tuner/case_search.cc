#include "tuner/case_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "codegen/rules/plan_cases.h"
#include "ir/graph/print.h"
#include "tuner/head_to_head.h"

namespace hone {
namespace {

constexpr int kFewestTrials = 8;  // of a case
constexpr int kFinalRounds = 3;   // among a case's fastest trials
constexpr int kDuelRounds = 15;   // against what is served
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

class CaseSearcher {
 public:
  CaseSearcher(const Kernel& kernel, const Target& target, const EvaluatorMaker& make_rig, CostModel* model,
               const SearchOptions& options, const SearchWatcher& watcher, std::stop_token stop)
      : kernel_(kernel),
        target_(target),
        make_rig_(make_rig),
        model_(model),
        options_(options),
        watcher_(watcher),
        stop_(std::move(stop)) {}

  Result<CasesFound> Run(const std::string& served) {
    const ScheduleCases known = HONE_TRY(ParseScheduleCases(served));
    HONE_TRY(FindCaseSize(kernel_, known));
    found_.search.verdicts.assign(16, 0);
    HONE_TRY(Outline(known));
    measured_ = found_.search.progress.trials;
    size_ = outline_.size;
    samples_ = SampleCases(kernel_, size_, found_.cases);
    found_.is_new.assign(found_.cases.cases.size(), true);
    for (size_t i = 0; i < found_.cases.cases.size(); ++i)
      for (const ScheduleCase& old : known.cases)
        if (old.ranges == found_.cases.cases[i].ranges && old.steps == found_.cases.cases[i].steps)
          found_.is_new[i] = false;
    for (size_t i = 0; i < samples_.size() && !IsOver(); ++i) HONE_TRY(RunCase(i));
    SearchProgress& progress = found_.search.progress;
    progress.elapsed_s = watch_.Microseconds() / 1e6;
    found_.search.stopped = stop_.stop_requested() ? "interrupted"
                            : IsOver()             ? fmt::format("{:.0f} s", progress.elapsed_s)
                                                   : fmt::format("{} trials", progress.trials);
    return std::move(found_);
  }

 private:
  bool IsOver() const {
    return stop_.stop_requested() ||
           (options_.time.count() > 0 && watch_.Microseconds() >= static_cast<double>(options_.time.count()) * 1e3);
  }

  // Which sizes have a schedule of their own: as served, if searched before; else by what register tiles take,
  // measured.
  Result<void> Outline(const ScheduleCases& known) {
    outline_ = OutlineCases(kernel_, target_);
    std::optional<RowCosts> model = ModelRowCosts(kernel_, target_);
    const bool was_searched = std::any_of(known.cases.begin(), known.cases.end(),
                                          [](const ScheduleCase& one) { return !one.choices.empty(); });
    if (model && !was_searched) {
      RowCosts costs = HONE_TRY(MeasureRows(*model));
      if (!costs.cost.empty()) outline_ = OutlineBy(kernel_, costs);
    }
    if (was_searched) {
      // The widths and rows are in the choices; the sizes stay where they are.
      found_.cases = known;
      outline_.size = HONE_TRY(FindCaseSize(kernel_, known));
      outline_.cases.clear();
      for (const ScheduleCase& one : known.cases) outline_.cases.push_back({one.ranges, ValueOf(one.choices, "rows")});
      for (const ScheduleCase& one : known.cases)
        if (const int64_t vectors = ValueOf(one.choices, "vectors"); vectors > 0) outline_.vectors = vectors;
      return {};
    }
    found_.cases = HONE_TRY(SchedulesOf(kernel_, target_, outline_, false));
    return {};
  }

  // "acc.rows=6 acc.block=2" → 6; 0 if it is not there.
  static int64_t ValueOf(std::string_view choices, std::string_view decision) {
    const std::string wanted = fmt::format(".{}=", decision);
    const size_t at = choices.find(wanted);
    return at == std::string_view::npos ? 0 : std::atoll(std::string(choices.substr(at + wanted.size())).c_str());
  }

  // What a row of tiles takes, for each width and number of rows that may be worth it: code for all sizes from that
  // number on, timed at a multiple of it in the middle. Empty if one row could not be measured.
  Result<RowCosts> MeasureRows(const RowCosts& model) {
    const Size& size = kernel_.sizes[static_cast<size_t>(model.size)];
    double best_each = std::numeric_limits<double>::infinity();
    for (auto& [tile, cost] : model.cost) best_each = std::min(best_each, cost / static_cast<double>(tile.second));
    RowCosts costs{model.size, model.vector_axis, {}};
    int left = std::max(kFewestTrials, options_.trials * 2 / 5);
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
        Result<double> us = TimeTile(model, tile, lo, value);
        if (!us && (us.error().kind == ErrorKind::kUnavailable || us.error().kind == ErrorKind::kInternal))
          return std::move(us).error();
        if (us) costs.cost[tile] = *us / static_cast<double>(value / rows);
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
    const bool has_one = std::any_of(costs.cost.begin(), costs.cost.end(),
                                     [&](const auto& entry) { return entry.first.second <= size.lo; });
    if (!has_one) costs.cost.clear();
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
    SearchProgress& progress = found_.search.progress;
    ++progress.trials;
    ++found_.search.verdicts[static_cast<size_t>(trials[0].verdict)];
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

  Result<void> RunCase(size_t index) {
    ScheduleCase& scheduled = found_.cases.cases[index];
    const CaseSample& sample = samples_[index];
    const std::string text = TextOfCase(kernel_, size_, scheduled);
    const int64_t rows =
        index < outline_.cases.size() && outline_.cases[index].rows > 0 ? outline_.cases[index].rows : -1;
    Space space = HONE_TRY(
        Space::Open(text, target_, [this, rows](const Choice& choice) { return Pinned(outline_, rows, choice); }));
    std::unique_ptr<Evaluator> base = HONE_TRY(make_rig_(text));
    EvaluatorAtSizes evaluator(*base, SizesInCase(sample.sizes, scheduled, size_));

    SearchOptions options = options_;
    const double count = static_cast<double>(samples_.size());
    const int left = std::max(0, options_.trials - measured_);
    options.trials = std::max(kFewestTrials, static_cast<int>(left * (0.5 / count + 0.5 * sample.share)));
    options.group += index;
    options.seed += index;
    if (options.time.count() > 0)
      options.time = std::chrono::milliseconds(
          std::max<int64_t>(1, (options_.time.count() - static_cast<int64_t>(watch_.Microseconds() / 1e3)) /
                                   static_cast<int64_t>(samples_.size() - index)));
    options.known.clear();
    options.seeds.clear();  // they are of the whole kernel
    if (!scheduled.choices.empty()) options.known.push_back(scheduled.choices);
    SearchWatcher watcher = watcher_;
    const SearchProgress before = found_.search.progress;
    watcher.on_round = [&](const SearchProgress& now) {
      if (!watcher_.on_round) return;
      SearchProgress all = before;
      all.trials += now.trials;
      all.valid += now.valid;
      all.elapsed_s = watch_.Microseconds() / 1e6;
      all.start_us = now.start_us;
      all.best_us = now.best_us;
      watcher_.on_round(all);
    };
    SearchResult result = HONE_TRY(Search(space, evaluator, model_, options, watcher, stop_));
    SearchProgress& progress = found_.search.progress;
    progress.trials += result.progress.trials;
    progress.valid += result.progress.valid;
    for (size_t v = 0; v < result.verdicts.size() && v < found_.search.verdicts.size(); ++v)
      found_.search.verdicts[v] += result.verdicts[v];
    if (result.top.empty() || stop_.stop_requested()) return {};
    return Duel(index, evaluator, result, sample.share);
  }

  // The fastest trial against what is served.
  Result<void> Duel(size_t index, Evaluator& evaluator, const SearchResult& result, double share) {
    ScheduleCase& scheduled = found_.cases.cases[index];
    BuiltArtifact old_code = HONE_TRY(evaluator.Build(PrintSchedule(scheduled.steps)));
    std::vector<BuiltArtifact> codes;
    std::vector<const SealedMemfd*> files;
    for (const Trial& trial : result.top) codes.push_back(HONE_TRY(evaluator.Build(trial.candidate.schedule)));
    for (const BuiltArtifact& code : codes) files.push_back(&code.object);
    const size_t first = Fastest(evaluator, files, options_.workers, kFinalRounds, stop_).value_or(0);
    SearchProgress& progress = found_.search.progress;
    if (codes[first].digest == old_code.digest) {
      progress.start_us += share * result.top[first].time_us;
      progress.best_us += share * result.top[first].time_us;
      return {};
    }
    Result<HeadToHead> compared =
        Compare(evaluator, old_code.object, codes[first].object, options_.workers, kDuelRounds, stop_);
    // A machine that is not quiet enough keeps what it has.
    if (!compared && (compared.error().kind == ErrorKind::kBusy || compared.error().kind == ErrorKind::kTimeout))
      return {};
    HeadToHead duel = HONE_TRY(std::move(compared));
    const bool is_better = duel.low > 1;
    progress.start_us += share * duel.old_us;
    progress.best_us += share * (is_better ? duel.new_us : duel.old_us);
    if (!is_better) return {};
    const Candidate& best = result.top[first].candidate;
    scheduled.steps = HONE_TRY(ParseSchedule(best.schedule));
    scheduled.choices = PrintChoices(best.choices);
    found_.is_new[index] = true;
    return {};
  }

  const Kernel& kernel_;
  const Target& target_;
  const EvaluatorMaker& make_rig_;
  CostModel* const model_;
  const SearchOptions& options_;
  const SearchWatcher& watcher_;
  const std::stop_token stop_;
  CasesOutline outline_;
  Stopwatch watch_;
  CasesFound found_;
  int size_ = -1;
  int measured_ = 0;  // trials spent on the outline
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
                               const SearchWatcher& watcher, std::stop_token stop) {
  return CaseSearcher(kernel, target, make_rig, model, options, watcher, std::move(stop)).Run(served);
}

}  // namespace hone
