#include "ir/schedule/fit_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "ir/rewrites/registry.h"
#include "ir/schedule/apply.h"
#include "ir/steps/step_type.h"

namespace hone {
namespace {

// Steps that are dropped one by one before a fit is given up.
constexpr size_t kMostDropped = 24;

// Whether the rest of a schedule means nothing without the step.
bool IsAlgorithm(const Step& step) {
  const RewriteStep* rewrite = std::get_if<RewriteStep>(&step);
  const GraphRewrite* known = rewrite != nullptr ? FindRewrite(rewrite->rewrite) : nullptr;
  return known != nullptr && known->is_algorithm;
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

  const ScheduledKernel& donor_;
  const Schedule& donor_steps_;
  const Kernel& donor_kernel_;
  const Kernel& kernel_;
  const int workers_;
  std::map<std::pair<std::string, int64_t>, int64_t> tiles_;  // FitContext::tiles
};

FitNote Fitter::FitStep(const Step& donor, ScheduleBuilder& builder) {
  FitNote note{FitNote::Fate::kKept, PrintStep(donor), "", ""};
  const StepType& type = TypeOf(donor);
  Step step = donor;
  if (type.fit != nullptr)
    note.why = type.fit(step, {donor_kernel_, donor_, kernel_, builder.so_far(), workers_, tiles_});
  Result<void> added = builder.Add(step);
  if (!added) {
    note.why = note.why.empty() ? added.error().message : note.why + "; " + added.error().message;
    const StageSchedule* stage = FindStageSchedule(builder.so_far(), StageOf(step));
    const std::optional<Step> repaired =
        type.repair != nullptr && stage != nullptr ? type.repair(step, *stage) : std::nullopt;
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
        if (IsAlgorithm(donor) || ++dropped > kMostDropped)
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
    if (const SplitStep* split = std::get_if<SplitStep>(&step)) {
      const std::optional<int64_t> trips = TripsOf(builder.so_far(), split->stage, split->loop);
      int64_t product = 1;
      for (int64_t factor : split->factors)
        if (__builtin_mul_overflow(product, factor, &product)) product = INT64_MAX / 2;
      if (trips && *trips % product != 0)
        return Error{ErrorKind::kInvalid, fmt::format("{}: {} does not divide {}", text, product, *trips), "fit"};
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
