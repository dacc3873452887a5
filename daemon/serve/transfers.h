// What to serve a kernel with that nobody has tuned: fits of its neighbours' schedules, ranked
// (tuner/ranked_transfer.h); and the provenance of the choice, kept in the cache beside the record, for `hone explain`
// and for what is refined next.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "cache/neighbours.h"
#include "cache/schedule_cache.h"
#include "client/protocol/protocol.h"
#include "tuner/cost_model.h"
#include "tuner/measure.h"
#include "tuner/ranked_transfer.h"

namespace hone {

// A kernel's possible schedules, best guess first.
struct TransferPlan {
  std::vector<Transfer> transfers;
  std::vector<size_t> order;        // of those that are not refused
  std::vector<double> measured_us;  // by transfer; 0: not measured
  double confidence = 0;            // 0 … 1, see Transfers
};

// How many donors are asked: as many of a kernel's class, and of others. What is ranked alone gains nothing from more
// than the nearest few, and waits for their fits; what is measured finds better ones farther away (docs/transfer.md).
enum class Reach : uint8_t {
  kNear,  // 4 and 2
  kWide   // 6 and 4
};

// Thread-safe. Confidence: 1 for a donor of the same class and sizes whose rank the model vouches for, halved with
// every two doublings of distance, halved between classes and where there was no model to ask, 0 without any donor.
class Transfers {
 public:
  using ModelSource = std::function<Result<std::shared_ptr<const CostModel>>(std::string_view kind)>;

  // Reads the donors of the cache in a thread of its own, since a donor costs a tenth of a millisecond; until then
  // those read so far count. A plan is made on up to `threads`.
  Transfers(ScheduleCache& cache, int threads);
  ~Transfers();
  void Close();

  // Before anything is asked. Without a model, or before it has learnt, the nearest donor counts as the best.
  void SetModel(ModelSource model) { model_ = std::move(model); }

  // The kernel's records were stored, replaced or removed: the same thread looks at what the cache has of it now.
  void ReadAgain(const Fingerprint& fingerprint);
  const Neighbours& donors() const { return donors_; }
  bool IsReady() const { return is_ready_; }
  // When the schedule that a record's is a fit of was last bettered: after `record.updated`, the recipient is to be
  // fitted anew. nullopt: it has no donor, or that is none any more.
  std::optional<WallTime> DonorChanged(const Record& record) const;

  // Takes milliseconds, measures nothing. kInvalid, kLimit: the kernel has no schedules, or is too large for them to be
  // compared while somebody waits. kUnavailable: `stop` was requested.
  Result<TransferPlan> Plan(const CacheKey& key, const Target& target, Reach reach,
                            const std::stop_token& stop = {}) const;

 private:
  void ReadAll(const std::stop_token& stop);
  // What was changed, until `stop` is requested.
  void ReadOn(const std::stop_token& stop);
  // The next that is to be read again; nullopt: `stop` was requested.
  std::optional<Fingerprint> NextToRead(const std::stop_token& stop);
  // What its schedule gained over the default is read from the log of its trials.
  void Put(const Record& record);

  ScheduleCache& cache_;
  const int threads_;
  Neighbours donors_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Fingerprint> to_read_ HONE_GUARDED_BY(mutex_);
  ModelSource model_ = [](std::string_view) {
    return Error{ErrorKind::kNotFound, "there is no cost model here", "model"};
  };
  std::atomic<bool> is_ready_{false};
  std::jthread reader_;
};

// Measures the best guesses until `time` is over, none where it is too short for two, and puts what was measured in
// front, fastest first; what failed goes. `flops`: of the kernel, 0 if not known. Every trial is told. Ends early when
// `stop` is requested. Errors as MeasureBatch.
Result<void> MeasurePlan(Evaluator& evaluator, int workers, double flops, std::chrono::milliseconds time,
                         TransferPlan& plan, const std::function<void(const Trial&)>& on_trial,
                         const std::stop_token& stop = {});

// The provenance of serving plan.transfers[chosen].
TransferProvenance ProvenanceOf(const TransferPlan& plan, size_t chosen);
// Kept beside the record. A cache that cannot be written forgets it.
void KeepProvenance(ScheduleCache& cache, const CacheKey& key, const TransferProvenance& provenance);
// nullopt: there is none, or it is damaged.
std::optional<TransferProvenance> ProvenanceOf(ScheduleCache& cache, const CacheKey& key);
std::string PrintProvenance(const TransferProvenance& provenance);
Result<TransferProvenance> ParseProvenance(std::string_view text);  // kCorrupt

}  // namespace hone
