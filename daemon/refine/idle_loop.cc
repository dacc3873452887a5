#include "daemon/refine/idle_loop.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/log.h"
#include "codegen/machine_model.h"

namespace hone {
namespace {

// How often the machine is looked at. Other work ends idle time within 200 ms; most of it sooner, since between two
// samples of an open gate a glance tells whether somebody is at work.
constexpr std::chrono::milliseconds kSampleOpen{100};
constexpr std::chrono::milliseconds kSampleClosed{400};
constexpr std::chrono::milliseconds kGlance{20};
constexpr double kGlanced = 0.02;               // seconds of processor time that ask for a sample
constexpr std::chrono::seconds kKept{5};        // that processes wait for idle time to come back
constexpr std::chrono::seconds kLookAgain{20};  // when everything is refined
constexpr std::chrono::seconds kTryAgain{1};    // after a failure; twice as long after each in a row, up to kLookAgain
constexpr int kSlice = 64;                      // trials before the next kernel is chosen
constexpr double kInUse = 1.5;                  // times what a call took: others share the device

}  // namespace

IdleLoop::IdleLoop(ScheduleCache& cache, RequestPath& path, Tuning& tuning, Metrics& metrics, const IdleLimits& limits,
                   double share, std::function<Result<std::unique_ptr<WorkerPools>>()> start_pools,
                   const IdleGroup* idle_group)
    : path_(path),
      tuning_(tuning),
      metrics_(metrics),
      tasks_(cache, path.devices()),
      start_pools_(std::move(start_pools)),
      idle_group_(idle_group),
      limits_(limits),
      share_(share) {
  watcher_ = std::jthread([this](std::stop_token stop) { Watch(stop); });
  worker_ = std::jthread([this](std::stop_token stop) { Work(stop); });
}

IdleLoop::~IdleLoop() { Close(); }

void IdleLoop::Close() {
  worker_.request_stop();
  {
    MutexLock lock(mutex_);
    Shut();
  }
  if (worker_.joinable()) worker_.join();  // the watcher sees to it that it ends soon
  watcher_.request_stop();
  {
    MutexLock lock(mutex_);
    changed_.NotifyAll();
  }
  if (watcher_.joinable()) watcher_.join();
}

void IdleLoop::Interrupt() {
  MutexLock lock(mutex_);
  interrupted_ = true;
  ++interrupts_;
  if (open_) ++metrics_.idle_interrupts;
  state_ = "serving";
  Shut();
}

void IdleLoop::SetLimits(const IdleLimits& limits, double share) {
  MutexLock lock(mutex_);
  limits_ = limits;
  share_ = share;
}

void IdleLoop::Heed(const IdleGate& gate, bool is_serving) {
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (open_ != gate.open()) {
    open_ = gate.open();
    if (open_)
      closed_for_ += now - closed_at_;
    else
      closed_at_ = now;
    if (!open_ && is_serving) ++metrics_.idle_interrupts;  // seen before Interrupt was called
    if (pools_ && open_) pools_->Resume();
    if (pools_ && !open_) pools_->Pause();
    changed_.NotifyAll();
  } else if (!open_ && pools_ && now > closed_at_ + kKept) {
    Shut();
  }
}

void IdleLoop::Shut() {
  if (open_) closed_at_ = std::chrono::steady_clock::now();
  open_ = false;
  slice_.request_stop();
  changed_.NotifyAll();
  if (!pools_) return;
  pools_->Shutdown();
  ended_ = std::move(pools_);
}

void IdleLoop::Bury() {
  std::shared_ptr<WorkerPools> ended;
  MutexLock lock(mutex_);
  ended.swap(ended_);
}

std::string IdleLoop::state() const {
  MutexLock lock(mutex_);
  return state_;
}

IdleLoop::Plan IdleLoop::plan() const {
  MutexLock lock(mutex_);
  return plan_;
}

std::string IdleLoop::task() const {
  MutexLock lock(mutex_);
  return open_ ? task_ : "";
}

void IdleLoop::Watch(std::stop_token stop) {
  IdleGate gate{{}};
  MachineLoad load;
  while (!stop.stop_requested()) {
    Result<LoadSample> sample = load.Sample();
    if (!sample) {
      MutexLock lock(mutex_);
      state_ = sample.error().Text();
      Shut();
      return;  // a system that does not tell is never idle
    }
    sample->is_serving = metrics_.builds_running > 0 || metrics_.builds_queued > 0;
    bool is_at_work;
    {
      MutexLock lock(mutex_);
      sample->is_serving |= std::exchange(interrupted_, false);
      gate.SetLimits(limits_);
      gate.Add(*sample);
      Heed(gate, sample->is_serving);
      state_ = resting_ && open_ ? "resting" : gate.why();
      is_at_work = open_ && !resting_;
    }
    WaitForSample(load, *sample, is_at_work, stop);
  }
}

// Looking costs time, too: often only where something could be disturbed. Meanwhile, a search that has to end is helped
// to: on a machine that others have taken, what it thinks in the idle group could take seconds.
void IdleLoop::WaitForSample(MachineLoad& load, const LoadSample& last, bool is_at_work, std::stop_token stop) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + (is_at_work ? kSampleOpen : kSampleClosed);
  Clock::duration glance = is_at_work ? kGlance : kSampleClosed;
  bool has_to_end = false;
  while (!stop.stop_requested() && Clock::now() < until) {
    if (has_to_end && idle_group_ != nullptr) idle_group_->Recall();  // again and again, until it has
    {
      const auto next = std::min(until, Clock::now() + (has_to_end ? kGlance : glance));
      MutexLock lock(mutex_);
      for (auto left = next - Clock::now(); left.count() > 0 && has_to_end == HasToEnd() && !stop.stop_requested();
           left = next - Clock::now())
        changed_.WaitFor(mutex_, left);
      has_to_end = HasToEnd();
    }
    if (!is_at_work || has_to_end) continue;
    const auto begin = Clock::now();
    if (load.BusyUserSeconds().value_or(0) - last.user_s > kGlanced - 1e-9) return;
    glance = std::max<Clock::duration>(kGlance, 100 * (Clock::now() - begin));  // many cores take long to read
  }
}

void IdleLoop::Work(std::stop_token stop) {
  // Thinking and learning are idle work, too. (Of this thread alone; not of the lowest class: it holds locks.)
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
  std::chrono::nanoseconds try_again = kTryAgain;
  while (!stop.stop_requested()) {
    Bury();
    std::stop_token slice;
    std::chrono::nanoseconds closed_before;
    {
      MutexLock lock(mutex_);
      if (!open_) changed_.WaitFor(mutex_, std::chrono::seconds(1));
      if (!open_ || stop.stop_requested()) continue;
      slice_ = std::stop_source();
      slice = slice_.get_token();
      is_refining_ = true;
      closed_before = closed_for_;
    }
    const MonotonicTime begin = std::chrono::steady_clock::now();
    Result<void> done = RefineOne(slice);
    std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    double share;
    {
      MutexLock lock(mutex_);
      task_.clear();
      is_refining_ = false;
      share = share_;
      spent -= closed_for_ - closed_before;  // paused meanwhile
      if (!done && pools_) ended_ = std::move(pools_);
    }
    Bury();
    if (slice.stop_requested()) continue;
    if (done) {
      try_again = kTryAgain;
      Rest(std::chrono::duration_cast<std::chrono::nanoseconds>(spent * (1 / share - 1)), stop);
    } else if (done.error().kind == ErrorKind::kNotFound) {  // nothing to do
      Rest(kLookAgain, stop);
    } else {  // what a child's death, a full disk or another's work costs is over soon, or is there for long
      // Others may be at work for hours.
      if (done.error().kind != ErrorKind::kBusy || try_again == kTryAgain)
        LogWarn("idle_loop", {{"why", done.error().Text()}});
      Rest(try_again, stop);
      try_again = std::min<std::chrono::nanoseconds>(2 * try_again, kLookAgain);
    }
  }
}

void IdleLoop::Rest(std::chrono::nanoseconds time, std::stop_token stop) {
  auto until = std::chrono::steady_clock::now() + time;
  MutexLock lock(mutex_);
  resting_ = true;
  const uint64_t interrupts = interrupts_;  // each may bring a kernel to refine
  for (auto left = time; left.count() > 0 && interrupts == interrupts_ && !stop.stop_requested();
       left = until - std::chrono::steady_clock::now())
    changed_.WaitFor(mutex_, left);
  resting_ = false;
}

Result<std::shared_ptr<WorkerPools>> IdleLoop::StartedWorkerPools(std::stop_token stop) {
  {
    MutexLock lock(mutex_);
    if (pools_) return pools_;
  }
  std::shared_ptr<WorkerPools> started = HONE_TRY(start_pools_());
  MutexLock lock(mutex_);
  if (stop.stop_requested()) {  // meanwhile
    started->Shutdown();
  } else {
    pools_ = started;
    if (!open_) started->Pause();
  }
  return started;
}

// The gate sees what processors have to do, and so devices that are processors.
Result<bool> IdleLoop::IsInUse(const KernelRequest& ask, const Record& record, WorkerPools& pools) {
  const Target target = HONE_TRY(ParseTarget(record.key.target));
  if (target.device() == nullptr || ModelMachine(target).is_processor || !record.measured) return false;
  const LookUpResult served = HONE_TRY(path_.LookUp(ask, Counting::kNot));
  if (!served.code) return false;
  const std::unique_ptr<Evaluator> evaluator = HONE_TRY(pools.MakeEvaluator(record.key.canonical, target));
  const RunTiming now = HONE_TRY(evaluator->Time(served.code->artifact, TrialTiming(record.key.threads)));
  return now.min_us * 1000 > kInUse * static_cast<double>(record.measured->time.count());
}

Result<void> IdleLoop::RefineOne(std::stop_token stop) {
  HONE_TRY(tasks_.Look(metrics_.misses, tuning_.transfers()));
  Plan plan = tasks_.MakePlan();
  {
    MutexLock lock(mutex_);
    plan_ = std::move(plan);
  }
  const std::optional<IdleTasks::Turn> turn = tasks_.Next();
  if (!turn) return Error{ErrorKind::kNotFound, "everything is refined", ""};
  const Record& record = turn->record;
  const KernelRequest ask{record.request, record.key.target, record.key.threads};
  // Words that mean another kernel to this hone would have that one searched, and it is not the one that was asked for.
  if (Result<ResolvedKernel> asked = path_.Identify(ask); !asked || asked->key.fingerprint != record.key.fingerprint) {
    tasks_.CannotBeRefined(*turn);
    return {};
  }
  std::shared_ptr<WorkerPools> pools = HONE_TRY(StartedWorkerPools(stop));
  {
    MutexLock lock(mutex_);
    task_ = ask.kernel;
  }
  if (const Result<bool> is_in_use = IsInUse(ask, record, *pools); !is_in_use || *is_in_use) {
    tasks_.Failed(*turn, is_in_use || stop.stop_requested() ? 0 : kSlice);
    if (!is_in_use) return is_in_use.error();
    return Error{ErrorKind::kBusy, "others use it: what is served there takes much longer than it did",
                 record.key.target};
  }
  SearchOptions options;
  options.trials = kSlice;
  options.seed = turn->seed;
  if (!turn->best.empty()) options.known = {turn->best};
  Tuning::Unfinished slice{.created = record.created, .search = {}, .cases = {}};
  Result<Tuning::Outcome> outcome = tuning_.Refine(ask, options, *pools, {}, stop, std::nullopt, &slice);
  if (outcome) return tasks_.Refined(*turn, *outcome, stop.stop_requested());
  const bool is_nobodys_fault = stop.stop_requested() || outcome.error().kind == ErrorKind::kNotFound;  // removed
  // What cannot be measured does not keep the others from their turn.
  tasks_.Failed(*turn, is_nobodys_fault ? 0 : kSlice);
  return is_nobodys_fault ? Result<void>() : std::move(outcome).error();
}

}  // namespace hone
