#include "codegen/rules/default_schedule.h"

#include <algorithm>

#include "codegen/device_kinds.h"
#include "codegen/lower/lower.h"
#include "codegen/rules/schedule_planner.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/op_traits.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/inline_stage.h"
#include "ir/schedule/apply.h"

namespace hone {
namespace {

// Whether every pad() in the body stays inside its tensor: then the stage is a plain copy.
bool PadsNothing(const SchedulePlanner& planner, const Stage& stage) {
  bool inside = true;
  VarTable vars;
  std::vector<VarId> axes;
  for (const Axis& axis : stage.axes) axes.push_back(vars.AddLoop(axis.name, planner.Extent(axis)));
  Walk(stage.body, [&](const Expr& e) {
    if (e.op() != Op::kPad) return;
    const Expr& load = e.arg(0);
    const Tensor& tensor = planner.kernel().tensors[load.tensor()];
    for (size_t d = 0; d < load.args().size(); ++d) {
      // Plain axis plus a constant is all that a convolution's padding needs.
      const Expr& index = load.arg(d);
      int64_t offset = 0;
      Expr axis = index;
      if (index.op() == Op::kAdd || index.op() == Op::kSub) {
        Expr constant = index.arg(1);
        if (constant.op() != Op::kInt) {
          inside = false;
          return;
        }
        int64_t value = constant.int_value();
        offset = index.op() == Op::kAdd ? value : -value;
        axis = index.arg(0);
      }
      if (axis.op() == Op::kInt) {
        inside &= axis.int_value() + offset >= 0 &&
                  axis.int_value() + offset < LowerExtent(planner.kernel(), tensor.shape[d]);
        continue;
      }
      if (axis.op() != Op::kAxis) {
        inside = false;
        return;
      }
      int64_t extent = planner.Extent(stage, axis.axis());
      inside &= offset >= 0 && extent - 1 + offset < LowerExtent(planner.kernel(), tensor.shape[d]);
    }
  });
  return inside;
}

bool IsElementwise(const Stage& stage) { return stage.reduction == Reduction::kNone; }

// Whether a stage can be inlined without its readers growing for it: one that a body mentions twice is doubled.
bool StaysSmall(const Kernel& kernel, StageId stage, const std::vector<StageId>& readers) {
  constexpr double kSmall = 500;  // some twenty operations of the library
  return std::all_of(readers.begin(), readers.end(), [&](StageId reader) {
    const double apart = kernel.stages[stage].body.nodes() + kernel.stages[reader].body.nodes();
    return NodesOnceInlined(kernel, stage, reader) <= std::max(kSmall, apart);
  });
}

// Inlines what costs nothing to compute where it is read.
void InlineCopies(SchedulePlanner& planner) {
  bool changed = true;
  while (changed) {
    changed = false;
    const IdVector<TensorId, std::vector<StageId>> all_readers = ReadersOfAll(planner.kernel());
    for (StageId id : planner.kernel().stages.ids()) {
      const Stage& stage = planner.kernel().stages[id];
      const Tensor& tensor = planner.kernel().tensors[stage.output];
      if (tensor.kind != TensorKind::kIntermediate || !IsElementwise(stage)) continue;
      bool pads = false, computes = false, is_costly = false;
      Walk(stage.body, [&](const Expr& e) {
        pads |= e.op() == Op::kPad;
        computes |= e.type() != DType::kI64 && TraitsOf(e.op()).cost != OpCost::kFree;
        is_costly |= IsCostly(e.op());
      });
      if (pads && !PadsNothing(planner, stage)) continue;
      const std::vector<StageId>& readers = all_readers[stage.output];
      bool into_elementwise = std::all_of(readers.begin(), readers.end(), [&](StageId reader) {
        return IsElementwise(planner.kernel().stages[reader]);
      });
      // A logarithm for each row is not one for each of its elements. On a GPU it costs no more there, and else a
      // launch.
      auto elements = [&](const Stage& of) {
        double count = 1;
        for (const Axis& axis : of.axes) count *= static_cast<double>(planner.Extent(axis));
        return count;
      };
      const bool is_cpu = planner.machine().block_threads == 0;
      const bool is_repeated = is_cpu && is_costly && std::any_of(readers.begin(), readers.end(), [&](StageId reader) {
                                 return elements(planner.kernel().stages[reader]) > elements(stage);
                               });
      bool cheap = pads || !computes || (into_elementwise && readers.size() == 1 && !is_repeated);
      if (!cheap || !StaysSmall(planner.kernel(), id, readers)) continue;
      if (planner.Inline(tensor.name)) {
        changed = true;
        break;
      }
    }
  }
}

// Runs of axes that every access walks together become one axis: fewer tails, longer vectors.
void CollapseRuns(SchedulePlanner& planner) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (const Stage& stage : planner.kernel().stages) {
      auto try_group = [&](const std::vector<Axis>& axes) {
        for (size_t i = 0; i + 1 < axes.size(); ++i)
          if (planner.Extent(axes[i]) > 1 && planner.Extent(axes[i + 1]) > 1 &&
              planner.Rewrite({"fuse_axes", planner.NameOf(stage), {axes[i].name, axes[i + 1].name}}))
            return true;
        return false;
      };
      if (try_group(stage.axes) || try_group(stage.reduce_axes)) {
        changed = true;
        break;
      }
    }
  }
}

// The position of the first rule that may be tried on a reduction.
size_t FirstRule(SchedulePlanner& planner, const RuleTable& rules, const std::string& stage) {
  std::vector<int64_t> options;
  for (size_t i = 0; i + 1 < rules.reductions.size(); ++i) options.push_back(static_cast<int64_t>(i));
  const auto first = static_cast<size_t>(planner.Choose(
      stage, {"rule", "the first rule tried: 0 contraction, 1 window, 2 rows", Decision::Kind::kAlternative, false},
      std::move(options), 0));
  for (size_t i = 0; i < first; ++i)
    planner.Refuse(rules.reductions[i].name, stage, "left out by a choice of the search");
  return first;
}

void ScheduleReductionStage(SchedulePlanner& planner, const RuleTable& rules, const std::string& stage) {
  for (const ScheduleRule& rule : rules.reductions.subspan(FirstRule(planner, rules, stage)))
    if (rule.schedule(planner, stage)) return;
}

void ScheduleElementwiseStage(SchedulePlanner& planner, const RuleTable& rules, const std::string& name) {
  // It belongs to what it finishes.
  const Stage stage = planner.StageNamed(name);
  for (const AccessPattern& access : planner.AccessesOf(stage)) {
    const Stage* producer = ProducerOf(planner.kernel(), access.tensor);
    if (!producer || producer->reduction == Reduction::kNone) continue;
    const std::string feeding = planner.NameOf(*producer);
    if (planner.IsScheduled(feeding)) continue;
    for (const ScheduleRule& rule : rules.reductions.subspan(FirstRule(planner, rules, feeding)))
      if (rule.finishes && rule.schedule(planner, feeding)) break;
    if (planner.IsScheduled(name)) return;
  }
  for (const ScheduleRule& rule : rules.elementwise)
    if (rule.schedule(planner, name)) return;
}

}  // namespace

namespace {

Plan PlanByRules(SchedulePlanner& planner, const RuleTable& rules) {
  InlineCopies(planner);
  StraightenAccesses(planner);
  CollapseRuns(planner);
  // From the last stage to the first: a rule takes a stage together with what feeds it.
  std::vector<std::string> names;
  for (const Stage& stage : planner.kernel().stages) names.push_back(planner.NameOf(stage));
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    // A rewrite may have taken it away.
    if (!FindStage(planner.kernel(), *name) || planner.IsScheduled(*name)) continue;
    if (planner.StageNamed(*name).reduction != Reduction::kNone)
      ScheduleReductionStage(planner, rules, *name);
    else
      ScheduleElementwiseStage(planner, rules, *name);
  }
  return Plan{planner.schedule(), planner.choices(), planner.notes()};
}

}  // namespace

Result<Plan> PlanSchedule(const Kernel& kernel, const Target& target, const Chooser& chooser) {
  const RuleTable& rules = *HONE_TRY(DeviceKindOf(target))->rules;
  SchedulePlanner planner(kernel, target, chooser);
  return PlanByRules(planner, rules);
}

namespace {

// Bytes of block storage that a launch takes, the most of all; an error where the schedule has no meaning.
Result<int64_t> BlockBytes(const Kernel& kernel, const Schedule& schedule) {
  const LoopProgram program = HONE_TRY(Lower(HONE_TRY(ApplySchedule(kernel, schedule))));
  int64_t most = 0;
  for (const StmtPtr& nest : program.entry) {
    int64_t bytes = 0;
    for (BufferId id : UsedBuffers(program, *nest))
      if (program.buffer(id).scope == Scope::kBlock)
        bytes += program.buffer(id).elements * ByteSize(program.buffer(id).dtype);
    most = std::max(most, bytes);
  }
  return most;
}

// `chooser`, and no copies in block storage.
Chooser WithoutCopies(const Chooser& chooser) {
  return [chooser](const Choice& choice) {
    if (choice.site.ends_with(".share")) return int64_t{0};
    return chooser ? chooser(choice) : choice.preferred;
  };
}

Result<Schedule> ScheduleThatFits(const Kernel& kernel, const Target& target, const Chooser& chooser) {
  Schedule preferred = HONE_TRY(PlanSchedule(kernel, target, chooser)).schedule;
  const MachineModel machine = ModelMachine(target);
  if (machine.block_threads == 0) return preferred;
  const Result<int64_t> bytes = BlockBytes(kernel, preferred);
  if (bytes && *bytes <= machine.block_bytes) return preferred;
  return HONE_TRY(PlanSchedule(kernel, target, WithoutCopies(chooser))).schedule;
}

}  // namespace

Result<Schedule> DefaultSchedule(const Kernel& kernel, const Target& target) {
  return ScheduleThatFits(kernel, target, {});
}

int64_t ChooseModestly(const Choice& choice) {
  return choice.decision.grows_code ? choice.options.front() : choice.preferred;
}

Result<Schedule> ModestSchedule(const Kernel& kernel, const Target& target) {
  return ScheduleThatFits(kernel, target, ChooseModestly);
}

Result<Schedule> PlainSchedule(const Kernel& kernel, const Target& target) {
  HONE_TRY(DeviceKindOf(target));
  SchedulePlanner planner(kernel, target);
  return PlanByRules(planner, kPlainGpuRules).schedule;
}

}  // namespace hone
