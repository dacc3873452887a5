#include "ir/rewrites/in_bounds.h"

#include <optional>
#include <vector>

#include "ir/graph/bounds.h"

namespace hone {
namespace {

constexpr int64_t kProofWork = 1'000'000;  // ir/graph/bounds.h

}  // namespace

bool AlwaysInBounds(const Kernel& kernel, const Stage& stage) {
  if (stage.body.op() == Op::kPad) return true;
  int64_t work = kProofWork;
  const std::vector<int> ranges = DynamicSizes(kernel);
  BoundsProver prover(kernel, stage, ranges, &work);
  const Tensor& source = kernel.tensors[stage.body.tensor()];
  for (size_t d = 0; d < source.shape.size(); ++d) {
    std::optional<BoundsProver::Form> index = prover.FormOf(stage.body.arg(d)), extent = prover.FormOf(source.shape[d]);
    if (!index || !extent || !prover.NonNegative(*index)) return false;
    std::optional<BoundsProver::Form> room = prover.Difference(*extent, *index);
    if (!room) return false;
    room->constant -= 1;
    if (!prover.NonNegative(*room)) return false;
  }
  return true;
}

}  // namespace hone
