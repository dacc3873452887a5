// Padding for contractions: terms that a window's padding makes are left out, and what they come to is added at the
// edges (ir/rewrites/trim_padding). On small images they are many: of a 3×3 window over 7×7 elements 18 per cent.
#include <algorithm>

#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/rewrites/trim_padding.h"

namespace hone {

bool ContractionRule::IsTrimmed(AxisId axis, TrimWay way) const {
  return std::any_of(trimmed_.begin(), trimmed_.end(), [&](const PaddedWindow& window) {
    return window.reduce == axis && TrimWayOf(c_, window, tile_) == way;
  });
}

void ContractionRule::TrimPadding() {
  constexpr double kWorthIt = 0.01;
  std::vector<int64_t> options;
  auto option_of = [](TrimWay way) { return static_cast<int64_t>(way); };
  for (const PaddedWindow& window : c_.windows)
    if (const TrimWay way = TrimWayOf(c_, window, tile_); way != TrimWay::kNot) options.push_back(option_of(way));
  if (options.empty()) return;
  options.push_back(option_of(TrimWay::kNot));
  TrimWay preferred = TrimWay::kNot;
  double gain = kWorthIt;
  for (TrimWay way : {TrimWay::kByLoop, TrimWay::kByCopies}) {
    if (std::find(options.begin(), options.end(), option_of(way)) == options.end()) continue;
    if (TrimGain(c_, tile_, way) <= gain) continue;
    gain = TrimGain(c_, tile_, way);
    preferred = way;
  }
  const int64_t most = planner_.Choose(
      pair_.sum,
      {"trim", "terms of padding are left out: 0 not, 1 where a loop can, 2 where copies of its body can, too"},
      std::move(options), option_of(preferred));
  std::vector<std::string> axes;
  std::vector<PaddedWindow> trimmed;
  for (const PaddedWindow& window : c_.windows) {
    const TrimWay way = TrimWayOf(c_, window, tile_);
    if (way == TrimWay::kNot || option_of(way) > most) continue;
    axes.push_back(Name(window.reduce));
    trimmed.push_back(window);
  }
  if (axes.empty()) return;
  const std::string padded = planner_.kernel().tensors[c_.operands[c_.padded].tensor].name;
  const std::string base = planner_.FreshName(pair_.sum + "_whole");
  std::vector<std::string> names = {padded, base};
  names.insert(names.end(), axes.begin(), axes.end());
  if (!planner_.Rewrite({"trim_padding", pair_.sum, std::move(names)})) return;
  trimmed_ = std::move(trimmed);
  whole_ = base;
  planner_.Took("trim", pair_.sum, "windows reach beyond the image: terms of padding are left out");
}

// Beside each register tile its edges; the weights' sums ahead of time.
void ContractionRule::ScheduleEdges() {
  const TrimNames names(whole_);
  ScheduleInRegisters(names.edges);
  ScheduleInRegisters(names.whole);

  // Summed in the order in which the operand lies, a few independent sums at a time; kept in the order of vectors.
  const Stage weights = planner_.StageNamed(names.weights);
  std::vector<std::string> outer, inner;
  std::vector<LayoutDim> layout;
  for (const Axis& axis : weights.axes) {
    if (axis.name != Name(tile_.vector_axis)) layout.push_back(Whole(axis.name));
    const bool is_trimmed = std::any_of(trimmed_.begin(), trimmed_.end(),
                                        [&](const PaddedWindow& window) { return Name(window.reduce) == axis.name; });
    (is_trimmed ? inner : outer).push_back(axis.name);
  }
  layout.push_back(Whole(Name(tile_.vector_axis)));
  planner_.Store(names.weights, Scope::kConst, layout);
  const std::string last = outer.back();
  for (const Axis& axis : weights.reduce_axes) outer.push_back(axis.name);
  outer.insert(outer.end(), inner.begin(), inner.end());
  planner_.Reorder(names.weights, outer);
  if (!weights.reduce_axes.empty()) {
    planner_.RegisterTile(names.weights, last);
    planner_.Unroll(names.weights, inner);
  }
  planner_.MarkScheduled(names.weights);
}

}  // namespace hone
