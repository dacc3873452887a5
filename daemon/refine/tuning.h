// Refining kernels: searches, one at a time, by processes of their own, away from serving; what they find replaces what
// is served. Who asks for searches takes turns of a few seconds; a search ends when nobody wants it any more.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <unordered_map>

#include "backends/processes/worker_pools.h"
#include "base/mutex.h"
#include "cache/schedule_cache.h"
#include "client/protocol/protocol.h"
#include "daemon/metrics.h"
#include "daemon/refine/shared_model.h"
#include "daemon/serve/compilations.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/fair_queue.h"
#include "daemon/serve/peer.h"
#include "daemon/serve/request_path.h"
#include "daemon/serve/transfers.h"
#include "tuner/case_search.h"
#include "tuner/search.h"

namespace hone {

class Tuning : public Searcher {
 public:
  // `start` is called when there is something to search, and again after that pools had nothing to do for a while.
  // `on_better` is called in the loop's thread once better code is stored: what is in memory is out of date.
  Tuning(EventLoop& loop, ScheduleCache& cache, StartWorkerPools start, RequestPath& path, SharedModel& model,
         Metrics& metrics, std::function<void(const Record&)> on_better);
  ~Tuning() override;

  // From the loop's thread. Answers with a TuneReply a round. kBusy when too many wait.
  void Handle(const PeerPtr& peer, uint64_t request_id, const TuneRequest& request, AttachedDevicePtr on) override;
  // Ends the search that it asked for by that request, if it runs or waits: it is answered with what it has found.
  bool Stop(const Peer& peer, uint64_t request_id) override;
  // The searches that it asked for end; what they found is kept.
  void OnGone(const Peer& peer) override;
  // For somebody who waits: a search of at most that time.
  Id Search(const KernelRequest& ask, std::chrono::milliseconds time, const ClientId& client,
            std::function<void()> done) override;
  void GiveUp(Id search) override;

  void SetOnWork(std::function<void()> on_work) { on_work_ = std::move(on_work); }  // called when a request comes

  // Whose guesses searches begin with. Before anything is asked.
  void SetTransfers(const Transfers* transfers) { transfers_ = transfers; }
  const Transfers* transfers() const { return transfers_; }

  // How many builds the pools make at once. Before anything is asked.
  void SetBuilders(int builders) { builders_ = builders; }

  // What is searched now, from any thread.
  struct Now {
    std::string kernel;  // "" if nothing is
    bool by_request = false;
    int wanted = 0;
    SearchProgress progress;
  };
  Now now() const;

  // How long a search goes on while another client's waits. Before anything is asked.
  void SetTurn(std::chrono::milliseconds turn) { turn_time_ = turn; }

  // How long the processes of searches stay when there is nothing to search.
  void SetPoolsIdle(std::chrono::milliseconds idle) { pools_idle_ = idle; }

  // Stops what runs, keeps what it found; drops what waits. Shut the pools down first.
  void Close();

  // One kernel's search and what becomes of it. Thread-safe: searches take turns. When `stop` is requested, what was
  // found by then is compared with what is served until `keep_until` stops that; nullopt: not at all.
  struct Outcome {
    SearchResult search;
    double served_us = 0;  // of what was served before, measured beside the best
    double ratio = 0;      // of it to the new one's; 0: nothing better was found
    Origin origin = Origin::kDefault;
    Fingerprint fingerprint;
  };
  // A search that may be stopped and go on later. If the record that it is about has gone meanwhile: kNotFound.
  struct Unfinished {
    std::optional<WallTime> created;  // of the record; nullopt: whatever there is, compiled if need be
    SearchState search;
    CasesState cases;
  };
  Result<Outcome> Refine(const KernelRequest& ask, SearchOptions options, WorkerPools& pools,
                         const SearchWatcher& watcher, std::stop_token stop, std::optional<std::stop_token> keep_until,
                         Unfinished* unfinished = nullptr);

  // The kernel was removed, or is to stay as it is: its search ends if it runs, and keeps nothing. From any thread.
  void EndSearchOf(const Fingerprint& kernel);

 private:
  class Underway;
  // daemon/refine/tuning_queue.cc: who asks for searches, and whose turn it is.
  struct Task;
  using TaskPtr = std::shared_ptr<Task>;
  bool Push(const TaskPtr& task);
  void RunTurn(const TaskPtr& task, const std::stop_token& turn);
  Result<Outcome> SearchInTurn(Task& task, const std::stop_token& stop, const std::stop_token& keep_until);
  void TellRound(Id id, std::string body);
  void OnTurnOver(const TaskPtr& task, Result<Outcome> outcome, bool was_displaced);
  void Finish(const TaskPtr& task, const Result<Outcome>& outcome);
  Result<std::shared_ptr<WorkerPools>> TakeWorkerPools(const AttachedDevicePtr& on);
  uint64_t WorkerPoolsUses();
  void CloseIdleWorkerPools(uint64_t uses);
  void ShutWorkerPoolsDown();

  Result<void> Promote(const LookUpResult& found, const Record& before, Evaluator& evaluator, std::stop_token stop,
                       bool by_request, Outcome& outcome);

  // Keeps it, has it served from now on, and tells. REQUIRES: the record's schedule, check and time are new_code's.
  // `before`: what is served. If that is gone, pinned or another by now, nothing changes.
  Result<void> StoreRefined(const LookUpResult& found, const Record& before, Record record,
                            const BuiltArtifact& new_code, double ratio, bool by_request, Outcome& outcome);
  // daemon/refine/refine_cases.cc: the same for kernels with dynamic sizes.
  Result<Outcome> RefineCases(const LookUpResult& found, const Record& served, const SearchOptions& options,
                              WorkerPools& pools, const SearchWatcher& watcher, std::stop_token stop,
                              const std::optional<std::stop_token>& keep_until, CasesState* state) HONE_REQUIRES(turn_);
  Result<void> PromoteCases(const LookUpResult& found, const Record& before, const Kernel& kernel,
                            const CasesFound& cases, WorkerPools& pools, std::stop_token stop, bool by_request,
                            Outcome& outcome);

  EventLoop& loop_;
  ScheduleCache& cache_;
  const StartWorkerPools start_;
  RequestPath& path_;
  SharedModel& model_;
  Metrics& metrics_;
  const std::function<void(const Record&)> on_better_;
  std::function<void()> on_work_ = [] {};
  const Transfers* transfers_ = nullptr;
  int builders_ = 1;
  Mutex turn_;  // one search at a time: two would measure each other

  mutable Mutex now_mutex_;
  Now now_ HONE_GUARDED_BY(now_mutex_);
  Fingerprint searched_ HONE_GUARDED_BY(now_mutex_);         // whose search runs …
  std::stop_source end_search_ HONE_GUARDED_BY(now_mutex_);  // … and what ends it
  std::atomic<uint64_t> searches_{0};
  std::stop_source stop_;

  std::chrono::milliseconds turn_time_ = std::chrono::seconds(5);
  std::chrono::milliseconds pools_idle_ = std::chrono::seconds(30);
  Mutex pools_mutex_;
  std::shared_ptr<WorkerPools> pools_ HONE_GUARDED_BY(pools_mutex_);
  std::weak_ptr<WorkerPools> pools_on_device_ HONE_GUARDED_BY(pools_mutex_);  // of the turn that is on an attached one
  uint64_t pools_uses_ HONE_GUARDED_BY(pools_mutex_) = 0;

  Id last_task_ = 0;
  std::unordered_map<Id, TaskPtr> tasks_;  // that wait or run
  // Where the thread hands its results to: outlives it, empty once this object is gone.
  std::shared_ptr<Tuning*> self_ = std::make_shared<Tuning*>(this);
  FairQueue queue_;
};

}  // namespace hone
