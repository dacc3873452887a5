#include "ir/schedule/check_in_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/graph/expr.h"
#include "ir/graph/print.h"
#include "ir/graph/stage_graph.h"
#include "ir/schedule/check_scheduled.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

// Whether each element is computed from the one of the same coordinates, as far as it reads `tensor` at all. Along a
// dimension of one element there is no other.
bool ReadsInPlace(const Kernel& kernel, const Stage& stage, TensorId tensor) {
  bool is_in_place = true;
  Walk(stage.body, [&](const Expr& e) {
    if (!e.Loads(tensor)) return;
    for (size_t d = 0; d < e.args().size(); ++d)
      is_in_place &= e.arg(d).IsAxis(AxisId(d)) || UpperExtent(kernel, kernel.tensors[tensor].shape[d]) == 1;
  });
  return is_in_place;
}

bool HaveOneShape(const Kernel& kernel, const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && std::ranges::equal(a.shape, b.shape, [&](const Expr& one, const Expr& other) {
           return PrintExtent(kernel, one) == PrintExtent(kernel, other);
         });
}

}  // namespace

std::string_view ReasonAgainstOutput(const Kernel& kernel, const Stage& stage, const Stage& output) {
  if (stage.reduction != Reduction::kNone || output.reduction != Reduction::kNone) return "one of the two reduces";
  if (!HaveOneShape(kernel, kernel.tensors[stage.output], kernel.tensors[output.output]))
    return "they are not of one shape and type";
  if (!ReadsTensor(output, stage.output)) return "is not read there";
  if (!ReadsInPlace(kernel, output, stage.output))
    return "elements are computed from others than those in their places";
  return "";
}

StageId OutputUnder(const ScheduledKernel& scheduled, StageId stage) {
  const StageSchedule& schedule = scheduled.stages[stage];
  return schedule.keep_stage ? schedule.keep_stage : schedule.attach_stage;
}

const std::string& LoopOfOutput(const ScheduledKernel& scheduled, StageId stage) {
  const StageSchedule& schedule = scheduled.stages[stage];
  return schedule.keep_stage ? schedule.keep_loop : schedule.attach_loop;
}

Result<void> CheckInOutput(const ScheduledKernel& scheduled, StageId stage) {
  const Kernel& kernel = scheduled.kernel;
  const StageSchedule& schedule = scheduled.stages[stage];
  const std::string& name = StageName(scheduled, stage);
  const StageId under = OutputUnder(scheduled, stage);
  if (!under || kernel.tensors[kernel.stages[under].output].kind != TensorKind::kOutput)
    return Refuse(
        fmt::format("{} is stored in an output, but is not computed inside one: compute_at {} OUTPUT.LOOP, "
                    "or … keep OUTPUT.LOOP",
                    name, name));
  const Stage& stored = kernel.stages[stage];
  const Stage& output = kernel.stages[under];
  const std::string& output_name = StageName(scheduled, under);
  auto refuse = [&](std::string_view why) {
    return Refuse(fmt::format("{} is stored in {}, but {}", name, output_name, why));
  };
  if (IsForGpu(scheduled)) return refuse("no stage is on a GPU");
  if (!schedule.layout.empty() || schedule.buffers > 1) return refuse("it has an order or buffers of its own");
  if (const std::string_view reason = ReasonAgainstOutput(kernel, stored, output); !reason.empty())
    return refuse(reason);
  for (const auto& [axis, tail] : scheduled.stages[under].tails)
    if (tail == Tail::kShift) return refuse("elements are computed a second time where its last tile is shifted");
  const std::string& loop = LoopOfOutput(scheduled, stage);
  for (StageId reader : ReadersOf(kernel, stored.output)) {
    if (reader == under) continue;
    StageId at = reader;
    while (at && scheduled.stages[at].attach_stage != under) at = scheduled.stages[at].attach_stage;
    if (!at || scheduled.stages[at].attach_loop != loop)
      return refuse(fmt::format("{} reads it where elements of {} are in their places already",
                                StageName(scheduled, reader), output_name));
  }
  for (StageId other : kernel.stages.ids())
    if (other != stage && scheduled.stages[other].scope == Scope::kOutput && OutputUnder(scheduled, other) == under)
      return refuse(StageName(scheduled, other) + " is, too");
  return {};
}

}  // namespace hone
