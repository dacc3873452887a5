// The cost model as boosted trees (XGBoost). Two models in one: trees that rank the candidates of a kernel, trained across
// kernels and corrected for the kernel at hand, and trees that tell its time.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "tuner/cost_model.h"

namespace hone {

struct XgbOptions {
  uint64_t seed = 1;  // the same samples in the same order and the same seed give the same scores
  int threads = 1;    // beside serving and measuring, one is enough
};

std::unique_ptr<CostModel> MakeXgbModel(const XgbOptions& options = {});

// A model as Save wrote it. kUnsupported: of another feature version or a newer hone; kCorrupt: damaged.
Result<std::unique_ptr<CostModel>> LoadXgbModel(std::string_view saved, const XgbOptions& options = {});

}  // namespace hone
