// A sum over windows of a padded tensor without the terms that padding makes, of which a small image has many.
//
// The stage is Σ p[…]·w[…] over axes r… and others, with p = pad(x, 0) and a constant w. Its terms are left out where
// an index of x that depends on the axes named is out of bounds, and what these come to is added afterwards: the
// function is the same, for NaN and infinities, too. Refuses other sums, and indices of x that mix those axes with
// reduced axes that are not among them.
#pragma once

#include <string>

namespace hone {

// The stages that the rewrite makes.
struct TrimNames {
  explicit TrimNames(const std::string& base) : whole(base), edges(base + "_edges"), weights(base + "_weights") {}
  std::string whole;    // [o…]: the sum and the edges, for whoever read the sum before
  std::string edges;    // [o…]: what the terms left out come to: 0, or NaN where a weight is infinite or NaN
  std::string weights;  // [o…, r…]: 0·w, summed over the axes that no condition depends on
};
}  // namespace hone
