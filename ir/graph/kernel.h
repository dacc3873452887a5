// A kernel: a small graph of pure stages over named tensors. What it computes is fixed here; how it is computed is a
// schedule (ir/schedule/schedule.h) and cannot change the result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/expr.h"
#include "ir/graph/type.h"

namespace hone {

using StageId = Id<struct StageTag>;  // in Kernel::stages

// A named size or attribute (M, stride, pad …): a constant (lo == hi), or a range, lo ≤ value ≤ hi, that the caller
// passes at run time in hone_entry's `sizes`, in the order of Kernel::sizes, constants left out.
struct Size {
  std::string name;
  int64_t lo = 0;
  int64_t hi = 0;
  bool is_constant() const { return lo == hi; }
};

// Stored and sent: never reuse a number.
enum class TensorKind : uint8_t { kInput = 1, kOutput = 2, kIntermediate = 3 };

struct Tensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<Expr> shape;     // what stages index; over sizes only; row-major, dense
  std::vector<Expr> declared;  // what callers see if it differs (a grouped view splits a dimension); else empty
  TensorKind kind = TensorKind::kIntermediate;
  bool is_const = false;  // the operand never changes after hone_bind, so it may be packed once
};

struct Axis {
  std::string name;
  Expr extent;  // over sizes only; the axis runs over 0 … extent-1
};

// Stored and sent: never reuse a number.
enum class Reduction : uint8_t {
  kNone = 1,
  kSum = 2,
  kMax = 3,  // NaN if anything is
  kMin = 4,  // the same
  kProd = 5,
  kMaxOfNumbers = 6,  // of floats, NaN overlooked: ir/rewrites/max_ignore_nan.cc makes it
};

// output[axes…] = reduction over reduce_axes of body. The body names axes by their ids: those of `axes`, which index
// the output's dimensions in order, then those of `reduce_axes`. Tensors it loads are inputs or outputs of earlier
// stages.
struct Stage {
  TensorId output;
  std::vector<Axis> axes;
  std::vector<Axis> reduce_axes;
  Reduction reduction = Reduction::kNone;
  Expr body;

  size_t axis_count() const { return axes.size() + reduce_axes.size(); }
  IdRange<AxisId> axis_ids() const { return IdRange<AxisId>(axis_count()); }
  IdRange<AxisId> spatial_ids() const { return IdRange<AxisId>(axes.size()); }
  IdRange<AxisId> reduce_ids() const { return IdRange<AxisId>(axes.size(), axis_count()); }
  bool Reduces(AxisId id) const { return id.index() >= axes.size(); }  // is one of reduce_axes
  const Axis& axis(AxisId id) const { return Reduces(id) ? reduce_axes[id.index() - axes.size()] : axes[id.index()]; }
  AxisId last_axis() const { return AxisId(static_cast<int>(axes.size()) - 1); }  // of `axes`; none: there is none
};

// Stored and sent: never reuse a number. Bounds: ir/reference/accuracy.h.
enum class Accuracy : uint8_t { kStrict = 1, kRelaxed = 2, kFast = 3 };

std::string_view AccuracyName(Accuracy accuracy);  // "strict"
std::optional<Accuracy> ParseAccuracy(std::string_view name);

struct KernelOptions {
  Accuracy accuracy = Accuracy::kStrict;
  int threads = 0;  // 0: as many as the daemon's machine has cores
};

struct Kernel {
  std::string name;  // "conv2d+bias+relu" for a library operation, else the name given in the kernel language
  std::vector<Size> sizes;
  IdVector<TensorId, Tensor> tensors;
  std::vector<TensorId> operands;   // inputs in the order of the declaration, then outputs: hone_entry's `buffers`
  IdVector<StageId, Stage> stages;  // in order: each reads only what comes before it
  KernelOptions options;
};

// Value of an expression over sizes only. REQUIRES: every size in it is constant (EvalExtent) — or takes the size's
// upper or lower bound (UpperExtent, LowerExtent: interval arithmetic).
int64_t EvalExtent(const Kernel& kernel, const Expr& extent);
int64_t UpperExtent(const Kernel& kernel, const Expr& extent);
int64_t LowerExtent(const Kernel& kernel, const Expr& extent);
std::vector<int> DynamicSizes(const Kernel& kernel);  // indices of the sizes that are ranges, in order
bool IsStatic(const Kernel& kernel);                  // there are none

// The same for kernels that nobody has checked yet: nullopt where 64 bits overflow, a divisor is not positive, or the
// expression is over more than sizes.
struct ExtentRange {
  int64_t lo = 0;
  int64_t hi = 0;
};
std::optional<ExtentRange> CheckedExtent(const Kernel& kernel, const Expr& extent);

// Indices of the sizes in the order in which the kernel's text mentions them first (operands as declared, their views,
// then per stage the tensor's shape, the reduction's extents, the body); the ones it never mentions are left out.
std::vector<int> SizesByFirstUse(const Kernel& kernel);

bool SameKernel(const Kernel& a, const Kernel& b);  // structural equality, names included

// Sizes of a tensor in elements, all dimensions. REQUIRES: static.
std::vector<int64_t> StaticShape(const Kernel& kernel, const Tensor& tensor);
int64_t ElementCount(const Kernel& kernel, const Tensor& tensor);

// The stage that writes a tensor; nullptr for an input.
const Stage* ProducerOf(const Kernel& kernel, TensorId tensor);
// The one input that a stage is computed from, itself or through other stages; none if there are several or none.
TensorId OnlyInputOf(const Kernel& kernel, const Stage& stage);

// Floating-point operations (each + - * / min max compare and function call counts one, per element computed).
// REQUIRES: static.
double FlopCount(const Kernel& kernel);

}  // namespace hone
