// Bytes of the other sign: a sum of products of i8 becomes one of u8 and i8, since there are instructions for these
// alone. With x' = x + 128,
//
//   Σ x·w = Σ x'·w − Σ 128·w
//
// in integers that wrap around, always. Likewise a sum of u8 and u8, with x' = x − 128 in i8 and the last sum added. It
// does not depend on x: where w is a constant, hone_pack takes it.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/copy_axes.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

constexpr int64_t kShift = 128;

// The factor of a product that is an element of the tensor, converted to i32; −1: neither is, or both are.
int FactorOf(const Expr& product, TensorId tensor) {
  int found = -1;
  for (int i : {0, 1}) {
    const Expr& factor = product.arg(static_cast<size_t>(i));
    if (factor.op() != Op::kCast || !factor.arg(0).Loads(tensor)) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

bool Reads(const Expr& e, TensorId tensor) {
  bool reads = false;
  Walk(e, [&](const Expr& part) { reads |= part.op() == Op::kLoad && part.tensor() == tensor; });
  return reads;
}

Result<Kernel> ShiftSign(Kernel kernel, StageId index, const RewriteStep& step) {
  const Stage sum = kernel.stages[index];
  const std::string& name = kernel.tensors[sum.output].name;
  const TensorId operand = FindTensor(kernel, step.names[0]);
  if (!operand) return Refuse("there is no tensor " + step.names[0]);
  for (size_t i = 1; i < step.names.size(); ++i)
    if (FindTensor(kernel, step.names[i]) || std::count(step.names.begin(), step.names.end(), step.names[i]) > 1)
      return Refuse(fmt::format("the name {} is taken", step.names[i]));
  const Tensor x = kernel.tensors[operand];
  if (x.dtype != DType::kI8 && x.dtype != DType::kU8)
    return Refuse(fmt::format("{} is {}: only i8 and u8 have another sign", x.name, Name(x.dtype)));
  if (sum.reduction != Reduction::kSum || sum.body.op() != Op::kMul || sum.body.type() != DType::kI32)
    return Refuse(fmt::format("{} is no sum of products of i32", name));
  const int side = FactorOf(sum.body, operand);
  if (side < 0 || Reads(sum.body.arg(static_cast<size_t>(1 - side)), operand))
    return Refuse(fmt::format("{} multiplies no elements of {} with others", name, x.name));
  const Expr& load = sum.body.arg(static_cast<size_t>(side)).arg(0);
  const Expr& other = sum.body.arg(static_cast<size_t>(1 - side));

  // x', element by element.
  const bool up = x.dtype == DType::kI8;
  const DType shifted_type = up ? DType::kU8 : DType::kI8;
  Stage shifted;
  AddCopyAxes(shifted, kernel, sum, load);
  const Expr wide = CastTo(DType::kI32, LoadOf(operand, x.dtype, AxisRefs(shifted.spatial_ids())));
  shifted.body = CastTo(shifted_type, Binary(up ? Op::kAdd : Op::kSub, wide, Int(kShift, DType::kI32)));
  shifted.output = kernel.tensors.Add({step.names[1], shifted_type, x.shape, {}, TensorKind::kIntermediate, false});

  // Σ x'·w
  const Tensor total = kernel.tensors[sum.output];
  Stage products = sum;
  std::vector<Expr> factors = sum.body.args();
  factors[static_cast<size_t>(side)] = CastTo(DType::kI32, LoadOf(shifted.output, shifted_type, load.args()));
  products.body = Binary(Op::kMul, factors[0], factors[1]);
  std::vector<Expr> shape;
  for (const Axis& axis : sum.axes) shape.push_back(axis.extent);
  products.output = kernel.tensors.Add({step.names[2], DType::kI32, shape, {}, TensorKind::kIntermediate, false});

  // Σ 128·w, over those axes that w has.
  const std::vector<AxisId> used = AxesOf(other);
  Stage correction;
  std::vector<Expr> own(sum.axis_count(), Int(0));  // where w does not depend on the axis
  std::vector<Expr> kept;
  shape.clear();
  for (AxisId axis : sum.spatial_ids()) {
    if (std::find(used.begin(), used.end(), axis) == used.end()) continue;
    own[axis.index()] = AxisRef(AxisId(static_cast<int>(correction.axes.size())));
    correction.axes.push_back(sum.axis(axis));
    kept.push_back(AxisRef(axis));
    shape.push_back(sum.axis(axis).extent);
  }
  for (AxisId axis : sum.reduce_ids())
    own[axis.index()] = AxisRef(AxisId(static_cast<int>(correction.axes.size() + axis.index() - sum.axes.size())));
  correction.reduce_axes = sum.reduce_axes;
  correction.reduction = Reduction::kSum;
  correction.body = Binary(Op::kMul, SubstituteAxes(other, own), Int(kShift, DType::kI32));
  correction.output = kernel.tensors.Add({step.names[3], DType::kI32, shape, {}, TensorKind::kIntermediate, false});

  Stage& whole = kernel.stages[index];
  whole.reduce_axes.clear();
  whole.reduction = Reduction::kNone;
  whole.body = Binary(up ? Op::kSub : Op::kAdd, LoadOf(products.output, total.dtype, AxisRefs(sum.spatial_ids())),
                      LoadOf(correction.output, DType::kI32, std::move(kept)));
  kernel.stages.Insert(index, {std::move(shifted), std::move(correction), std::move(products)});
  return kernel;
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kShiftSign = {
    .name = "shift_sign",
    .takes = "an operand, and names for its elements with the other sign, the sum over these and the correction",
    .names = 4,
    .is_algorithm = true,
    .apply = ShiftSign,
};

}  // namespace rewrites
}  // namespace hone
