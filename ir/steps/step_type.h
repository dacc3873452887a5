// What there is to know about a kind of step: how it is read, printed, applied to a kernel and fitted to another one.
// One row of a table each; the rows stand beside what they name, in graph_steps.cc, loop_steps.cc, storage_steps.cc.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/result.h"
#include "ir/schedule/schedule.h"
#include "ir/steps/fit_context.h"
#include "ir/steps/schedule_state.h"
#include "ir/steps/step_reader.h"

namespace hone {

struct StepType {
  std::string_view verb;  // the first word of its text
  size_t index;           // of its alternative in Step

  Result<Step> (*read)(StepReader& in);  // what follows the verb; what is left over is the caller's to refuse
  std::string (*print)(const Step& step);
  Result<void> (*apply)(const Step& step, ScheduleState& state);

  // Changes the step's numbers to what suits the context's kernel, and says why; "" if they suit it as they are.
  // nullptr: they always do.
  std::string (*fit)(Step& step, const FitContext& context);
  // A step that was refused, with those loops only that there are; nullopt if that is no way. nullptr: it never is.
  std::optional<Step> (*repair)(const Step& step, const StageSchedule& stage);
};

const StepType& TypeOf(const Step& step);
// nullptr: no step begins with that word, nor did any (ir/steps/old_words.h).
const StepType* FindStepType(std::string_view verb);
// All verbs, for messages.
std::string StepVerbs();
// The stage that it applies to.
const std::string& StageOf(const Step& step);

namespace internal {

template <typename S, size_t kAt = 0>
constexpr size_t IndexInStep() {
  if constexpr (std::is_same_v<std::variant_alternative_t<kAt, Step>, S>)
    return kAt;
  else
    return IndexInStep<S, kAt + 1>();
}

}  // namespace internal

// The row of S, from functions that take S itself:
//   Result<S> kRead(StepReader&); std::string kPrint(const S&); Result<void> kApply(const S&, ScheduleState&);
//   std::string kFit(S&, const FitContext&); std::optional<S> kRepair(const S&, const StageSchedule&);
template <typename S, auto kRead, auto kPrint, auto kApply, auto kFit = nullptr, auto kRepair = nullptr>
constexpr StepType MakeStepType(std::string_view verb) {
  StepType type{};
  type.verb = verb;
  type.index = internal::IndexInStep<S>();
  type.read = [](StepReader& in) -> Result<Step> {
    Result<S> step = kRead(in);
    if (!step) return std::move(step).error();
    return Step(*std::move(step));
  };
  type.print = [](const Step& step) { return std::string(kPrint(std::get<S>(step))); };
  type.apply = [](const Step& step, ScheduleState& state) -> Result<void> { return kApply(std::get<S>(step), state); };
  if constexpr (!std::is_null_pointer_v<decltype(kFit)>)
    type.fit = [](Step& step, const FitContext& context) { return kFit(std::get<S>(step), context); };
  if constexpr (!std::is_null_pointer_v<decltype(kRepair)>)
    type.repair = [](const Step& step, const StageSchedule& stage) -> std::optional<Step> {
      if (std::optional<S> repaired = kRepair(std::get<S>(step), stage)) return Step(*std::move(repaired));
      return std::nullopt;
    };
  return type;
}

namespace steps {

extern const StepType kRewrite, kInline, kCacheRead, kRfactor;  // graph_steps.cc
extern const StepType kSplit, kFuse, kReorder, kParallel, kVectorize, kUnroll,
    kBind;                                                                             // loop_steps.cc
extern const StepType kTensorize;                                                      // tensorize_step.cc
extern const StepType kComputeAt, kStore, kRegisterTile, kTail, kPrefetch, kPipeline;  // storage_steps.cc

extern const StepType kOldRegisterTile;  // storage_steps.cc; read alone

}  // namespace steps
}  // namespace hone
