// What is computed part by part and kept (compute_at … keep): whether the parts are all that is read later, and the
// room that they take.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/lower/lower_internal.h"
#include "ir/schedule/refuse.h"

namespace hone::lowering {

// A part is computed in each trip of the loops between. Along a dimension they are known to be all there is where one
// loop moves them, the outermost of its axis, which makes every one of its trips, by no more than a part at a time.
Result<std::vector<int64_t>> Lowering::JoinParts(StageId index, const std::vector<Span>& part,
                                                 const std::vector<Span>& kept) const {
  const StageSchedule& schedule = scheduled_.stages[index];
  const StageState& reader = states_[schedule.attach_stage];
  auto refuse = [&](std::string_view why) {
    return Refuse(fmt::format("{} is kept inside {}, but {}", kernel_.tensors[kernel_.stages[index].output].name,
                              kernel_.tensors[kernel_.stages[schedule.keep_stage].output].name, why));
  };
  if (part.empty()) return refuse("nothing reads it where it is computed");
  std::vector<int64_t> room;
  for (size_t d = 0; d < part.size(); ++d) {
    const Linear from = program_.vars.ExpandAxes(part[d].min - kept[d].min);
    int64_t reach = part[d].extent;
    if (!from.terms().empty()) {
      const Term& term = from.terms()[0];
      const auto loop = std::find_if(reader.loops.begin(), reader.loops.end(),
                                     [&](const LoopState& each) { return each.var == term.var; });
      if (from.terms().size() > 1 || loop == reader.loops.end() || !loop->axis || !loop->exact.IsConstant())
        return refuse("its parts do not follow each other in one loop");
      const bool is_outermost = std::all_of(reader.loops.begin(), reader.loops.end(), [&](const LoopState& each) {
        return each.axis != loop->axis || each.coef <= loop->coef;
      });
      if (!is_outermost || term.coef < 0 || term.coef > reach) return refuse("its parts have gaps between them");
      reach += term.coef * (loop->extent - 1);
    }
    // Beyond the end of the tensor lanes read what nobody wants: there only has to be room.
    const int64_t end = program_.vars.Range(states_[index].axes[AxisId(d)].extent).hi;
    int64_t wanted = kept[d].extent;
    if (kept[d].min.IsConstant()) wanted = std::min(wanted, end - kept[d].min.constant());
    if (from.constant() != 0 || reach < wanted) return refuse("its parts are not all that is read");
    room.push_back(std::max(reach, kept[d].extent));
  }
  return room;
}

// Whether what is computed in the trips of a loop is kept, so that others want all of them to be made.
bool Lowering::KeepsFrom(StageId stage, size_t loop) const {
  return std::any_of(scheduled_.stages.begin(), scheduled_.stages.end(), [&](const StageSchedule& producer) {
    return producer.keep_stage && producer.attach_stage == stage && LoopIndex(stage, producer.attach_loop) >= loop;
  });
}

}  // namespace hone::lowering
