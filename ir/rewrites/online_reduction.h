// Two reductions along a row, the second of which needs the first, while the row is read once. A softmax's
// maximum and sum of exponentials (Milakov, Gimelshein: Online normalizer calculation for softmax, 2018), a
// normalisation's sum and squared deviations (Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for
// computing sample variances, 1979). Each is taken of one block of the row after the other, the second relative to the
// block's own first, and the blocks are merged at the end. The function is the same over real numbers, and for NaN and
// infinities; rounding is within the bounds of either order of summation.
//
// The stage is the second reduction: S[o] = Σ exp(x[o, n] − T[o]) with T[o] = max x[o, n], or S[o] = Σ (x[o, n] −
// c·T[o])² with T[o] = Σ x[o, n] and a positive constant c. Element-wise stages may stand in between. Both come to read
// `kept`: T[o] = max or Σ over b of kept[o, 0, b], and S[o] is
//   Σ kept[o, 1, b] · exp(kept[o, 0, b] − T[o]), or Σ kept[o, 1, b] + m · (kept[o, 0, b]/m − c·T[o])²
// with m elements in block b: the block's length, or what is left of the row. Stages that nothing reads any more are
// dropped. Refuses everything else: other sums, several axes reduced at once, rows that the two do not share.
#pragma once

#include <string>

#include "base/result.h"
#include "ir/graph/kernel.h"

namespace hone {

// The stages that the rewrite makes, for blocks b of a row o.
struct OnlineNames {
  explicit OnlineNames(const std::string& base) : first(base + "_first"), second(base + "_second"), kept(base) {}
  std::string first;   // [o…, b]: the first reduction of the block
  std::string second;  // [o…, b]: the second one, relative to that
  std::string kept;    // [o…, 2, b]: both, for what merges them. Where both are computed inside its loop over b, the
                       // block is read from memory once
};

// Index of the stage T, if `stage` (by index) is such an S.
Result<StageId> FirstOfOnline(const Kernel& kernel, StageId stage);

}  // namespace hone
