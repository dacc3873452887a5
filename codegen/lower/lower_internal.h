// State shared by the parts of lowering: regions (lower_regions.cc), values (lower_values.cc), conditions of reductions
// (lower_conditions.cc), bodies that choose by an index (lower_pieces.cc), parts that are kept (lower_kept.cc), what
// lies in the place of an output (lower_in_output.cc), nests (lower.cc).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/lower/lower.h"
#include "codegen/lower/program.h"

namespace hone::lowering {

// Whether a loop stops at the end of its axis by itself. Threads do not, no more than lanes: they run over, so that all
// of them come to every barrier without a condition around what they compute. Nor does what an instruction does.
inline bool StopsAtTheEnd(const LoopDim& loop) {
  if (loop.is_instruction) return false;
  return loop.kind == LoopKind::kSerial || loop.kind == LoopKind::kParallel ||
         (loop.kind == LoopKind::kBound && IsBlockAxis(loop.axis));
}

// One loop of a stage's nest.
struct LoopState {
  VarId var;
  int64_t extent = 1;  // largest
  Linear exact;        // number of trips of an outermost part: derived from the region
  bool reduces = false;
  AxisId axis;  // whose value contains the loop with `coef`; none: a fused loop
  int64_t coef = 0;
};

// One axis of a stage at its place.
struct AxisState {
  VarId var;      // kAxis: absolute coordinate = region_min + local
  Linear origin;  // start of what is stored: over loops that enclose the stage
  Linear min;  // start of the region that is computed: the origin, or further on: what Tail::kPeel cut off, or a part
               // of what is kept
  Linear extent;           // region's extent (constant unless a size is dynamic)
  int64_t kept = 0;        // room for all the parts that are kept; 0: for the region
  int64_t extent_max = 1;  // its largest value
  int64_t padded = 1;      // extent with what unrolled and vectorised loops run over
  Linear local;            // over the stage's own loops
  Linear unshifted;        // the same before Tail::kShift moved the last tile
  int64_t granule = 1;     // span of the unrolled and vectorised loops
  bool shifts = false;     // Tail::kShift moved it
  bool clamps = false;     // serial loops stop at the end: only unrolled and vectorised ones run over
};

struct StageState {
  IdVector<AxisId, AxisState> axes;
  std::vector<LoopState> loops;  // as StageSchedule::loops
  std::vector<VarId> visible;    // loops that enclose the stage
  BufferId buffer;
  // register_tile: the tile in registers, and the region's start inside the promoted loop
  BufferId tile;
  std::vector<Linear> tile_min;
  // A reduction of `if(condition, term, identity)`: forms that are all ≥ 0 where there is a term. Loops over these
  // alone hold some of them; the others guard the statement.
  bool has_condition = false;
  std::vector<Linear> condition;
  std::vector<bool> held;  // by a loop, per form
};

class Lowering {
 public:
  Lowering(const ScheduledKernel& scheduled, const LowerLimits& limits)
      : scheduled_(scheduled), kernel_(scheduled.kernel), limits_(limits) {}
  Result<LoopProgram> Run();

 private:
  struct Span {
    Linear min;
    int64_t extent;
  };

  // lower_regions.cc
  // A part of a stage's region: per spatial axis where it starts, from the region's start, and how far it goes.
  struct Stretch {
    int64_t start = 0;
    int64_t length = 0;  // 0: all of the axis
  };
  using Part = IdVector<AxisId, Stretch>;

  Result<void> PlaceStage(StageId stage);
  // What Tail::kPeel makes of a placed stage's region: whole tiles, and what is left of each peeled axis.
  std::vector<Part> PartsOf(StageId stage) const;
  // Places a stage again, on a part of its region, and what is attached to it, in tiles of its own if `fresh`.
  Result<void> PlacePart(StageId stage, const Part& part, bool fresh);
  Result<void> InferRegion(StageId stage);
  // What readers of a stage want while the visible loops stay where they are: the hull of their accesses, dimension by
  // dimension; empty: nothing.
  Result<std::vector<Span>> HullOf(StageId stage, const std::vector<StageId>& readers,
                                   const std::vector<VarId>& visible);
  void MakeLoops(StageId stage);
  bool KnownBefore(StageId stage, VarId var, size_t loop) const;
  bool ComputesTilesWhole(StageId stage, AxisId axis, int64_t granule) const;
  // In the place of the buffer that the stage has, if it has one.
  Result<void> MakeBuffer(StageId stage);
  Result<void> MakeTile(StageId stage);
  void SetBuffer(BufferId& slot, Buffer buffer);
  // Hull of a form while the visible loops stay fixed and all others run.
  Span Widen(const Linear& e, const std::vector<VarId>& visible);
  Span TileStart(VarId axis, const std::vector<VarId>& visible);
  // Whether a variable is made of visible loops, and whether of hidden ones.
  std::pair<bool, bool> Visibility(VarId var, const std::vector<VarId>& visible) const;
  // Loops of `stage` that enclose the body of its loop number `depth` (inclusive), and what encloses the stage.
  std::vector<VarId> VisibleInside(StageId stage, size_t depth) const;
  size_t LoopIndex(StageId stage, const std::string& path) const;
  Result<void> PlanWorkspace();

  // lower_kept.cc
  // Room, along each dimension, for all parts that are computed one by one and what is read of them. Refused where
  // they are not all that is read.
  Result<std::vector<int64_t>> JoinParts(StageId stage, const std::vector<Span>& part,
                                         const std::vector<Span>& kept) const;
  bool KeepsFrom(StageId stage, size_t loop) const;

  // lower_in_output.cc
  bool IsInOutput(StageId stage) const;
  // `read`: what is read of the stage in a trip of the output's loop. Refused unless that trip writes it all.
  Result<void> CheckInOutput(StageId stage, const std::vector<Span>& read);

  // lower_values.cc
  ValuePtr Node(ValueNode node);
  ValuePtr Constant(DType type, int64_t int_value, double float_value);
  // What of an index is data is a variable that stands for the value; without `loads_data` it is known by its range
  // alone, which asks nothing of where the data lie.
  Result<Linear> IndexForm(StageId stage, const Expr& e, bool loads_data = true);
  // `value`: what it is; nullptr where the range alone is wanted.
  Linear OpaqueIndex(ValuePtr value, const Interval& range);
  ValuePtr ValueOfIndex(Linear form);
  // a / b or a % b where b varies.
  Result<Linear> DynamicQuotient(Op op, const Linear& a, const Linear& b, bool loads_data);
  Result<ValuePtr> MakeValue(StageId stage, const Expr& e);
  Result<ValuePtr> MakeLoad(StageId stage, const Expr& load, const Expr* fill);
  ValuePtr LoadBuffer(BufferId buffer, DType type, std::vector<Linear> index);
  Result<void> GuardInside(std::vector<Linear>& guard, const Linear& index, const Linear& extent);
  // Where element `coordinates` (absolute, per dimension) of a stage's tensor is stored.
  std::vector<Linear> StorageIndex(StageId stage, const std::vector<Linear>& coordinates);
  Linear ExtentForm(const Expr& extent);

  // lower_conditions.cc
  // Takes a stage's condition apart, at its place.
  Result<void> FindCondition(StageId stage);
  // Lets a loop run over what the condition admits, and no further.
  void BoundLoop(StageId stage, size_t loop, Stmt& stmt);
  bool Moves(const Linear& form, VarId loop);
  // Has the load ask for the next panel of what it reads. lower_prefetch.cc.
  void PrefetchNextPanel(StageId stage, ValueNode& load);

  // lower_instruction.cc
  // Number of the first loop that an instruction does; of all loops if none does any.
  size_t InstructionDepth(StageId stage) const;
  Result<const Instruction*> CheckInstruction(StageId stage) const;
  // By how much an offset moves with a loop; nullopt: by more or less from trip to trip.
  std::optional<int64_t> StepOf(const Linear& offset, VarId loop) const;
  Result<void> CheckOperand(const Instruction& instruction, const ValueNode& load, VarId steps, VarId lanes) const;
  Result<void> CheckTile(const Instruction& instruction, const ValueNode& load, bool has_rows,
                         const std::vector<VarId>& loops) const;
  // The instruction on tiles that a stage's register tile is made of; nullptr: it is none.
  const Instruction* OnTiles(StageId stage) const;
  // The instruction of a warp that a stage on a GPU is done by; nullptr: there is none.
  const Instruction* OfWarp(StageId stage) const;
  Result<void> CheckWarpOperand(const Instruction& instruction, const ValueNode& load, bool has_rows,
                                const std::vector<VarId>& loops) const;
  bool IsFragments(BufferId buffer) const { return program_.buffer(buffer).scope == Scope::kFragments; }
  bool DependsOn(VarId id, VarId on) const;
  // The instruction, with the loops that it does.
  Result<StmtPtr> WrapInstruction(StageId stage, StmtPtr loops);
  // Loops over rows and lanes around a store that begins one tile of a sum, or puts it back. On a GPU only the first:
  // who reads the sum finds it in its registers.
  Result<StmtPtr> WrapTile(const Instruction& instruction, StmtPtr loops) const;

  // lower_pieces.cc
  // An axis in pieces: [0, borders[0]), … up to its extent.
  struct Pieces {
    AxisId axis;
    std::vector<int64_t> borders;
  };
  // Where conditions of the body change along an axis.
  std::vector<int64_t> BordersAlong(StageId stage, AxisId axis) const;
  // Those that the loops from `depth` on are built for one by one; nullopt: they are built once.
  std::optional<Pieces> PiecesInside(StageId stage, size_t depth);
  Result<void> BuildPieces(StageId stage, size_t depth, AxisId axis, std::span<const int64_t> borders,
                           std::vector<StmtPtr>& out);
  void RenewLoops(StageId stage, size_t depth);

  // lower_pipeline.cc
  // Puts copies for later trips into the loop's body, ahead of all else, and those for its first trips before it.
  Result<void> CopyAhead(Stmt& loop, const std::vector<StageId>& stages, std::vector<StmtPtr> copies,
                         std::vector<StmtPtr>& out);
  Result<void> CheckAhead(StageId stage, const Stmt& copy) const;

  // lower.cc
  Result<StmtPtr> BuildNest(StageId stage);
  Result<void> BuildLevel(StageId stage, size_t depth, bool initialised, std::vector<StmtPtr>& out);
  Result<void> BuildLoops(StageId stage, size_t depth, bool initialised, std::vector<StmtPtr>& out);
  Result<void> BuildInit(StageId stage, size_t depth, std::vector<StmtPtr>& out, bool into_tile);
  Result<void> BuildAcrossLanes(StageId stage, size_t depth, std::vector<StmtPtr>& out);
  Result<void> BuildWriteBack(StageId stage, size_t depth, std::vector<StmtPtr>& out);
  Result<StmtPtr> BuildLeaf(StageId stage);
  StmtPtr MakeLoop(StageId stage, size_t loop, VarId var);
  // Copies of the spatial loops from `depth` on, around what `leaf` makes with the copied variables.
  Result<void> BuildSpatialCopy(StageId stage, size_t depth, std::vector<StmtPtr>& out,
                                const std::function<Result<StmtPtr>(const std::vector<Linear>& coordinates)>& leaf);
  Result<void> CheckInstructionCount() const;
  Result<std::vector<Linear>> OwnIndex(StageId stage, const std::vector<Linear>& coordinates,
                                       std::vector<Linear>* guard);
  std::vector<Linear> OwnCoordinates(StageId stage) const;

  const ScheduledKernel& scheduled_;
  const Kernel& kernel_;
  const LowerLimits& limits_;
  LoopProgram program_;
  IdVector<StageId, StageState> states_;
  std::map<VarId, LoopKind> loop_kinds_;
  std::set<VarId> thread_loops_;                       // bound to threads
  std::unordered_multimap<uint64_t, ValuePtr> nodes_;  // by hash
  IdVector<TensorId, BufferId> operand_buffers_;       // none: not an operand
};

int64_t CountInstructions(const LoopProgram& program, const Stmt& stmt);

}  // namespace hone::lowering
