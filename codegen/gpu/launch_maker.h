// State shared by the parts of straightening: statements (straighten.cc), values and accesses (straighten_values.cc).
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "codegen/gpu/straight.h"
#include "codegen/gpu/straight_builder.h"
#include "codegen/instructions.h"
#include "ir/graph/dtype_traits.h"

namespace hone::straight {

// An index: a value, or none, and a constant.
struct Address {
  ValueId base;
  int64_t offset = 0;
};

// A sum that a warp's instruction adds to: the elements that a thread holds, by where thread 0 has its own.
struct Fragments {
  const Instruction* instruction = nullptr;
  int64_t row_stride = 0, column_stride = 0;  // of the buffer, in elements
  std::map<int64_t, ValueId> elements;
  std::vector<Term> seen;  // of the last element that was found to be the thread's own
};

// Makes one launch of a nest.
ValueId Combine(Builder& builder, Reduction reduction, DType type, ValueId old, ValueId fresh);

class LaunchMaker {
 public:
  // Functions and variables are added to `out` as they are needed.
  LaunchMaker(const LoopProgram& program, const DeviceLimits& limits, Program& out)
      : program_(program), limits_(limits), out_(out), builder_(launch_.code) {}
  Result<Launch> Make(const Stmt& nest, std::string name);

 private:
  // straighten.cc
  void FindThreads(const Stmt& stmt);
  Result<void> CheckLimits() const;
  Result<void> EmitAll(const std::vector<StmtPtr>& list);
  Result<void> Emit(const Stmt& stmt);
  Result<void> EmitLoop(const Stmt& stmt);
  Result<void> EmitBound(const Stmt& stmt);
  Result<void> EmitSerial(const Stmt& stmt);
  Result<void> EmitStore(const Stmt& stmt);
  Result<void> EmitLanes(const Stmt& stmt, int64_t begin, int64_t end);
  Result<ValueId> Combined(const Stmt& stmt, const Address& at);
  Result<void> DeclareTile(BufferId buffer);
  void ForgetStores(const Stmt& stmt);

  // straighten_warp.cc
  Result<void> DeclareFragments(const Stmt& scope);
  Result<void> EmitWarp(const Stmt& stmt);
  Result<void> EmitMeaning(const Stmt& stmt, const std::array<VarId, 3>& loops, const std::vector<ValueId>& sums);
  Result<std::vector<ValueId>> SumsOf(const Stmt& store, VarId row, VarId column);
  // The thread's words of an operand, which its loops (over steps, over rows or columns) read: its fragment.
  Result<std::vector<ValueId>> WordsOf(const ValueNode& load, const std::array<VarId, 2>& loops, int words,
                                       const InstructionMeaning& meaning);
  // By one load of the warp; none: the elements lie otherwise than that takes them.
  Result<std::vector<ValueId>> MatricesOf(const ValueNode& load, const std::array<VarId, 2>& loops, int words,
                                          const InstructionMeaning& meaning);
  Result<ValueId> WordOf(const ValueNode& load, VarId steps, const Linear& first);
  // The thread's number in its warp, divided, and what is left of it: a variable.
  Linear LaneDigit(int64_t divisor, int64_t modulus);
  Result<ValueId> FragmentElement(BufferId buffer, const std::vector<Linear>& index);

  // straighten_lanes.cc
  Result<void> EmitOfSubGroup(const Stmt& stmt);
  Result<void> CheckLanesAgree(const Stmt& stmt, int64_t lanes) const;
  int64_t ThreadsThatAgree(const Stmt& store, std::string* what) const;
  void NoteAgreement(const Stmt& store);
  bool DependsOn(const Linear& form, VarId on) const;
  // What all lanes have of a register together.
  Result<ValueId> AcrossLanes(const Stmt& stmt);

  // straighten_group.cc
  // Whether the launch has products of a group of warps that the device does.
  bool MultipliesByGroups(const Stmt& stmt) const;
  // Refused: a matrix that its loops (over steps, rows, columns) read lies otherwise than a product takes it.
  Result<std::array<MatrixLayout, 2>> LayoutsOf(const Stmt& stmt, const std::array<VarId, 3>& loops);
  Result<void> EmitProduct(const Stmt& stmt, const std::array<VarId, 3>& loops,
                           const std::array<MatrixLayout, 2>& matrices, std::vector<ValueId> sums);
  Result<MatrixLayout> LayoutOf(const Instruction& instruction, const ValueNode& load, VarId steps, VarId across,
                                bool has_rows);
  void AwaitProducts(int64_t groups) { builder_.Append({.kind = Node::Kind::kAwaitProducts, .offset = groups}); }
  void OrderProducts();

  // straighten_ahead.cc
  // Copies what the store's next elements are, as many as go at once; how many, 0: it cannot.
  Result<int64_t> EmitCopyAhead(const Stmt& store, const Linear& flat, int64_t lane, int64_t end);
  bool LieSideBySide(const Linear& flat, int64_t lane, int64_t count);
  void Commit();
  void Await(int64_t groups);

  // straighten_index.cc
  // With what is known of the loops at this point put in.
  Linear Known(const Linear& form);
  Result<Address> AddressOf(const Linear& form);
  // Where the element of that flat index is.
  Result<Address> PlaceOfElement(BufferId buffer, const Linear& flat);
  Result<ValueId> IndexValue(const Linear& form);
  Result<ValueId> VarValue(VarId id);
  Result<ValueId> QuotientDown(const Linear& a, int64_t divisor);
  Result<ValueId> Holds(const Linear& form);  // form ≥ 0
  Result<ValueId> AllHold(const std::vector<Linear>& forms);
  // In 32 bits, its parts in any order as well; and in 64, for those that do not fit.
  bool Fits(const Linear& form);
  bool FitsInParts(const Linear& known) const;
  ValueId Narrow(ValueId index);
  ValueId Widened(ValueId index);
  ValueId Wide(int64_t number) { return builder_.Constant(DType::kI64, number, 0); }
  Result<ValueId> WideValue(const Linear& form);
  Result<ValueId> WideVarValue(VarId id);
  Result<ValueId> WideQuotientDown(const Linear& a, int64_t divisor);

  // straighten_values.cc
  Result<ValueId> ValueOf(const ValueNode& node);
  Result<ValueId> OperationOf(const ValueNode& node);
  DType OneWidth(std::vector<ValueId>& values);
  ValueId WithZero(Do what, DType type, ValueId x, ValueId y);
  ValueId Arithmetic(Do what, DType type, const std::vector<ValueId>& args);
  ValueId Byte(ValueId value);
  Result<ValueId> FloorDivision(const ValueNode& node, ValueId a, ValueId b);
  Result<ValueId> LoadOf(const ValueNode& node);
  // How many lanes from this one on an access may take at once: 1, 2 or 4. `first`: of those.
  int VectorWidth(BufferId buffer, const Linear& flat, int64_t lane, int64_t end, int64_t* first);
  Result<ValueId> TileElement(BufferId buffer, const std::vector<Linear>& index);
  // Between what memory holds and what is computed with.
  ValueId FromMemory(ValueId element);
  ValueId ToMemory(ValueId value, BufferId buffer);
  ValueId Narrowed(ValueId value, DType type);
  Result<ValueId> RoundedTo(DType type, DType from, ValueId value);
  // Puts the vectorised loop's lane in for as long as it lives.
  void SetLane(int64_t lane) { constants_[vector_] = lane; }

  const LoopProgram& program_;
  const DeviceLimits& limits_;
  Program& out_;
  Launch launch_;
  Builder builder_;
  std::map<VarId, ValueId> known_;      // loops that are there in the code
  std::map<VarId, int64_t> constants_;  // unrolled ones, and the lane
  std::map<VarId, Linear> forms_;       // loops of an instruction, by what each thread of the warp has of them
  std::map<std::pair<int64_t, int64_t>, VarId> lane_digits_;
  bool in_lanes_ = false;                 // within a loop that is bound to lanes
  std::map<BufferId, int64_t> agreeing_;  // registers: how many threads side by side have the same in them
  VarId threads_x_;                       // the loop of threads along x; none: none was there yet
  std::map<BufferId, Fragments> fragments_;
  std::array<bool, 3> has_thread_ = {};  // a loop of threads along the axis encloses
  ValueId pending_;                      // which threads the enclosing loops of threads mean
  VarId vector_;                         // the vectorised loop; none: outside of one
  int64_t lanes_ = 1;
  std::map<BufferId, std::vector<ValueId>> tiles_;
  int64_t registers_ = 0;
  bool by_groups_ = false;
};

// The function of Program::functions for an elementary operation, made if it is not there.
Result<int64_t> FunctionFor(Program& program, Op op, DType type);

// i64 is for indices, which are 32 bits wide here but for what data come to before they are bounded. A float of 16 bits
// is an f32 wherever it is not in memory, and a u8 an i32.
inline bool IsInMemoryAlone(DType type) { return IsNarrowFloat(type) || type == DType::kU8; }
inline DType TypeInCode(DType type) {
  return type == DType::kI64 || type == DType::kU8 ? DType::kI32 : IsNarrowFloat(type) ? DType::kF32 : type;
}
inline DType TypeInMemory(DType type) { return IsInMemoryAlone(type) ? type : TypeInCode(type); }

}  // namespace hone::straight
