#include "codegen/rules/block_rows.h"

#include <map>
#include <optional>

#include "base/arithmetic.h"
#include "codegen/rules/gpu_planning.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr Decision kStepsAtOnce{
    .name = "unroll", .meaning = "steps of a thread along the row in one piece of code", .grows_code = true};
constexpr int64_t kFewPartials = 32;  // that each thread adds up by itself

class BlockRows {
 public:
  BlockRows(SchedulePlanner& planner, std::string out, std::vector<std::string> group, const RowShape& shape)
      : planner_(planner), out_(std::move(out)), group_(std::move(group)), shape_(shape) {}

  void Emit() {
    // While it still shows that NaN comes through the sum.
    for (const std::string& name : group_)
      if (planner_.StageNamed(name).reduction == Reduction::kMax) planner_.Rewrite({"max_ignore_nan", name});
    ScheduleOut();
    for (auto name = group_.rbegin(); name != group_.rend(); ++name) {
      const Stage stage = planner_.StageNamed(*name);
      if (stage.axes.size() > shape_.rows)
        ScheduleElements(*name);
      else if (IsReduction(stage))
        ScheduleReductionOfRow(*name);
      else
        ScheduleElementwiseNumber(*name);
    }
  }

 private:
  struct Place {
    std::string stage, loop;
    bool operator==(const Place&) const = default;
  };

  std::string RowAxis(const std::string& name) const { return planner_.StageNamed(name).axes[shape_.rows - 1].name; }

  void ScheduleOut() {
    const Stage out = planner_.StageNamed(out_);
    const std::string row = RowAxis(out_);
    planner_.Split(out_, row, {shape_.together});
    std::vector<std::string> blocks = RowLoops(out_);
    blocks.back() = row + ".0";
    if (!shape_.inside.empty()) {
      std::vector<std::string> order = blocks, inside = InsideLoops(out_);
      order.push_back(row + ".1");
      order.insert(order.end(), inside.begin(), inside.end());
      planner_.Reorder(out_, order);
      planner_.Unroll(out_, inside);
    }
    block_ = Fused(planner_, out_, blocks);
    int64_t count = CeilDiv(planner_.Extent(out.axes[shape_.rows - 1]), shape_.together);
    for (size_t axis = 0; axis + 1 < shape_.rows; ++axis)
      if (!shape_.IsInside(axis)) count *= planner_.Extent(out.axes[axis]);
    planner_.MarkScheduled(out_);
    std::vector<std::string> order{block_, row + ".1"};
    if (out.axes.size() == shape_.rows) {
      block_ = BindBlocks(planner_, out_, {{block_, count}});
      planner_.Bind(out_, row + ".1", LaunchAxis::kThreadY);
      places_[out_] = {out_, row + ".1"};
      return;
    }
    const std::string thread = DivideElements(out_, order);
    block_ = BindBlocks(planner_, out_, {{block_, count}});
    planner_.Bind(out_, row + ".1", LaunchAxis::kThreadY);
    places_[out_] = {out_, thread};
  }

  // Loops of a stage along the row: threads side by side, in vectors; `order`: the loops outside of them.
  std::string DivideElements(const std::string& name, std::vector<std::string> order) {
    const Stage stage = planner_.StageNamed(name);
    const std::string along = stage.axes.back().name;
    const int64_t extent = planner_.Extent(stage.axes.back());
    const int64_t width =
        shape_.lanes > 0 ? std::min(shape_.lanes, BitCeil(extent)) : WidthAlong(planner_, stage, stage.last_axis());
    const int64_t at_once = StepsAtOnce(name, CeilDiv(extent, shape_.threads * width));
    planner_.Split(name, along, {at_once, shape_.threads, width});
    order.push_back(along + ".2");
    for (size_t i = shape_.rows; i + 1 < stage.axes.size(); ++i) order.push_back(stage.axes[i].name);
    order.insert(order.end(), {along + ".0", along + ".1", along + ".3"});
    planner_.Reorder(name, order);
    planner_.Bind(name, along + ".2", LaunchAxis::kThreadX);
    planner_.Unroll(name, {along + ".1"});
    planner_.Vectorize(name, {along + ".3"});
    return along + ".2";
  }

  // Of so many steps those whose loads are issued together.
  int64_t StepsAtOnce(const std::string& name, int64_t steps, int64_t most = kStepsOfAThread) {
    int64_t usual = std::min(steps, most);
    while (steps % usual != 0) --usual;
    if (usual < std::min<int64_t>(steps, 3)) usual = std::min({steps, int64_t{4}, most});
    if (shape_.lanes > 0) usual = 1;  // one after the other is as fast, and less code
    std::vector<int64_t> options;
    for (int64_t count : {1, 2, 4, 8})
      if (count <= steps) options.push_back(count);
    return planner_.Choose(name, kStepsAtOnce, std::move(options), usual);
  }

  // What all threads of the block compute once for its rows.
  void ComputeInBlock(const std::string& name) {
    planner_.ComputeAt(name, out_, block_);
    planner_.Store(name, Scope::kBlock);
    planner_.MarkScheduled(name);
  }

  std::vector<std::string> RowLoops(const std::string& name) const {
    std::vector<std::string> loops;
    const Stage stage = planner_.StageNamed(name);
    for (size_t i = 0; i < shape_.rows; ++i)
      if (!shape_.IsInside(i)) loops.push_back(stage.axes[i].name);
    return loops;
  }
  std::vector<std::string> InsideLoops(const std::string& name) const {
    std::vector<std::string> loops;
    for (AxisId axis : shape_.inside) loops.push_back(planner_.StageNamed(name).axis(axis).name);
    return loops;
  }

  void ScheduleElements(const std::string& name) {
    ComputeInBlock(name);
    const std::string row = RowAxis(name);
    const std::string thread = DivideElements(name, RowLoops(name));
    planner_.Bind(name, row, LaunchAxis::kThreadY);
    places_[name] = {name, thread};
  }

  void ScheduleReductionOfRow(const std::string& name) {
    const Stage stage = planner_.StageNamed(name);
    const AxisId axis = DividedAxis(planner_, stage);
    const std::string parts = planner_.FreshName(name + "_parts");
    if (shape_.lanes > 0) {
      const std::string along = stage.axis(axis).name;
      const bool is_divided =
          planner_.Rfactor(name, along, std::min(shape_.lanes, BitCeil(planner_.Extent(stage, axis))), parts);
      ScheduleNumber(name);
      if (is_divided)
        ScheduleLanes(name, parts, along);
      else
        AddUp(name);
      return;
    }
    const int64_t width = WidthAlong(planner_, stage, axis);
    if (shape_.run > 0) return ScheduleRuns(name, parts, stage.axis(axis).name, width);
    if (planner_.Rfactor(name, stage.axis(axis).name, shape_.threads, parts, width)) {
      ScheduleParts(name, parts, stage.axis(axis).name, width);
      if (shape_.threads > kFewPartials) {
        // As many steps for the threads that come between as for each thread after them.
        const int64_t fewer = BitCeil(shape_.threads) >= 256 ? 16 : 8;
        const std::string between = planner_.FreshName(name + "_fewer");
        if (planner_.Rfactor(name, planner_.StageNamed(name).reduce_axes.back().name, fewer, between))
          ScheduleParts(name, between, "", 1);
      }
    }
    ScheduleNumber(name);
    AddUp(name);
  }

  // Runs of threads, each of which reduces its part of the row together; there may be one run.
  void ScheduleRuns(const std::string& name, const std::string& parts, const std::string& along, int64_t width) {
    const int64_t runs = shape_.threads / shape_.run, most = InsideLoops(name).empty() ? kStepsOfAThread : 2;
    if (runs > 1 && planner_.Rfactor(name, along, runs, parts, shape_.run * width)) {
      ComputeInBlock(parts);
      const Stage stage = planner_.StageNamed(parts);
      const std::string row = RowAxis(parts), run = stage.axes.back().name, beside = stage.reduce_axes.back().name;
      planner_.Split(parts, along, {StepsAtOnce(name, planner_.Extent(stage, FindAxis(stage, along)), most)});
      planner_.Split(parts, beside, {shape_.run, width});
      std::vector<std::string> order = RowLoops(parts);
      order.push_back(run);
      for (const Axis& axis : stage.reduce_axes)
        if (axis.name != along && axis.name != beside) order.push_back(axis.name);
      order.insert(order.end(), {along + ".0", beside + ".0"});
      ReduceByLanes(parts, std::move(order), beside + ".1", along + ".1", beside + ".2");
      planner_.Bind(parts, row, LaunchAxis::kThreadY);
      planner_.Bind(parts, run, LaunchAxis::kSubGroupX);
      planner_.RegisterTile(parts, run);
      places_[parts] = {parts, run};
      ScheduleNumber(name);
      AddUp(name);
      return;
    }
    ScheduleNumber(name);
    const Stage stage = planner_.StageNamed(name);
    const int64_t steps = CeilDiv(planner_.Extent(stage, FindAxis(stage, along)), shape_.run * width);
    planner_.Split(name, along, {StepsAtOnce(name, steps, most), shape_.run, width});
    std::vector<std::string> order = RowLoops(name);
    for (const Axis& axis : stage.reduce_axes)
      if (axis.name != along) order.push_back(axis.name);
    order.push_back(along + ".0");
    ReduceByLanes(name, std::move(order), along + ".2", along + ".1", along + ".3");
  }

  // `order`: the loops outside of lanes; inside, `steps` of each and elements `beside` each other.
  void ReduceByLanes(const std::string& name, std::vector<std::string> order, const std::string& lane,
                     const std::string& steps, const std::string& beside) {
    std::vector<std::string> unrolled = InsideLoops(name);
    order.insert(order.end(), {lane, steps});
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    order.push_back(beside);
    planner_.Reorder(name, order);
    planner_.Bind(name, lane, LaunchAxis::kLaneX);
    unrolled.push_back(steps);
    planner_.Unroll(name, unrolled);
    planner_.Vectorize(name, {beside});
  }

  // Partial results of a row in registers of the thread that adds them up, lanes side by side.
  void ScheduleLanes(const std::string& name, const std::string& parts, const std::string& along) {
    const Place place = places_.at(name);
    planner_.ComputeAt(parts, place.stage, place.loop);
    planner_.Store(parts, Scope::kRegisters);
    planner_.MarkScheduled(parts);
    places_[parts] = place;
    const Stage stage = planner_.StageNamed(parts);
    std::vector<std::string> order = RowLoops(parts);
    for (const Axis& axis : stage.reduce_axes)
      if (axis.name != along) order.push_back(axis.name);
    const int64_t at_once = StepsAtOnce(name, planner_.Extent(stage, FindAxis(stage, along)));
    planner_.Split(parts, along, {at_once});
    order.insert(order.end(), {along + ".0", along + ".1"});
    std::vector<std::string> unrolled = InsideLoops(parts);
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    order.push_back(stage.axes.back().name);
    planner_.Reorder(parts, order);
    unrolled.push_back(along + ".1");
    planner_.Unroll(parts, unrolled);
    planner_.Vectorize(parts, {stage.axes.back().name});

    const std::string lane = planner_.StageNamed(name).reduce_axes.back().name;
    std::vector<std::string> adding = RowLoops(name), inside = InsideLoops(name);
    adding.insert(adding.end(), inside.begin(), inside.end());
    adding.push_back(lane);
    planner_.Reorder(name, adding);
    inside.push_back(lane);
    planner_.Unroll(name, inside);
  }

  // A thread for each partial result of each row, which is in a register until it is whole.
  void ScheduleParts(const std::string& name, const std::string& parts, const std::string& along, int64_t width) {
    ComputeInBlock(parts);
    const Stage stage = planner_.StageNamed(parts);
    std::vector<std::string> order = RowLoops(parts);
    const std::string row = order.back(), lane = stage.axes.back().name;
    order.push_back(lane);
    const size_t reduced = stage.reduce_axes.size() - (width > 1 ? 1 : 0);
    std::vector<std::string> unrolled = InsideLoops(parts);
    const int64_t most = unrolled.empty() ? kStepsOfAThread : 2;
    // Of blocks that are one step each, several at once.
    const bool is_one_step = !along.empty() && planner_.Extent(stage, FindAxis(stage, along)) == 1;
    for (size_t i = 0; i < reduced; ++i) {
      const std::string& name_of_axis = stage.reduce_axes[i].name;
      if (name_of_axis == along) continue;
      order.push_back(name_of_axis);
      if (!is_one_step || i + 2 != reduced) continue;
      planner_.Split(parts, name_of_axis, {StepsAtOnce(parts, planner_.Extent(stage.reduce_axes[i]), most)});
      order.back() += ".0";
      order.push_back(name_of_axis + ".1");
      unrolled.push_back(order.back());
    }
    if (!along.empty()) {
      const AxisId axis = FindAxis(stage, along);
      const int64_t at_once = StepsAtOnce(name, planner_.Extent(stage, axis), most);
      planner_.Split(parts, along, {at_once});
      order.insert(order.end(), {along + ".0", along + ".1"});
    }
    const std::vector<std::string> inside = InsideLoops(parts);
    order.insert(order.end(), inside.begin(), inside.end());
    if (width > 1) order.push_back(stage.reduce_axes.back().name);
    planner_.Reorder(parts, order);
    planner_.Bind(parts, row, LaunchAxis::kThreadY);
    planner_.Bind(parts, lane, LaunchAxis::kThreadX);
    planner_.RegisterTile(parts, lane);
    unrolled.push_back(along.empty() ? stage.reduce_axes.back().name : along + ".1");
    planner_.Unroll(parts, unrolled);
    if (width > 1) planner_.Vectorize(parts, {stage.reduce_axes.back().name});
    places_[parts] = {parts, lane};
  }

  // The loop over partial results, which each thread that wants the sum makes.
  void AddUp(const std::string& name) {
    const Stage stage = planner_.StageNamed(name);
    const std::string lane = stage.reduce_axes.back().name;
    const int64_t count = planner_.Extent(stage.reduce_axes.back());
    const int64_t width = count % kStepWidth == 0 && count <= kFewPartials ? kStepWidth : 1;
    planner_.Split(name, lane, {width});
    std::vector<std::string> order = RowLoops(name), unrolled = InsideLoops(name);
    order.push_back(lane + ".0");
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    order.push_back(lane + ".1");
    planner_.Reorder(name, order);
    if (width > 1) unrolled.push_back(lane + ".0");
    planner_.Unroll(name, unrolled);
    planner_.Vectorize(name, {lane + ".1"});
  }

  // A number for each row: in a register of each thread where one stage reads it, else in block storage.
  void ScheduleNumber(const std::string& name) {
    std::optional<Place> place;
    bool is_one = true;
    for (StageId reader : ReadersOf(planner_.kernel(), FindTensor(planner_.kernel(), name))) {
      const Place here = places_.at(planner_.NameOf(planner_.kernel().stages[reader]));
      is_one &= !place || *place == here;
      place = here;
    }
    if (is_one) {
      planner_.ComputeAt(name, place->stage, place->loop);
      planner_.Store(name, Scope::kRegisters);
      planner_.MarkScheduled(name);
      places_[name] = *place;
      return;
    }
    ComputeInBlock(name);
    const std::string row = RowAxis(name);
    planner_.Bind(name, row, LaunchAxis::kThreadY);
    if (IsReduction(planner_.StageNamed(name))) planner_.RegisterTile(name, row);
    places_[name] = {name, row};
  }

  void ScheduleElementwiseNumber(const std::string& name) {
    ScheduleNumber(name);
    planner_.Unroll(name, InsideLoops(name));
  }

  SchedulePlanner& planner_;
  const std::string out_;
  const std::vector<std::string> group_;
  const RowShape shape_;
  std::string block_;                    // the output's loop over blocks
  std::map<std::string, Place> places_;  // where a thread has what it needs for its part of a stage
};

}  // namespace

AxisId DividedAxis(const SchedulePlanner& planner, const Stage& stage) {
  AxisId axis(static_cast<int>(stage.axis_count()) - 1);
  while (axis.index() > stage.axes.size() && planner.Extent(stage, axis) == 1) --axis;
  return axis;
}

int64_t WidthAlong(const SchedulePlanner& planner, const Stage& stage, AxisId axis) {
  int64_t width = kStepWidth;
  auto fit = [&](int64_t number) {
    while (number % width != 0) width /= 2;
  };
  fit(planner.Extent(stage, axis));
  bool reads = false;
  for (const AccessPattern& access : planner.AccessesOf(stage)) {
    if (!access.affine) return 1;
    if (access.strides[axis] == 0) continue;
    reads = true;
    if (access.strides[axis] != 1) return 1;
    if (ByteSize(planner.kernel().tensors[access.tensor].dtype) == 8) width = std::min<int64_t>(width, 2);
    for (AxisId other : stage.axis_ids())
      if (other != axis && planner.Extent(stage, other) > 1) fit(access.strides[other]);
  }
  return reads ? width : 1;
}

void EmitBlockRows(SchedulePlanner& planner, const std::string& out, const std::vector<std::string>& group,
                   const RowShape& shape) {
  BlockRows(planner, out, group, shape).Emit();
}

}  // namespace hone
