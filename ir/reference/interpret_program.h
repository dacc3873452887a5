// What the reference interpreter runs: each stage as straight-line code over columns of lanes. A lane is one point of
// the reduction's space, or one element of an element-wise stage. Internal to ir/reference/interpret.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph/kernel.h"

namespace hone::interpreted {

// Σ coef[axis] · axis + constant, over a stage's axes and reduction axes.
struct AffineIndex {
  std::vector<int64_t> coef;
  int64_t constant = 0;
};

// How an affine index changes from lane to lane.
struct LanePattern {
  enum Kind : uint8_t {
    kUniform,
    kLinear,   // step · lane number
    kTable,    // looked up by lane number
    kGeneric,  // from the columns of the axes
  };
  Kind kind = kUniform;
  int64_t step = 0;
  std::vector<int64_t> table;
  int64_t min = 0;  // of the varying part over all lanes
  int64_t max = 0;
};

struct LaneIndex {
  AffineIndex affine;
  LanePattern pattern;
};

using RegisterId = Id<struct RegisterTag>;  // of a Program
using SiteId = Id<struct SiteTag>;          // of a Program

struct Register {
  bool is_float = false;
  bool varies = false;    // from lane to lane
  bool constant = false;  // its column is filled once
  bool plain = false;     // float: the magnitude is the absolute value and has no column of its own
  bool exact = false;     // float: carries no rounding error, as inputs and literals
  // Float: a whole number, which arithmetic on whole numbers keeps as it is while they are small (kWholeFloats): what
  // its magnitude has beyond the absolute value is what it may be off by, and nothing else.
  bool whole = false;
  bool has_slack =
      false;  // integer or bool: a float on the way decided it; the magnitude column says how far it may be off
  bool broadcast = false;  // uniform, but read by code that varies
  double float_value = 0;  // of a constant
  int64_t int_value = 0;
};

// One tensor access.
struct LoadSite {
  struct Dim {
    LaneIndex index;  // if there is no index_register
    RegisterId index_register;
    int64_t extent = 0;
    int64_t stride = 0;
    bool check = false;  // may be out of range under a pad or an if
  };
  TensorId tensor;
  StageId computed;  // whose elements are computed on demand; none: an input in memory
  DType dtype = DType::kF32;
  bool affine = false;  // every dimension is: `offset` is the element number
  bool checks = false;  // some dimension is checked
  LaneIndex offset;
  std::vector<Dim> dims;
  double fill = 0;  // where a check fails
};

struct Instruction {
  Op op = Op::kAdd;
  DType type = DType::kF32;  // of the result
  RegisterId result = {};
  RegisterId args[3] = {};
  SiteId site = {};      // kLoad
  LaneIndex index = {};  // kAxis: an affine index as a value
  bool narrows = false;  // kCast to a float type that does not hold all that the operand may be
};

// A stage, ready to run.
struct Program {
  const Stage* stage = nullptr;
  std::vector<int64_t> extents;     // of axes, then reduction axes
  size_t outer = 0;                 // number of axes
  bool lanes_are_elements = false;  // element-wise: lanes run over any elements; else over the reduction's space
  int64_t lanes = 1;                // points of the reduction's space
  bool needs_axis_columns = false;
  IdVector<RegisterId, Register> registers;
  std::vector<Instruction> uniform;  // once per element
  std::vector<Instruction> varying;  // once per block of lanes
  IdVector<SiteId, LoadSite> sites;
  RegisterId result;
};

// Programs of the stages that cannot be substituted into their readers, by stage; others are empty (no stage).
// REQUIRES: static kernel.
IdVector<StageId, Program> CompilePrograms(const Kernel& kernel);

}  // namespace hone::interpreted
