// Requests that memory could not answer: who waits for what. Equal requests become one look-up, equal kernels one
// compilation (daemon/serve/compilations.h); clients take turns; a budget counts from the request's arrival.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "client/protocol/protocol.h"
#include "daemon/metrics.h"
#include "daemon/serve/compilations.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/fair_queue.h"
#include "daemon/serve/hot_set.h"
#include "daemon/serve/lookup_path.h"
#include "daemon/serve/peer.h"
#include "daemon/serve/waiter.h"

namespace hone {

// Used by the event loop's thread alone. Look-ups have a thread of their own, so that code on disk never waits for a
// compilation.
class Misses {
 public:
  Misses(EventLoop& loop, LookupPath& path, HotSet& hot, Metrics& metrics, int builders, const MissLimits& limits);
  ~Misses();

  // Answers now or later. `name` is RequestName(request); `begun` when the request was read; `on`: the attached device
  // that its target names, if it does.
  void Ask(const PeerPtr& peer, uint64_t request_id, const GetRequest& request, std::string name, Stopwatch begun,
           AttachedDevicePtr on = nullptr);
  void Forget(const Peer& peer);
  // Has a kernel that nobody waits for compiled, or its code checked, when nothing else is to be done; not if there is
  // code of it, or it failed of late. `which` says which one, in the look-ups' thread; nullopt: none. `done` is called
  // later, once, unless everything ends before.
  void Prepare(std::function<std::optional<KernelRequest>(const Devices& devices)> which, std::function<void()> done);
  void SetLimits(const MissLimits& limits) { compilations_.SetLimits(limits); }
  void SetOnWork(std::function<void()> on_work) { compilations_.SetOnWork(std::move(on_work)); }
  void SetSearcher(Searcher* searcher) { compilations_.SetSearcher(searcher); }

  // From now on nothing is begun: who waits for something that has not begun is answered kUnavailable, as is who comes.
  // What is under way is still answered.
  void Stop();
  // Stops, answers everyone else kUnavailable and waits for the threads. Shut the pools down first.
  void Close();

 private:
  struct Lookup {
    KernelRequest ask;
    Waiters waiters;
    FairQueue::Id job = 0;
    bool is_second = false;
  };

  // Looks up `ask` for those who wait, joining a look-up of the same name that is under way.
  void LookUp(const std::string& name, const KernelRequest& ask, Waiters waiters);
  bool PushLookup(const std::string& name, Lookup& lookup);
  void OnFound(const std::string& name, uint64_t forgets, Result<LookUpResult> found);
  bool LookUpAgain(const std::string& name, Lookup& lookup);
  // Answers those who wait, or has it compiled for them.
  void Serve(const std::string& name, const Lookup& lookup, LookUpResult found, bool is_stale);
  void OnDropped(const std::string& name);
  void OnBudget(const WaiterPtr& waiter);
  void AnswerAll(const Waiters& waiters, const Error& error, uint32_t retry_after_ms = 0);

  EventLoop& loop_;
  LookupPath& path_;
  HotSet& hot_;
  Metrics& metrics_;
  bool stopped_ = false;
  std::unordered_map<std::string, Lookup> lookups_;  // by RequestName
  // Where threads hand their results to: outlives them, empty once this object is gone.
  std::shared_ptr<Misses*> self_ = std::make_shared<Misses*>(this);
  Budgets budgets_;
  FairQueue queue_;
  Compilations compilations_;
};

}  // namespace hone
