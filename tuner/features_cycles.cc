#include "tuner/features_cycles.h"

#include <algorithm>

#include "tuner/features_analysis.h"

namespace hone::features {
namespace {

// Cycles for which a division or square root of one 512-bit vector of f32 keeps its pipe (uops.info: 10 to 19).
constexpr double kDivideCycles = 12;
constexpr double kMemoryAccumulateLatency = 9;  // store forwarding on top
constexpr double kLoadLatency = 5;
constexpr double kDivideLatency = 16;
constexpr double kMathLatency = 45;

double LatencyOf(Op op) {
  if (LengthOf(op) > 1) return kMathLatency;
  return op == Op::kDiv || op == Op::kSqrt || op == Op::kRsqrt ? kDivideLatency : kFmaLatency;
}

}  // namespace

double LengthOf(Op op) {
  switch (op) {
    case Op::kExp: return 16;
    case Op::kLog: return 20;
    case Op::kTanh: return 22;
    case Op::kErf: return 28;
    case Op::kPow: return 60;
    default: return 1;
  }
}

double PathOf(const ValueNode& value) {
  switch (value.kind) {
    case ValueNode::Kind::kConstant:
    case ValueNode::Kind::kIndex: return 0;
    case ValueNode::Kind::kGuard: return kFmaLatency;  // one comparison
    case ValueNode::Kind::kLoad: return kLoadLatency;
    case ValueNode::Kind::kOperation: break;
  }
  double longest = 0;
  for (const ValuePtr& arg : value.args) longest = std::max(longest, PathOf(*arg));
  return longest + LatencyOf(value.op);
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

double Operations::Instructions() const {
  return Arithmetic() + transcendental * (kMeanLength - 1) + math_calls * kCallInstructions + shuffle + Loads() +
         Stores() + branch;
}

double BodyCycles::Max() const { return std::max({arithmetic, load, store, shuffle, issue, latency, path}); }

BodyCycles CyclesOf(const Node& node, const Target& target) {
  const Operations& ops = node.ops;
  BodyCycles cycles;
  const double pipes =
      ops.Arithmetic() + ops.transcendental * (kMeanLength - 1) + ops.math_calls * kCallInstructions / 2;
  const double divider = ops.divide * kDivideCycles * target.VectorBits() / 512;
  cycles.arithmetic = std::max(pipes / 2, divider);
  cycles.load = ops.Loads() / 2;
  cycles.store = ops.Stores();
  cycles.shuffle = ops.shuffle;
  // A broadcast or contiguous load is part of the instruction that uses it, once.
  const double folded = std::min(ops.load[static_cast<size_t>(LaneAccess::kBroadcast)], ops.fma);
  const double loop = node.parent < 0 ? 0 : 2;
  cycles.issue = (ops.Instructions() - folded + loop) / 5 + (node.parent < 0 ? 0 : 0.2);
  cycles.latency = node.chain_links * (node.chain_in_memory ? kMemoryAccumulateLatency : kFmaLatency);
  cycles.path = node.IsInnermost() ? 0 : node.path;
  return cycles;
}

}  // namespace hone::features
