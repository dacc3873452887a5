#include "backends/processes/child_pool.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace hone {
namespace {

using std::chrono::milliseconds;

// After a first death the next child starts at once; if that one dies without having answered anything, later ones
// wait.
milliseconds Backoff(int deaths) {
  if (deaths <= 1) return milliseconds(0);
  return milliseconds(std::min(5'000, 50 << std::min(deaths - 2, 10)));
}

// Of waits that others end: then they look again.
constexpr std::chrono::hours kLongWait{1};

// How long a dead child's status may take to arrive after its socket closed.
constexpr milliseconds kReapTime{1'000};

// Killed ones of each child that nobody saw end: with more, the next one is not started before they have.
constexpr size_t kMostDying = 1;

// How long the rest of a report may take once it has begun.
constexpr milliseconds kReportTime{100};

// Signals that no process of ours sends itself.
bool IsFromOutside(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

Error GivenUp() { return {ErrorKind::kUnavailable, "given up", ""}; }

}  // namespace

struct ChildPool::Child {
  // The leaseholder's.
  std::optional<Subprocess> process;
  std::vector<Subprocess> dying;  // killed, and nobody waited until they had ended
  ChildChannel channel;
  MonotonicTime born{};
  int deaths = 0;  // since it last answered
  MonotonicTime not_before{};
  // Guarded by the pool's mutex.
  bool leased = false;
  bool has_reported = false;     // what holds it
  std::optional<uint32_t> user;  // for whom the process has worked
  // The fewer, the rather it is taken: its own user's, one that has worked for nobody, one to be replaced.
  int Strangeness(std::optional<uint32_t> wanted) const {
    if (!wanted || user == wanted) return 0;
    return user ? 2 : 1;
  }
  // Its process group and its channel, for Pause and Shutdown while the leaseholder has the rest; 0 and -1 once it may
  // have been reaped and closed, and the numbers be others'.
  pid_t group = 0;
  int channel_fd = -1;
};

ChildPool::ChildPool(ChildPoolOptions options) : options_(std::move(options)) {}

Result<std::unique_ptr<ChildPool>> ChildPool::Start(ChildPoolOptions options) {
  std::unique_ptr<ChildPool> pool(new ChildPool(std::move(options)));
  for (int i = 0; i < std::max(1, pool->options_.children); ++i) {
    pool->children_.push_back(std::make_unique<Child>());
    HONE_TRY(pool->TryToStart(*pool->children_.back()));
  }
  return pool;
}

ChildPool::~ChildPool() {
  Shutdown();
  MutexLock lock(mutex_);
  for (const auto& child : children_) HONE_CHECK(!child->leased);
}

// Takes up what a child says of itself; false if that is no such thing, or not the first.
bool ChildPool::Hear(Child& child, const ChildFrame& frame) {
  if (frame.type != ChildMessage::kConfined || frame.id != 0 || child.has_reported) return false;
  Result<std::vector<Confinement>> confinements = DecodeConfinements(frame.body);
  if (!confinements) return false;
  child.has_reported = true;
  confinements_ = *std::move(confinements);
  return true;
}

std::vector<Confinement> ChildPool::Confinements() {
  MutexLock lock(mutex_);
  for (const auto& child : children_) {
    if (child->leased || child->has_reported || !child->process) continue;  // the leaseholder hears of it
    pollfd poll_fd{child->channel.fd(), POLLIN, 0};
    if (::poll(&poll_fd, 1, 0) != 1) continue;
    // One that says anything else is found out by the first who asks it for something.
    Result<ChildFrame> frame = child->channel.Receive(std::chrono::steady_clock::now() + kReportTime);
    if (!frame || !Hear(*child, *frame)) child->channel = ChildChannel(), child->channel_fd = -1;
  }
  return confinements_;
}

bool ChildPool::IsShutDown() const {
  MutexLock lock(mutex_);
  return shut_down_;
}

// REQUIRES: the child is leased to this thread.
Result<void> ChildPool::StartChild(Child& child) {
  Result<void> started = TryToStart(child);
  MutexLock lock(mutex_);
  cannot_start_.reset();
  if (!started) {
    cannot_start_ = std::move(started).error().Context(fmt::format("no {}", options_.name));
    cannot_start_->kind = ErrorKind::kUnavailable;
    return *cannot_start_;
  }
  return {};
}

// REQUIRES: the child is leased to this thread, or the pool is not shared yet.
Result<void> ChildPool::TryToStart(Child& child) {
  while (child.dying.size() > kMostDying) child.dying.erase(child.dying.begin());  // waits for it
  auto [ours, theirs] = HONE_TRY(ChildChannel::Pair());
  SubprocessOptions process = options_.process;
  process.fds.emplace_back(theirs.get(), kChildChannelFd);
  child.process.emplace(HONE_TRY(Subprocess::Start(process)));
  child.born = std::chrono::steady_clock::now();
  child.channel = std::move(ours);
  MutexLock lock(mutex_);
  child.group = child.process->pid();
  child.channel_fd = child.channel.fd();
  child.has_reported = false;
  child.user.reset();
  if (paused_) SignalGroup(child, SIGSTOP);
  if (shut_down_) Cut(child);
  return {};
}

// The child that suits best of those that are free and not to be waited for; it is leased from then on.
Result<ChildPool::Child*> ChildPool::AwaitFree(MonotonicTime deadline, const std::stop_token& stop,
                                               std::optional<uint32_t> user) {
  MutexLock lock(mutex_);
  while (true) {
    if (shut_down_) return Error{ErrorKind::kUnavailable, fmt::format("the {}s are shut down", options_.name), ""};
    if (stop.stop_requested()) return GivenUp();
    const MonotonicTime now = std::chrono::steady_clock::now();
    // Of those that are equally strange one that answers, rather than one that has died since it last did.
    const auto order = [&](const Child& child) { return std::pair(child.Strangeness(user), child.deaths); };
    Child* best = nullptr;
    MonotonicTime next = MonotonicTime::max();  // one that keeps dying may be started again then
    for (const auto& child : children_) {
      if (child->leased) continue;
      if (child->not_before > now)
        next = std::min(next, child->not_before);
      else if (best == nullptr || order(*child) < order(*best))
        best = child.get();
    }
    if (best != nullptr) {
      best->leased = true;
      return best;
    }
    if (now >= deadline)
      return NoneInTime(next == MonotonicTime::max()
                            ? fmt::format("all {} {}s are busy", children_.size(), options_.name)
                            : fmt::format("the {} keeps dying and is being restarted", options_.name));
    released_.WaitFor(mutex_, std::min<MonotonicTime::duration>(std::min(deadline, next) - now, kLongWait), stop);
  }
}

Result<ChildPool::Lease> ChildPool::Acquire(MonotonicTime deadline, const std::stop_token& stop,
                                            MonotonicTime born_after, std::optional<uint32_t> user) {
  Child* found = HONE_TRY(AwaitFree(deadline, stop, user));
  Lease lease(*this, *found);
  std::erase_if(found->dying, [](Subprocess& process) { return process.HasEnded(); });
  bool has_ended = false;  // killed while it was idle: for want of memory, or by hand
  {
    MutexLock lock(mutex_);
    has_ended = found->process && found->process->HasEnded();
    if (has_ended) {
      found->group = 0;
      found->channel_fd = -1;
    }
  }
  if (has_ended) {
    found->channel = ChildChannel();
    LogWarn("child_died", {{"name", options_.name}, {"how", found->process->Wait({})->Text()}, {"idle", true}});
    found->process.reset();
  }
  bool is_anothers = false;
  {
    MutexLock lock(mutex_);
    is_anothers = found->Strangeness(user) > 1;
  }
  if (found->process && (found->born < born_after || is_anothers)) lease.Bury();
  const auto is_for = [&](Child& child) {
    MutexLock lock(mutex_);
    if (user) child.user = user;
  };
  if (found->process) {
    is_for(*found);
    return lease;
  }

  if (Result<void> started = StartChild(*found); !started) {
    found->not_before = std::chrono::steady_clock::now() + Backoff(++found->deaths + 1);
    return std::move(started).error();
  }
  is_for(*found);
  MutexLock lock(mutex_);
  ++restarts_;
  return lease;
}

// For who waited until its deadline: why the last start failed, if it did, and else what kept all of them.
Error ChildPool::NoneInTime(std::string what_kept_them) const {
  return cannot_start_.value_or(Error{ErrorKind::kBusy, std::move(what_kept_them), ""});
}

// Called by the leaseholder. A dead child is replaced now, so that the next caller finds one that has had time to
// start.
void ChildPool::Release(Child& child) {
  if (!child.process && !IsShutDown() && child.not_before <= std::chrono::steady_clock::now()) {
    Result<void> started = StartChild(child);
    MutexLock lock(mutex_);
    if (started) ++restarts_;
  }
  {
    MutexLock lock(mutex_);
    child.leased = false;
  }
  released_.NotifyAll();
}

void ChildPool::Disown(Child& child) {
  MutexLock lock(mutex_);
  child.group = 0;
  child.channel_fd = -1;
}

// REQUIRES: the pool's mutex is held.
void ChildPool::SignalGroup(const Child& child, int signal) {
  if (child.group > 0) ::kill(-child.group, signal);
}

// Kills it; the leaseholder hears of it at once. Dying takes a processor: of the lowest class, where others have taken
// all of them, it takes seconds. REQUIRES: the pool's mutex is held.
void ChildPool::Cut(const Child& child) {
  SignalGroup(child, SIGKILL);
  if (child.channel_fd >= 0) ::shutdown(child.channel_fd, SHUT_RDWR);
}

void ChildPool::Pause() {
  MutexLock lock(mutex_);
  if (!std::exchange(paused_, true)) paused_at_ = std::chrono::steady_clock::now();
  for (const auto& child : children_) SignalGroup(*child, SIGSTOP);
}

void ChildPool::Resume() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(paused_, false)) paused_before_ += std::chrono::steady_clock::now() - paused_at_;
    for (const auto& child : children_) SignalGroup(*child, SIGCONT);
  }
  released_.NotifyAll();
}

MonotonicTime::duration ChildPool::PausedSoFar() const {
  MutexLock lock(mutex_);
  return paused_before_ + (paused_ ? std::chrono::steady_clock::now() - paused_at_ : MonotonicTime::duration(0));
}

void ChildPool::AwaitResume(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (paused_ && !shut_down_ && !stop.stop_requested()) released_.WaitFor(mutex_, kLongWait, stop);
}

void ChildPool::Shutdown() {
  {
    MutexLock lock(mutex_);
    shut_down_ = true;
    for (const auto& child : children_) Cut(*child);
  }
  released_.NotifyAll();
}

uint64_t ChildPool::restarts() const {
  MutexLock lock(mutex_);
  return restarts_;
}

int ChildPool::busy() const {
  MutexLock lock(mutex_);
  return static_cast<int>(
      std::count_if(children_.begin(), children_.end(), [](const auto& child) { return child->leased; }));
}

// While it lives, a request to stop kills the child, and its leaseholder hears of it at once. What the child is asked
// for afterwards, and by whomever, is out of its reach: the destructor waits for a kill that is under way.
class ChildPool::CutOnStop {
 public:
  CutOnStop(ChildPool& pool, const Child& child, const std::stop_token& stop) : callback_(stop, Kill{pool, child}) {}

 private:
  struct Kill {
    ChildPool& pool;
    const Child& child;
    void operator()() const {
      MutexLock lock(pool.mutex_);
      Cut(child);
    }
  };
  std::stop_callback<Kill> callback_;
};

ChildPool::Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      child_(std::exchange(other.child_, nullptr)),
      killed_at_(other.killed_at_),
      has_failed_to_start_(other.has_failed_to_start_) {}

ChildPool::Lease& ChildPool::Lease::operator=(Lease&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(child_, other.child_);
  std::swap(killed_at_, other.killed_at_);
  std::swap(has_failed_to_start_, other.has_failed_to_start_);
  return *this;
}

ChildPool::Lease::~Lease() {
  if (child_ != nullptr) pool_->Release(*child_);
}

bool ChildPool::Lease::alive() const { return child_->process.has_value(); }

void ChildPool::Lease::StartRequest(int cpu_seconds) {
  if (!child_->process) return;
  child_->process->ClearErrors();
  child_->process->LimitCpu(cpu_seconds);
}

Result<uint64_t> ChildPool::Lease::Send(ChildMessage type, std::string_view body, const std::vector<int>& fds,
                                        MonotonicTime deadline, const std::stop_token& stop) {
  if (stop.stop_requested()) return GivenUp();
  if (!child_->process) return Error{ErrorKind::kUnavailable, fmt::format("the {} is gone", pool_->options_.name), ""};
  uint64_t id = 0;
  {
    MutexLock lock(pool_->mutex_);
    id = pool_->next_id_++;
  }
  Result<void> sent = [&] {
    CutOnStop cut(*pool_, *child_, stop);
    return child_->channel.Send(type, id, body, fds, deadline, PastPauses(deadline, stop));
  }();
  if (stop.stop_requested()) return GiveUp();
  if (sent) return id;
  if (sent.error().kind == ErrorKind::kLimit) return std::move(sent).error();
  if (sent.error().kind == ErrorKind::kUnavailable) return Died();
  return Discard(sent.error().kind, fmt::format("the {} does not take its message", pool_->options_.name));
}

// A pause that began before the deadline has come is waited for, and is no time of the child's.
Postpone ChildPool::Lease::PastPauses(MonotonicTime deadline, const std::stop_token& stop) const {
  return [pool = pool_, deadline, &stop, paused = pool_->PausedSoFar()]() mutable -> std::optional<MonotonicTime> {
    if (pool->PausedSoFar() == paused) return std::nullopt;
    pool->AwaitResume(stop);
    const MonotonicTime::duration now = pool->PausedSoFar();
    return deadline += now - std::exchange(paused, now);
  };
}

// The next frame but what the child says of itself.
Result<ChildFrame> ChildPool::Lease::ReceiveAnswer(MonotonicTime deadline, const std::stop_token& stop,
                                                   const Postpone& postpone) {
  while (true) {
    CutOnStop cut(*pool_, *child_, stop);
    Result<ChildFrame> frame = child_->channel.Receive(deadline, postpone);
    if (!frame || frame->type != ChildMessage::kConfined) return frame;
    MutexLock lock(pool_->mutex_);
    if (!pool_->Hear(*child_, *frame)) return frame;
  }
}

Result<ChildFrame> ChildPool::Lease::Receive(uint64_t id, MonotonicTime deadline, const std::stop_token& stop) {
  if (!child_->process) return Error{ErrorKind::kUnavailable, fmt::format("the {} is gone", pool_->options_.name), ""};
  Result<ChildFrame> frame = ReceiveAnswer(deadline, stop, PastPauses(deadline, stop));
  if (stop.stop_requested()) return GiveUp();
  if (frame && frame->id == id) {
    child_->deaths = 0;
    return frame;
  }
  if (frame) return Reject(fmt::format("the {} answered a question that nobody asked", pool_->options_.name));
  switch (frame.error().kind) {
    case ErrorKind::kUnavailable: return Died();
    case ErrorKind::kTimeout:
      return Discard(ErrorKind::kTimeout, fmt::format("the {} did not answer in time", pool_->options_.name));
    case ErrorKind::kLimit: return Discard(ErrorKind::kLimit, frame.error().message);
    default: return Reject(fmt::format("the {} answered garbage: {}", pool_->options_.name, frame.error().message));
  }
}

Result<ChildFrame> ChildPool::Lease::Call(ChildMessage type, std::string_view body, const std::vector<int>& fds,
                                          MonotonicTime deadline, const std::stop_token& stop) {
  uint64_t id = HONE_TRY(Send(type, body, fds, deadline, stop));
  return Receive(id, deadline, stop);
}

void ChildPool::Lease::Abandon(uint64_t id) {
  if (!child_->process) return;
  Result<ChildFrame> frame = ReceiveAnswer(std::chrono::steady_clock::now(), {}, {});
  if (!frame || frame->id != id) GiveUp();
}

Error ChildPool::Lease::Died() {
  if (pool_->IsShutDown()) return Discard(ErrorKind::kUnavailable, "");
  pool_->Disown(*child_);
  std::optional<ExitStatus> own = child_->process->Wait(std::chrono::steady_clock::now() + kReapTime);
  if (own && IsFromOutside(own->signal)) {
    killed_at_ = std::chrono::steady_clock::now();
  } else {
    MutexLock lock(pool_->mutex_);
    has_failed_to_start_ = !child_->has_reported;
  }
  ExitStatus status = child_->process->Kill();
  return Discard(ErrorKind::kUnavailable, fmt::format("the {} died: {}", pool_->options_.name, status.Text()));
}

Error ChildPool::Lease::Reject(std::string_view why) { return Discard(ErrorKind::kCorrupt, std::string(why)); }

// Killed for no fault of its own: it owes nobody a reason, and the next one starts at once.
Error ChildPool::Lease::GiveUp() {
  if (child_->process) Bury();
  return GivenUp();
}

// Kills the child; nobody waits until it has ended.
void ChildPool::Lease::Bury() {
  {
    MutexLock lock(pool_->mutex_);
    Cut(*child_);
  }
  pool_->Disown(*child_);
  child_->dying.push_back(*std::move(child_->process));
  child_->process.reset();
  child_->channel = ChildChannel();
}

// The way out for a child that is to blame: killed if it lives, accounted for, and its last words kept.
Error ChildPool::Lease::Discard(ErrorKind kind, std::string message) {
  if (pool_->IsShutDown()) {
    if (child_->process) Bury();
    return Error{ErrorKind::kUnavailable, fmt::format("the {}s are shut down", pool_->options_.name), ""};
  }
  if (child_->process) {
    pool_->Disown(*child_);
    child_->process->Kill();
    if (std::string tail = child_->process->ErrorTail(); !tail.empty()) message += "; it said: " + tail;
  }
  child_->process.reset();
  child_->channel = ChildChannel();
  child_->not_before = std::chrono::steady_clock::now() + Backoff(++child_->deaths);
  LogWarn("child_died", {{"name", pool_->options_.name}, {"how", message}, {"deaths", child_->deaths}});
  return Error{kind, std::move(message), ""};
}

}  // namespace hone
