// Stages without structure to use: vectors along the last axis, workers along the others.
#include <algorithm>
#include <bit>

#include "codegen/schedule_planner.h"
#include "ir/rewrite.h"

namespace hone {

void ScheduleElementwise(SchedulePlanner& planner, const std::string& name) {
  const Stage& stage = planner.StageNamed(name);
  planner.MarkScheduled(name);
  if (stage.axes.empty()) return;
  std::vector<std::string> outer;
  int64_t tasks = 1, points = 1;
  for (size_t i = 0; i + 1 < stage.axes.size(); ++i) {
    outer.push_back(stage.axes[i].name);
    tasks *= planner.Extent(stage.axes[i]);
  }
  std::string last = stage.axes.back().name;
  int64_t extent = planner.Extent(stage.axes.back()), lanes = planner.LanesFor(stage);
  points = tasks * extent;
  lanes = std::min<int64_t>(lanes, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent))));
  int64_t unroll = std::clamp<int64_t>(extent / lanes, 1, 4);
  while (unroll > 1 && extent % (unroll * lanes) != 0) --unroll;
  planner.Split(name, last, {unroll, lanes});
  std::vector<std::string> order = outer;
  order.push_back(last + ".0");
  if (outer.empty()) {
    outer.push_back(last + ".0");
    tasks = (extent + unroll * lanes - 1) / (unroll * lanes);
  }
  order.push_back(last + ".1");
  order.push_back(last + ".2");
  planner.Reorder(name, order);
  double work = 1;
  Walk(stage.body, [&](const Expr& e) { work += e.op() >= Op::kExp && e.op() <= Op::kErf ? 12 : 0.5; });
  planner.Parallelize(name, outer, tasks, static_cast<double>(points) / static_cast<double>(lanes) * work * 2);
  planner.Annotate(StepKind::kUnroll, name, {last + ".1"});
  planner.Annotate(StepKind::kVectorize, name, {last + ".2"});
}

}  // namespace hone
