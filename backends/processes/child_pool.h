// A few identical child processes, each leased to one caller at a time. A child that died or misbehaved is replaced at
// once; one that keeps dying is replaced more and more slowly. Who waits here may be told to stop: a child that is at
// work for him is killed then, and another one takes its place.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/processes/child_channel.h"
#include "backends/sandbox/sandbox.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/subprocess.h"

namespace hone {

struct ChildPoolOptions {
  std::string name;           // "builder": for messages and the log
  SubprocessOptions process;  // without the channel, which becomes descriptor 3 of the child
  int children = 1;
};

inline constexpr int kChildChannelFd = 3;

// Thread-safe.
class ChildPool {
 private:
  struct Child;

 public:
  // A child of the caller's own until destroyed. One thread at a time; must not outlive the pool.
  class Lease {
   public:
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease();

    // False once the child is dead or was killed for what it did; every call fails from then on.
    bool alive() const;
    // Gives the child a clean start: errors forgotten, `cpu_seconds` of processor time (0: no limit).
    void StartRequest(int cpu_seconds);
    // Sends a message and waits for the reply with its id. An error means that the child was killed or is dead, and
    // another one takes its place: kTimeout (no whole answer until the deadline), kUnavailable (it died; the message
    // says how, with the end of its standard error, or that the pool was shut down, or "given up": `stop` was
    // requested), kCorrupt (it answered garbage). A kError reply is a frame like any other.
    Result<ChildFrame> Call(ChildMessage type, std::string_view body, const std::vector<int>& fds,
                            MonotonicTime deadline, const std::stop_token& stop = {});
    // The two halves of Call. A stop before anything was sent leaves the child as it is.
    Result<uint64_t> Send(ChildMessage type, std::string_view body, const std::vector<int>& fds, MonotonicTime deadline,
                          const std::stop_token& stop = {});
    Result<ChildFrame> Receive(uint64_t id, MonotonicTime deadline, const std::stop_token& stop = {});
    // Nobody wants the reply with that id any more: a child that has not given it yet is killed.
    void Abandon(uint64_t id);
    // Kills the child because of what it said. Returns `why` with the end of its standard error.
    Error Reject(std::string_view why);
    // It was ended by somebody else: by hand, or for want of memory. What it was asked is not to blame.
    bool was_killed() const { return killed_at_ != MonotonicTime(); }
    MonotonicTime killed_at() const { return killed_at_; }  // when that was found out
    // It ended by itself before it said what holds it, as one does that finds no process or memory to start with. It
    // has read nothing of what it was asked.
    bool has_failed_to_start() const { return has_failed_to_start_; }

   private:
    friend class ChildPool;
    Lease(ChildPool& pool, Child& child) : pool_(&pool), child_(&child) {}
    Postpone PastPauses(MonotonicTime deadline, const std::stop_token& stop) const;
    Result<ChildFrame> ReceiveAnswer(MonotonicTime deadline, const std::stop_token& stop, const Postpone& postpone);
    Error Died();
    Error GiveUp();
    Error Discard(ErrorKind kind, std::string message);
    void Bury();
    ChildPool* pool_ = nullptr;
    Child* child_ = nullptr;
    MonotonicTime killed_at_{};
    bool has_failed_to_start_ = false;
  };

  // Starts the children. kIo, kNotFound.
  static Result<std::unique_ptr<ChildPool>> Start(ChildPoolOptions options);
  ~ChildPool();  // = Shutdown. REQUIRES: no lease is alive

  // Waits for a free child. kBusy at the deadline; kUnavailable after Shutdown, when children cannot be started, or
  // when `stop` is requested. A child that was started before `born_after` is replaced first. That is for who lost
  // one that somebody else killed, at that moment: whoever did it may have killed idle ones as well, and a process that
  // was killed looks alive until it has been given a processor to end on. One that has worked for a user is replaced
  // before it works for another.
  Result<Lease> Acquire(MonotonicTime deadline, const std::stop_token& stop = {}, MonotonicTime born_after = {},
                        std::optional<uint32_t> user = {});

  // Stops all children and what they started where they are, and those that are started meanwhile, until Resume. Calls
  // under way wait; the pause is not counted against what a child has until its deadline.
  void Pause();
  void Resume();
  void AwaitResume(const std::stop_token& stop = {});  // returns once it is not paused, or shut down, or to stop

  // Kills all children. Calls under way return kUnavailable at once; the destructor waits until they have ended.
  void Shutdown();

  // What holds the children, as the one that started last has found; empty until one has said so, which takes them
  // moments. Those of one kind are all alike.
  std::vector<Confinement> Confinements();

  bool IsShutDown() const;
  uint64_t restarts() const;
  int busy() const;

 private:
  explicit ChildPool(ChildPoolOptions options);
  Result<void> StartChild(Child& child);
  Result<void> TryToStart(Child& child);
  Result<Child*> AwaitFree(MonotonicTime deadline, const std::stop_token& stop, std::optional<uint32_t> user);
  Error NoneInTime(std::string what_kept_them) const HONE_REQUIRES(mutex_);
  void Release(Child& child);
  void Disown(Child& child);
  MonotonicTime::duration PausedSoFar() const;
  bool Hear(Child& child, const ChildFrame& frame) HONE_REQUIRES(mutex_);
  static void SignalGroup(const Child& child, int signal);
  static void Cut(const Child& child);
  class CutOnStop;

  const ChildPoolOptions options_;
  mutable Mutex mutex_;
  CondVar released_;
  std::vector<std::unique_ptr<Child>> children_;               // fixed after Start
  std::optional<Error> cannot_start_ HONE_GUARDED_BY(mutex_);  // of the last start
  bool shut_down_ HONE_GUARDED_BY(mutex_) = false;
  bool paused_ HONE_GUARDED_BY(mutex_) = false;
  MonotonicTime paused_at_ HONE_GUARDED_BY(mutex_){};
  MonotonicTime::duration paused_before_ HONE_GUARDED_BY(mutex_){};  // in pauses that are over
  std::vector<Confinement> confinements_ HONE_GUARDED_BY(mutex_);
  uint64_t restarts_ HONE_GUARDED_BY(mutex_) = 0;
  uint64_t next_id_ HONE_GUARDED_BY(mutex_) = 1;
};

}  // namespace hone
