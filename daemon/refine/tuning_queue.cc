// Who asks for searches, and whose turn it is. A turn is over after some seconds if another client waits: what the
// search found is kept then, and it goes on from there when its next turn comes.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>

#include "base/log.h"
#include "daemon/refine/tuning.h"

namespace hone {
namespace {

constexpr FairQueue::Limits kQueueLimits{64, size_t{16} << 20};
constexpr uint32_t kRetryMs = 1000;
constexpr uint32_t kMostTrials = 100'000;
constexpr uint32_t kDefaultTrials = 256;
constexpr std::chrono::microseconds kLongestSearch = std::chrono::hours(7 * 24);
constexpr int kPatience = 128;  // trials without a better one, where nobody said how many to make
// A search that is stopped compares what it found with what is served for so long; when it has not ended by then, its
// processes are killed.
constexpr std::chrono::milliseconds kComparing{1'500}, kGrace{3'000};
// Who has so many bytes unread is told of no more rounds: a search waits for nobody.
constexpr size_t kMostUnread = 64 << 10;

}  // namespace

struct Tuning::Task {
  Id id = 0;
  ClientId client;
  KernelRequest ask;
  SearchOptions options;  // of all turns together, as everything here
  Unfinished unfinished;  // of the queue's thread alone
  double served_us = 0;   // what was served before the first turn that found something, …
  double ratio = 0;       // … and how much better it has become; 0: nothing was found
  Outcome last;           // of the last turn that is over
  PeerPtr peer;           // who asked by TuneRequest and still listens; nullptr: `done` is called. The loop's alone
  uint64_t request_id = 0;
  std::function<void()> done;
  FairQueue::Id job = 0;
  std::stop_source given_up;
  std::atomic<uint64_t> turns{0};  // how many have begun
  std::atomic<bool> in_turn{false};

  Mutex mutex;
  SearchProgress now HONE_GUARDED_BY(mutex);

  TuneReply Reply(const SearchProgress& progress) const {
    TuneReply reply;
    reply.trials = static_cast<uint32_t>(progress.trials);
    reply.valid = static_cast<uint32_t>(progress.valid);
    reply.wanted = static_cast<uint32_t>(options.trials);
    reply.elapsed_s = progress.elapsed_s;
    reply.start_us = progress.start_us;
    reply.best_us = progress.best_us;
    return reply;
  }
};

Tuning::Tuning(EventLoop& loop, ScheduleCache& cache, StartWorkerPools start, RequestPath& path, SharedModel& model,
               Metrics& metrics, std::function<void(const Record&)> on_better)
    : loop_(loop),
      cache_(cache),
      start_(std::move(start)),
      path_(path),
      model_(model),
      metrics_(metrics),
      on_better_(std::move(on_better)),
      queue_(1, "hone-tune", kQueueLimits) {}

Tuning::~Tuning() { Close(); }

void Tuning::Close() {
  if (*self_ == nullptr) return;
  *self_ = nullptr;
  stop_.request_stop();
  ShutWorkerPoolsDown();
  queue_.Close();
  tasks_.clear();
}

void Tuning::Handle(const PeerPtr& peer, uint64_t request_id, const TuneRequest& request, AttachedDevicePtr on) {
  auto task = std::make_shared<Task>();
  task->client = peer->client();
  task->ask = {request.kernel, request.target, request.threads, std::move(on)};
  task->options.trials = static_cast<int>(request.trials > 0 ? std::min(request.trials, kMostTrials) : kDefaultTrials);
  task->options.patience = request.trials > 0 ? 0 : kPatience;
  // Rounded up: none is no limit.
  const std::chrono::microseconds time(std::min<uint64_t>(request.time_us, kLongestSearch.count()));
  task->options.time = std::chrono::ceil<std::chrono::milliseconds>(time);
  task->options.seed = request.seed;
  task->peer = peer;
  task->request_id = request_id;
  if (!Push(task)) {
    ++metrics_.busy;
    return peer->ReplyError(
        request_id, {ErrorKind::kBusy, fmt::format("too many searches wait, retry in {} ms", kRetryMs), "honed"},
        kRetryMs);
  }
  on_work_();  // takes its turn from idle time
}

Searcher::Id Tuning::Search(const KernelRequest& ask, std::chrono::milliseconds time, const ClientId& client,
                            std::function<void()> done) {
  auto task = std::make_shared<Task>();
  task->client = client;
  task->ask = ask;
  task->options.trials = kMostTrials;
  task->options.patience = kPatience;
  task->options.time = time;
  task->done = std::move(done);
  if (Push(task)) return task->id;
  LogWarn("not_searched", {{"kernel", ask.kernel}, {"why", "too many searches wait"}});
  loop_.Post([task] { task->done(); });
  return 0;
}

void Tuning::GiveUp(Id search) {
  auto entry = tasks_.find(search);
  if (entry == tasks_.end()) return;
  TaskPtr task = entry->second;
  task->done = nullptr;
  task->peer = nullptr;
  task->given_up.request_stop();
  if (queue_.Withdraw(task->job)) tasks_.erase(search);
}

bool Tuning::Stop(const Peer& peer, uint64_t request_id) {
  const auto found = std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& entry) {
    return entry.second->peer.get() == &peer && entry.second->request_id == request_id;
  });
  if (found == tasks_.end()) return false;
  const TaskPtr task = found->second;
  task->given_up.request_stop();
  if (!queue_.Withdraw(task->job)) return true;  // its turn ends
  {
    MutexLock lock(task->mutex);
    task->last.search.progress = task->now;
  }
  task->last.search.stopped = "interrupted";
  Finish(task, task->last);
  return true;
}

void Tuning::OnGone(const Peer& peer) {
  std::vector<Id> its;
  for (const auto& [id, task] : tasks_)
    if (task->peer.get() == &peer) its.push_back(id);
  for (Id id : its) GiveUp(id);
}

bool Tuning::Push(const TaskPtr& task) {
  if (stop_.stop_requested()) return false;
  if (task->id == 0) task->id = ++last_task_;
  FairQueue::Job job;
  job.client = task->client;
  job.bytes = task->ask.kernel.size();
  job.slice = turn_time_;
  job.run = [this, task](const std::stop_token& turn) { RunTurn(task, turn); };
  job.drop = [this, self = self_, task] {
    loop_.Post([self, task] {
      if (!*self) return;
      ++(*self)->metrics_.busy;
      (*self)->Finish(
          task, Error{ErrorKind::kBusy,
                      fmt::format("too many searches wait, most of them yours, retry in {} ms", kRetryMs), "honed"});
    });
  };
  std::optional<FairQueue::Id> pushed = queue_.Push(std::move(job));
  if (!pushed) return false;
  task->job = *pushed;
  tasks_[task->id] = task;
  return true;
}

// In the queue's thread.
void Tuning::RunTurn(const TaskPtr& task, const std::stop_token& turn) {
  std::stop_source stop, comparing;
  const uint64_t number = ++task->turns;
  task->in_turn = true;
  auto end = [&] {
    if (!stop.request_stop()) return;
    loop_.Post([self = self_, task, number, comparing] {
      if (!*self) return;
      (*self)->loop_.After(kComparing, [comparing]() mutable { comparing.request_stop(); });
      (*self)->loop_.After(kGrace, [self, task, number] {
        if (*self && task->in_turn && task->turns == number) (*self)->ShutWorkerPoolsDown();
      });
    });
  };
  Result<Outcome> outcome;
  {
    std::stop_callback with_turn(turn, end);
    std::stop_callback with_client(task->given_up.get_token(), end);
    std::stop_callback with_us(stop_.get_token(), [&] {
      end();
      comparing.request_stop();
    });
    try {
      outcome = SearchInTurn(*task, stop.get_token(), comparing.get_token());
    } catch (const std::bad_alloc&) { outcome = OutOfMemory(); }
  }
  task->in_turn = false;
  auto shared = std::make_shared<Result<Outcome>>(std::move(outcome));
  loop_.Post([self = self_, task, shared, was_displaced = turn.stop_requested()] {
    if (*self) (*self)->OnTurnOver(task, std::move(*shared), was_displaced);
  });
}

Result<Tuning::Outcome> Tuning::SearchInTurn(Task& task, const std::stop_token& stop,
                                             const std::stop_token& keep_until) {
  std::shared_ptr<WorkerPools> pools = HONE_TRY(TakeWorkerPools(task.ask.on));
  SearchWatcher watcher;
  watcher.on_round = [&](const SearchProgress& progress) {
    {
      MutexLock lock(task.mutex);
      task.now = progress;
    }
    TuneReply reply = task.Reply(progress);
    reply.more = true;
    loop_.Post([self = self_, id = task.id, body = EncodeBody(reply)]() mutable {
      if (*self) (*self)->TellRound(id, std::move(body));
    });
  };
  return Refine(task.ask, task.options, *pools, watcher, stop, keep_until, &task.unfinished);
}

void Tuning::TellRound(Id id, std::string body) {
  auto entry = tasks_.find(id);
  if (entry == tasks_.end()) return;
  const Task& task = *entry->second;
  if (task.peer && task.peer->unsent() <= kMostUnread)
    task.peer->ReplyPart(task.request_id, MessageType::kTuneReply, std::move(body));
}

void Tuning::OnTurnOver(const TaskPtr& task, Result<Outcome> outcome, bool was_displaced) {
  {
    MutexLock lock(pools_mutex_);
    loop_.After(pools_idle_, [self = self_, uses = pools_uses_] {
      // A job that waits would end the turn of the search that uses them again.
      if (!*self || (*self)->WorkerPoolsUses() != uses) return;
      FairQueue::Job close;  // waits for processes to end
      close.run = [tuning = *self, uses](const std::stop_token&) { tuning->CloseIdleWorkerPools(uses); };
      (void)(*self)->queue_.Push(std::move(close));
    });
  }
  SearchProgress progress;
  {
    MutexLock lock(task->mutex);
    if (outcome) task->now = outcome->search.progress;
    progress = task->now;
  }
  if (outcome && outcome->ratio > 0) {
    if (task->served_us == 0) task->served_us = outcome->served_us;
    task->ratio = (task->ratio > 0 ? task->ratio : 1) * outcome->ratio;
  }
  const bool is_wanted = (task->peer || task->done) && !task->given_up.stop_requested();
  const auto spent = std::chrono::milliseconds(static_cast<int64_t>(progress.elapsed_s * 1000));
  const bool has_time = task->options.time.count() == 0 || task->options.time > spent;
  const bool is_over =
      outcome ? !outcome->search.stopped.starts_with("interrupted") : progress.trials >= task->options.trials;
  if (was_displaced && is_wanted && !is_over && has_time) {
    if (outcome) task->last = *outcome;
    ++metrics_.displaced;
    if (Push(task)) return;
  }
  Finish(task, outcome);
}

void Tuning::Finish(const TaskPtr& task, const Result<Outcome>& outcome) {
  tasks_.erase(task->id);
  if (auto done = std::exchange(task->done, nullptr)) {
    if (!outcome) LogWarn("not_searched", {{"kernel", task->ask.kernel}, {"why", outcome.error().Text()}});
    return done();
  }
  PeerPtr peer = std::exchange(task->peer, nullptr);
  if (!peer) return;
  if (!outcome)
    return peer->ReplyError(task->request_id, outcome.error(), outcome.error().kind == ErrorKind::kBusy ? kRetryMs : 0);
  TuneReply reply = task->Reply(outcome->search.progress);
  reply.fingerprint = outcome->fingerprint.Hex();
  reply.origin = OriginName(outcome->origin);
  reply.stopped = outcome->search.stopped;
  reply.served_us = task->served_us > 0 ? task->served_us : outcome->served_us;
  reply.ratio = task->ratio;
  peer->Reply(task->request_id, reply);
}

Result<std::shared_ptr<WorkerPools>> Tuning::TakeWorkerPools(const AttachedDevicePtr& on) {
  MutexLock lock(pools_mutex_);
  if (stop_.stop_requested()) return ShuttingDown();
  ++pools_uses_;
  if (!pools_) pools_ = HONE_TRY(start_());
  if (!on) return pools_;
  std::shared_ptr<WorkerPools> there = PoolsOn(*on, pools_, builders_);
  pools_on_device_ = there;
  return there;
}

uint64_t Tuning::WorkerPoolsUses() {
  MutexLock lock(pools_mutex_);
  return pools_uses_;
}

void Tuning::CloseIdleWorkerPools(uint64_t uses) {
  std::shared_ptr<WorkerPools> idle;  // ends without the lock
  MutexLock lock(pools_mutex_);
  if (pools_uses_ == uses) idle = std::exchange(pools_, nullptr);
}

void Tuning::ShutWorkerPoolsDown() {
  std::shared_ptr<WorkerPools> pools, on_device;
  {
    MutexLock lock(pools_mutex_);
    pools = std::exchange(pools_, nullptr);
    on_device = pools_on_device_.lock();
  }
  if (on_device) on_device->Shutdown();
  if (pools) pools->Shutdown();
}

}  // namespace hone
