// What the default schedule's rules share: the kernel as rewritten so far, the steps so far, and questions about
// accesses. A rule looks at the stage graph, asks, and adds steps.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "codegen/machine_model.h"
#include "codegen/rules/choices.h"
#include "ir/graph/kernel.h"
#include "ir/graph/linear.h"
#include "ir/schedule/schedule.h"
#include "ir/target.h"

namespace hone {

// Where a load goes as the stage's axes move: element offset = Σ strides[axis]·axis + a constant.
struct AccessPattern {
  TensorId tensor;
  IdVector<AxisId, int64_t> strides;                  // in elements
  IdVector<AxisId, bool> uses;                        // the axis appears in some index
  IdVector<AxisId, std::optional<size_t>> dimension;  // of the tensor, if the axis alone indexes it, with step 1
  bool affine = true;

  // Whether all axes that it uses have dimensions of their own.
  bool IsPlain() const;
};

// Decisions of several rules.
inline constexpr Decision kVectors{"vectors", "vectors of the register tile"};
inline constexpr Decision kRows{"rows", "rows of the register tile"};
inline constexpr Decision kUnroll{
    .name = "unroll", .meaning = "steps of the inner loop in one piece of code", .grows_code = true};
inline constexpr Decision kPrefetch{"prefetch",
                                    "bytes ahead of what is read that the caches are told to fetch; 0: they guess"};

class SchedulePlanner {
 public:
  // Without a chooser every decision is as the rules prefer it.
  SchedulePlanner(const Kernel& kernel, const Target& target, const Chooser& chooser = {})
      : kernel_(kernel), machine_(ModelMachine(target)), chooser_(chooser) {}

  const Kernel& kernel() const { return kernel_; }
  const MachineModel& machine() const { return machine_; }
  const Schedule& schedule() const { return schedule_; }
  const std::vector<Choice>& choices() const { return choices_; }

  // Notes that a rule took a stage, or why not; false from Refuse, for rules to return.
  void Took(std::string_view rule, const std::string& stage, std::string_view how) { Note(rule, stage, true, how); }
  bool Refuse(std::string_view rule, const std::string& stage, std::string_view why) {
    Note(rule, stage, false, why);
    return false;
  }
  const std::vector<RuleNote>& notes() const { return notes_; }

  // A decision about a stage: one of the options, of which `preferred` is one or is added. Options may come in any
  // order and repeat.
  int64_t Choose(const std::string& stage, const Decision& decision, std::vector<int64_t> options, int64_t preferred);
  bool ChooseIf(const std::string& stage, const Decision& decision, bool preferred) {
    return Decide(stage, decision, {0, 1}, preferred ? 1 : 0, true) != 0;
  }

  // Rewrites of the graph: applied at once, noted as steps. False: refused, or beyond the kernel's accuracy; nothing
  // changed. Names by value: the kernel they may come from is replaced.
  bool Rewrite(RewriteStep step);               // ir/rewrites/registry.h
  bool Admits(std::string_view rewrite) const;  // the kernel's accuracy
  bool Inline(std::string stage);
  bool Rfactor(std::string stage, std::string axis, int64_t lanes, std::string result, int64_t width = 1);
  bool CacheRead(std::string tensor, std::string result, std::string reader, Scope scope,
                 std::vector<LayoutDim> layout = {});

  // Names that the axes of such a copy would have, one per dimension of the tensor.
  std::vector<std::string> CopyAxes(const std::string& tensor, const std::string& reader) const;

  // Loop steps, noted unchecked. Splits with all factors 1 are made all the same: names stay uniform.
  void Split(const std::string& stage, const std::string& loop, std::vector<int64_t> factors);
  void Fuse(const std::string& stage, const std::vector<std::string>& loops);
  void Reorder(const std::string& stage, const std::vector<std::string>& loops);
  void Unroll(const std::string& stage, const std::vector<std::string>& loops);     // of none: no step
  void Vectorize(const std::string& stage, const std::vector<std::string>& loops);  // of none: no step
  void Tensorize(const std::string& instruction, const std::string& stage, const std::vector<std::string>& loops);
  void Bind(const std::string& stage, const std::string& loop, LaunchAxis axis);
  void ComputeAt(const std::string& stage, const std::string& consumer, const std::string& loop);
  void ComputeAndKeep(const std::string& stage, const std::string& consumer, const std::string& loop,
                      const std::string& keep_stage, const std::string& keep_loop);
  void Store(const std::string& stage, Scope scope, std::vector<LayoutDim> layout = {});
  void RegisterTile(const std::string& stage, const std::string& loop);
  void Pipeline(const std::string& stage, int64_t buffers);
  void SetTail(const std::string& stage, const std::string& axis, Tail tail);
  // REQUIRES: the stage reads the tensor.
  void Prefetch(const std::string& tensor, const std::string& stage, int64_t bytes_ahead);

  // Fuses the named outer loops of a stage and runs them on workers if that pays for `cycles` of work in `tasks` equal
  // parts; returns the loop's name. REQUIRES: they are the stage's outermost loops, in order; at least one.
  std::string Parallelize(const std::string& stage, const std::vector<std::string>& loops, int64_t tasks,
                          double cycles);

  // The element-wise stage that alone reads a stage's tensor, element for element over the same axes, and is not
  // scheduled yet; "" if there is none.
  std::string FinishingStage(const std::string& stage) const;
  // Whether the index of a load along an axis of the stage that made it is the reader's own such axis (or the only
  // element there is).
  bool IndexesInPlace(const Expr& index, const Stage& producer, AxisId axis) const;

  const Stage& StageNamed(const std::string& name) const;
  const std::string& NameOf(const Stage& stage) const { return kernel_.tensors[stage.output].name; }
  std::string FreshName(const std::string& base) const;
  int64_t Extent(const Axis& axis) const { return UpperExtent(kernel_, axis.extent); }
  int64_t Extent(const Stage& stage, AxisId axis) const { return Extent(stage.axis(axis)); }
  std::vector<AccessPattern> AccessesOf(const Stage& stage) const;
  int64_t Bytes(TensorId tensor) const;
  int LanesFor(const Stage& stage) const;  // of the stage's element type
  bool IsScheduled(const std::string& stage) const;
  std::span<const std::string> scheduled() const { return done_; }  // in the order in which they were
  void MarkScheduled(const std::string& stage) { done_.push_back(stage); }

 private:
  // The rewritten kernel in place of this one, by that step.
  bool Take(Result<Kernel> rewritten, Step step);
  int64_t Decide(const std::string& stage, const Decision& decision, std::vector<int64_t> options, int64_t preferred,
                 bool is_flag);
  void Note(std::string_view rule, const std::string& stage, bool applied, std::string_view why);

  Kernel kernel_;
  const MachineModel machine_;
  const Chooser chooser_;
  std::vector<Choice> choices_;
  std::vector<RuleNote> notes_;
  Schedule schedule_;
  std::vector<std::string> done_;
};

}  // namespace hone
