// The loop program: what a schedule makes of a kernel. Loops, stores and values over buffers, indices as linear forms;
// every access is inside its buffer by proof or carries the guard that keeps it there. Emitters turn it into code.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/id.h"
#include "ir/graph/linear.h"
#include "ir/schedule/apply.h"

namespace hone {

using BufferId = Id<struct BufferTag>;  // of LoopProgram::buffers

struct Buffer {
  std::string name;
  DType dtype = DType::kF32;
  Scope scope = Scope::kWorkspace;  // kDefault: an operand
  int operand = -1;                 // index into Kernel::operands, for operands and their packed copies
  std::vector<int64_t> extents;  // elements per dimension, with room for what runs over; dynamic outermost: its maximum
  std::vector<int64_t> strides;  // elements
  int64_t elements = 0;
  int64_t offset = 0;              // bytes from the start of the workspace, or of the worker's
  bool written = false;            // by hone_entry
  int64_t slots = 1;               // of a pipeline: dimension 0, by the number of the trip
  std::string packed_layout = {};  // kConst: equal texts, equal bytes for equal operands
  bool is_swizzled = false;        // kBlock: rows of 128 bytes whose parts change places (ir/steps/layouts.h)
};

struct ValueNode;
using ValuePtr = std::shared_ptr<const ValueNode>;

// A value at one point of the iteration space. Fields that a kind does not name are as they are by default; `type` is
// every kind's.
struct ValueNode {
  enum class Kind : uint8_t {
    kConstant = 1,  // float_value where the type is a float, else int_value
    kIndex,         // index[0] as a number, kI64
    kGuard,         // whether index[0] ≥ 0, kBool. Emitters settle it lane by lane, and drop what never holds
    kLoad,          // an element of `buffer` at `index`. With a `guard`: only where it holds; else args[0], the fill
    kOperation,     // `op` on args: neither a literal nor an axis nor a load
  };
  Kind kind = Kind::kConstant;
  DType type = DType::kF32;
  int64_t int_value = 0;       // kConstant
  double float_value = 0;      // kConstant
  Op op = Op::kSelect;         // kOperation
  std::vector<ValuePtr> args;  // kOperation; kLoad with a guard
  BufferId buffer;             // kLoad
  std::vector<Linear> index;   // kLoad: one per dimension; kIndex, kGuard: one
  std::vector<Linear> guard;   // kLoad: holds where all are ≥ 0
  int64_t prefetch = 0;        // kLoad of a vector: so many bytes ahead the cache is told to fetch; 0: it is not
  int64_t prefetch_step = 0;   // not what lies there, but so many elements in each trip, about; 0: what lies there
  Linear prefetch_at;          // from this element of the buffer on

  bool Is(Op operation) const { return kind == Kind::kOperation && op == operation; }
  bool IsConstant() const { return kind == Kind::kConstant; }

  static ValueNode Constant(DType type, int64_t int_value, double float_value);
  static ValueNode Index(Linear form);
  static ValueNode Guard(Linear form);
  static ValueNode Load(DType type, BufferId buffer, std::vector<Linear> index);
  static ValueNode Operation(Op op, DType type, std::vector<ValuePtr> args);
};

struct Instruction;  // codegen/instructions.h

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;

// What a statement says but for its body, which alone is not copied as it is.
struct StmtHead {
  enum class Kind : uint8_t {
    kBlock = 1,  // `body`, one after the other. With `all_threads`: whatever loops of threads enclose it
    kLoop,       // `body` for var = begin … extent − 1. Only serial loops begin elsewhere than at 0
    kStore,      // buffer[index] = value, or combine(buffer[index], value); only where every guard is ≥ 0
    kRegisters,  // `body`, inside of which `buffer` lives: a register tile
    kBarrier,    // no thread of the block goes on before all have come here
    // One instruction, or `body`, which comes to the same: loops around a store. It adds to a register tile, or it
    // begins a fragment with zeros or puts it where it is kept, element by element in its rows and lanes.
    kInstruction,
  };
  Kind kind = Kind::kBlock;

  // kInstruction
  const Instruction* instruction = nullptr;
  std::vector<ValuePtr> operands;  // loads, in the instruction's order; none: it begins a fragment, or puts it back

  bool all_threads = false;  // kBlock: a nest that all threads of a block compute together

  // Of a pipeline; 0: there is none. kBlock: its stores are for so many trips ahead, a group of them; kStore: one of
  // those, which may arrive later; kLoop: a trip begins when the group for it has arrived, so many less one being on
  // their way.
  int64_t ahead = 0;
  // kLoop of a pipeline: products of so many trips may be on their way when the next one begins, those of a group of
  // warps (codegen/instructions.h).
  int64_t behind = 0;

  // kLoop
  VarId var;
  Linear begin;
  Linear extent;
  LoopKind loop = LoopKind::kSerial;
  int64_t grain = 1;  // kParallel: trips that a worker takes at once, at least
  // kBound: the body runs once, where the block's or thread's number along the axis is below the extent; `var` is that
  // number; of lanes and sub-groups: the thread's place in its run of threads along x, or the run's.
  LaunchAxis axis = LaunchAxis::kBlockX;

  BufferId buffer;  // kStore, kRegisters

  // kStore
  std::vector<Linear> index;
  std::vector<Linear> guard;
  ValuePtr value;
  Reduction combine = Reduction::kNone;
  // What it is combined with is not its own value, but those that the other threads of a run of so many have of it. 0:
  // it is its own.
  int64_t across_lanes = 0;
};

struct Stmt : StmtHead {
  std::vector<StmtPtr> body;  // all but kStore and kBarrier

  bool RunsOnce() const { return kind == Kind::kLoop && begin == Linear(0) && extent == Linear(1); }
  // A loop that stays one in the code: neither unrolled nor vectorised, and of more than one trip.
  bool IsRuntimeLoop() const {
    return kind == Kind::kLoop && !RunsOnce() && (loop == LoopKind::kSerial || loop == LoopKind::kParallel);
  }
};

// The same with each statement of the body as `copy` makes it.
template <typename Copy>
StmtPtr CopyOf(const Stmt& stmt, const Copy& copy) {
  auto made = std::make_unique<Stmt>();
  static_cast<StmtHead&>(*made) = stmt;
  for (const StmtPtr& inner : stmt.body) made->body.push_back(copy(*inner));
  return made;
}

// Whether a loop that stays one lies inside the statement.
bool HasRuntimeLoop(const Stmt& stmt);

// Trips of the loop in the statement that is bound to lanes of a run of threads; 0: there is none.
int64_t LanesIn(const Stmt& stmt);
// Threads along x of a loop that is bound to lanes or to runs of them; 0: it is none.
int64_t ThreadsOfRuns(const VarTable& vars, const Stmt& stmt);

struct LoopProgram {
  Kernel kernel;  // as rewritten; operands and sizes as the caller knows them
  VarTable vars;
  IdVector<BufferId, Buffer> buffers;
  std::vector<ValuePtr> opaque;      // what an opaque variable stands for, by payload
  std::vector<VarId> size_vars;      // by index into Kernel::sizes; none: constant
  std::vector<StmtPtr> entry;        // one nest per top-level stage, in order
  std::vector<StmtPtr> pack;         // nests that fill packed constants; each writes one kConst buffer
  int64_t workspace_common = 0;      // bytes
  int64_t workspace_per_worker = 0;  // bytes per worker
  bool for_gpu = false;              // each nest is a launch

  const Buffer& buffer(BufferId id) const { return buffers[id]; }
  bool InRegisters(BufferId id) const { return buffers[id].scope == Scope::kRegisters; }
  // REQUIRES: the variable is of kind kOpaque and of this program.
  const ValueNode& OpaqueValue(const Var& var) const { return *opaque[static_cast<size_t>(var.payload)]; }
  // Elements from the start of the buffer.
  Linear FlatIndex(BufferId id, const std::vector<Linear>& index) const;
};

// Buffers that a nest reads or writes.
std::set<BufferId> UsedBuffers(const LoopProgram& program, const Stmt& nest);

// The program as text, for golden tests and `hone schedule --program`.
// kHashed: the text whose hash stands for a program in stored trials (tuner/space). Its words do not change.
enum class ProgramText : uint8_t { kShown, kHashed };
std::string PrintProgram(const LoopProgram& program, ProgramText form = ProgramText::kShown);

}  // namespace hone
