#include "ir/steps/layouts.h"

#include <fmt/format.h>

#include <utility>

#include "ir/graph/stage_graph.h"
#include "ir/schedule/check_scheduled.h"
#include "ir/schedule/refuse.h"

namespace hone {
Result<void> CheckLayout(const ScheduleState& state, StageId stage, const std::vector<LayoutDim>& layout) {
  if (layout.empty()) return {};
  const Stage& s = state.stage(stage);
  for (const Axis& axis : s.axes) {
    int whole = 0, quotient = 0, remainder = 0;
    int64_t q = 0, r = 0;
    for (const LayoutDim& dim : layout) {
      if (dim.axis != axis.name) continue;
      if (dim.part == LayoutDim::Part::kWhole) ++whole;
      if (dim.part == LayoutDim::Part::kQuotient) ++quotient, q = dim.factor;
      if (dim.part == LayoutDim::Part::kRemainder) ++remainder, r = dim.factor;
    }
    bool as_whole = whole == 1 && quotient + remainder == 0,
         as_parts = whole == 0 && quotient == 1 && remainder == 1 && q == r;
    if (!as_whole && !as_parts)
      return Refuse(
          fmt::format("the layout must name {} once, or as {}/f and {}%f with one f", axis.name, axis.name, axis.name));
  }
  for (const LayoutDim& dim : layout)
    if (const AxisId axis = FindAxis(s, dim.axis); !axis || s.Reduces(axis))
      return Refuse(
          fmt::format("the layout names {}, which is no axis of {}", dim.axis, StageName(state.scheduled(), stage)));
  for (size_t d = 0; d + 1 < layout.size(); ++d)
    if (layout[d].is_swizzled)
      return Refuse(fmt::format("{} is swizzled, which the last dimension of a layout alone may be", layout[d].axis));
  return {};
}

std::string FitLayout(std::vector<LayoutDim>& layout, const FitContext& context) {
  std::string why;
  for (LayoutDim& dim : layout) {
    if (dim.part == LayoutDim::Part::kWhole) continue;
    auto tile = context.tiles.find({dim.axis, dim.factor});
    if (tile == context.tiles.end() || tile->second == dim.factor) continue;
    if (why.empty()) why = fmt::format("packed for tiles of {}", tile->second);
    dim.factor = tile->second;
  }
  return why;
}

}  // namespace hone
