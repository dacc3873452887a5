#include "cache/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ir/apply.h"
#include "ir/rewrite.h"

namespace hone {
namespace {

// A register tile may compute so much more than there is before it is cut evenly.
constexpr double kTolerableWaste = 1.125;
// Steps that are dropped one by one before a fit is given up.
constexpr size_t kMostDropped = 24;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t Product(const std::vector<int64_t>& factors, size_t from = 0) {
  int64_t product = 1;
  for (size_t i = from; i < factors.size(); ++i)
    if (__builtin_mul_overflow(product, factors[i], &product)) return INT64_MAX / 2;
  return product;
}

std::string AxisOf(const std::string& path) { return path.substr(0, path.find_first_of(".+")); }

const StageSchedule* LoopsOf(const ScheduledKernel& scheduled, const std::string& stage) {
  int index = FindStage(scheduled.kernel, stage);
  return index < 0 ? nullptr : &scheduled.stages[static_cast<size_t>(index)];
}

std::optional<int64_t> Trips(const ScheduledKernel& scheduled, const std::string& stage, const std::string& path) {
  int index = FindStage(scheduled.kernel, stage);
  if (index < 0) return std::nullopt;
  return LoopTrips(scheduled.kernel, scheduled.kernel.stages[static_cast<size_t>(index)],
                   scheduled.stages[static_cast<size_t>(index)], path);
}

// What becomes of a loop in the end; a loop that was split or fused again counts as serial.
LoopKind KindOf(const StageSchedule& stage, const std::string& path) {
  for (const LoopDim& loop : stage.loops)
    if (loop.path == path) return loop.kind;
  return LoopKind::kSerial;
}

const Axis& AxisAt(const Stage& stage, size_t i) {
  return i < stage.axes.size() ? stage.axes[i] : stage.reduce_axes[i - stage.axes.size()];
}

std::set<size_t> AxesIn(const Expr& expr) {
  std::set<size_t> axes;
  Walk(expr, [&](const Expr& part) {
    if (part.op() == Op::kAxis) axes.insert(static_cast<size_t>(part.int_value()));
  });
  return axes;
}

class Fitter {
 public:
  Fitter(const ScheduledKernel& donor, const Schedule& schedule, const Kernel& donor_kernel, const Kernel& kernel,
         int workers)
      : donor_(donor), donor_steps_(schedule), donor_kernel_(donor_kernel), kernel_(kernel), workers_(workers) {}

  Result<Fit> Make();

 private:
  // Adds the step, or what it becomes here, and says which.
  FitNote FitStep(const Step& donor, ScheduleBuilder& builder);
  // The step with numbers that suit this kernel, given what came of those before it; `why` if they are others.
  Step Suit(const Step& step, const ScheduledKernel& before, std::string& why);
  void SuitSplit(Step& step, const ScheduledKernel& before, std::string& why);
  int64_t SuitFactor(int64_t factor, int64_t left, bool was_whole, LoopKind kind, std::string& why) const;
  void SuitLayout(std::vector<LayoutDim>& layout, std::string& why) const;
  void SuitGrain(Step& step, const ScheduledKernel& before, std::string& why) const;
  void SuitWinograd(Step& step, const ScheduledKernel& before, std::string& why) const;
  void SuitOnline(Step& step, const ScheduledKernel& before, std::string& why) const;
  void SuitTrim(Step& step, const ScheduledKernel& before, std::string& why) const;
  // The step that was refused, with the loops that there are instead of those it names; nullopt if that is no way.
  static std::optional<Step> Repair(const Step& step, const ScheduledKernel& before);
  double WorkPerTrip(const Kernel& kernel, const ScheduledKernel& scheduled, const std::string& stage,
                     const std::string& path) const;

  const ScheduledKernel& donor_;
  const Schedule& donor_steps_;
  const Kernel& donor_kernel_;
  const Kernel& kernel_;
  const int workers_;
  // Elements of an axis that a tile of the donor's covers → that a tile covers here: what layouts follow.
  std::map<std::pair<std::string, int64_t>, int64_t> tiles_;
};

int64_t Fitter::SuitFactor(int64_t factor, int64_t left, bool was_whole, LoopKind kind, std::string& why) const {
  auto changed = [&](int64_t now, std::string reason) {
    if (now != factor && why.empty()) why = std::move(reason);
    return now;
  };
  if (kind == LoopKind::kVectorized) {
    // Lanes stay, and what is beyond the end is masked; a vector that would be half empty is halved.
    int64_t lanes = factor;
    while (lanes > 1 && lanes / 2 >= left) lanes /= 2;
    return changed(lanes, fmt::format("{} elements do not fill {} lanes", left, factor));
  }
  if (was_whole && kind == LoopKind::kSerial) return changed(left, fmt::format("the whole of it, which is {}", left));
  if (factor >= left) return changed(left, fmt::format("there are {}", left));
  if (kind != LoopKind::kUnrolled) return factor;
  const int64_t tiles = DivideUp(left, factor);
  const double waste = static_cast<double>(tiles * factor) / static_cast<double>(left);
  if (waste <= kTolerableWaste) return factor;
  return changed(DivideUp(left, tiles), fmt::format("{} tiles of {} would compute {:.0f} % too much of {}", tiles,
                                                    factor, 100 * (waste - 1), left));
}

void Fitter::SuitSplit(Step& step, const ScheduledKernel& before, std::string& why) {
  const std::string& path = step.names[0];
  std::optional<int64_t> here = Trips(before, step.stage, path);
  std::optional<int64_t> there = Trips(donor_, step.stage, path);
  const StageSchedule* loops = LoopsOf(donor_, step.stage);
  if (!here || !there || loops == nullptr) return;
  const std::vector<int64_t> donor_factors = step.factors;
  const StageSchedule* now = LoopsOf(before, step.stage);
  const bool is_inner = std::any_of(now->relations.begin(), now->relations.end(), [&](const LoopRelation& relation) {
    return std::find(relation.children.begin(), relation.children.end(), path) != relation.children.end();
  });
  // From the innermost loop outwards: each takes its part of what the ones inside it leave.
  int64_t inside = 1, donor_inside = 1;
  for (size_t i = step.factors.size(); i-- > 0;) {
    const std::string child = fmt::format("{}.{}", path, i + 1);
    donor_inside = Product(donor_factors, i);
    const bool was_whole = donor_inside >= *there && donor_factors[i] > 1;
    int64_t& factor = step.factors[i];
    factor = SuitFactor(factor, std::max<int64_t>(1, DivideUp(*here, inside)), was_whole, KindOf(*loops, child), why);
    // An inner part can be split into equal parts only: visiting elements twice would sum them twice.
    if (is_inner) {
      while (*here % (inside * factor) != 0) --factor;
      if (factor != donor_factors[i] && why.empty()) why = fmt::format("{} has {} trips", path, *here);
    }
    inside *= factor;
    tiles_[{AxisOf(path), donor_inside}] = inside;
  }
}

void Fitter::SuitLayout(std::vector<LayoutDim>& layout, std::string& why) const {
  for (LayoutDim& dim : layout) {
    if (dim.part == LayoutDim::Part::kWhole) continue;
    auto tile = tiles_.find({dim.axis, dim.factor});
    if (tile == tiles_.end() || tile->second == dim.factor) continue;
    if (why.empty()) why = fmt::format("packed for tiles of {}", tile->second);
    dim.factor = tile->second;
  }
}

double Fitter::WorkPerTrip(const Kernel& kernel, const ScheduledKernel& scheduled, const std::string& stage,
                           const std::string& path) const {
  std::optional<int64_t> trips = Trips(scheduled, stage, path);
  if (!trips || *trips < 1 || !IsStatic(kernel)) return 0;
  return FlopCount(kernel) / static_cast<double>(*trips);
}

void Fitter::SuitGrain(Step& step, const ScheduledKernel& before, std::string& why) const {
  std::optional<int64_t> trips = Trips(before, step.stage, step.names[0]);
  if (!trips) return;
  int64_t grain = step.factors[0];
  double there = WorkPerTrip(donor_kernel_, donor_, step.stage, step.names[0]);
  double here = WorkPerTrip(kernel_, before, step.stage, step.names[0]);
  if (there > 0 && here > 0 && grain > 1)
    grain = std::max<int64_t>(1, std::llround(static_cast<double>(grain) * std::min(1e6, there / here)));
  grain = std::clamp<int64_t>(grain, 1, std::max<int64_t>(1, DivideUp(*trips, workers_)));
  if (grain == step.factors[0]) return;
  why = fmt::format("{} trips for {} workers, each {:.2g} times the work", *trips, workers_,
                    there > 0 && here > 0 ? here / there : 1.0);
  step.factors[0] = grain;
}

// The columns of tiles go along the image's width.
void Fitter::SuitWinograd(Step& step, const ScheduledKernel& before, std::string& why) const {
  if (step.factors.size() != 2 || step.factors[0] < 1) return;
  auto width = [&](const Kernel& kernel) -> int64_t {
    int stage = FindStage(kernel, step.stage);
    if (stage < 0 || kernel.stages[static_cast<size_t>(stage)].axes.empty()) return 0;
    return UpperExtent(kernel, kernel.stages[static_cast<size_t>(stage)].axes.back().extent);
  };
  int64_t there = width(donor_kernel_), here = width(before.kernel);
  if (there == 0 || here == 0) return;
  const bool was_whole = step.factors[1] == DivideUp(there, step.factors[0]);
  int64_t columns = DivideUp(here, step.factors[0]);
  if (!was_whole) columns = std::min(columns, step.factors[1]);
  if (columns == step.factors[1]) return;
  why = fmt::format("rows of {} make {} tiles", here, DivideUp(here, step.factors[0]));
  step.factors[1] = columns;
}

// A block of a row is at most the row.
void Fitter::SuitOnline(Step& step, const ScheduledKernel& before, std::string& why) const {
  const int index = FindStage(before.kernel, step.stage);
  if (step.factors.size() != 1 || index < 0) return;
  const Stage& stage = before.kernel.stages[static_cast<size_t>(index)];
  if (stage.reduce_axes.size() != 1) return;
  const int64_t length = UpperExtent(before.kernel, stage.reduce_axes[0].extent);
  if (length < 1 || step.factors[0] <= length) return;
  why = fmt::format("rows have {} elements", length);
  step.factors[0] = length;
}

// Copies of an unrolled body know which terms lie in the padding only if a tile spans the image, as the donor's did;
// elsewhere every term would ask.
void Fitter::SuitTrim(Step& step, const ScheduledKernel& before, std::string& why) const {
  const int index = FindStage(before.kernel, step.stage), donor_index = FindStage(donor_.kernel, step.stage);
  if (index < 0 || donor_index < 0) return;
  const Stage& stage = before.kernel.stages[static_cast<size_t>(index)];
  const Stage& donor_stage = donor_.kernel.stages[static_cast<size_t>(donor_index)];
  const StageSchedule& donor_loops = donor_.stages[static_cast<size_t>(donor_index)];
  // "h of 14, 7 there", if the image is longer than the donor's where the window moves along it.
  auto longer = [&](const std::string& window) {
    std::string found;
    Walk(stage.body, [&](const Expr& load) {
      if (load.op() != Op::kLoad) return;
      for (const Expr& position : load.args()) {
        const std::set<size_t> axes = AxesIn(position);
        if (std::none_of(axes.begin(), axes.end(), [&](size_t i) { return AxisAt(stage, i).name == window; })) continue;
        for (const size_t i : axes) {
          if (i >= std::min(stage.axes.size(), donor_stage.axes.size())) continue;
          const int64_t here = UpperExtent(before.kernel, stage.axes[i].extent);
          const int64_t there = UpperExtent(donor_.kernel, donor_stage.axes[i].extent);
          if (here > there) found = fmt::format("{} of {}, {} there", stage.axes[i].name, here, there);
        }
      }
    });
    return found;
  };
  std::erase_if(step.names, [&](const std::string& name) {
    if (KindOf(donor_loops, name) != LoopKind::kUnrolled) return false;
    const std::string reason = longer(name);
    if (!reason.empty()) why = reason;
    return !reason.empty();
  });
}

Step Fitter::Suit(const Step& donor, const ScheduledKernel& before, std::string& why) {
  Step step = donor;
  switch (step.kind) {
    case StepKind::kSplit: SuitSplit(step, before, why); break;
    case StepKind::kCacheRead:
    case StepKind::kStore: SuitLayout(step.layout, why); break;
    case StepKind::kParallel: SuitGrain(step, before, why); break;
    case StepKind::kRewrite:
      if (step.other == "winograd") SuitWinograd(step, before, why);
      if (step.other == "online") SuitOnline(step, before, why);
      if (step.other == "trim") SuitTrim(step, before, why);
      break;
    case StepKind::kRfactor: {
      std::optional<int64_t> extent = Trips(before, step.stage, step.other);
      int64_t& lanes = step.factors[0];
      while (extent && lanes > 1 && lanes > *extent) lanes /= 2;
      if (lanes != donor.factors[0]) why = fmt::format("{} has {} elements", step.other, *extent);
      break;
    }
    default: break;
  }
  return step;
}

std::optional<Step> Fitter::Repair(const Step& step, const ScheduledKernel& before) {
  const StageSchedule* loops = LoopsOf(before, step.stage);
  if (loops == nullptr) return std::nullopt;
  auto is_there = [&](const std::string& name) {
    return std::any_of(loops->loops.begin(), loops->loops.end(), [&](const LoopDim& l) { return l.path == name; });
  };
  Step repaired = step;
  switch (step.kind) {
    case StepKind::kReorder: {
      // Those that are there, in the donor's order; the others stay behind what precedes them now.
      std::erase_if(repaired.names, [&](const std::string& name) { return !is_there(name); });
      for (size_t i = 0; i < loops->loops.size(); ++i) {
        const std::string& path = loops->loops[i].path;
        if (std::find(repaired.names.begin(), repaired.names.end(), path) != repaired.names.end()) continue;
        auto after = repaired.names.begin();
        if (i > 0) after = std::find(repaired.names.begin(), repaired.names.end(), loops->loops[i - 1].path) + 1;
        repaired.names.insert(after, path);
      }
      return repaired;
    }
    case StepKind::kUnroll:
    case StepKind::kVectorize:
      std::erase_if(repaired.names, [&](const std::string& name) { return !is_there(name); });
      if (repaired.names.empty() || repaired.names.size() == step.names.size()) return std::nullopt;
      return repaired;
    case StepKind::kFuse:
      std::erase_if(repaired.names, [&](const std::string& name) { return !is_there(name); });
      if (repaired.names.size() < 2 || repaired.names.size() == step.names.size()) return std::nullopt;
      return repaired;
    default: return std::nullopt;
  }
}

FitNote Fitter::FitStep(const Step& donor, ScheduleBuilder& builder) {
  FitNote note{FitNote::Fate::kKept, PrintStep(donor), "", ""};
  Step step = Suit(donor, builder.so_far(), note.why);
  Result<void> added = builder.Add(step);
  if (!added) {
    note.why = note.why.empty() ? added.error().message : note.why + "; " + added.error().message;
    std::optional<Step> repaired = Repair(step, builder.so_far());
    if (!repaired || !builder.Add(*repaired)) {
      note.fate = FitNote::Fate::kDropped;
      return note;
    }
  }
  note.now = PrintStep(builder.schedule().back());
  if (note.now == note.step)
    note.why.clear();
  else
    note.fate = FitNote::Fate::kChanged;
  return note;
}

Result<Fit> Fitter::Make() {
  Fit fit;
  // Layouts come before the tiles that they are made for: a second round knows these.
  for (bool is_settled = false; !is_settled;) {
    const auto tiles_before = tiles_;
    fit = {};
    size_t dropped = 0;
    ScheduleBuilder builder(kernel_);
    for (const Step& donor : donor_steps_) {
      FitNote note = FitStep(donor, builder);
      if (note.fate == FitNote::Fate::kDropped) {
        // Another algorithm is what such a schedule is about: without it the rest means nothing.
        const bool is_algorithm = donor.kind == StepKind::kRewrite &&
                                  (donor.other == "winograd" || donor.other == "expand" || donor.other == "online");
        if (is_algorithm || ++dropped > kMostDropped)
          return Error{ErrorKind::kInvalid, fmt::format("{}: {}", note.step, note.why), "fit"};
      }
      fit.notes.push_back(std::move(note));
    }
    HONE_TRY(builder.Finish());
    fit.schedule = builder.schedule();
    is_settled = tiles_ == tiles_before || !tiles_before.empty();
  }
  return fit;
}

// As published: nothing is changed, and every factor divides.
Result<Fit> StrictFit(const Schedule& schedule, const Kernel& kernel) {
  ScheduleBuilder builder(kernel);
  Fit fit;
  for (const Step& step : schedule) {
    const std::string text = PrintStep(step);
    if (step.kind == StepKind::kSplit) {
      std::optional<int64_t> trips = Trips(builder.so_far(), step.stage, step.names[0]);
      if (trips && *trips % Product(step.factors) != 0)
        return Error{ErrorKind::kInvalid, fmt::format("{}: {} does not divide {}", text, Product(step.factors), *trips),
                     "fit"};
    }
    if (Result<void> added = builder.Add(step); !added) return std::move(added).error().Context(text);
    fit.notes.push_back({FitNote::Fate::kKept, text, text, ""});
  }
  HONE_TRY(builder.Finish());
  fit.schedule = schedule;
  return fit;
}

}  // namespace

bool Fit::IsExact() const {
  return std::all_of(notes.begin(), notes.end(), [](const FitNote& n) { return n.fate == FitNote::Fate::kKept; });
}

Result<Fit> FitToShape(const Kernel& donor, const Schedule& schedule, const Kernel& kernel, FitMode mode, int workers) {
  if (mode == FitMode::kStrict) return StrictFit(schedule, kernel);
  Result<ScheduledKernel> applied = ApplySchedule(donor, schedule);
  if (!applied) return std::move(applied).error().Context("the donor's own schedule");
  return Fitter(*applied, schedule, donor, kernel, std::max(1, workers)).Make();
}

}  // namespace hone
