// Kernels that are compiled because somebody waits for them: each once, whoever asks; clients take turns of a slice;
// what nobody waits for any more runs when nothing else does; what failed is remembered for a while.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/metrics.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/failures.h"
#include "daemon/serve/fair_queue.h"
#include "daemon/serve/hot_set.h"
#include "daemon/serve/lookup_path.h"
#include "daemon/serve/waiter.h"

namespace hone {

struct MissLimits {
  uint32_t queue = 256;  // builds that wait
  PathLimits path;
};

// Searches for better code on behalf of those who ask or wait for it. Used by the event loop's thread alone.
class Searcher {
 public:
  using Id = uint64_t;
  virtual ~Searcher() = default;
  // A TuneRequest; answered a round at a time. `on`: the attached device that its target names, if it does.
  virtual void Handle(const PeerPtr& peer, uint64_t request_id, const TuneRequest& request, AttachedDevicePtr on) = 0;
  // Ends the search that it asked for by that request, if there is one.
  virtual bool Stop(const Peer& peer, uint64_t request_id) = 0;
  // The searches that it asked for end.
  virtual void OnGone(const Peer& peer) = 0;
  // Searches for at most that time, as `client`'s. `done` is called later, once, however it ends.
  virtual Id Search(const KernelRequest& ask, std::chrono::milliseconds time, const ClientId& client,
                    std::function<void()> done) = 0;
  // Nobody waits for it any more: it ends, and `done` is not called.
  virtual void GiveUp(Id search) = 0;
};

// Used by the event loop's thread alone; one thread per builder compiles.
class Compilations {
 public:
  // Looks a kernel up again for those who wait: a search has ended.
  using LookUp = std::function<void(const std::string& name, const KernelRequest& ask, Waiters waiters)>;

  Compilations(EventLoop& loop, LookupPath& path, HotSet& hot, Metrics& metrics, int builders, const MissLimits& limits,
               LookUp look_up);
  ~Compilations();

  // For those who asked by `name`, RequestName of their request. Answers now or later.
  void Start(const std::string& name, LookUpResult found, Waiters waiters);
  // Compiles or checks what nobody waits for, when nothing else is to be done. `done` is called later, once.
  void Prepare(LookUpResult found, std::function<void()> done);
  void Forget(const Peer& peer);
  // The budget of somebody who has code already, and would have waited for better, has ended: that code is the answer.
  void OnSearchOver(const WaiterPtr& waiter);
  uint32_t BuildMs() const;  // what a compilation took of late

  void SetLimits(const MissLimits& limits);
  void SetOnWork(std::function<void()> on_work) { on_work_ = std::move(on_work); }  // called when one is begun
  void SetSearcher(Searcher* searcher) { searcher_ = searcher; }

  // What has not begun is answered kUnavailable, as is what comes; what is under way is still answered.
  void Stop();
  // Stops, answers everyone else kUnavailable and waits for the threads. Shut the pools down first.
  void Close();

 private:
  struct Compilation {
    std::shared_ptr<const LookUpResult> found;
    std::vector<std::string> names;  // some of the requests that turned out to be this kernel
    Waiters waiters;
    FairQueue::Id job = 0;
    ClientId client{};           // who wanted it first
    std::function<void()> done;  // nullptr: nobody is told
    std::chrono::milliseconds slice{};
    int displaced = 0;
    bool was_promised = false;  // somebody who has left was told to ask again
    uint64_t forgets = 0;       // HotSet::forgets when it was begun
  };
  struct Refinement {
    Searcher::Id id = 0;
    Waiters waiters;
  };

  bool Push(const std::string& key, Compilation& compilation);
  Result<Compiled> Compile(LookUpResult found, const PathLimits& limits, WaitClock::time_point until, uid_t user,
                           const std::stop_token& stop);
  void OnCompiled(const std::string& key, Result<Compiled> compiled, bool was_stopped);
  // Answers those who wait, or has it searched further for them.
  void Serve(const std::string& key, const Compilation& done, const Compiled& compiled);
  void Fail(const std::string& key, const Compilation& done, const Error& error, bool was_stopped);
  void OnDropped(const std::string& key);
  // Whether it begins again.
  bool BeginAgain(const std::string& key, Compilation& compilation);
  void SearchFurther(const std::string& key, const Compilation& compilation, Waiters waiters);
  void AnswerBusy(const Waiters& waiters, std::string_view why);
  uint32_t RetryAfterMs() const;
  void CountQueued();

  EventLoop& loop_;
  LookupPath& path_;
  HotSet& hot_;
  Metrics& metrics_;
  const int builders_;
  MissLimits limits_;
  const LookUp look_up_;
  std::function<void()> on_work_ = [] {};
  Searcher* searcher_ = nullptr;
  bool stopped_ = false;
  double mean_build_ms_ = 50;                                  // of late: the newest weighs an eighth
  std::unordered_map<std::string, Compilation> compilations_;  // by ResolvedKernel::name
  std::unordered_map<std::string, Refinement> refinements_;    // by ResolvedKernel::name
  Failures failures_;
  // Where threads hand their results to: outlives them, empty once this object is gone.
  std::shared_ptr<Compilations*> self_ = std::make_shared<Compilations*>(this);
  FairQueue queue_;
};

// What those who wait are told.
Error ShuttingDown();
Error OutOfMemory();
Error BusyError(std::string_view what, uint32_t retry_ms);
// honed itself, where it wants something.
ClientId OwnClient();
// Whose fault an error is, for the counters.
bool IsRefusal(ErrorKind kind);

}  // namespace hone
