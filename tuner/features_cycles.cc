#include "tuner/features_cycles.h"

#include <algorithm>

#include "ir/graph/op_traits.h"
#include "tuner/features_analysis.h"

namespace hone::features {
namespace {

double LatencyOf(Op op, const MachineModel& machine) {
  const OpCost cost = TraitsOf(op).cost;
  if (cost == OpCost::kElementary) return machine.elementary_latency;
  return cost == OpCost::kDivide || cost == OpCost::kRoot ? machine.divide_latency : machine.fma_latency;
}

}  // namespace

double PathOf(const ValueNode& value, const MachineModel& machine) {
  switch (value.kind) {
    case ValueNode::Kind::kConstant:
    case ValueNode::Kind::kIndex: return 0;
    case ValueNode::Kind::kGuard: return machine.fma_latency;  // one comparison
    case ValueNode::Kind::kLoad: return machine.load_latency;
    case ValueNode::Kind::kOperation: break;
  }
  double longest = 0;
  for (const ValuePtr& arg : value.args) longest = std::max(longest, PathOf(*arg, machine));
  return longest + LatencyOf(value.op, machine);
}

double Operations::Loads() const {
  double sum = 0;
  for (double count : load) sum += count;
  return sum;
}

double Operations::Stores() const {
  double sum = 0;
  for (double count : store) sum += count;
  return sum;
}

double Operations::Instructions(const MachineModel& machine) const {
  return Arithmetic() + transcendental * (kMeanInstructions - 1) + math_calls * machine.call_instructions + shuffle +
         Loads() + Stores() + branch;
}

double BodyCycles::Max() const { return std::max({arithmetic, load, store, shuffle, issue, latency, path}); }

BodyCycles CyclesOf(const Node& node, const MachineModel& machine) {
  const Operations& ops = node.ops;
  BodyCycles cycles;
  const double pipes =
      ops.Arithmetic() + ops.transcendental * (kMeanInstructions - 1) + ops.math_calls * machine.call_instructions / 2;
  const double divider = ops.divide * machine.divide_cycles;
  cycles.arithmetic = std::max(pipes / machine.fma_per_cycle, divider);
  cycles.load = ops.Loads() / machine.loads_per_cycle;
  cycles.store = ops.Stores() / machine.stores_per_cycle;
  cycles.shuffle = ops.shuffle / machine.shuffles_per_cycle;
  // A broadcast or contiguous load is part of the instruction that uses it, once.
  const double folded = std::min(ops.load[static_cast<size_t>(LaneAccess::kBroadcast)], ops.fma);
  const bool is_loop = node.IsLoop();
  const double issued = ops.Instructions(machine) - folded + (is_loop ? machine.loop_instructions : 0);
  cycles.issue = issued / machine.instructions_per_cycle + (is_loop ? machine.loop_trip_cycles : 0);
  cycles.latency = node.chain_links * (node.chain_in_memory ? machine.memory_accumulate_latency : machine.fma_latency);
  cycles.path = node.IsInnermost() ? 0 : node.path;
  return cycles;
}

}  // namespace hone::features
