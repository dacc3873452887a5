// Idle time made useful: while the machine is idle, refine the kernel that promises the most, a slice at a time.
//
//   IdleGate says quiet → IdleTasks::Next → Tuning::Refine (a slice of trials) → remember how far it came → again
//
// It has builder and runner processes of its own, below everything else on the machine, started when idle time begins.
// When it ends they stop where they are, at once and for nothing, since it may be over in a moment; they are killed if
// it is not, or if somebody waits for an answer.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "backends/processes/worker_pools.h"
#include "base/mutex.h"
#include "daemon/metrics.h"
#include "daemon/refine/idle_gate.h"
#include "daemon/refine/idle_tasks.h"
#include "daemon/refine/tuning.h"
#include "daemon/serve/request_path.h"

namespace hone {

class IdleLoop {
 public:
  // `start_pools`: processes for idle time.
  // `share`: of idle time that is used, in (0, 1].
  // `idle_group`: where they run, and searches think; nullptr: there is none.
  IdleLoop(ScheduleCache& cache, RequestPath& path, Tuning& tuning, Metrics& metrics, const IdleLimits& limits,
           double share, std::function<Result<std::unique_ptr<WorkerPools>>()> start_pools,
           const IdleGroup* idle_group = nullptr);
  ~IdleLoop();  // stops at once

  // Somebody waits for an answer that takes work: idle time is over, its processes are killed before this returns. Any
  // thread; never waits.
  void Interrupt();

  void SetLimits(const IdleLimits& limits, double share);

  // For `hone status`, from any thread: what the gate says, and what is refined at this moment ("" if nothing).
  std::string state() const;
  std::string task() const;

  using Plan = IdleTasks::Plan;  // made anew with every slice
  Plan plan() const;

  // Kills the processes and waits for the threads. A search under way keeps nothing.
  void Close();

 private:
  void Watch(std::stop_token stop);  // samples the machine, opens and closes the gate
  void WaitForSample(MachineLoad& load, const LoadSample& last, bool is_at_work, std::stop_token stop);
  bool HasToEnd() const HONE_REQUIRES(mutex_) { return is_refining_ && slice_.stop_requested(); }
  void Work(std::stop_token stop);
  void Heed(const IdleGate& gate, bool is_serving) HONE_REQUIRES(mutex_);  // stops the processes, or lets them go on
  void Shut() HONE_REQUIRES(mutex_);                                       // ends the slice under way and its processes
  void Bury();                                                             // what has ended
  void Rest(std::chrono::nanoseconds time, std::stop_token stop);
  Result<void> RefineOne(std::stop_token stop);
  // Whether somebody else's work is on the device that the record is for, as far as times tell.
  Result<bool> IsInUse(const KernelRequest& ask, const Record& record, WorkerPools& pools);
  Result<std::shared_ptr<WorkerPools>> StartedWorkerPools(std::stop_token stop);

  RequestPath& path_;
  Tuning& tuning_;
  Metrics& metrics_;
  IdleTasks tasks_;  // of the working thread alone
  const std::function<Result<std::unique_ptr<WorkerPools>>()> start_pools_;
  const IdleGroup* const idle_group_;

  mutable Mutex mutex_;
  CondVar changed_;
  IdleLimits limits_ HONE_GUARDED_BY(mutex_);
  double share_ HONE_GUARDED_BY(mutex_);
  bool open_ HONE_GUARDED_BY(mutex_) = false;
  bool interrupted_ HONE_GUARDED_BY(mutex_) = false;  // since the last sample
  uint64_t interrupts_ HONE_GUARDED_BY(mutex_) = 0;
  bool resting_ HONE_GUARDED_BY(mutex_) = false;  // there is nothing to do, or no share of the time left
  std::string state_ HONE_GUARDED_BY(mutex_) = "looking";
  std::string task_ HONE_GUARDED_BY(mutex_);
  Plan plan_ HONE_GUARDED_BY(mutex_);
  bool is_refining_ HONE_GUARDED_BY(mutex_) = false;
  std::stop_source slice_ HONE_GUARDED_BY(mutex_);  // of the search under way
  std::shared_ptr<WorkerPools> pools_ HONE_GUARDED_BY(mutex_);
  std::shared_ptr<WorkerPools> ended_
      HONE_GUARDED_BY(mutex_);  // its processes are killed: to be reaped without the lock
  MonotonicTime closed_at_ HONE_GUARDED_BY(mutex_){};
  std::chrono::nanoseconds closed_for_ HONE_GUARDED_BY(mutex_){};  // all in all

  std::jthread watcher_, worker_;
};

}  // namespace hone
