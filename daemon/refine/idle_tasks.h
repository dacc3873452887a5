// The kernels that idle time may refine, and how far it came with each: a few numbers a kernel, however many there are.
#pragma once

#include <chrono>
#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cache/schedule_cache.h"
#include "client/protocol/refine_messages.h"
#include "daemon/refine/tuning.h"
#include "daemon/serve/request_path.h"
#include "tuner/task_scheduler.h"

namespace hone {

class IdleTasks {
 public:
  IdleTasks(ScheduleCache& cache, const Devices& devices) : cache_(cache), devices_(devices) {}

  // Reads the cache, unless it was read not long ago and no more was `compiled` since. What is gone is forgotten.
  // `transfers`: who knows better donors; nullptr: nobody.
  Result<void> Look(uint64_t compiled, const Transfers* transfers);

  // The one that promises the most, and its record. nullopt: all are refined.
  struct Turn {
    size_t index = 0;
    Record record;
    uint64_t seed = 1;  // another one each turn, or the same candidates would come again
    std::string best;   // choices of the fastest trial, where the gate closed before it could be compared
  };
  std::optional<Turn> Next();

  // What came of a turn, one of these.
  void CannotBeRefined(const Turn& turn) { tasks_[turn.index].stale = kRefined; }
  void Failed(const Turn& turn, int64_t trials);  // counts as so many that won nothing
  // `was_stopped`: it had no end. The outcome is kept across restarts, unless the record was removed.
  Result<void> Refined(const Turn& turn, const Tuning::Outcome& outcome, bool was_stopped);

  // Kernels of this machine and what is expected of each, the most promising first.
  struct Plan {
    std::vector<TopTask> tasks;  // at most 100
    uint64_t refinable = 0, waiting = 0;
  };
  Plan MakePlan() const;

 private:
  // A kernel on a target with that many threads.
  struct Id {
    Fingerprint fingerprint;
    uint64_t target_and_threads = 0;  // hashed
    auto operator<=>(const Id&) const = default;
  };
  struct Progress {
    Id id;
    WallTime created{};  // of the record that this is about
    double won = 1;      // times faster
    std::string best;
    WallTime refit_for{}, refitted{};  // the donor's newest version: to be fitted, and fitted last
  };
  static Id IdOf(const Record& record);
  std::optional<Record> RecordOf(const Id& id) const;
  bool IsDoubtful(const Record& record, const Transfers* transfers, RefineTask& task, Progress& progress) const;
  void TookTurn(size_t index);

  ScheduleCache& cache_;
  const Devices& devices_;
  std::vector<RefineTask> tasks_;
  std::vector<Progress> progress_;  // of each task
  MonotonicTime looked_at_{};
  uint64_t looked_at_compiled_ = 0;
  int64_t turn_ = 0;
};

}  // namespace hone
