// Operations of the reference interpreter on columns of lanes, each with the rule for its magnitude A. Internal to
// ir/reference/interpret.
//
// A bounds the error of a float value in units of the tolerance: |computed − exact| ≤ tolerance · A. Over + − × it is
// the same expression over absolute values; over f it is max(|f(x)|, |f′(x)|·A(x)). Where f jumps (floor, comparisons,
// conversion to integers) within tolerance · A(x) of x, the jump counts. An infinite value carries no error. For an
// integer or bool the magnitude column is its slack: how far it may be off because a float decided it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/reference/interpret.h"
#include "ir/reference/interpret_program.h"

namespace hone::interpreted {

constexpr size_t kBlockLanes = 256;

struct Column {
  double* value = nullptr;      // float registers
  double* magnitude = nullptr;  // unless the register is plain and without slack
  int64_t* integer = nullptr;   // integer and bool registers
};

// Runs one operation over n lanes. `args` and `regs` follow instruction.args.
void RunColumnOperation(const Instruction& instruction, const Register* const* regs, const Column* args,
                        const Register& result_reg, const Column& result, size_t n, double tolerance);

// Folds lanes into a running reduction.
class ReductionState {
 public:
  ReductionState(Reduction reduction, DType type, double tolerance);
  void Add(const Register& reg, const Column& column, size_t n);
  Reference Result() const;

 private:
  Reduction reduction_;
  DType type_;
  double tolerance_;
  bool empty_ = true;
  double value_ = 0;
  double magnitude_ = 0;
  int64_t integer_ = 0;
};

}  // namespace hone::interpreted
