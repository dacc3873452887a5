// Reductions down columns, on GPUs: a row vector times a matrix whose elements lie side by side along the outputs, sums
// down columns. Threads side by side along the outputs read rows of the matrix together; the threads of a block along y
// divide the reduction, and their partial results meet in block storage.
#include <algorithm>
#include <optional>

#include "base/arithmetic.h"
#include "codegen/rules/gpu_planning.h"
#include "codegen/rules/row_group.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr Decision kColumnThreads{"threads_x", "threads of a block along the last axis"};
constexpr Decision kColumnLanes{"lanes", "threads among which a reduction is divided"};
constexpr Decision kColumnSteps{
    .name = "unroll", .meaning = "steps of the inner loop in one piece of code", .grows_code = true};

constexpr int64_t kTermsDownAColumn = 64;
constexpr int64_t kManyColumns = 65536;  // outputs: enough threads without dividing reductions
constexpr int64_t kBlocksWanted = 128;
constexpr int64_t kFewestThreadsX = 8;  // whose vectors are a line of memory
constexpr int64_t kThreadsOfColumns = 256;

struct ColumnShape {
  AxisId last;                 // axis of columns
  AxisId divided;              // of the reduction: the longest
  std::vector<AxisId> inside;  // short axes of outputs for which a thread reads the matrix once
  int64_t width = 1;
  int64_t threads_x = 1, lanes = 1;
};

class ColumnReduction {
 public:
  ColumnReduction(SchedulePlanner& planner, std::string sum, std::string out, ColumnShape shape)
      : planner_(planner), sum_(std::move(sum)), out_(std::move(out)), shape_(std::move(shape)) {}

  bool Divide() {
    parts_ = planner_.FreshName(sum_ + "_parts");
    const Stage sum = planner_.StageNamed(sum_);
    along_ = sum.axis(shape_.divided).name;
    return planner_.Rfactor(sum_, along_, shape_.lanes, parts_);
  }

  void Emit() {
    for (const std::string& name : {out_, sum_, parts_}) planner_.MarkScheduled(name);
    const Stage out = planner_.StageNamed(out_);
    const std::string x = out.axis(shape_.last).name;
    planner_.Split(out_, x, {shape_.threads_x, shape_.width});
    std::vector<std::string> blocks = Outer(out);
    blocks.push_back(x + ".0");
    std::vector<std::string> order = blocks, inside = Inside(out);
    order.push_back(x + ".1");
    order.insert(order.end(), inside.begin(), inside.end());
    order.push_back(x + ".2");
    planner_.Reorder(out_, order);
    int64_t count = CeilDiv(planner_.Extent(out, shape_.last), shape_.threads_x * shape_.width);
    for (AxisId axis = AxisId(0); axis != shape_.last; ++axis)
      if (!IsInside(axis)) count *= planner_.Extent(out, axis);
    const std::string block = BindBlocks(planner_, out_, {{Fused(planner_, out_, blocks), count}});
    planner_.Bind(out_, x + ".1", LaunchAxis::kThreadX);
    planner_.Unroll(out_, inside);
    planner_.Vectorize(out_, {x + ".2"});
    ScheduleSum(x + ".1");
    ScheduleParts(block);
  }

 private:
  bool IsInside(AxisId axis) const {
    return std::find(shape_.inside.begin(), shape_.inside.end(), axis) != shape_.inside.end();
  }
  // Axes that the output, the sum and its parts have alike, by name.
  std::vector<std::string> Outer(const Stage& stage) const {
    std::vector<std::string> names;
    for (AxisId axis = AxisId(0); axis != shape_.last; ++axis)
      if (!IsInside(axis)) names.push_back(stage.axis(axis).name);
    return names;
  }
  std::vector<std::string> Inside(const Stage& stage) const {
    std::vector<std::string> names;
    for (AxisId axis : shape_.inside) names.push_back(stage.axis(axis).name);
    return names;
  }

  void ScheduleSum(const std::string& thread) {
    const Stage sum = planner_.StageNamed(sum_);
    planner_.ComputeAt(sum_, out_, thread);
    planner_.Store(sum_, Scope::kRegisters);
    std::vector<std::string> order = Outer(sum), inside = Inside(sum);
    order.push_back(sum.reduce_axes[0].name);
    order.insert(order.end(), inside.begin(), inside.end());
    order.push_back(sum.axis(shape_.last).name);
    planner_.Reorder(sum_, order);
    planner_.Unroll(sum_, inside);
    planner_.Vectorize(sum_, {order.back()});
  }

  void ScheduleParts(const std::string& block) {
    const Stage parts = planner_.StageNamed(parts_);
    const std::string lane = parts.axes.back().name, x = parts.axis(shape_.last).name;
    planner_.ComputeAt(parts_, out_, block);
    // Lanes outermost: threads side by side write columns side by side.
    std::vector<LayoutDim> layout{{lane, LayoutDim::Part::kWhole, 1, 0}};
    for (const Axis& axis : parts.axes)
      if (axis.name != lane) layout.push_back({axis.name, LayoutDim::Part::kWhole, 1, 0});
    planner_.Store(parts_, Scope::kBlock, std::move(layout));
    planner_.Split(parts_, x, {shape_.threads_x, shape_.width});
    const int64_t steps = planner_.Extent(parts, FindAxis(parts, along_));
    const int64_t at_once = planner_.Choose(sum_, kColumnSteps, {1, 2, 4, 8},
                                            steps % 8 == 0   ? 8
                                            : steps % 4 == 0 ? 4
                                            : steps % 2 == 0 ? 2
                                            : steps >= 16    ? 4
                                                             : 1);
    planner_.Split(parts_, along_, {at_once});
    std::vector<std::string> order = Outer(parts), inside = Inside(parts);
    order.insert(order.end(), {lane, x + ".0", x + ".1"});
    for (const Axis& axis : parts.reduce_axes)
      if (axis.name != along_) order.push_back(axis.name);
    order.insert(order.end(), {along_ + ".0", along_ + ".1"});
    order.insert(order.end(), inside.begin(), inside.end());
    order.push_back(x + ".2");
    planner_.Reorder(parts_, order);
    planner_.Bind(parts_, lane, LaunchAxis::kThreadY);
    planner_.Bind(parts_, x + ".1", LaunchAxis::kThreadX);
    planner_.RegisterTile(parts_, x + ".1");
    std::vector<std::string> unrolled{along_ + ".1"};
    unrolled.insert(unrolled.end(), inside.begin(), inside.end());
    planner_.Unroll(parts_, unrolled);
    planner_.Vectorize(parts_, {x + ".2"});
  }

  SchedulePlanner& planner_;
  const std::string sum_, out_;
  const ColumnShape shape_;
  std::string parts_, along_;
};

}  // namespace

bool ScheduleGpuColumns(SchedulePlanner& planner, const std::string& name) {
  constexpr std::string_view kRule = "columns";
  const Stage stage = planner.StageNamed(name);
  if (stage.axes.empty()) return planner.Refuse(kRule, name, "it is one number");
  const std::optional<AccessPattern> matrix = LargestOperand(planner, stage);
  int64_t terms = 1, outputs = 1;
  for (const Axis& axis : stage.reduce_axes) terms *= planner.Extent(axis);
  for (const Axis& axis : stage.axes) outputs *= planner.Extent(axis);
  if (!matrix || LeastReuse(planner, stage) > kReusedTooLittle)
    return planner.Refuse(kRule, name, "its operands are read again for many outputs");
  if (terms < kTermsDownAColumn || outputs >= kManyColumns)
    return planner.Refuse(kRule, name, "one thread per output makes enough of them");
  ColumnShape shape;
  shape.last = stage.last_axis();
  const int64_t extent = planner.Extent(stage, shape.last);
  if (extent < 4 || !matrix->affine || matrix->strides[shape.last] != 1)
    return planner.Refuse(kRule, name, "what it reduces does not lie side by side along the outputs");
  for (AxisId axis : stage.spatial_ids())
    if (axis != shape.last && !matrix->uses[axis] && planner.Extent(stage, axis) > 1) shape.inside.push_back(axis);
  shape.width = extent % 4 == 0 ? 4 : extent % 2 == 0 ? 2 : 1;
  const int64_t across = outputs / extent, vectors = extent / shape.width;
  const int64_t most = std::min(kThreadsOfColumns, std::max<int64_t>(1, planner.machine().block_threads));
  int64_t threads = std::min<int64_t>(32, BitCeil(vectors));
  while (threads > kFewestThreadsX && CeilDiv(vectors, threads) * across < kBlocksWanted) threads /= 2;
  shape.threads_x = planner.Choose(name, kColumnThreads, {8, 16, 32, 64}, threads);
  for (AxisId axis : stage.reduce_ids())
    if (!shape.divided || planner.Extent(stage, axis) > planner.Extent(stage, shape.divided)) shape.divided = axis;
  const int64_t depth = planner.Extent(stage, shape.divided);
  const int64_t element = ByteSize(planner.kernel().tensors[stage.output].dtype);
  int64_t inside = 1;
  for (AxisId axis : shape.inside) inside *= planner.Extent(stage, axis);
  const auto within = [&](int64_t lanes) {
    const int64_t bytes = lanes * shape.threads_x * shape.width * inside * element;
    return lanes * shape.threads_x <= most && lanes * 2 <= depth && bytes <= planner.machine().block_bytes / 2;
  };
  int64_t lanes = 1;
  while (within(lanes * 2) && vectors * across * lanes < kManyColumns) lanes *= 2;
  std::vector<int64_t> options;
  for (int64_t count : {2, 4, 8, 16, 32})
    if (count <= depth && count * shape.threads_x <= most) options.push_back(count);
  shape.lanes = planner.Choose(name, kColumnLanes, std::move(options), std::max<int64_t>(2, lanes));

  InlineFeeders(planner, name);
  std::string sum = name, out = planner.FinishingStage(name);
  if (out.empty()) {
    out = name;
    sum = planner.FreshName(name + "_sum");
    if (!planner.Rewrite({"cache_write", name, {sum}}))
      return planner.Refuse(kRule, name, "its sum cannot be a stage of its own");
  }
  ColumnReduction reduction(planner, sum, out, shape);
  reduction.Divide();
  planner.Took(kRule, name, "columns side by side by threads along x; those along y divide what is reduced");
  reduction.Emit();
  return true;
}

}  // namespace hone
