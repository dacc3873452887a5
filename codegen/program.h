// The loop program: what a schedule makes of a kernel. Loops, stores and values over buffers, indices as linear forms;
// every access is inside its buffer by proof or carries the guard that keeps it there. Emitters turn it into code.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ir/apply.h"
#include "ir/linear.h"

namespace hone {

struct Buffer {
  std::string name;
  DType dtype = DType::kF32;
  Scope scope = Scope::kShared;  // kDefault: an operand
  int operand = -1;              // index into Kernel::operands, for operands and their packed copies
  std::vector<int64_t> extents;  // elements per dimension, with room for what runs over; dynamic outermost: its maximum
  std::vector<int64_t> strides;  // elements
  int64_t elements = 0;
  int64_t offset = 0;              // bytes from the start of the shared or the private workspace
  bool written = false;            // by hone_entry
  std::string packed_layout = {};  // kConst: equal texts, equal bytes for equal operands
};

struct ValueNode;
using ValuePtr = std::shared_ptr<const ValueNode>;

// A value at one point of the iteration space.
struct ValueNode {
  Op op;  // kInt, kFloat, kAxis (the linear form index[0] as a number), kLoad, or an operation on args
  DType type;
  int64_t int_value = 0;
  double float_value = 0;
  std::vector<ValuePtr> args;  // kLoad with a guard: args[0] is the fill
  int buffer = -1;             // kLoad
  std::vector<Linear> index;   // kLoad: one per dimension; kAxis: one
  std::vector<Linear> guard;   // kLoad: all must be ≥ 0, or the fill is taken and nothing is read
  int64_t prefetch = 0;        // kLoad of a vector: so many bytes ahead the cache is told to fetch; 0: it is not
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;

struct Stmt {
  enum class Kind : uint8_t { kBlock = 1, kLoop, kStore, kRegisters };
  Kind kind = Kind::kBlock;
  std::vector<StmtPtr> body;  // kBlock, kLoop, kRegisters

  // kLoop: for var in begin … extent-1; only serial loops begin elsewhere than at 0
  VarId var = -1;
  Linear begin;
  Linear extent;
  LoopKind loop = LoopKind::kSerial;
  int64_t grain = 1;

  // kStore: buffer[index] = value, or combine(buffer[index], value); only where every guard is ≥ 0
  // kRegisters: `buffer` lives inside the body
  int buffer = -1;
  std::vector<Linear> index;
  std::vector<Linear> guard;
  ValuePtr value;
  Reduction combine = Reduction::kNone;
};

struct LoopProgram {
  Kernel kernel;  // as rewritten; operands and sizes as the caller knows them
  VarTable vars;
  std::vector<Buffer> buffers;
  std::vector<ValuePtr> opaque;   // what an opaque variable stands for, by payload
  std::vector<VarId> size_vars;   // by index into Kernel::sizes; -1: constant
  std::vector<StmtPtr> entry;     // one nest per top-level stage, in order
  std::vector<StmtPtr> pack;      // nests that fill packed constants; each writes one kConst buffer
  int64_t workspace_shared = 0;   // bytes
  int64_t workspace_private = 0;  // bytes per worker
};

// Indices of the buffers that a nest reads or writes.
std::set<int> UsedBuffers(const LoopProgram& program, const Stmt& nest);

// The program as text, for golden tests and `hone schedule --program`.
std::string PrintProgram(const LoopProgram& program);

}  // namespace hone
