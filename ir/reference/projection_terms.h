// An output as a sum of products of inputs. Internal to ir/reference/projection.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph/kernel.h"

namespace hone {

using SumAxisId = Id<struct SumAxisTag>;  // of a SumOfProducts

// Σ coef · axis + constant.
struct AxisForm {
  std::vector<std::pair<SumAxisId, int64_t>> terms;  // axis, coefficient; no zeros, sorted
  int64_t constant = 0;
};

struct ProductFactor {
  TensorId tensor;  // an input
  std::vector<AxisForm> indices;
};

// coefficient · Σ over `summed` of the factors' product. Reads out of a factor's range are 0.
struct ProductTerm {
  double coefficient = 1;
  std::vector<ProductFactor> factors;
  std::vector<SumAxisId> summed;
};

struct SumOfProducts {
  IdVector<SumAxisId, int64_t> extents;  // of all axes; the output's come first
  size_t outputs = 0;                    // number of the output's axes
  std::vector<ProductTerm> terms;
};

// nullopt if the output is anything else, or more than a few terms. REQUIRES: static, verified kernel.
std::optional<SumOfProducts> FindSumOfProducts(const Kernel& kernel, TensorId output);

}  // namespace hone
