// What can be told of a kernel without compiling anything: how near it is to what the machine can do, how the search
// came to its schedule, what each choice was worth, and which rules made it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "backends/copy_speed.h"
#include "backends/machine_peaks.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "cache/schedule_cache.h"
#include "client/protocol/protocol.h"
#include "daemon/serve/request_path.h"
#include "ir/target.h"
#include "tuner/cost_model.h"
#include "tuner/space.h"

namespace hone {

// Thread-safe, once everything is set.
class Insight {
 public:
  using ModelSource = std::function<Result<std::shared_ptr<const CostModel>>(std::string_view kind)>;
  using PeaksSource = std::function<MachinePeaks(const Target& device, int threads)>;

  // `measure`: the roofs of a device; takes some tenths of a second. Without it, its backend measures.
  Insight(ScheduleCache& cache, const Devices& devices, PeaksSource measure = {})
      : cache_(cache), devices_(devices), measure_(std::move(measure)) {}

  // Where the newest cost model of a kind of device is to be had; without one nothing is estimated. Before anything is
  // asked.
  void SetModel(ModelSource model) { model_ = std::move(model); }

  // Everything but `row`, and of `reasons` those that only the search knows.
  Result<ExplainReply> Explain(const Record& record);

  // What the model says of a kernel of this machine, whether it was served or not. kNotFound: there is no model yet, or
  // it has seen too little.
  Result<PredictReply> Predict(const ResolvedKernel& identity);

  // Of a device that is served and here, in the words of a request. Measured at first, and again after a while. Errors
  // of Devices::Choose and of its backend; kUnsupported: it is not here.
  Result<CopySpeed> Copies(const std::string& target) HONE_EXCLUDES(copies_mutex_);

 private:
  struct Trials;

  Result<Trials> ReadTrials(const Record& record) const;
  std::vector<std::string> RecipientsOf(const Record& record) const;
  void ExplainSpace(const Record& record, const Trials& trials, ExplainReply& reply);
  static ChoiceRow WorthOf(const Choice& choice, const Candidate& now, const Space& space, const Trials& trials,
                           const CostModel* model);
  Roofline RooflineOf(const Record& record, const Space& space, const Trials& trials);
  // Of a device, all threads together. Measured at first, and again after a while: what was measured under load is too
  // low.
  MachinePeaks Peaks(const ServedDevice& device, int threads) HONE_EXCLUDES(peaks_mutex_);

  ScheduleCache& cache_;
  const Devices devices_;
  const PeaksSource measure_;
  ModelSource model_ = [](std::string_view) {
    return Error{ErrorKind::kNotFound, "there is no cost model here", "model"};
  };
  struct Measured {
    MachinePeaks peaks;
    MonotonicTime at{};
  };
  Mutex peaks_mutex_;                                                                    // one measures at a time
  std::map<std::pair<std::string, int>, Measured> peaks_ HONE_GUARDED_BY(peaks_mutex_);  // by target and threads
  struct Copied {
    CopySpeed speed;
    MonotonicTime at{};
  };
  Mutex copies_mutex_;                                                   // one measures at a time
  std::map<std::string, Copied> copies_ HONE_GUARDED_BY(copies_mutex_);  // by target
};

}  // namespace hone
