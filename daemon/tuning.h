// Refining kernels: searches, one at a time, away from serving; what they find replaces what is served.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>

#include "base/mutex.h"
#include "cache/schedule_cache.h"
#include "client/protocol.h"
#include "daemon/event_loop.h"
#include "daemon/job.h"
#include "daemon/metrics.h"
#include "daemon/request_path.h"
#include "daemon/shared_model.h"
#include "daemon/transfers.h"
#include "daemon/work_queue.h"
#include "daemon/workshop.h"
#include "tuner/case_search.h"
#include "tuner/search.h"

namespace hone {

class Tuning {
 public:
  // `on_better` is called in the loop's thread once better code is stored: what is in memory is out of date.
  Tuning(EventLoop& loop, ScheduleCache& cache, Workshop& workshop, RequestPath& path, SharedModel& model, Metrics& metrics,
         std::function<void(const Record&)> on_better);
  ~Tuning();

  // From the loop's thread: a TuneRequest. Answers with a TuneReply a round. kBusy when too many wait.
  void Handle(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body);

  void SetOnWork(std::function<void()> on_work) { on_work_ = std::move(on_work); }  // called when a request comes

  // Whose guesses searches begin with. Before anything is asked.
  void SetTransfers(const Transfers* transfers) { transfers_ = transfers; }
  const Transfers* transfers() const { return transfers_; }

  // What is searched now, from any thread.
  struct Now {
    std::string kernel;  // "" if nothing is
    bool by_request = false;
    int wanted = 0;
    SearchProgress progress;
  };
  Now now() const;

  // Stops what runs, keeps what it found; drops what waits. Shut the workshop down first.
  void Close();

  // For somebody who waits: a search of at most that time, from any thread. Begins after the one under way.
  Result<void> SearchFor(const Ask& ask, std::chrono::milliseconds time);

  // One kernel's search and what becomes of it. Thread-safe: searches take turns. When `stop` is requested, what was
  // found by then is only looked at further if `keep_when_stopped`.
  struct Outcome {
    SearchResult search;
    double served_us = 0;  // of what was served before, measured beside the best
    double ratio = 0;      // of it to the new one's; 0: nothing better was found
    Origin origin = Origin::kDefault;
    Fingerprint fingerprint;
  };
  Result<Outcome> Refine(const Ask& ask, SearchOptions options, Workshop& workshop, const SearchWatcher& watcher,
                         std::stop_token stop, bool keep_when_stopped);

 private:
  Result<TuneReply> Tune(const TuneRequest& request, const Job& job);
  Result<void> Promote(const Found& found, Record record, Rig& rig, std::stop_token stop, bool by_request,
                       Outcome& outcome);

  // Keeps it, has it served from now on, and tells. REQUIRES: the record's schedule, check and time are new_code's.
  Result<void> StoreRefined(const Found& found, Record record, const BuiltArtifact& new_code, double ratio,
                            bool by_request, Outcome& outcome);
  // daemon/refine_cases.cc: the same for kernels with dynamic sizes.
  Result<Outcome> RefineCases(const Found& found, const Record& served, const SearchOptions& options,
                              Workshop& workshop, const SearchWatcher& watcher, std::stop_token stop,
                              bool keep_when_stopped) HONE_REQUIRES(turn_);
  Result<void> PromoteCases(const Found& found, Record record, const Kernel& kernel, const CasesFound& cases,
                            Workshop& workshop, std::stop_token stop, bool by_request, Outcome& outcome);

  EventLoop& loop_;
  ScheduleCache& cache_;
  Workshop& workshop_;
  RequestPath& path_;
  SharedModel& model_;
  Metrics& metrics_;
  const std::function<void(const Record&)> on_better_;
  std::function<void()> on_work_ = [] {};
  const Transfers* transfers_ = nullptr;
  Mutex turn_;  // one search at a time: two would measure each other

  mutable Mutex now_mutex_;
  Now now_ HONE_GUARDED_BY(now_mutex_);
  std::atomic<uint64_t> searches_{0};
  std::stop_source stop_;
  WorkQueue queue_;
};

}  // namespace hone
