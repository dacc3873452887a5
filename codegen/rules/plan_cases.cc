#include "codegen/rules/plan_cases.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/arithmetic.h"
#include "base/check.h"
#include "codegen/device_kinds.h"
#include "codegen/rules/default_schedule.h"
#include "codegen/rules/schedule_planner.h"
#include "codegen/rules/tile_model.h"

namespace hone {
namespace {

// Sizes that are looked at one by one; beyond, what a last tile has too much is next to nothing.
constexpr int64_t kWeighed = 1024;
constexpr double kWorthACase = 0.002;   // of the mean time
constexpr double kWorthAChange = 1.01;  // from one size to the next: fewer, longer ranges
constexpr double kHopeless = 1.5;       // times the cost of the best width for a large size

constexpr double kNever = std::numeric_limits<double>::infinity();

bool IsDynamic(const Kernel& kernel, const Expr& extent) {
  return LowerExtent(kernel, extent) != UpperExtent(kernel, extent);
}

std::optional<RowCosts> CostsOf(const SchedulePlanner& planner, const std::string& name) {
  const Kernel& kernel = planner.kernel();
  const std::optional<Contraction> c = AnalyzeContraction(planner, name);
  if (!c || c->reduce.empty()) return std::nullopt;
  const Stage& stage = planner.StageNamed(name);
  const RegisterTile* best = nullptr;
  const std::vector<RegisterTile> tiles = RegisterTiles(planner, *c);
  auto is_along_size = [&](const RegisterTile& tile) {
    if (!tile.row_axis[1] || tile.rows[0] != 1) return false;
    const Expr& rows = stage.axis(tile.row_axis[1]).extent;
    return rows.op() == Op::kSize && IsDynamic(kernel, rows) && !IsDynamic(kernel, stage.axis(tile.vector_axis).extent);
  };
  for (const RegisterTile& tile : tiles)
    if (is_along_size(tile) && (best == nullptr || tile.cycles < best->cycles)) best = &tile;
  if (best == nullptr) return std::nullopt;
  RowCosts costs;
  const AxisId rows = best->row_axis[1];
  costs.size = static_cast<int>(stage.axis(rows).extent.int_value());
  costs.vector_axis = best->vector_axis;
  for (const RegisterTile& tile : tiles) {
    if (!is_along_size(tile) || tile.vector_axis != best->vector_axis || tile.row_axis[1] != rows) continue;
    const double each = tile.cycles / static_cast<double>(CeilDiv(c->extents[rows], tile.rows[1]));
    auto [known, is_new] = costs.cost.try_emplace({tile.vectors, tile.rows[1]}, each);
    if (!is_new) known->second = std::min(known->second, each);
  }
  return costs;
}

// Tiles of one width, by their rows: what each size costs with each of them. No size can have fewer rows than a tile:
// its last tile begins early, in the one before.
class Width {
 public:
  Width(const std::map<int64_t, double>& cost_of_rows, int64_t lo, int64_t hi)
      : lo_(lo), count_(static_cast<size_t>(hi - lo + 1)), least_(count_, kNever) {
    for (auto& [rows, cost] : cost_of_rows) {
      rows_.push_back(rows);
      std::vector<double>& costs = costs_.emplace_back(count_, kNever);
      for (size_t i = 0; i < count_; ++i) {
        const int64_t size = lo + static_cast<int64_t>(i);
        if (rows <= size) costs[i] = static_cast<double>(CeilDiv(size, rows)) * cost;
        least_[i] = std::min(least_[i], costs[i]);
      }
    }
  }

  const std::vector<double>& least() const { return least_; }

  // Chooses numbers of rows; what is lost by them against `least`, in the mean, 1 being nothing.
  double Choose(const std::vector<double>& least, size_t most) {
    std::vector<double> now(count_, kNever);
    double before = kNever;
    while (chosen_.size() < most) {
      size_t best = rows_.size();
      double best_mean = before;
      for (size_t r = 0; r < rows_.size(); ++r) {
        if (chosen_.empty() && rows_[r] > lo_) continue;  // the first one serves every size
        double sum = 0;
        for (size_t i = 0; i < count_; ++i) sum += std::min(now[i], costs_[r][i]) / least[i];
        if (sum / static_cast<double>(count_) < best_mean) best = r, best_mean = sum / static_cast<double>(count_);
      }
      if (best == rows_.size() || before - best_mean < kWorthACase) break;
      before = best_mean;
      chosen_.push_back(best);
      for (size_t i = 0; i < count_; ++i) now[i] = std::min(now[i], costs_[best][i]);
    }
    return before;
  }

  // REQUIRES: Choose found something.
  std::vector<CaseOutline> Assign(int64_t last) const {
    std::map<size_t, std::vector<SizeRange>> ranges;  // by index into rows_
    size_t current = rows_.size();
    for (size_t i = 0; i < count_; ++i) {
      const size_t best = *std::min_element(chosen_.begin(), chosen_.end(),
                                            [&](size_t a, size_t b) { return costs_[a][i] < costs_[b][i]; });
      if (current == rows_.size() || costs_[current][i] > kWorthAChange * costs_[best][i]) current = best;
      const int64_t value = lo_ + static_cast<int64_t>(i);
      std::vector<SizeRange>& own = ranges[current];
      if (!own.empty() && own.back().hi == value - 1)
        own.back().hi = value;
      else
        own.push_back({value, value});
    }
    ranges[current].back().hi = last;
    std::vector<CaseOutline> cases;
    for (auto& [index, own] : ranges) cases.push_back({std::move(own), rows_[index]});
    return cases;
  }

 private:
  const int64_t lo_;
  const size_t count_;
  std::vector<int64_t> rows_;
  std::vector<std::vector<double>> costs_;  // by rows_, then by size from lo_
  std::vector<double> least_;
  std::vector<size_t> chosen_;
};

}  // namespace

std::optional<RowCosts> ModelRowCosts(const Kernel& asked, const Target& target) {
  if (IsStatic(asked) || !FindDeviceKind(target.kind())) return std::nullopt;
  const Kernel kernel = KeepPackable(asked);
  SchedulePlanner planner(kernel, target);
  for (const Stage& stage : kernel.stages) {
    if (stage.reduction != Reduction::kSum) continue;
    if (std::optional<RowCosts> costs = CostsOf(planner, planner.NameOf(stage))) return costs;
  }
  return std::nullopt;
}

CasesOutline OutlineBy(const Kernel& kernel, const RowCosts& costs, size_t most) {
  const Size& size = kernel.sizes[static_cast<size_t>(costs.size)];
  const int64_t hi = std::min(size.hi, size.lo + kWeighed - 1);
  std::map<int64_t, std::map<int64_t, double>> by_vectors;
  std::map<int64_t, double> each_row;  // of a large size
  for (auto& [tile, cost] : costs.cost) {
    by_vectors[tile.first][tile.second] = cost;
    auto [known, is_new] = each_row.try_emplace(tile.first, kNever);
    known->second = std::min(known->second, cost / static_cast<double>(tile.second));
  }
  const double cheapest =
      std::min_element(each_row.begin(), each_row.end(), [](auto& a, auto& b) { return a.second < b.second; })->second;
  std::map<int64_t, Width> widths;
  std::vector<double> least(static_cast<size_t>(hi - size.lo + 1), kNever);
  for (auto& [vectors, rows] : by_vectors) {
    if (each_row[vectors] > kHopeless * cheapest) continue;
    const Width& width = widths.emplace(vectors, Width(rows, size.lo, hi)).first->second;
    for (size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], width.least()[i]);
  }
  CasesOutline outline;
  double least_loss = kNever;
  for (auto& [vectors, width] : widths) {
    const double loss = width.Choose(least, most);
    if (loss >= least_loss) continue;
    least_loss = loss;
    outline.size = costs.size;
    outline.vectors = vectors;
    outline.vector_axis = costs.vector_axis;
  }
  HONE_CHECK(outline.size >= 0);
  outline.cases = widths.at(outline.vectors).Assign(size.hi);
  if (outline.cases.size() == 1) outline.cases[0].ranges.clear(), outline.size = -1;
  return outline;
}

CasesOutline OutlineCases(const Kernel& kernel, const Target& target, size_t most) {
  if (std::optional<RowCosts> costs = ModelRowCosts(kernel, target)) return OutlineBy(kernel, *costs, most);
  // Few sizes have code of their own each.
  for (size_t s = 0; s < kernel.sizes.size(); ++s) {
    const Size& size = kernel.sizes[s];
    if (size.is_constant() || size.hi - size.lo >= static_cast<int64_t>(most)) continue;
    CasesOutline outline{static_cast<int>(s), {}, -1, {}};
    for (int64_t value = size.lo; value <= size.hi; ++value) outline.cases.push_back({{{value, value}}, 0});
    return outline;
  }
  return {-1, {{}}, -1, {}};
}

Chooser ChooserForCase(const CasesOutline& outline, const CaseOutline& which, Chooser otherwise) {
  return [vectors = outline.vectors, axis = outline.vector_axis, rows = which.rows,
          otherwise = std::move(otherwise)](const Choice& choice) {
    const std::string_view decision = std::string_view(choice.site).substr(choice.site.rfind('.') + 1);
    const int64_t wanted = decision == "rows" && rows > 0              ? rows
                           : decision == "vectors" && vectors >= 0     ? vectors
                           : decision == "vector_axis" && vectors >= 0 ? axis.value
                                                                       : -1;
    if (wanted >= 0 && std::binary_search(choice.options.begin(), choice.options.end(), wanted)) return wanted;
    return otherwise ? otherwise(choice) : choice.preferred;
  };
}

Result<ScheduleCases> PlanCases(const Kernel& kernel, const Target& target, bool modest) {
  ScheduleCases cases = HONE_TRY(SchedulesOf(kernel, target, OutlineCases(kernel, target), modest));
  for (ScheduleCase& scheduled : cases.cases) scheduled.choices.clear();
  return cases;
}

Result<ScheduleCases> SchedulesOf(const Kernel& kernel, const Target& target, const CasesOutline& outline,
                                  bool modest) {
  ScheduleCases cases;
  if (outline.size >= 0) cases.size = kernel.sizes[static_cast<size_t>(outline.size)].name;
  for (const CaseOutline& which : outline.cases) {
    ScheduleCase scheduled{which.ranges, {}, {}};
    const Kernel narrowed = KernelOfCase(kernel, outline.size, scheduled);
    const Chooser chooser = ChooserForCase(outline, which, modest ? Chooser(ChooseModestly) : Chooser());
    Plan plan = HONE_TRY(PlanSchedule(narrowed, target, chooser));
    scheduled.steps = std::move(plan.schedule);
    scheduled.choices = PrintChoices(plan.choices);
    cases.cases.push_back(std::move(scheduled));
  }
  return cases;
}

}  // namespace hone
