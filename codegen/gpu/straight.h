// Straight code: what is left between a loop program for a GPU and text in some dialect of C. One launch per nest;
// loops that stay loops, conditions, barriers; everything else are values and stores of one thread: unrolled, vector or
// scalar accesses decided, guards folded, indices in 32 bits and computed as far out as they can be, register tiles as
// named scalars. codegen/gpu/print_launch writes it as text, codegen/gpu/simt_run executes it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/id.h"
#include "codegen/lower/program.h"
#include "codegen/machine_model.h"
#include "ir/graph/expr.h"

namespace hone::straight {

using ValueId = Id<struct StraightValueTag>;  // of Code::values

// What a value is made by. Types and lanes are those of its arguments unless it says otherwise; integers are i32
// (indices too) and wrap around. Floats of 16 bits and u8 are loaded, stored, packed, chosen and converted, and never
// computed with. What is computed of vectors is computed of each lane (codegen/gpu/pack_lanes).
enum class Do : uint8_t {
  kConstant,  // `number` or `real`
  kThread,    // the thread's number in its block along axis `number`
  kBlock,     // the block's number in the launch
  kSize,      // dynamic size `number`
  kCounter,   // of the kFor that names it
  kArgument,  // `number` of a function
  kRegister,  // a variable, read as often as it is named: element `number` of the tile `buffer`, if there is one
  kLoad,  // buffer[args[0] + number], `lanes` elements; args[0] may be none. With a condition args[1]: only where it
          // holds, else args[2] in every lane
  kLane,  // element `number` of a vector
  // Words of `lanes` matrices of eight rows of 16 bytes in block storage, loaded by the threads of a warp together.
  // Thread 8·i + r says where row r of matrix i begins: buffer[args[0] + number]. Thread t gets of each matrix word
  // t mod 4 of row t / 4; if it `transposes`, elements t / 4, of 16 bits, of rows 2·(t mod 4) and the next.
  kMatrices,
  kWord,         // that of matrix `number`: as many elements as 32 bits hold
  kPack,         // a vector of args
  kPart,         // `lanes` elements of a vector, from `number` on
  kEverySecond,  // elements of vector args[0] at even places, then those of args[1] at odd ones
  kAdd,
  kSub,
  kMul,
  kDiv,       // floats
  kQuotient,  // integers, towards zero
  kFma,       // a·b + c, rounded once
  kMin,       // NaN if either is
  kMax,
  kLargerNumber,  // b > a ? b : a
  kNeg,
  kAbs,
  kFloor,
  kRound,  // to the nearest whole number, of two to the even one
  kSqrt,
  kCopySign,
  kEq,  // kBool from here …
  kNe,
  kLt,
  kLe,
  kAnd,
  kOr,
  kNot,     // … to here
  kSelect,  // args[0] ? args[1] : args[2]
  kBitAnd,
  kBitOr,
  kBitXor,
  kShiftLeft,   // by args[1]
  kShiftRight,  // of an unsigned number
  kBits,        // the same bits as another type of that size
  kConvert,     // Op::kCast
  kCall,        // function `number`
  kShuffle,     // what the thread whose number in its sub-group differs by the bit `number` has as args[0]
};

struct Value {
  Do what = Do::kConstant;
  DType type = DType::kI32;
  int lanes = 1;
  std::vector<ValueId> args = {};
  int64_t number = 0;
  double real = 0;
  BufferId buffer = {};
  std::string name = {};  // kRegister, kCounter: a hint
  bool varies = false;    // perhaps, between the threads of a block
  // A sum, difference, product or absolute value of integers may leave its type, and wraps around then, as a kernel's
  // do. Those of indices do not.
  bool wraps = false;
  bool transposes = false;
};

// Where the elements of a product's operand lie (PTX ISA, "Matrix Descriptor", without swizzling): in blocks of eight
// rows (columns) by eight steps, 128 bytes each, 16 bytes side by side being of one row, or of one step if the matrix
// `is_transposed`. Bytes from a block to the next along the steps and along the rows, multiples of 16.
struct MatrixLayout {
  int64_t step_bytes = 0, row_bytes = 0;
  bool is_transposed = false;
  // In rows of 128 bytes, eight of which are a block: of steps, or of lines if the matrix is transposed. The buffer is
  // swizzled (SwizzledPlace), and what is 16 bytes wide without it is 128 bytes wide.
  bool is_swizzled = false;
  bool operator==(const MatrixLayout&) const = default;
};

struct Node {
  enum class Kind : uint8_t {
    kLet,      // `value` is computed here
    kDeclare,  // the register `value` is there from here on
    kAssign,   // register `value` = a
    kStore,    // buffer[a + offset] = b, as many elements as b has lanes; a may be none
    kFor,      // `body` for value = a … b − 1
    kIf,       // `body` where a
    kBarrier,
    // By the threads of a warp together: `instruction`, of registers args[0…3], the thread's sums, words args[4…7] of
    // the first operand and args[8…9] of the second. A word holds elements side by side, in 32 bits; an f32 is rounded
    // to 11 bits there.
    kMultiply,
    // buffer[a + offset] = source[b + source_offset], `lanes` elements of block storage, zeros where args[0] does not
    // hold, if there is one. They are there when the thread has waited for the group that they are of.
    kCopyAhead,
    kCommit,  // the thread's copies ahead since the last one are a group
    kAwait,   // the thread waits until no more than `offset` of its groups are on their way

    // By the threads of a group of warps together, while they go on: `instruction`, which adds to registers `args`, the
    // thread's sums. Its operands lie in block storage, from buffer[a + offset] and source[b + source_offset] on, as
    // `matrices` say. What is on its way may touch its operands and sums until it has been waited for.
    kProduct,
    kCommitProducts,  // products since the last one are a group
    kAwaitProducts,   // until no more than `offset` groups of products are on their way; `args`: sums of any
    kFenceSums,       // what the thread did with the sums `args` is done when a product that follows begins
    kFenceStorage,    // what the thread wrote to block storage is there for products, after the next barrier
  };
  Kind kind = Kind::kLet;
  ValueId value = {}, a = {}, b = {};
  int64_t offset = 0;
  BufferId buffer = {};
  const Instruction* instruction = nullptr;  // codegen/instructions.h
  BufferId source = {};
  int64_t source_offset = 0;
  int lanes = 1;
  std::array<MatrixLayout, 2> matrices = {};
  std::vector<ValueId> args = {};
  std::vector<Node> body = {};
};

bool HasBarrier(const std::vector<Node>& nodes);
bool Stores(const std::vector<Node>& nodes, BufferId buffer);  // to the buffer

struct Code {
  IdVector<ValueId, Value> values;
  std::vector<Node> nodes;
};

// What nobody reads is not computed.
void DropUnused(Code& code);

// An elementary function: one argument or two, and what it comes to.
struct Function {
  std::string name;
  Op op = Op::kExp;
  DType type = DType::kF32;
  int lanes = 1;  // of its arguments and what it comes to
  std::vector<ValueId> params;
  ValueId result;
  Code code;
};

struct Launch {
  std::string name;
  std::array<Linear, 3> grid = {Linear(1), Linear(1), Linear(1)};  // over sizes
  std::array<int64_t, 3> block = {1, 1, 1};
  std::vector<BufferId> params;  // in global memory, in the order in which they are passed
  std::vector<int> sizes;        // dynamic ones, by index into Kernel::sizes, passed after the buffers as i32
  std::vector<BufferId> shared;  // by the threads of a block
  int64_t shared_bytes = 0;
  Code code;

  int64_t Threads() const { return block[0] * block[1] * block[2]; }
};

struct Program {
  Kernel kernel;
  VarTable vars;
  std::vector<VarId> size_vars;
  IdVector<BufferId, Buffer> buffers;
  std::vector<Function> functions;
  std::vector<Launch> launches;  // one after the other
  std::vector<Launch> pack;      // once, when constants are known
  int64_t workspace_bytes = 0;   // of the buffers in the workspace, at their offsets
};

// At those values of the dynamic sizes, by index into Kernel::sizes: how many blocks a launch has along a dimension,
// and how many elements an operand.
int64_t BlocksAlong(const Program& program, const Launch& launch, size_t dimension, std::span<const int64_t> sizes);
int64_t ElementsAt(const Program& program, const Buffer& buffer, std::span<const int64_t> sizes);

// What a device can do at most (codegen/machine_model.h).
struct DeviceLimits {
  int64_t threads = 256;                              // of a block
  int64_t shared_bytes = 32 << 10;                    // of a block
  int64_t registers = 240;                            // 32-bit values in register tiles of a thread
  std::array<int64_t, 3> grid = MachineModel().grid;  // blocks
  std::vector<const Instruction*> instructions = {};  // of warps; of others code does what they mean
  int64_t sub_group = 1;                              // threads that follow each other and exchange registers
  bool has_async_copies = false;                      // without them a thread copies by loads and stores
  int lanes = 1;  // of 32 bits, of vectors that are computed with; 1: a thread computes one number at a time
};
DeviceLimits LimitsOf(const MachineModel& machine);

// Where an element of a swizzled buffer lies, in place of where its indices say.
int64_t SwizzledPlace(int64_t element, int64_t element_bytes);
// What the address of a buffer is a multiple of.
int64_t SharedAlignment(const Buffer& buffer);

// Bytes that a buffer takes of a block's storage.
int64_t SharedBytes(const Buffer& buffer);

// Whether the buffer is memory that all blocks see.
inline bool IsInGlobalMemory(const Buffer& buffer) {
  return buffer.scope != Scope::kBlock && buffer.scope != Scope::kRegisters && buffer.scope != Scope::kFragments;
}

}  // namespace hone::straight
