// The cost models of all kernels, one for each kind of device: searches teach them, predictions ask them, the cache
// keeps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/result.h"
#include "cache/schedule_cache.h"
#include "daemon/serve/devices.h"
#include "tuner/cost_model.h"

namespace hone {

// Kernel, target and threads: what times may be compared within (Sample::group).
uint64_t SampleGroup(const CacheKey& key);

class SharedModel {
 public:
  SharedModel(ScheduleCache& cache, Devices devices) : cache_(cache), devices_(std::move(devices)) {}

  // For a search; one at a time. The first time the kind's is loaded as it was stored, and the samples that it learnt
  // from are made from the log of trials again: seconds, cut short by `stop`.
  CostModel* ToTeach(std::string_view kind, std::stop_token stop);

  // After a search: every few hundred trials the model learns from all of them anew, and is stored.
  void LearnAnew(std::string_view kind);

  // The newest one, from any thread; waits for no search. kNotFound: there is none yet.
  Result<std::shared_ptr<const CostModel>> ToAsk(std::string_view kind);

 private:
  struct Taught {
    std::shared_ptr<CostModel> model;
    size_t learn_at = 0;  // samples at which it learns anew
  };
  Taught Load(std::string_view kind, std::stop_token stop);
  Result<std::unique_ptr<CostModel>> Stored(std::string_view kind) const;  // kNotFound: there is none yet

  ScheduleCache& cache_;
  const Devices devices_;
  std::map<std::string, Taught, std::less<>> taught_;  // by kind, after its first search

  Mutex mutex_;
  // By kind: the one that is taught, or the stored one before a search.
  std::map<std::string, std::shared_ptr<const CostModel>, std::less<>> asked_ HONE_GUARDED_BY(mutex_);
};

}  // namespace hone
