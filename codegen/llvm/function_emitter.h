// Emits one nest of a loop program as one function. Parts: loops and stores (llvm_function_emitter.cc), indices and
// pointers (llvm_indices.cc), values (llvm_values.cc), register tiles (llvm_registers.cc).
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "codegen/instructions.h"
#include "codegen/lower/program.h"
#include "codegen/machine_model.h"
#include "ir/target.h"

namespace hone {

class FunctionEmitter {
 public:
  // `bases`: pointer of each buffer (null if the nest does not touch it); `sizes`: values by index into Kernel::sizes.
  FunctionEmitter(const LoopProgram& program, VarTable& vars, const CpuTarget& target, llvm::Function& function,
                  IdVector<BufferId, llvm::Value*> bases, std::vector<llvm::Value*> sizes);

  // The nest; a parallel outermost loop runs from `begin` to `end`. Ends with `ret void`.
  Result<void> Emit(const Stmt& nest, llvm::Value* begin, llvm::Value* end);

  // A value over sizes alone, at the end of a block that has no end yet.
  llvm::Value* EmitIndex(const Linear& over_sizes, llvm::BasicBlock* block);

  static llvm::Type* MemoryType(llvm::LLVMContext& context, DType type);  // bool is a byte

 private:
  // An open loop (or the function itself, scope 0). Values that depend on its counter and outer ones only are computed
  // once, at the anchor; loads that do not depend on it at all, before it.
  struct OpenScope {
    VarId var;
    llvm::Value* counter = nullptr;
    llvm::Instruction* anchor = nullptr;      // insert before: start of the body
    llvm::Instruction* preheader = nullptr;   // insert before: in front of the loop
    bool may_be_empty = false;                // has no trips, for some sizes or places
    llvm::Instruction* first_trip = nullptr;  // see InFrontOfTrips
    bool innermost = false;                   // no serial loop inside
    std::set<BufferId> stored;                // written inside
    std::map<std::tuple<llvm::Value*, int64_t, int64_t>, llvm::Value*> hoisted;  // loads done before the loop
    std::map<VarId, llvm::Value*> atoms;
    std::map<std::pair<BufferId, std::vector<std::pair<VarId, int64_t>>>, llvm::Value*> pointers;
    std::vector<std::pair<llvm::PHINode*, int64_t>> walking;  // pointers, and how far each goes with the counter
  };
  // A form with unrolled counters folded in.
  struct Form {
    Linear runtime;          // over open loops, sizes and what derives from them; holds the constant
    int64_t lane = 0;        // coefficient of the vectorised loop
    bool irregular = false;  // depends on the vectorised loop in another way
    // Irregular, but lane i is at first + places[i]; empty: that is not known.
    Linear first;
    std::vector<int64_t> places;
  };
  // A guard resolved: always on, always off, or by value: per lane (mask) and as a whole (scalar).
  struct Mask {
    bool never = false;
    llvm::Value* scalar = nullptr;  // i1
    llvm::Value* lanes = nullptr;   // <L x i1>
    bool always() const { return !never && !scalar && !lanes; }
  };
  // A vector slot of a register tile: elements offset, offset + stride … in lanes 0 ….
  struct Slot {
    llvm::Value* value = nullptr;
    int64_t stride = 0;
    int lanes = 0;  // 0: a scalar
    int count = 1;  // lanes in use
  };
  struct Tile {
    std::map<int64_t, Slot> slots;     // by the offset of lane 0
    std::map<int64_t, int64_t> owner;  // element -> slot
  };

  // llvm_function_emitter.cc
  Result<void> EmitStmt(const Stmt& stmt);
  Result<void> EmitLoop(const Stmt& stmt);
  // `runs`: at least once.
  Result<void> EmitRuntimeLoop(const Stmt& stmt, llvm::Value* begin, llvm::Value* end, bool runs);
  // Where what is read once for all trips is loaded: in front of the loop, but not if it has no trips, since then the
  // element may not be there.
  llvm::Instruction* InFrontOfTrips(OpenScope& scope);
  Result<void> EmitStore(const Stmt& stmt);
  Result<void> StoreToMemory(const Stmt& stmt, const Mask& mask);
  void ForgetStraightLine();
  llvm::Value* Combine(Reduction reduction, llvm::Value* old, llvm::Value* value);
  llvm::Value* Identity(Reduction reduction, llvm::Type* type);
  // old + value with the product in one rounding, where the value is a product.
  Result<llvm::Value*> Accumulate(const Stmt& stmt, llvm::Value* old);
  void ForgetLoads(BufferId buffer);

  // llvm_indices.cc
  Form Resolve(const Linear& e);
  // The form in one lane, with the unrolled loops where they are.
  Linear AtLane(const Linear& e, int lane);
  bool DependsOnLane(VarId var) const;
  size_t DepthOf(VarId var) const;
  size_t DepthOf(const Linear& e) const;
  llvm::Value* AtomValue(VarId var);
  llvm::Value* ScalarIndex(const Linear& runtime);    // i64, at the current place or hoisted
  Result<llvm::Value*> VectorIndex(const Linear& e);  // <L x i64>, any form
  llvm::Value* PointerTo(BufferId buffer, const Linear& runtime, bool* uses_current);  // without the constant
  // start + stride·counter as a pointer that the loop carries. REQUIRES: `start` is computed outside of the loop.
  llvm::Value* Walking(OpenScope& scope, llvm::Value* start, int64_t stride);
  Mask ResolveGuard(const std::vector<Linear>& guard);
  int64_t AlignmentOf(BufferId buffer, const Linear& runtime) const;
  // Which lanes a mask leaves on, its scalar part aside; empty where that is known at run time only, or none is.
  std::vector<bool> KnownLanes(const Mask& mask) const;
  llvm::Value* AllLanes(const Mask& mask);  // <L x i1> of both parts, active lanes only

  // llvm_values.cc
  Result<llvm::Value*> EmitValue(const ValueNode& value);  // vector where it depends on the lane, else scalar
  Result<llvm::Value*> EmitOperation(const ValueNode& value, std::vector<llvm::Value*> args);
  Result<llvm::Value*> EmitCast(const ValueNode& value);
  Result<llvm::Value*> EmitLoad(const ValueNode& load);
  void EmitPrefetch(llvm::Value* address, int64_t bytes_ahead);
  void EmitPrefetchOf(const ValueNode& load, llvm::Value* address);
  Result<llvm::Value*> EmitMemoryLoad(const ValueNode& load);
  // Elements at known places near each other: a load of what lies between the first and the last, and a shuffle.
  // nullptr: they are too far apart for that.
  llvm::Value* EmitPickedLoad(BufferId buffer, const Form& form);
  // A function of x by its long polynomial. Where unrolling would repeat it many times, a call to one copy.
  llvm::Value* EmitLongMath(Op op, bool is_sigmoid, std::vector<llvm::Value*> args);
  llvm::Value* FromMemory(DType type, llvm::Value* loaded);
  llvm::Value* ToMemory(DType type, llvm::Value* value);
  llvm::Type* ValueType(DType type) const;
  llvm::Value* Splat(llvm::Value* scalar);
  llvm::Value* Widen(llvm::Value* value) {
    return value->getType()->isVectorTy() || lanes_ == 0 ? value : Splat(value);
  }

  // emit_instruction.cc
  llvm::Value* LoadOverlapping(llvm::Value* address, int64_t stride);
  Result<llvm::Value*> EmitOperand(const ValueNode& load, int64_t steps);
  Result<void> EmitInstruction(const Stmt& stmt);

  // emit_tiles.cc
  Result<void> EmitOnTiles(const Stmt& stmt);
  // Where a tile is in memory, and the bytes from a row to the next. REQUIRES: the instruction's loops are at their
  // first trip.
  struct TilePlace {
    llvm::Value* base = nullptr;
    int64_t constant = 0;  // elements from there
    llvm::Value* address = nullptr;
    int64_t stride = 0;
  };
  Result<TilePlace> PlaceOf(BufferId buffer, const std::vector<Linear>& index, VarId row);
  Result<int> LoadedTile(const ValueNode& load, VarId row);
  Result<int> TileRegister(BufferId buffer, const std::vector<Linear>& index, bool begins);
  int FreeTile();
  void ConfigureTiles();

  // llvm_registers.cc
  Result<llvm::Value*> ReadTile(BufferId buffer, const std::vector<Linear>& index);
  Result<void> WriteTile(const Stmt& stmt, const Mask& mask);
  using Place = std::pair<const Slot*, int>;  // of an element of a tile: its lane; −1: a scalar
  llvm::Value* PickFromNarrow(DType type, const std::vector<llvm::Value*>& sources, const std::vector<Place>& places);
  Result<llvm::Value*> AccumulateLanes(const Stmt& stmt, llvm::Value* old);
  // A buffer of which an unrolled loop of a reduction broadcasts elements that its next copies want again, more than
  // there are registers for beside the tile; none: there is no such. Read again where they are used, they cost nothing.
  BufferId CrowdingWindow(const Stmt& loop);
  llvm::Value* Unknown(llvm::Value* pointer);  // the same address; nobody knows
  // Offset of lane 0 and the step from lane to lane, in elements of the tile.
  std::vector<int64_t> LaneOffsets(BufferId buffer, const std::vector<Linear>& index);
  Result<std::pair<int64_t, int64_t>> TileOffset(BufferId buffer, const std::vector<Linear>& index);

  const LoopProgram& program_;
  VarTable& vars_;
  const CpuTarget& target_;
  const MachineModel machine_;
  llvm::Function& function_;
  llvm::IRBuilder<> builder_;
  IdVector<BufferId, llvm::Value*> bases_;
  std::vector<llvm::Value*> sizes_;

  std::vector<OpenScope> scopes_;
  std::map<VarId, int64_t> unrolled_;  // counters with a known value
  VarId lane_var_;                     // the vectorised loop that is open; none: scalar code
  int lanes_ = 0;                      // vector length in use, a power of two; 0: scalar code
  int64_t copies_ = 1;                 // of the current statement, by unrolling
  int active_ = 0;                     // lanes that the vectorised loop fills
  std::map<BufferId, Tile> tiles_;
  // What AMX's registers hold: fragments by their first element, and what was loaded last of memory.
  struct TileUse {
    BufferId buffer;  // none: free
    std::optional<int64_t> fragment;
    std::tuple<llvm::Value*, int64_t, int64_t, llvm::Value*> loaded = {};
    int64_t used = 0;  // when
  };
  std::array<TileUse, InstructionMeaning::kTiles> tile_registers_;
  int64_t tile_clock_ = 0;
  bool uses_tiles_ = false;
  std::map<BufferId, std::map<llvm::Value*, llvm::Value*>> read_again_;  // addresses of the current copy
  std::map<std::vector<llvm::Value*>, std::vector<llvm::Value*>> transposed_;
  // Loads of the current straight line of code: buffer, pointer, constant offset, lane coefficient, mask.
  using LoadKey = std::tuple<llvm::Value*, int64_t, int64_t, llvm::Value*>;
  std::map<BufferId, std::map<LoadKey, llvm::Value*>> loads_;
  // Of the statement that is being emitted: operations, by the block that they are in.
  std::map<std::pair<const ValueNode*, const llvm::BasicBlock*>, llvm::Value*> values_;
  std::map<std::pair<llvm::Value*, int>, llvm::Value*> splats_;
  std::map<std::pair<std::vector<std::pair<VarId, int64_t>>, std::pair<int64_t, int64_t>>, llvm::Value*> masks_;
};

}  // namespace hone
