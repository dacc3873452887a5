// Factors of f32 as numbers of 16 bits, for instructions that multiply bf16 and sum in f32: of a sum of products,
//
//   Σ x·w  becomes  Σ x'·w'
//
// with x', w' rounded to bf16 (`bf16_factors`), which errs by 2⁻⁸ of each product; or with three products of pieces in
// the place of each (`bf16_pieces`),
//
//   x₁·w₁ + x₁·w₂ + x₂·w₁,  x₁ = bf16(x), x₂ = bf16(x − x₁),
//
// which errs by about 2⁻¹⁶ of it. The pieces are a dimension of both factors, and one more axis of the sum. Of an
// infinity they are an infinity and zero, whose products are NaN.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/copy_axes.h"
#include "ir/rewrites/in_bounds.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

constexpr int64_t kPieces = 3;
constexpr int64_t kSecondPiece[2] = {2, 1};  // which of the three products is of the factor's second piece

Expr InBf16(const Expr& value) { return CastTo(DType::kBF16, value); }
Expr InF32(const Expr& value) { return CastTo(DType::kF32, value); }

// Element by element, of the tensor that `load`, a factor of `sum`, reads.
Stage NarrowCopy(Kernel& kernel, const Stage& sum, const Expr& load, const std::string& name, int side,
                 bool in_pieces) {
  const Tensor x = kernel.tensors[load.tensor()];
  Stage copy;
  std::vector<Expr> shape = x.shape;
  if (in_pieces) {
    copy.axes.push_back({"piece", Int(kPieces)});
    shape.insert(shape.begin(), Int(kPieces));
  }
  AddCopyAxes(copy, kernel, sum, load);
  std::vector<Expr> index = AxisRefs(copy.spatial_ids());
  const std::vector<Expr> own(index.begin() + (in_pieces ? 1 : 0), index.end());
  const Expr element = LoadOf(load.tensor(), x.dtype, own);
  copy.body = InBf16(element);
  if (in_pieces)
    copy.body = SelectOf(Binary(Op::kEq, index[0], Int(kSecondPiece[side])),
                         InBf16(Binary(Op::kSub, element, InF32(copy.body))), copy.body);
  copy.output = kernel.tensors.Add({name, DType::kBF16, std::move(shape), {}, TensorKind::kIntermediate, false});
  return copy;
}

// The load that a factor is, in a border of no width maybe; nothing: it is another expression.
Expr LoadIn(const Kernel& kernel, const Stage& sum, const Expr& factor) {
  if (factor.op() == Op::kLoad) return factor;
  if (factor.op() != Op::kPad) return {};
  Stage bare = sum;
  bare.body = factor.arg(0);
  return AlwaysInBounds(kernel, bare) ? bare.body : Expr();
}

std::string UntakenAxis(const Stage& sum) {
  std::string name = "piece";
  for (AxisId axis : sum.axis_ids())
    if (sum.axis(axis).name == name) name += "s";
  return name;
}

Result<Kernel> NarrowFactors(Kernel kernel, StageId index, const RewriteStep& step, bool in_pieces) {
  Stage sum = kernel.stages[index];
  const std::string name = kernel.tensors[sum.output].name;
  for (const std::string& copy : step.names)
    if (FindTensor(kernel, copy) || std::ranges::count(step.names, copy) > 1)
      return Refuse(fmt::format("the name {} is taken", copy));
  std::vector<Expr> loads;
  if (sum.reduction == Reduction::kSum && sum.body.op() == Op::kMul && sum.body.type() == DType::kF32)
    for (const Expr& factor : sum.body.args())
      if (const Expr load = LoadIn(kernel, sum, factor)) loads.push_back(load);
  if (loads.size() != 2) return Refuse(fmt::format("{} is no sum of products of two elements of f32", name));
  if (in_pieces) sum.reduce_axes.push_back({UntakenAxis(sum), Int(kPieces)});
  std::vector<Stage> copies;
  std::vector<Expr> factors;
  for (int side : {0, 1}) {
    const Expr& load = loads[static_cast<size_t>(side)];
    copies.push_back(NarrowCopy(kernel, sum, load, step.names[static_cast<size_t>(side)], side, in_pieces));
    std::vector<Expr> at = load.args();
    if (in_pieces) at.insert(at.begin(), AxisRef(AxisId(sum.axis_count() - 1)));
    factors.push_back(InF32(LoadOf(copies.back().output, DType::kBF16, std::move(at))));
  }
  sum.body = Binary(Op::kMul, factors[0], factors[1]);
  kernel.stages[index] = std::move(sum);
  kernel.stages.Insert(index, {std::move(copies[0]), std::move(copies[1])});
  return kernel;
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kBf16Factors = {
    .name = "bf16_factors",
    .takes = "names for both factors rounded to bf16",
    .names = 2,
    .rounding = Rounding::kCoarsest,
    .is_algorithm = true,
    .apply = [](Kernel kernel, StageId stage,
                const RewriteStep& step) { return NarrowFactors(std::move(kernel), stage, step, false); },
};

extern constinit const GraphRewrite kBf16Pieces = {
    .name = "bf16_pieces",
    .takes = "names for both factors in pieces of bf16",
    .names = 2,
    .rounding = Rounding::kCoarser,
    .is_algorithm = true,
    .apply = [](Kernel kernel, StageId stage,
                const RewriteStep& step) { return NarrowFactors(std::move(kernel), stage, step, true); },
};

}  // namespace rewrites
}  // namespace hone
