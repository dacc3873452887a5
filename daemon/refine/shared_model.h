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
#include "tuner/xgb_model.h"

namespace hone {

// Kernel, target and threads: what times may be compared within (Sample::group).
uint64_t SampleGroup(const CacheKey& key);

class SharedModel {
 public:
  SharedModel(ScheduleCache& cache, Devices devices, XgbOptions options = {})
      : cache_(cache), devices_(std::move(devices)), options_(options) {}

  // For a search; one at a time. The first time the kind's is loaded as it was stored, and the samples that it learnt
  // from are made from the log of trials again: seconds, cut short by `stop`.
  CostModel* ToTeach(std::string_view kind, std::stop_token stop);

  // At the end of a search, with what ToTeach gave for it: after the first hundred trials or so, and every few hundred
  // after them, the model learns from all of them anew. False: it did not, or was told to stop; a later search does.
  // Takes no locks that others wait for.
  bool LearnAnew(std::string_view kind, const std::stop_token& stop);
  // Stores what it learnt.
  void Keep(std::string_view kind);

  // The newest one, from any thread; waits for no search. kNotFound: there is none yet.
  Result<std::shared_ptr<const CostModel>> ToAsk(std::string_view kind);

 private:
  struct Taught {
    std::shared_ptr<CostModel> model;
    size_t enough = 0;  // new samples, to learn anew
  };
  Taught Load(std::string_view kind, std::stop_token stop);
  Result<std::unique_ptr<CostModel>> Stored(std::string_view kind) const;  // kNotFound: there is none yet

  ScheduleCache& cache_;
  const Devices devices_;
  const XgbOptions options_;
  std::map<std::string, Taught, std::less<>> taught_;  // by kind, after its first search

  Mutex mutex_;
  // By kind: the one that is taught, or the stored one before a search.
  std::map<std::string, std::shared_ptr<const CostModel>, std::less<>> asked_ HONE_GUARDED_BY(mutex_);
};

}  // namespace hone
