// Requests that memory could not answer: who waits for what. Equal requests become one look-up, equal kernels one
// compilation; what waits is bounded; a client that left is no longer waited for.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/protocol.h"
#include "daemon/event_loop.h"
#include "daemon/hot_set.h"
#include "daemon/metrics.h"
#include "daemon/peer.h"
#include "daemon/request_path.h"
#include "daemon/work_queue.h"

namespace hone {

struct MissLimits {
  uint32_t queue = 256;  // builds that wait
  PathLimits path;
};

// Used by the event loop's thread alone. Look-ups have a thread of their own, so that code on disk never waits for a
// compilation; compilations have one thread per builder.
class Misses {
 public:
  Misses(EventLoop& loop, RequestPath& path, HotSet& hot, Metrics& metrics, int builders, const MissLimits& limits);
  ~Misses();

  // Answers now or later. `name` is RequestName(request); `begun` when the request was read.
  void Ask(const PeerPtr& peer, uint64_t request_id, const GetRequest& request, std::string name, Stopwatch begun);
  void Forget(const Peer& peer);
  void SetLimits(const MissLimits& limits) { limits_ = limits; }
  void SetOnWork(std::function<void()> on_work) {
    on_work_ = std::move(on_work);
  }  // called when a compilation is begun

  // Searches for better code for a while, in a compilation's thread: for those who would wait for seconds.
  using Refine = std::function<void(const hone::Ask& ask, std::chrono::milliseconds time)>;
  void SetRefine(Refine refine) { refine_ = std::move(refine); }

  // From now on nothing is begun: who waits for something that has not begun is answered kUnavailable, as is who comes.
  // What is under way is still answered.
  void Stop();
  // Stops, answers everyone else kUnavailable and waits for the threads. Shut the workshop down first.
  void Close();

 private:
  struct Waiter {
    uint64_t serial;
    PeerPtr peer;
    uint64_t request_id;
    bool no_compile;
    bool no_artifact;
    std::chrono::microseconds budget;
    Stopwatch begun;
  };
  struct Compilation {
    std::vector<std::string> names;  // requests that turned out to be this kernel
    std::vector<Waiter> waiters;
    WorkQueue::Id work = 0;
    uint64_t forgets = 0;  // HotSet::forgets when it was begun
    bool keep = false;     // goes on though nobody waits: somebody was told to ask again
  };

  void StartLookup(const std::string& name, hone::Ask ask);
  void OnFound(const std::string& name, const hone::Ask& ask, uint64_t forgets, Result<Found> found);
  void StartCompilation(const std::string& name, Found found, std::vector<Waiter> waiters);
  void OnCompiled(const std::string& key, Result<Compiled> compiled);
  void OnBudget(const std::string& key, uint64_t serial);
  void AnswerHit(const Waiter& waiter, const HotCodePtr& code);
  void AnswerError(const Waiter& waiter, const Error& error, uint32_t retry_after_ms = 0);
  uint32_t RetryAfterMs() const;
  bool Cancel(const Compilation& compilation);

  EventLoop& loop_;
  RequestPath& path_;
  HotSet& hot_;
  Metrics& metrics_;
  const int builders_;
  MissLimits limits_;
  Result<Compiled> Compile(const Found& found, const PathLimits& limits, std::chrono::microseconds budget);

  std::function<void()> on_work_ = [] {};
  Refine refine_;
  uint64_t last_serial_ = 0;
  bool stopped_ = false;
  double mean_build_ms_ = 50;                                     // of late: the newest weighs an eighth
  std::unordered_map<std::string, std::vector<Waiter>> lookups_;  // by RequestName
  std::unordered_map<std::string, Compilation> compilations_;     // by Identity::name
  // Where threads hand their results to: outlives them, empty once this object is gone.
  std::shared_ptr<Misses*> self_ = std::make_shared<Misses*>(this);
  WorkQueue lookup_queue_;
  WorkQueue compile_queue_;
};

}  // namespace hone
