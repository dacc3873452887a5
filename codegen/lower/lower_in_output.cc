// What is stored in the place of an output's elements (Scope::kOutput): whether each trip of the loop that it is
// computed or kept in writes those elements, and no other trip does.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/lower/lower_internal.h"
#include "ir/schedule/check_in_output.h"
#include "ir/schedule/refuse.h"

namespace hone::lowering {

bool Lowering::IsInOutput(StageId stage) const { return scheduled_.stages[stage].scope == Scope::kOutput; }

Result<void> Lowering::CheckInOutput(StageId index, const std::vector<Span>& read) {
  const StageId under = OutputUnder(scheduled_, index);
  auto refuse = [&](std::string_view why) {
    return Refuse(fmt::format("{} is stored in {}, but {}", kernel_.tensors[kernel_.stages[index].output].name,
                              kernel_.tensors[kernel_.stages[under].output].name, why));
  };
  const size_t loop = LoopIndex(under, LoopOfOutput(scheduled_, index));
  const std::vector<Span> written = HONE_TRY(HullOf(index, {under}, VisibleInside(under, loop)));
  for (size_t d = 0; d < written.size(); ++d) {
    const Linear before = program_.vars.ExpandAxes(read[d].min - written[d].min);
    int64_t wanted = read[d].extent;
    if (read[d].min.IsConstant())
      wanted = std::min(wanted, program_.vars.Range(states_[index].axes[AxisId(d)].extent).hi - read[d].min.constant());
    if (!before.IsConstant() || before.constant() < 0 || before.constant() + wanted > written[d].extent)
      return refuse("what is read there is more than what a trip of its loop writes");
  }
  return {};
}

}  // namespace hone::lowering
