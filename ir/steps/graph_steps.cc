// Steps that change the graph of stages: what they do to it is in ir/rewrites.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "ir/rewrites/cache_read.h"
#include "ir/rewrites/inline_stage.h"
#include "ir/rewrites/registry.h"
#include "ir/rewrites/rfactor.h"
#include "ir/schedule/refuse.h"
#include "ir/steps/layouts.h"
#include "ir/steps/old_words.h"
#include "ir/steps/step_type.h"

namespace hone {
namespace {

// ---- rewrite NAME STAGE WORD… NUMBER…

Result<RewriteStep> ReadRewrite(StepReader& in) {
  RewriteStep step;
  step.rewrite = RewriteOfToday(HONE_TRY(in.Name("a rewrite, such as fuse_axes")));
  step.stage = HONE_TRY(in.Name("a stage"));
  while (in.Next()) {
    const bool is_number = in.word()[0] >= '0' && in.word()[0] <= '9';
    if (step.numbers.empty() && !is_number)
      step.names.push_back(HONE_TRY(in.AnyName("an axis")));
    else
      step.numbers.push_back(HONE_TRY(in.NumberIn(in.word())));
  }
  return step;
}

std::string PrintRewrite(const RewriteStep& step) {
  return fmt::format("rewrite {} {}{}{}{}{}", step.rewrite, step.stage, step.names.empty() ? "" : " ",
                     fmt::join(step.names, " "), step.numbers.empty() ? "" : " ", fmt::join(step.numbers, " "));
}

Result<void> ApplyRewriteStep(const RewriteStep& step, ScheduleState& state) {
  HONE_TRY(state.FindStage(step.stage));
  const GraphRewrite* rewrite = FindRewrite(step.rewrite);
  if (const Accuracy accuracy = state.kernel().options.accuracy; rewrite && !Admits(accuracy, rewrite->rounding))
    return Refuse(fmt::format("{} rounds as the kernel's accuracy does not allow: it wants accuracy={}", step.rewrite,
                              Admits(Accuracy::kRelaxed, rewrite->rounding) ? "relaxed" : "fast"));
  return state.Rewritten(HONE_TRY(ApplyRewrite(state.kernel(), step)));
}

std::string FitRewrite(RewriteStep& step, const FitContext& context) {
  const GraphRewrite* rewrite = FindRewrite(step.rewrite);
  return rewrite == nullptr || rewrite->fit == nullptr ? "" : rewrite->fit(step, context);
}

// ---- inline STAGE

Result<InlineStep> ReadInline(StepReader& in) { return InlineStep{HONE_TRY(in.Name("a stage"))}; }

std::string PrintInline(const InlineStep& step) { return "inline " + step.stage; }

Result<void> ApplyInline(const InlineStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  return state.Rewritten(HONE_TRY(InlineStage(state.kernel(), stage)));
}

// ---- cache_read TENSOR -> RESULT for STAGE SCOPE [LAYOUT]

Result<CacheReadStep> ReadCacheRead(StepReader& in) {
  CacheReadStep step;
  step.tensor = HONE_TRY(in.Name("a tensor"));
  HONE_TRY(in.Keyword("->"));
  step.result = HONE_TRY(in.Name("a name for the new stage"));
  HONE_TRY(in.Keyword("for"));
  step.stage = HONE_TRY(in.Name("the stage that reads it"));
  step.scope = HONE_TRY(in.StorageScope());
  step.layout = HONE_TRY(in.OptionalLayout());
  return step;
}

std::string PrintCacheRead(const CacheReadStep& step) {
  return fmt::format("cache_read {} -> {} for {} {}{}", step.tensor, step.result, step.stage, ScopeName(step.scope),
                     LayoutText(step.layout));
}

Result<void> ApplyCacheRead(const CacheReadStep& step, ScheduleState& state) {
  const StageId reader = HONE_TRY(state.FindStage(step.stage));
  const TensorId tensor = HONE_TRY(state.FindTensor(step.tensor));
  const Tensor& source = state.kernel().tensors[tensor];
  if (step.scope == Scope::kConst && (source.kind != TensorKind::kInput || !source.is_const))
    return Refuse(fmt::format("{} is no constant operand: only those are packed ahead of time", source.name));
  HONE_TRY(state.Rewritten(HONE_TRY(CacheRead(state.kernel(), tensor, reader, step.result))));
  const StageId copy = HONE_TRY(state.FindStage(step.result));
  HONE_TRY(CheckLayout(state, copy, step.layout));
  state.schedule(copy).scope = step.scope;
  state.schedule(copy).layout = step.layout;
  return {};
}

std::string FitCacheRead(CacheReadStep& step, const FitContext& context) { return FitLayout(step.layout, context); }

// ---- rfactor STAGE AXIS LANES [of WIDTH] -> RESULT

Result<RfactorStep> ReadRfactor(StepReader& in) {
  RfactorStep step;
  step.stage = HONE_TRY(in.Name("a stage"));
  step.axis = HONE_TRY(in.Name("a reduction axis"));
  step.lanes = HONE_TRY(in.Number());
  if (in.Next() && in.word() == "of") {
    step.width = HONE_TRY(in.Number());
    in.Next();
  }
  if (in.word() != "->") return in.Wrong("\"->\"");
  step.result = HONE_TRY(in.Name("a name for the new stage"));
  return step;
}

std::string PrintRfactor(const RfactorStep& step) {
  const std::string width = step.width > 1 ? fmt::format(" of {}", step.width) : "";
  return fmt::format("rfactor {} {} {}{} -> {}", step.stage, step.axis, step.lanes, width, step.result);
}

Result<void> ApplyRfactor(const RfactorStep& step, ScheduleState& state) {
  const StageId stage = HONE_TRY(state.FindStage(step.stage));
  return state.Rewritten(HONE_TRY(Rfactor(state.kernel(), stage, step.axis, step.lanes, step.result, step.width)));
}

std::string FitRfactor(RfactorStep& step, const FitContext& context) {
  const std::optional<int64_t> extent = TripsOf(context.before, step.stage, step.axis);
  const int64_t donor_lanes = step.lanes;
  while (extent && step.lanes > 1 && step.lanes > CeilDiv(*extent, step.width)) step.lanes /= 2;
  return step.lanes == donor_lanes ? "" : fmt::format("{} has {} elements", step.axis, *extent);
}

}  // namespace

namespace steps {

constinit const StepType kRewrite =
    MakeStepType<RewriteStep, ReadRewrite, PrintRewrite, ApplyRewriteStep, FitRewrite>("rewrite");
constinit const StepType kInline = MakeStepType<InlineStep, ReadInline, PrintInline, ApplyInline>("inline");
constinit const StepType kCacheRead =
    MakeStepType<CacheReadStep, ReadCacheRead, PrintCacheRead, ApplyCacheRead, FitCacheRead>("cache_read");
constinit const StepType kRfactor =
    MakeStepType<RfactorStep, ReadRfactor, PrintRfactor, ApplyRfactor, FitRfactor>("rfactor");

}  // namespace steps
}  // namespace hone
