// Walks a loop program once and counts what each straight-line body will execute.
#include "tuner/features_analysis.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "ir/graph/op_traits.h"
#include "tuner/features_cycles.h"
#include "tuner/features_loops.h"

namespace hone::features {
namespace {

class Walker {
 public:
  Walker(const LoopProgram& program, const MachineModel& machine, Analysis& analysis)
      : program_(program),
        machine_(machine),
        analysis_(analysis),
        open_(program, machine),
        tiles_(program.buffers.size()) {}

  void Run() {
    analysis_.nodes.emplace_back();
    stored_.emplace_back(program_.buffers.size(), 1);
    for (const StmtPtr& nest : program_.entry) {
      nest_ = analysis_.nests++;
      Walk(*nest);
    }
    for (size_t n = 0; n < analysis_.nodes.size(); ++n) {
      Node& node = analysis_.nodes[n];
      for (BufferId buffer : open_tiles_at_[n]) node.tile_vectors += tiles_[buffer].vectors;
    }
  }

 private:
  struct Tile {
    double vectors = 0;
    int64_t lane_step = 0;  // elements from lane to lane as written; 0: scalars
  };
  using Mask = LoopMask;
  using Stored = IdVector<BufferId, char>;  // whether

  // A fragment is a tile that the threads of a warp hold together.
  static bool IsTile(const Buffer& buffer) {
    return buffer.scope == Scope::kRegisters || buffer.scope == Scope::kFragments;
  }

  Node& Here() { return analysis_.nodes[static_cast<size_t>(node_)]; }

  void Walk(const Stmt& stmt) {
    if (open_tiles_at_.size() < analysis_.nodes.size()) open_tiles_at_.resize(analysis_.nodes.size());
    switch (stmt.kind) {
      case Stmt::Kind::kBlock: {
        const bool together = std::exchange(is_together_, is_together_ || stmt.all_threads);
        WalkBody(stmt);
        is_together_ = together;
        return;
      }
      case Stmt::Kind::kInstruction:
        ++instructions_;
        WalkBody(stmt);
        --instructions_;
        return;
      case Stmt::Kind::kRegisters:
        open_tiles_at_[static_cast<size_t>(node_)].push_back(stmt.buffer);
        open_tiles_.push_back(stmt.buffer);
        WalkBody(stmt);
        open_tiles_.pop_back();
        return;
      case Stmt::Kind::kLoop: return WalkLoop(stmt);
      case Stmt::Kind::kStore: return CountStore(stmt);
      case Stmt::Kind::kBarrier: Here().barriers += open_.Copies(~Mask{0}); return;
    }
  }

  static void CollectStores(const Stmt& stmt, Stored& stored) {
    if (stmt.kind == Stmt::Kind::kStore) stored[stmt.buffer] = 1;
    for (const StmtPtr& child : stmt.body) CollectStores(*child, stored);
  }

  void WalkBody(const Stmt& stmt) {
    for (const StmtPtr& child : stmt.body) Walk(*child);
  }

  // That the loops around a node's body have begun.
  double Threads(int n) const {
    double threads = 1;
    for (; n > 0; n = analysis_.nodes[static_cast<size_t>(n)].parent) {
      const Node& node = analysis_.nodes[static_cast<size_t>(n)];
      if (node.IsOfThreads()) threads *= node.trips;
      if (node.is_together) break;
    }
    return threads;
  }

  void WalkLoop(const Stmt& stmt) {
    if (stmt.RunsOnce()) return WalkBody(stmt);
    const bool expanded =
        stmt.loop == LoopKind::kVectorized || (stmt.loop == LoopKind::kUnrolled && !HasRuntimeLoop(stmt));
    const double trips = open_.AverageExtent(stmt.extent - stmt.begin);
    const int outer = node_;
    const bool together = is_together_;
    if (!expanded) {
      is_together_ = false;
      node_ = static_cast<int>(analysis_.nodes.size());
      Node& parent = analysis_.nodes[static_cast<size_t>(outer)];
      parent.children.push_back(node_);
      Node node;
      node.parent = outer;
      node.kind = stmt.loop;
      node.var = stmt.var;
      node.nest = nest_;
      node.trips = trips;
      node.entries = parent.executions;
      node.is_together = together;
      if (together) node.entries /= Threads(outer);
      node.executions = node.entries * trips;
      node.grain = stmt.grain;
      node.axis = stmt.axis;
      node.ahead = stmt.ahead;
      node.copies = parent.copies * (stmt.loop == LoopKind::kUnrolled ? trips : 1);
      analysis_.nodes.push_back(std::move(node));
      open_tiles_at_.push_back(open_tiles_);
      stored_.emplace_back(program_.buffers.size(), 0);
      CollectStores(stmt, stored_.back());
    }
    if (open_.size() < kMaxOpenLoops) {
      open_.Push({stmt.var, trips, expanded ? -1 : node_}, stmt.loop == LoopKind::kVectorized);
      WalkBody(stmt);
      open_.Pop();
    }
    node_ = outer;
    is_together_ = together;
  }

  // The loop in whose body something with these dependences is computed: what a loop does not move is done before it.
  int PlaceOf(Mask mask) const {
    int node = node_;
    while (node > 0 && !(mask & BitOf(node))) node = analysis_.nodes[static_cast<size_t>(node)].parent;
    return node;
  }
  Mask BitOf(int node) const { return open_.BitOf(analysis_.nodes[static_cast<size_t>(node)].var); }

  void CountArithmetic(double Operations::* kind, Mask mask, DType type, double copies, double weight = 1) {
    CountAt(node_, kind, mask, type, copies, weight);
  }

  void CountAt(int node, double Operations::* kind, Mask mask, DType type, double copies, double weight) {
    Operations& ops = analysis_.nodes[static_cast<size_t>(node)].ops;
    const bool vector = open_.IsVector(mask);
    const double count = copies * (vector ? open_.Widths(type) : 1);
    ops.*kind += count * weight;
    if (type == DType::kF64) ops.doubles += count;
    if (vector) {
      ops.lanes_issued += count * machine_.Lanes(ByteSize(type));
      ops.lanes_used += copies * open_.ActiveLanes();
    } else {
      ops.scalar += count;
    }
    AddFlops(ops, copies * (vector ? open_.ActiveLanes() : 1));
  }

  void AddFlops(Operations& ops, double count) {
    ops.flops += count;
    if (instructions_ > 0) ops.instructed += count;
  }

  static double Operations::* KindOf(Op op, DType type) {
    const bool is_float = IsFloat(type);
    switch (TraitsOf(op).cost) {
      case OpCost::kAdd: return is_float ? &Operations::add : &Operations::integer;
      case OpCost::kMultiply: return is_float ? &Operations::multiply : &Operations::integer;
      case OpCost::kIntegerDivide: return &Operations::integer;
      case OpCost::kDivide:
      case OpCost::kRoot: return &Operations::divide;
      case OpCost::kElementary: return &Operations::transcendental;
      case OpCost::kConvert: return &Operations::convert;
      case OpCost::kCompare:
      case OpCost::kFree: break;
    }
    return &Operations::compare;
  }

  // Counts what the value takes and returns the loops that it depends on.
  Mask CountValue(const ValueNode& value) {
    switch (value.kind) {
      case ValueNode::Kind::kConstant: return 0;
      case ValueNode::Kind::kIndex: return open_.MaskOf(value.index);
      case ValueNode::Kind::kGuard: {
        const Mask mask = open_.MaskOf(value.index);
        CountAt(PlaceOf(mask), &Operations::compare, mask, DType::kI32, open_.Copies(mask), 1);
        return mask;
      }
      case ValueNode::Kind::kLoad: return CountLoad(value);
      case ValueNode::Kind::kOperation: break;
    }
    Mask mask = 0;
    for (const ValuePtr& arg : value.args) mask |= CountValue(*arg);
    // An index as a value is arithmetic only where it varies within the body.
    const DType type = value.type == DType::kBool ? value.args[0]->type : value.type;
    const int place = PlaceOf(mask);
    if (IsElementary(value.op) && open_.Copies(~Mask{0}) >= static_cast<double>(machine_.called_copies))
      analysis_.nodes[static_cast<size_t>(place)].ops.math_calls +=
          open_.Copies(mask) * (open_.IsVector(mask) ? open_.Widths(type) : 1);
    CountAt(place, KindOf(value.op, type), mask, type, open_.Copies(mask),
            IsElementary(value.op) ? TraitsOf(value.op).instructions / kMeanInstructions : 1);
    return mask;
  }

  Mask CountLoad(const ValueNode& load) {
    Mask mask = open_.MaskOf(load.index) | open_.MaskOf(load.guard);
    for (const ValuePtr& arg : load.args) mask |= CountValue(*arg);
    for (const auto& [seen, seen_mask] : seen_)
      if (seen->buffer == load.buffer && seen->index == load.index && seen->guard == load.guard) return seen_mask;
    const Buffer& buffer = program_.buffer(load.buffer);
    const Mask indexed = mask;
    // What a loop stores changes while it runs.
    for (int node = node_; node > 0; node = analysis_.nodes[static_cast<size_t>(node)].parent)
      if (stored_[static_cast<size_t>(node)][load.buffer]) mask |= BitOf(node);
    if (IsTile(buffer))
      CountTileRead(load, indexed);
    else if (!CountLoad(load, mask) && node_ > 0)
      mask |= BitOf(node_);
    seen_.emplace_back(&load, mask);
    return mask;
  }

  void CountTileRead(const ValueNode& load, Mask mask) {
    Operations& ops = Here().ops;
    const Tile& tile = tiles_[load.buffer];
    const double copies = open_.Copies(mask);
    if (!open_.IsVector(mask)) {
      if (tile.lane_step != 0) ops.shuffle += copies;  // a lane of a vector
      return;
    }
    std::optional<int64_t> step = open_.LaneStep(load.buffer, load.index);
    if (step && *step == tile.lane_step) return;
    // Read across the vectors that it was written in: log2(lanes) shuffles a vector, or lanes put together one by one.
    const double lanes = static_cast<double>(std::bit_ceil(static_cast<uint64_t>(open_.ActiveLanes())));
    ops.shuffle +=
        copies * (tile.lane_step != 0 && step ? std::log2(std::max(2.0, lanes)) * open_.Widths(load.type) : lanes);
  }

  // A guard that is known lane by lane only when the code runs.
  bool HasRuntimeLanes(const std::vector<Linear>& guard) {
    const Mask loops = open_.RuntimeBits();
    return std::any_of(guard.begin(), guard.end(), [&](const Linear& form) {
      const Mask mask = open_.MaskOf(form);
      return open_.IsVector(mask) && (mask & loops) != 0;
    });
  }

  bool CountLoad(const ValueNode& load, Mask mask) {
    const bool hoisted = CountAccess(load.buffer, load.index, load.guard, mask, false);
    Access& access = analysis_.accesses.back();
    if (access.lanes == LaneAccess::kContiguous && !hoisted) access.prefetch = load.prefetch;
    return hoisted;
  }

  // A load or store of memory: by lanes, and as an access with its strides. True if it is done before the loop.
  bool CountAccess(BufferId id, const std::vector<Linear>& index, const std::vector<Linear>& guard, Mask mask,
                   bool is_store) {
    const Buffer& buffer = program_.buffer(id);
    Node& node = Here();
    Operations& ops = node.ops;
    Access access;
    access.buffer = id;
    access.node = node_;
    access.is_store = is_store;
    access.is_guarded = !guard.empty();
    const size_t rank = index.size(), depth = open_.size();
    access.stride.assign(depth, 0);
    access.step.resize(rank * depth);
    for (const OpenLoops::Loop& open : open_.loops()) {
      access.trips.push_back(open.trips);
      access.loop_node.push_back(open.node);
    }
    for (size_t d = 0; d < rank; ++d) {
      double* step = access.step.data() + d * depth;
      open_.Steps(index[d], step);
      for (size_t p = 0; p < depth; ++p) access.stride[p] += step[p] * static_cast<double>(buffer.strides[d]);
      for (size_t p = 0; p < depth; ++p) step[p] = std::abs(step[p]);
    }

    const Mask index_mask = open_.MaskOf(index);
    const double copies = open_.Copies(is_store ? ~Mask{0} : mask);
    double shuffles = 0;
    access.lanes = LaneAccess::kScalar;
    access.count = copies;
    if (open_.IsVector(index_mask)) {
      std::optional<int64_t> step = open_.LaneStep(id, index);
      const double widths = open_.Widths(buffer.dtype);
      if (step == 1) {
        access.lanes = LaneAccess::kContiguous;
        access.count = copies * widths;
        access.elements = open_.ActiveLanes() / widths;
      } else if (step && *step > 1 && *step <= machine_.widest_lane_stride && !is_store && !HasRuntimeLanes(guard)) {
        // All of what lies between is loaded, and the lanes are picked out of it.
        access.lanes = LaneAccess::kStrided;
        const double elements = static_cast<double>(std::bit_ceil(static_cast<uint64_t>(open_.ActiveLanes())) *
                                                    static_cast<uint64_t>(*step));
        const double loads = std::max(1.0, elements / machine_.Lanes(ByteSize(buffer.dtype)));
        access.count = copies * loads;
        shuffles = copies * std::max(1.0, loads - widths);
      } else {
        access.lanes = LaneAccess::kGather;
        access.count = copies * open_.ActiveLanes();
      }
    } else if (open_.HasVector() && !is_store) {
      access.lanes = LaneAccess::kBroadcast;
    }
    const bool partial = access.lanes != LaneAccess::kScalar && access.lanes != LaneAccess::kBroadcast &&
                         std::popcount(static_cast<uint64_t>(open_.ActiveLanes())) != 1;
    const bool masked = !guard.empty() || partial;

    // A load that the innermost loop does not move is done before it, while registers last.
    const bool moves = node_ > 0 && (mask & BitOf(node_)) != 0;
    const double room = machine_.HoistedLoads() - ops.hoisted_load;
    const bool hoisted = !is_store && !masked && node_ > 0 && !moves && access.count <= room;
    if (hoisted) {
      ops.hoisted_load += access.count;
      analysis_.nodes[static_cast<size_t>(node.parent)].ops.load[static_cast<size_t>(access.lanes)] += access.count;
    } else {
      auto& counts = is_store ? ops.store : ops.load;
      counts[static_cast<size_t>(access.lanes)] += access.count;
      ops.shuffle += shuffles;
      if (masked) (is_store ? ops.masked_store : ops.masked_load) += access.count;
    }
    analysis_.accesses.push_back(std::move(access));
    return hoisted;
  }

  void CountStore(const Stmt& stmt) {
    seen_.clear();
    Node& node = Here();
    const Buffer& buffer = program_.buffer(stmt.buffer);
    const ValueNode& value = *stmt.value;
    const bool combines = stmt.combine != Reduction::kNone;
    const bool is_fma = stmt.combine == Reduction::kSum && value.Is(Op::kMul) && IsFloat(value.type);
    if (is_fma) {
      for (const ValuePtr& arg : value.args) CountValue(*arg);
    } else {
      CountValue(value);
    }
    const Mask index_mask = open_.MaskOf(stmt.index), guard_mask = open_.MaskOf(stmt.guard);
    const bool is_settled = (guard_mask & (open_.RuntimeBits() | open_.VectorBit())) == 0;
    const double copies = open_.Copies(~Mask{0}) * open_.ActiveShare(stmt.guard);
    const bool vector = open_.HasVector();
    const bool by_lanes = open_.IsVector(index_mask);
    node.vector_lanes = std::max(node.vector_lanes, open_.ActiveLanes());

    node.path += PathOf(value, machine_);
    if (combines) {
      const Mask lanes = open_.VectorBit();
      double Operations::* kind = is_fma                             ? &Operations::fma
                                  : stmt.combine == Reduction::kSum  ? KindOf(Op::kAdd, value.type)
                                  : stmt.combine == Reduction::kProd ? KindOf(Op::kMul, value.type)
                                                                     : &Operations::compare;
      if (vector && !by_lanes) {
        // Lanes combined among themselves: the product alone in vectors, then halves.
        const double steps = std::log2(std::max(2.0, open_.ActiveLanes()));
        if (is_fma) CountArithmetic(&Operations::multiply, lanes, value.type, copies);
        CountArithmetic(stmt.combine == Reduction::kSum ? &Operations::add : kind, 0, value.type, copies);
        node.ops.shuffle += copies * steps;
        node.ops.add += copies * (steps + open_.Widths(value.type) - 1);
      } else {
        CountArithmetic(kind, lanes, value.type, copies);
        if (is_fma) AddFlops(node.ops, copies * open_.ActiveLanes());
      }
      const bool carried = node_ > 0 && (index_mask & BitOf(node_)) == 0;
      const double accumulators = open_.Copies(index_mask);
      const double halvings = vector && !by_lanes ? std::log2(std::max(2.0, open_.ActiveLanes())) : 0;
      node.path +=
          halvings * machine_.lane_step_latency + std::max(0.0, copies / accumulators - 1) * machine_.fma_latency;
      if (carried) {
        const double widths = by_lanes ? open_.Widths(buffer.dtype) : 1;
        const double links = copies / accumulators + halvings * machine_.lane_step_latency / machine_.fma_latency;
        node.chains += accumulators * widths;
        node.chain_links = std::max(node.chain_links, links);
        node.chain_in_memory |= !IsTile(buffer);
      }
    }
    if (!is_settled && !open_.IsVector(guard_mask)) node.ops.branch += open_.Copies(guard_mask);

    if (IsTile(buffer)) {
      Tile& tile = tiles_[stmt.buffer];
      tile.vectors = std::max(tile.vectors, open_.Copies(index_mask) * (by_lanes ? open_.Widths(buffer.dtype) : 1));
      if (by_lanes) tile.lane_step = open_.LaneStep(stmt.buffer, stmt.index).value_or(0);
      return;
    }
    // What is accumulated in memory is read and written every time.
    const Mask every_time = node_ > 0 ? BitOf(node_) : 0;
    if (combines) CountAccess(stmt.buffer, stmt.index, stmt.guard, index_mask | guard_mask | every_time, false);
    CountAccess(stmt.buffer, stmt.index, stmt.guard, index_mask | guard_mask, true);
    const bool copies_memory =
        !combines && value.kind == ValueNode::Kind::kLoad && !IsTile(program_.buffer(value.buffer));
    if (copies_memory) node.copied_bytes += copies * open_.ActiveLanes() * static_cast<double>(ByteSize(buffer.dtype));
  }

  const LoopProgram& program_;
  const MachineModel& machine_;
  Analysis& analysis_;
  OpenLoops open_;
  IdVector<BufferId, Tile> tiles_;
  std::vector<BufferId> open_tiles_;
  std::vector<std::vector<BufferId>> open_tiles_at_;     // by node
  std::vector<std::pair<const ValueNode*, Mask>> seen_;  // loads of the current statement
  std::vector<Stored> stored_;                           // by node: buffers written inside
  int node_ = 0;
  int nest_ = 0;
  int instructions_ = 0;      // that enclose this
  bool is_together_ = false;  // all threads of a block compute what comes now, and no loop of it has begun
};

}  // namespace

void AnalyzeLoops(const LoopProgram& program, const MachineModel& machine, Analysis& analysis) {
  Walker(program, machine, analysis).Run();
  double most = -1;
  for (size_t n = 0; n < analysis.nodes.size(); ++n) {
    const Node& node = analysis.nodes[n];
    const double cycles = node.executions * CyclesOf(node, machine).Max();
    if (cycles > most) most = cycles, analysis.hot = static_cast<int>(n);
  }
  if (IsStatic(program.kernel)) {
    analysis.needed_flops = FlopCount(program.kernel);
  } else {
    Kernel largest = program.kernel;
    for (Size& size : largest.sizes) size.lo = size.hi;
    analysis.needed_flops = FlopCount(largest);
  }
  for (const Buffer& buffer : program.buffers)
    if (buffer.scope == Scope::kDefault)
      analysis.operand_bytes += static_cast<double>(buffer.elements * ByteSize(buffer.dtype));
}

}  // namespace hone::features
