// The space of schedules of one kernel on one target: whatever the scheduling rules lead to (codegen/rules/choices.h).
// A candidate is a list of choices together with what came of it: a schedule that applies and lowers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "codegen/lower/lower.h"
#include "codegen/rules/choices.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/kernel.h"
#include "ir/schedule/schedule.h"
#include "ir/target.h"

namespace hone {

struct Candidate {
  std::vector<Choice> choices;
  std::string schedule;         // text form, as builders take it
  uint64_t program = 0;         // hash of the lowered program: equal programs are one candidate
  std::vector<float> features;  // ExtractFeatures
};

// Immutable; thread-safe.
class Space {
 public:
  // Decisions that are not to be made: what they are; nullopt for those that are.
  using Pins = std::function<std::optional<int64_t>(const Choice& choice)>;

  // The kernels of models/ have up to 90 operands and operators. Who opens a space thinks about it in its own process:
  // what others may ask for must not cost that more than it has.
  static constexpr uint64_t kMostNodes = 1'000;

  // `kernel`: anything ParseKernel reads; the builders must be given the same text. Errors as ParseKernel, and kLimit
  // beyond kMostNodes.
  static Result<Space> Open(const std::string& kernel, const Target& target, Pins pins = {});

  // Follows the chooser. kInvalid, kLimit: what it leads to does not apply, lower or fit; nothing was compiled.
  Result<Candidate> Make(const Chooser& chooser) const;
  Result<Candidate> Default() const { return Make({}); }
  Result<Candidate> Parse(std::string_view choices) const;  // ParseChoices' text

  // What a plan comes to; without choices if something else than the rules led to it. Errors as Make.
  Result<Candidate> Complete(Plan plan) const;
  // A schedule that did not come from the rules. Errors as Make, and kInvalid for a text that is none.
  Result<Candidate> Read(std::string_view schedule) const;
  // Candidate::program of a schedule's text. Errors as Read.
  Result<uint64_t> ProgramOf(std::string_view schedule) const;

  // Plans take a quarter of a candidate's time, and are often what was there before. Errors as PlanSchedule.
  // Each decision at random.
  Result<Plan> Sample(Rng& rng) const;
  // One or a few decisions of the parent anew, most often by one option up or down.
  Result<Plan> Mutate(const Candidate& parent, Rng& rng) const;
  // Decisions of either parent, stage by stage.
  Result<Plan> Cross(const Candidate& a, const Candidate& b, Rng& rng) const;

  // How many lists of choices there are, counted along the default's decisions: an estimate, since later decisions
  // depend on earlier ones.
  double Size() const;

  const Kernel& kernel() const { return kernel_; }
  const Target& target() const { return target_; }
  double flops() const { return flops_; }  // at the largest sizes

 private:
  Result<Plan> PlanBy(const Chooser& chooser) const;
  Result<Candidate> Complete(Plan plan, const LowerLimits& limits) const;

  Space(Kernel kernel, Target target) : kernel_(std::move(kernel)), target_(std::move(target)) {}

  Kernel kernel_;  // at its sizes
  Target target_;
  LowerLimits limits_;
  Pins pins_;
  double flops_ = 0;
};

}  // namespace hone
