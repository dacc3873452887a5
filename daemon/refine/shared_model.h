// The cost model of all kernels: searches teach it, predictions ask it, the cache keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>

#include "base/mutex.h"
#include "base/result.h"
#include "cache/schedule_cache.h"
#include "ir/target.h"
#include "tuner/cost_model.h"

namespace hone {

// Kernel, target and threads: what times may be compared within (Sample::group).
uint64_t SampleGroup(const CacheKey& key);

class SharedModel {
 public:
  SharedModel(ScheduleCache& cache, Target host) : cache_(cache), host_(std::move(host)) {}

  // For a search; one at a time. The first time it is loaded as it was stored, and the samples that it learnt from are
  // made from the log of trials again: seconds, cut short by `stop`.
  CostModel* ToTeach(std::stop_token stop);

  // After a search: every few hundred trials the model learns from all of them anew, and is stored.
  void LearnAnew();

  // The newest one, from any thread; waits for no search. kNotFound: there is none yet.
  Result<std::shared_ptr<const CostModel>> ToAsk();

 private:
  void Load(std::stop_token stop);

  ScheduleCache& cache_;
  const Target host_;
  std::shared_ptr<CostModel> model_;  // nullptr before the first search
  size_t learn_at_ = 0;               // samples at which it learns anew

  Mutex mutex_;
  std::shared_ptr<const CostModel> asked_ HONE_GUARDED_BY(mutex_);  // model_, or the stored one before a search
};

}  // namespace hone
