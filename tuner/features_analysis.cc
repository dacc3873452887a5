// Walks a loop program once and counts what each straight-line body will execute.
#include "tuner/features_analysis.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace hone::features {
namespace {

// Instructions of an elementary function's polynomial, range reduction included (codegen/llvm_math_*.cc).
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
constexpr double kMeanLength = 20;  // of the above, where only their number is known

// Cycles for which a division or square root of one 512-bit vector of f32 keeps its pipe (uops.info: 10 to 19).
constexpr double kDivideCycles = 12;
constexpr double kFmaLatency = 4;
constexpr double kMemoryAccumulateLatency = 9;  // store forwarding on top
constexpr double kLoadLatency = 5;
constexpr double kDivideLatency = 16;
constexpr double kMathLatency = 45;
constexpr double kLaneStepLatency = 6;  // halving a vector: a shuffle and an operation

// From this many copies of a statement on, elementary functions are called (codegen/llvm_values.cc); what a call costs
// beside the function itself, registers saved around it included.
constexpr double kCalledCopies = 6;
constexpr double kCallInstructions = 24;

constexpr int kMaxOpen = 63;  // loops that a dependence mask can tell apart

class Walker {
 public:
  Walker(const LoopProgram& program, const Target& target, Analysis& analysis)
      : program_(program), vars_(program.vars), target_(target), analysis_(analysis),
        position_(static_cast<size_t>(vars_.size()), -1), at_(static_cast<size_t>(vars_.size()), 0),
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
      for (int buffer : open_tiles_at_[n]) node.tile_vectors += tiles_[static_cast<size_t>(buffer)].vectors;
    }
  }

 private:
  struct Open {
    VarId var;
    double trips;
    int node;  // −1: part of the body
  };
  struct Tile {
    double vectors = 0;
    int64_t lane_step = 0;  // elements from lane to lane as written; 0: scalars
  };
  using Mask = uint64_t;  // of open loops

  Node& Here() { return analysis_.nodes[static_cast<size_t>(node_)]; }

  static bool HasLoop(const Stmt& stmt) {
    for (const StmtPtr& child : stmt.body) {
      bool runs = child->kind == Stmt::Kind::kLoop && !(child->extent == Linear(1)) &&
                  (child->loop == LoopKind::kSerial || child->loop == LoopKind::kParallel);
      if (runs || HasLoop(*child)) return true;
    }
    return false;
  }

  void Walk(const Stmt& stmt) {
    if (open_tiles_at_.size() < analysis_.nodes.size()) open_tiles_at_.resize(analysis_.nodes.size());
    switch (stmt.kind) {
      case Stmt::Kind::kBlock: return WalkBody(stmt);
      case Stmt::Kind::kRegisters:
        open_tiles_at_[static_cast<size_t>(node_)].push_back(stmt.buffer);
        open_tiles_.push_back(stmt.buffer);
        WalkBody(stmt);
        open_tiles_.pop_back();
        return;
      case Stmt::Kind::kLoop: return WalkLoop(stmt);
      case Stmt::Kind::kStore: return CountStore(stmt);
    }
  }

  static void CollectStores(const Stmt& stmt, std::vector<char>& stored) {
    if (stmt.kind == Stmt::Kind::kStore) stored[static_cast<size_t>(stmt.buffer)] = 1;
    for (const StmtPtr& child : stmt.body) CollectStores(*child, stored);
  }

  void WalkBody(const Stmt& stmt) {
    for (const StmtPtr& child : stmt.body) Walk(*child);
  }

  void WalkLoop(const Stmt& stmt) {
    if (stmt.extent == Linear(1)) return WalkBody(stmt);
    const bool expanded = stmt.loop == LoopKind::kVectorized || (stmt.loop == LoopKind::kUnrolled && !HasLoop(stmt));
    const double trips = AverageExtent(stmt.extent);
    const int outer = node_;
    const int outer_vector = vector_;
    if (!expanded) {
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
      node.executions = node.entries * trips;
      node.grain = stmt.grain;
      node.copies = parent.copies * (stmt.loop == LoopKind::kUnrolled ? trips : 1);
      analysis_.nodes.push_back(std::move(node));
      open_tiles_at_.push_back(open_tiles_);
      stored_.emplace_back(program_.buffers.size(), 0);
      CollectStores(stmt, stored_.back());
    }
    if (open_.size() < kMaxOpen) {
      if (stmt.loop == LoopKind::kVectorized) vector_ = static_cast<int>(open_.size());
      position_[static_cast<size_t>(stmt.var)] = static_cast<int>(open_.size());
      open_.push_back({stmt.var, trips, expanded ? -1 : node_});
      WalkBody(stmt);
      open_.pop_back();
      position_[static_cast<size_t>(stmt.var)] = -1;
    }
    node_ = outer;
    vector_ = outer_vector;
  }

  // ---- index arithmetic

  int64_t Evaluate(VarId id) const {
    const Var& var = vars_[id];
    switch (var.kind) {
      case VarKind::kLoop: return at_[static_cast<size_t>(id)];
      case VarKind::kSize: return var.range.hi;
      case VarKind::kAxis: return Evaluate(var.a);
      case VarKind::kFloorDiv: return FloorDiv(Evaluate(var.a), var.divisor);
      case VarKind::kMin: return std::min(Evaluate(var.a), Evaluate(var.b));
      case VarKind::kMax: return std::max(Evaluate(var.a), Evaluate(var.b));
      case VarKind::kProduct: return Evaluate(var.a) * Evaluate(var.b);
      case VarKind::kOpaque: return var.range.lo > -kUnbounded ? var.range.lo : 0;
    }
    return 0;
  }

  int64_t Evaluate(const Linear& form) const {
    int64_t sum = form.constant();
    for (const Term& term : form.terms()) sum += term.coef * Evaluate(term.var);
    return sum;
  }

  Mask MaskOf(VarId id) {
    const Var& var = vars_[id];
    switch (var.kind) {
      case VarKind::kLoop: return position_[static_cast<size_t>(id)] < 0 ? 0 : Mask{1} << position_[static_cast<size_t>(id)];
      case VarKind::kSize: return 0;
      case VarKind::kOpaque: return var.payload < 0 ? 0 : LoadedMask(*program_.opaque[static_cast<size_t>(var.payload)]);
      default: return MaskOf(var.a) | MaskOf(var.b);
    }
  }

  Mask MaskOf(const Linear& form) {
    Mask mask = 0;
    for (const Term& term : form.terms()) mask |= MaskOf(term.var);
    return mask;
  }

  Mask MaskOf(const std::vector<Linear>& forms) {
    Mask mask = 0;
    for (const Linear& form : forms) mask |= MaskOf(form);
    return mask;
  }

  Mask LoadedMask(const ValueNode& value) {
    Mask mask = MaskOf(value.index) | MaskOf(value.guard);
    for (const ValuePtr& arg : value.args) mask |= LoadedMask(*arg);
    return mask;
  }

  // Mean of the trips, over the values of the loops that it depends on: a tile's loop is shorter at the end of its axis.
  double AverageExtent(const Linear& extent) {
    if (extent.IsConstant()) return static_cast<double>(std::max<int64_t>(1, extent.constant()));
    constexpr int64_t kSamples = 12;  // per loop, evenly spaced with both ends
    std::vector<VarId> loops;
    Mask mask = MaskOf(extent);
    for (size_t p = 0; p < open_.size(); ++p)
      if (mask >> p & 1 && loops.size() < 2) loops.push_back(open_[p].var);
    double sum = 0, count = 0;
    auto visit = [&](const auto& self, size_t i) -> void {
      if (i == loops.size()) {
        sum += static_cast<double>(std::max<int64_t>(0, Evaluate(extent)));
        count += 1;
        return;
      }
      const int64_t last = vars_[loops[i]].range.hi;
      const int64_t samples = std::min(kSamples, last + 1);
      for (int64_t s = 0; s < samples; ++s) {
        at_[static_cast<size_t>(loops[i])] = samples == 1 ? 0 : s * last / (samples - 1);
        self(self, i + 1);
      }
      at_[static_cast<size_t>(loops[i])] = 0;
    };
    visit(visit, 0);
    return std::max(sum / count, 1e-3);
  }

  bool IsDerived(const Linear& form) const {
    for (const Term& term : form.terms()) {
      const Var& var = vars_[term.var];
      if (var.kind == VarKind::kAxis ? IsDerived(var.a) : var.kind != VarKind::kLoop && var.kind != VarKind::kSize) return true;
    }
    return false;
  }

  void AddCoefficients(const Linear& form, int64_t factor, double* step) const {
    for (const Term& term : form.terms()) {
      const Var& var = vars_[term.var];
      if (var.kind == VarKind::kAxis) AddCoefficients(var.a, factor * term.coef, step);
      else if (int p = position_[static_cast<size_t>(term.var)]; p >= 0) step[p] += static_cast<double>(factor * term.coef);
    }
  }

  // What the index moves by per trip of each open loop: exact for linear indices; for others on average, by the widest
  // distance from the first trip among a few.
  void Steps(const Linear& form, double* step) {
    std::fill_n(step, open_.size(), 0.0);
    if (!IsDerived(form)) return AddCoefficients(form, 1, step);
    Mask mask = MaskOf(form);
    const int64_t start = Evaluate(form);
    for (size_t p = 0; p < open_.size(); ++p) {
      if (!(mask >> p & 1)) continue;
      const int64_t last = vars_[open_[p].var].range.hi;
      if (last <= 0) continue;
      double widest = 0;
      for (int64_t i : {int64_t{1}, last / 4, last / 2, last - 1, last}) {
        if (i < 1 || i > last) continue;
        at_[static_cast<size_t>(open_[p].var)] = i;
        double moved = static_cast<double>(Evaluate(form) - start);
        if (std::abs(moved) > std::abs(widest)) widest = moved;
      }
      at_[static_cast<size_t>(open_[p].var)] = 0;
      step[p] = widest / static_cast<double>(last);
    }
  }

  // Elements from lane to lane in the flat buffer; nullopt: not the same for all lanes.
  std::optional<int64_t> LaneStep(const Buffer& buffer, const std::vector<Linear>& index) {
    if (vector_ < 0) return 0;
    const VarId lane = open_[static_cast<size_t>(vector_)].var;
    const int64_t last = vars_[lane].range.hi;
    auto flat = [&](int64_t i) {
      at_[static_cast<size_t>(lane)] = i;
      int64_t offset = 0;
      for (size_t d = 0; d < index.size(); ++d) offset += buffer.strides[d] * Evaluate(index[d]);
      at_[static_cast<size_t>(lane)] = 0;
      return offset;
    };
    const int64_t first = flat(0), step = flat(std::min<int64_t>(1, last)) - first;
    if (flat(last) - first != step * last || flat(last / 2) - first != step * (last / 2)) return std::nullopt;
    return step;
  }

  static double LatencyOf(Op op) {
    if (LengthOf(op) > 1) return kMathLatency;
    return op == Op::kDiv || op == Op::kSqrt || op == Op::kRsqrt ? kDivideLatency : kFmaLatency;
  }

  // Cycles from operands to the value.
  static double PathOf(const ValueNode& value) {
    if (value.op == Op::kInt || value.op == Op::kFloat || value.op == Op::kAxis) return 0;
    if (value.op == Op::kLoad) return kLoadLatency;
    double longest = 0;
    for (const ValuePtr& arg : value.args) longest = std::max(longest, PathOf(*arg));
    return longest + LatencyOf(value.op);
  }

  // ---- operations

  bool IsVector(Mask mask) const { return vector_ >= 0 && mask >> vector_ & 1; }

  // Unrolled copies that differ, of what depends on these loops.
  double Copies(Mask mask) const {
    double copies = 1;
    for (size_t p = open_.size(); p-- > 0 && open_[p].node < 0;)
      if (mask >> p & 1 && static_cast<int>(p) != vector_) copies *= open_[p].trips;
    return copies;
  }

  double ActiveLanes() const { return vector_ < 0 ? 1 : open_[static_cast<size_t>(vector_)].trips; }

  // Hardware operations for a vector of the loop's lanes.
  double Widths(DType type) const {
    if (vector_ < 0) return 1;
    const double lanes = static_cast<double>(std::bit_ceil(static_cast<uint64_t>(ActiveLanes())));
    return std::max(1.0, lanes / target_.Lanes(ByteSize(type)));
  }

  // The loop in whose body something with these dependences is computed: what a loop does not move is done before it.
  int PlaceOf(Mask mask) const {
    int node = node_;
    while (node > 0 && !(mask >> PositionOf(node) & 1)) node = analysis_.nodes[static_cast<size_t>(node)].parent;
    return node;
  }
  int PositionOf(int node) const { return position_[static_cast<size_t>(analysis_.nodes[static_cast<size_t>(node)].var)]; }

  void CountArithmetic(double Operations::*kind, Mask mask, DType type, double copies, double weight = 1) {
    CountAt(node_, kind, mask, type, copies, weight);
  }

  void CountAt(int node, double Operations::*kind, Mask mask, DType type, double copies, double weight) {
    Operations& ops = analysis_.nodes[static_cast<size_t>(node)].ops;
    const bool vector = IsVector(mask);
    const double count = copies * (vector ? Widths(type) : 1);
    ops.*kind += count * weight;
    if (type == DType::kF64) ops.doubles += count;
    if (vector) {
      ops.lanes_issued += count * target_.Lanes(ByteSize(type));
      ops.lanes_used += copies * ActiveLanes();
    } else {
      ops.scalar += count;
    }
    ops.flops += copies * (vector ? ActiveLanes() : 1);
  }

  static double Operations::* KindOf(Op op, DType type) {
    const bool is_float = IsFloat(type);
    switch (op) {
      case Op::kAdd:
      case Op::kSub: return is_float ? &Operations::add : &Operations::integer;
      case Op::kMul: return is_float ? &Operations::multiply : &Operations::integer;
      case Op::kDiv:
      case Op::kSqrt:
      case Op::kRsqrt: return &Operations::divide;
      case Op::kExp:
      case Op::kLog:
      case Op::kTanh:
      case Op::kErf:
      case Op::kPow: return &Operations::transcendental;
      case Op::kFloorDiv:
      case Op::kMod: return &Operations::integer;
      case Op::kCast:
      case Op::kFloor: return &Operations::convert;
      default: return &Operations::compare;
    }
  }

  // Counts what the value takes and returns the loops that it depends on.
  Mask CountValue(const ValueNode& value) {
    switch (value.op) {
      case Op::kInt:
      case Op::kFloat: return 0;
      case Op::kAxis: return MaskOf(value.index);
      case Op::kLoad: return CountLoad(value);
      default: break;
    }
    Mask mask = 0;
    for (const ValuePtr& arg : value.args) mask |= CountValue(*arg);
    // An index as a value is arithmetic only where it varies within the body.
    const DType type = value.type == DType::kBool ? value.args[0]->type : value.type;
    const int place = PlaceOf(mask);
    if (LengthOf(value.op) > 1 && Copies(~Mask{0}) >= kCalledCopies)
      analysis_.nodes[static_cast<size_t>(place)].ops.math_calls += Copies(mask) * (IsVector(mask) ? Widths(type) : 1);
    if (value.op == Op::kLe && value.args[1]->op == Op::kAxis) CountAt(place, &Operations::compare, mask, DType::kI32, Copies(mask), 1);
    else CountAt(place, KindOf(value.op, type), mask, type, Copies(mask), LengthOf(value.op) > 1 ? LengthOf(value.op) / kMeanLength : 1);
    return mask;
  }

  Mask CountLoad(const ValueNode& load) {
    Mask mask = MaskOf(load.index) | MaskOf(load.guard);
    for (const ValuePtr& arg : load.args) mask |= CountValue(*arg);
    for (const auto& [seen, seen_mask] : seen_)
      if (seen->buffer == load.buffer && seen->index == load.index && seen->guard == load.guard) return seen_mask;
    const Buffer& buffer = program_.buffers[static_cast<size_t>(load.buffer)];
    const Mask indexed = mask;
    // What a loop stores changes while it runs.
    for (int node = node_; node > 0; node = analysis_.nodes[static_cast<size_t>(node)].parent)
      if (stored_[static_cast<size_t>(node)][static_cast<size_t>(load.buffer)]) mask |= Mask{1} << PositionOf(node);
    if (buffer.scope == Scope::kRegisters) CountTileRead(load, indexed);
    else if (!CountAccess(load.buffer, load.index, load.guard, mask, false) && node_ > 0) mask |= Mask{1} << PositionOf(node_);
    seen_.emplace_back(&load, mask);
    return mask;
  }

  void CountTileRead(const ValueNode& load, Mask mask) {
    Operations& ops = Here().ops;
    const Tile& tile = tiles_[static_cast<size_t>(load.buffer)];
    const double copies = Copies(mask);
    if (!IsVector(mask)) {
      if (tile.lane_step != 0) ops.shuffle += copies;  // a lane of a vector
      return;
    }
    std::optional<int64_t> step = LaneStep(program_.buffers[static_cast<size_t>(load.buffer)], load.index);
    if (step && *step == tile.lane_step) return;
    // Read across the vectors that it was written in: log2(lanes) shuffles a vector, or lanes put together one by one.
    const double lanes = static_cast<double>(std::bit_ceil(static_cast<uint64_t>(ActiveLanes())));
    ops.shuffle += copies * (tile.lane_step != 0 && step ? std::log2(std::max(2.0, lanes)) * Widths(load.type) : lanes);
  }

  // A guard that is known lane by lane only when the code runs.
  bool HasRuntimeLanes(const std::vector<Linear>& guard) {
    Mask loops = 0;
    for (size_t p = 0; p < open_.size(); ++p)
      if (open_[p].node >= 0) loops |= Mask{1} << p;
    return std::any_of(guard.begin(), guard.end(), [&](const Linear& form) {
      const Mask mask = MaskOf(form);
      return IsVector(mask) && (mask & loops) != 0;
    });
  }

  // A load or store of memory: by lanes, and as an access with its strides. True if it is done before the loop.
  bool CountAccess(int buffer_index, const std::vector<Linear>& index, const std::vector<Linear>& guard, Mask mask, bool is_store) {
    const Buffer& buffer = program_.buffers[static_cast<size_t>(buffer_index)];
    Node& node = Here();
    Operations& ops = node.ops;
    Access access;
    access.buffer = buffer_index;
    access.node = node_;
    access.is_store = is_store;
    access.is_guarded = !guard.empty();
    const size_t rank = index.size(), depth = open_.size();
    access.stride.assign(depth, 0);
    access.step.resize(rank * depth);
    for (const Open& open : open_) {
      access.trips.push_back(open.trips);
      access.loop_node.push_back(open.node);
    }
    for (size_t d = 0; d < rank; ++d) {
      double* step = access.step.data() + d * depth;
      Steps(index[d], step);
      for (size_t p = 0; p < depth; ++p) access.stride[p] += step[p] * static_cast<double>(buffer.strides[d]);
      for (size_t p = 0; p < depth; ++p) step[p] = std::abs(step[p]);
    }

    const Mask index_mask = MaskOf(index);
    const double copies = Copies(is_store ? ~Mask{0} : mask);
    double shuffles = 0;
    access.lanes = LaneAccess::kScalar;
    access.count = copies;
    if (IsVector(index_mask)) {
      std::optional<int64_t> step = LaneStep(buffer, index);
      const double widths = Widths(buffer.dtype);
      if (step == 1) {
        access.lanes = LaneAccess::kContiguous;
        access.count = copies * widths;
      } else if (step && *step > 1 && *step <= 4 && !is_store && !HasRuntimeLanes(guard)) {
        // All of what lies between is loaded, and the lanes are picked out of it.
        access.lanes = LaneAccess::kStrided;
        const double elements = static_cast<double>(std::bit_ceil(static_cast<uint64_t>(ActiveLanes())) * static_cast<uint64_t>(*step));
        const double loads = std::max(1.0, elements / target_.Lanes(ByteSize(buffer.dtype)));
        access.count = copies * loads;
        shuffles = copies * std::max(1.0, loads - widths);
      } else {
        access.lanes = LaneAccess::kGather;
        access.count = copies * ActiveLanes();
      }
    } else if (vector_ >= 0 && !is_store) {
      access.lanes = LaneAccess::kBroadcast;
    }
    const bool partial = access.lanes != LaneAccess::kScalar && access.lanes != LaneAccess::kBroadcast &&
                         std::popcount(static_cast<uint64_t>(ActiveLanes())) != 1;
    const bool masked = !guard.empty() || partial;

    // A load that the innermost loop does not move is done before it, while registers last.
    const bool moves = node_ > 0 && mask >> PositionOf(node_) & 1;
    const double room = target_.VectorRegisters() * 3 / 8.0 - ops.hoisted_load;
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
    const Buffer& buffer = program_.buffers[static_cast<size_t>(stmt.buffer)];
    const ValueNode& value = *stmt.value;
    const bool combines = stmt.combine != Reduction::kNone;
    const bool is_fma = stmt.combine == Reduction::kSum && value.op == Op::kMul && IsFloat(value.type);
    if (is_fma) {
      for (const ValuePtr& arg : value.args) CountValue(*arg);
    } else {
      CountValue(value);
    }
    const Mask index_mask = MaskOf(stmt.index), guard_mask = MaskOf(stmt.guard);
    const double copies = Copies(~Mask{0});
    const bool vector = vector_ >= 0;
    const bool by_lanes = IsVector(index_mask);
    node.vector_lanes = std::max(node.vector_lanes, ActiveLanes());

    node.path += PathOf(value);
    if (combines) {
      const Mask lanes = vector ? Mask{1} << vector_ : 0;
      double Operations::*kind = is_fma ? &Operations::fma : stmt.combine == Reduction::kSum ? KindOf(Op::kAdd, value.type)
                                 : stmt.combine == Reduction::kProd ? KindOf(Op::kMul, value.type) : &Operations::compare;
      if (vector && !by_lanes) {
        // Lanes combined among themselves: the product alone in vectors, then halves.
        const double steps = std::log2(std::max(2.0, ActiveLanes()));
        if (is_fma) CountArithmetic(&Operations::multiply, lanes, value.type, copies);
        CountArithmetic(stmt.combine == Reduction::kSum ? &Operations::add : kind, 0, value.type, copies);
        node.ops.shuffle += copies * steps;
        node.ops.add += copies * (steps + Widths(value.type) - 1);
      } else {
        CountArithmetic(kind, lanes, value.type, copies);
        if (is_fma) node.ops.flops += copies * ActiveLanes();
      }
      const bool carried = node_ > 0 && !(index_mask >> PositionOf(node_) & 1);
      const double accumulators = Copies(index_mask);
      const double halvings = vector && !by_lanes ? std::log2(std::max(2.0, ActiveLanes())) : 0;
      node.path += halvings * kLaneStepLatency + (copies / accumulators - 1) * kFmaLatency;
      if (carried) {
        const double widths = by_lanes ? Widths(buffer.dtype) : 1;
        const double links = copies / accumulators + halvings * kLaneStepLatency / kFmaLatency;
        node.chains += accumulators * widths;
        node.chain_links = std::max(node.chain_links, links);
        node.chain_in_memory |= buffer.scope != Scope::kRegisters;
      }
    }
    if (!stmt.guard.empty() && !IsVector(guard_mask)) node.ops.branch += Copies(guard_mask);

    if (buffer.scope == Scope::kRegisters) {
      Tile& tile = tiles_[static_cast<size_t>(stmt.buffer)];
      tile.vectors = std::max(tile.vectors, Copies(index_mask) * (by_lanes ? Widths(buffer.dtype) : 1));
      if (by_lanes) tile.lane_step = LaneStep(buffer, stmt.index).value_or(0);
      return;
    }
    if (combines) CountAccess(stmt.buffer, stmt.index, stmt.guard, index_mask | guard_mask, false);
    CountAccess(stmt.buffer, stmt.index, stmt.guard, index_mask | guard_mask, true);
    const bool copies_memory = !combines && value.op == Op::kLoad &&
                               program_.buffers[static_cast<size_t>(value.buffer)].scope != Scope::kRegisters;
    if (copies_memory) node.copied_bytes += copies * ActiveLanes() * static_cast<double>(ByteSize(buffer.dtype));
  }

  const LoopProgram& program_;
  const VarTable& vars_;
  const Target& target_;
  Analysis& analysis_;
  std::vector<int> position_;  // by variable: index into open_; −1: not open
  std::vector<int64_t> at_;    // by variable: where index arithmetic is evaluated; 0 between evaluations
  std::vector<Tile> tiles_;    // by buffer
  std::vector<int> open_tiles_;
  std::vector<std::vector<int>> open_tiles_at_;  // by node
  std::vector<Open> open_;
  std::vector<std::pair<const ValueNode*, Mask>> seen_;  // loads of the current statement
  std::vector<std::vector<char>> stored_;                // by node: buffers written inside
  int node_ = 0;
  int nest_ = 0;
  int vector_ = -1;  // index into open_
};

}  // namespace

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
  return Arithmetic() + transcendental * (kMeanLength - 1) + math_calls * kCallInstructions + shuffle + Loads() + Stores() + branch;
}

double BodyCycles::Max() const { return std::max({arithmetic, load, store, shuffle, issue, latency, path}); }

BodyCycles CyclesOf(const Node& node, const Target& target) {
  const Operations& ops = node.ops;
  BodyCycles cycles;
  const double pipes = ops.Arithmetic() + ops.transcendental * (kMeanLength - 1) + ops.math_calls * kCallInstructions / 2;
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

void AnalyzeLoops(const LoopProgram& program, const Target& target, Analysis& analysis) {
  Walker(program, target, analysis).Run();
  double most = -1;
  for (size_t n = 0; n < analysis.nodes.size(); ++n) {
    const Node& node = analysis.nodes[n];
    const double cycles = node.executions * CyclesOf(node, target).Max();
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
    if (buffer.scope == Scope::kDefault) analysis.operand_bytes += static_cast<double>(buffer.elements * ByteSize(buffer.dtype));
}

}  // namespace hone::features
