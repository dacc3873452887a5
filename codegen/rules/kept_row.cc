#include "codegen/rules/kept_row.h"

#include <algorithm>

#include "ir/graph/op_traits.h"
#include "ir/graph/stage_graph.h"
#include "ir/schedule/check_in_output.h"

namespace hone {

namespace {

bool ComputesFunctions(const Stage& stage) {
  bool computes = false;
  Walk(stage.body, [&](const Expr& e) { computes |= IsCostly(e.op()); });
  return computes;
}

}  // namespace

Passed ComputedInPassing(SchedulePlanner& planner, const Stage& reduction, size_t fixed, const std::string& out) {
  constexpr int kOfAFunction = 16;  // registers for an elementary function's constants
  const Kernel& kernel = planner.kernel();
  if (reduction.axes.size() != fixed || reduction.reduce_axes.size() != 1) return {};
  for (const AccessPattern& access : planner.AccessesOf(reduction)) {
    const Stage* made = ProducerOf(kernel, access.tensor);
    if (made == nullptr || made->reduction != Reduction::kNone || made->axes.size() != fixed + 1) continue;
    if (planner.IsScheduled(planner.NameOf(*made)) || !access.IsPlain()) continue;
    const std::vector<StageId> readers = ReadersOf(kernel, made->output);
    const bool is_kept = readers.size() == 2 && std::any_of(readers.begin(), readers.end(), [&](StageId reader) {
                           return planner.NameOf(kernel.stages[reader]) == out;
                         });
    const Passed passed{planner.NameOf(*made), ComputesFunctions(*made)};
    const bool fits = !passed.is_costly || planner.machine().vector_registers > kOfAFunction;
    if (is_kept &&
        planner.ChooseIf(passed.name, {"in_passing", "a row's elements are computed where they are first added up"},
                         fits))
      return passed;
  }
  return {};
}

void ScheduleInPassing(SchedulePlanner& planner, const std::string& name, const std::vector<std::string>& rows,
                       int64_t width, const std::string& part, const std::string& part_loop, const std::string& out,
                       const std::string& loop) {
  planner.ComputeAndKeep(name, part, part_loop, out, loop);
  const std::string along = planner.StageNamed(name).axes.back().name;
  planner.Split(name, along, {width});
  std::vector<std::string> copies = rows;
  copies.push_back(along + ".0");
  std::vector<std::string> all = copies;
  all.push_back(along + ".1");
  planner.Reorder(name, all);
  planner.Unroll(name, copies);
  planner.Vectorize(name, {along + ".1"});
  planner.MarkScheduled(name);
}

void StoreInOutput(SchedulePlanner& planner, const std::string& out, std::span<const std::string> group) {
  const Kernel& kernel = planner.kernel();
  const Stage& output = planner.StageNamed(out);
  for (const std::string& name : group) {
    if (!FindStage(kernel, name)) continue;
    const Stage& stage = planner.StageNamed(name);
    if (!ReasonAgainstOutput(kernel, stage, output).empty()) continue;
    // While functions are computed there is time to fetch the output's lines; of a short row, which stays in the cache
    // either way, they only are not aligned.
    const int64_t row_bytes = planner.Extent(stage.axes.back()) * ByteSize(kernel.tensors[stage.output].dtype);
    if (!planner.ChooseIf(name, {"in_output", "a row's elements are kept in the places of its results"},
                          ComputesFunctions(stage) && row_bytes > planner.machine().l1_bytes / 2))
      continue;
    planner.Store(name, Scope::kOutput);
    return;
  }
}

}  // namespace hone
