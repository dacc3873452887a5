// The cost model as boosted trees (XGBoost). Four kinds of trees: those that rank the candidates of any kernel, trained
// across kernels; a few that correct them for the kernel at hand; those that tell a time; those that tell a gain over
// the default schedule.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "tuner/cost_model.h"

namespace hone {

// What the ranking trees are trained on. best: the fastest time of the sample's group. Stored: never reuse a number.
enum class RankLoss : uint8_t {
  kThroughput = 1,          // best / time, squared error
  kWeightedThroughput = 2,  // the same, each sample weighted by it: the fast end counts (Ansor)
  kLogTime = 3,             // log2(best / time), squared error
  kPairwise = 4,            // the order within a group: rank:pairwise
  kWeightedLogTime = 5,     // log2(best / time), weighted by best / time
};

struct XgbOptions {
  uint64_t seed = 1;  // the same samples in the same order and the same seed give the same scores
  int threads = 1;    // beside serving and measuring, one is enough
  // Of the five this has the least regret after 16 to 64 samples of a kernel; they are close (bench/model_bench).
  RankLoss loss = RankLoss::kThroughput;
  int rank_rounds = 120;        // trees across kernels
  int correction_rounds = 30;   // trees for one kernel
  size_t max_samples = 60'000;  // some 40 MB; then the oldest of the largest group go
};

std::unique_ptr<CostModel> MakeXgbModel(const XgbOptions& options = {});

// A model as Save wrote it. kUnsupported: of another feature version or a newer hone; kCorrupt: damaged.
Result<std::unique_ptr<CostModel>> LoadXgbModel(std::string_view saved, const XgbOptions& options = {});

}  // namespace hone
