#include "client/updates.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>

#include "base/unique_fd.h"
#include "client/channel.h"
#include "client/loader.h"

namespace hone {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectTime{250};
constexpr milliseconds kFrameTime{5'000};  // for a daemon that stops within a frame
constexpr milliseconds kLookAgainIn{20};   // at a handle that somebody is at
// While replaced versions wait for their last calls: doubled each time.
constexpr milliseconds kFirstReclaimPause{1};
constexpr milliseconds kLongestReclaimPause{250};

// Which process this is, among those that forked from each other. From 1.
std::atomic<uint32_t> generation{1};

// What a kernel's requests are numbered by.
uint64_t WatchId(uint64_t id) { return 2 * id; }
uint64_t GetId(uint64_t id) { return 2 * id + 1; }
constexpr uint64_t kCallsId = 1;

// Code that was searched for is not given up for code that was not: a record may have been removed and made again.
bool IsWorse(const std::string& origin, const std::string& held) {
  auto is_default = [](const std::string& name) { return name == "default" || name == "transferred"; };
  return is_default(origin) && !is_default(held);
}

}  // namespace

struct Updates::ForkGuard {
  ForkGuard() { pthread_atfork(Lock, Unlock, InChild); }

  // Not without end: who forks may be within the dynamic linker itself, for which our thread waits.
  static void Lock() HONE_NO_THREAD_SAFETY_ANALYSIS {
    bool locked = linker_.TryLock();
    for (int i = 0; i < 2000 && !locked; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      locked = linker_.TryLock();
    }
    mutex_.Lock();
    has_linker = locked;
  }
  static void Unlock() HONE_NO_THREAD_SAFETY_ANALYSIS {
    bool locked = has_linker;
    mutex_.Unlock();
    if (locked) linker_.Unlock();
  }
  static void InChild() HONE_NO_THREAD_SAFETY_ANALYSIS {
    generation.fetch_add(1, std::memory_order_relaxed);
    if (!has_linker) new (&linker_) Mutex;  // its holder is not in this process
    Unlock();
  }
  inline static bool has_linker = false;
};

struct Updates::Crew {
  ~Crew() {
    if (process == generation) {
      if (thread.joinable()) thread.join();
    } else {  // the parent's: there is nothing to join, and its connection must not be shut down
      new std::thread(std::move(thread));
      if (socket >= 0) close(socket);
    }
  }
  const uint32_t process = generation;
  UniqueFd wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::thread thread;
  int socket = -1;  // the worker's
  bool stop = false;
  Clock::time_point sleeps_until = Clock::time_point::max();
};

// ---- the thread

class Updates::Worker {
 public:
  Worker(Updates& owner, Crew& crew) : owner_(owner), options_(owner.options_), crew_(crew), wake_(crew.wake.get()) {}

  void Run() {
    pthread_setname_np(pthread_self(), "hone-updates");
    while (!Stopped()) {
      try {
        Reclaim();
        if (!channel_) Connect();
        if (channel_) Tell();
        Sleep();
        while (channel_ && IsReadable()) Hear();
      } catch (const std::exception&) {  // no memory: nothing that the application should notice
        Disconnect();
        connect_due_ = Clock::now() + options_.longest_pause;
        MutexLock lock(mutex_);
        if (taken_ != 0) GiveBack();
      }
    }
    Disconnect();
  }

 private:
  bool Stopped() {
    MutexLock lock(mutex_);
    return crew_.stop;
  }

  // Releases what no call is inside any more.
  void Reclaim() {
    if (!waits_ || Clock::now() < reclaim_due_) return;
    std::vector<uint64_t> ids;
    {
      MutexLock lock(mutex_);
      for (auto& [id, entry] : owner_.entries_) {
        if (entry.has_retired) ids.push_back(id);
      }
    }
    waits_ = false;
    for (uint64_t id : ids) {
      if (KernelHandle* handle = Take(id)) {
        MutexLock linker(linker_);
        waits_ |= !handle->Reclaim();
        MutexLock lock(mutex_);
        if (Entry* entry = owner_.Find(id)) entry->has_retired = handle->HasRetired();
        GiveBack();
      } else {
        waits_ = true;
      }
    }
    reclaim_pause_ = std::min(reclaim_pause_ * 2, kLongestReclaimPause);
    reclaim_due_ = Clock::now() + reclaim_pause_;
  }

  KernelHandle* Take(uint64_t id) {
    MutexLock lock(mutex_);
    Entry* entry = owner_.Take(id, false);
    if (entry == nullptr) return nullptr;
    taken_ = id;
    return entry->handle;
  }
  void GiveBack() HONE_REQUIRES(mutex_) { owner_.GiveBack(std::exchange(taken_, 0)); }

  // A kernel that calls never leave keeps its versions, and gets no more.
  static bool IsWanted(const Entry& entry) { return entry.stale && !entry.asked && entry.handle->HasRoom(); }

  void Connect() {
    if (Clock::now() < connect_due_) return;
    {
      MutexLock lock(mutex_);
      auto now = Clock::now();
      if (std::ranges::none_of(owner_.entries_, [&](auto& pair) { return pair.second.due <= now; })) return;
    }
    Result<Channel> channel = Channel::Connect(options_.socket, Clock::now() + kConnectTime);
    // Until the daemon has said something, it has not been reached.
    connect_due_ = Clock::now() + pause_;
    pause_ = std::min(pause_ * 2, options_.longest_pause);
    if (!channel) return;
    channel_ = std::make_unique<Channel>(*std::move(channel));
    MutexLock lock(mutex_);
    crew_.socket = channel_->fd();
    if (crew_.stop) shutdown(crew_.socket, SHUT_RDWR);
    owner_.gone_.clear();
    for (auto& [_, entry] : owner_.entries_) entry.watched = entry.asked = false;
  }

  void Disconnect() {
    {
      MutexLock lock(mutex_);
      crew_.socket = -1;
    }
    channel_.reset();
  }

  // Says what there is to say: calls, kernels that were given back, kernels that are held, kernels that are wanted.
  void Tell() {
    std::string frames;
    {
      MutexLock lock(mutex_);
      auto now = Clock::now();
      CallsRequest calls;
      calls.counts = owner_.gone_;
      if (now >= report_due_) {
        report_due_ = now + options_.report_every;
        for (auto& [id, entry] : owner_.entries_) {
          if (!entry.watched) continue;
          uint64_t count = entry.handle->calls();
          if (count > entry.reported) calls.counts.push_back({WatchId(id), count - entry.reported});
          entry.reported = count;
        }
      }
      if (!calls.counts.empty()) frames += EncodeFrame(kCallsId, calls);
      for (const CallCount& gone : owner_.gone_) {
        frames += EncodeFrame(gone.watch, WatchRequest{.watch = false, .fingerprint = {}, .target = {}, .digest = {}});
      }
      owner_.gone_.clear();
      for (auto& [id, entry] : owner_.entries_) {
        if (entry.due > now) continue;
        if (!std::exchange(entry.watched, true)) {
          frames += EncodeFrame(WatchId(id), WatchRequest{true, entry.fingerprint, entry.target, entry.digest});
        } else if (IsWanted(entry)) {
          frames += EncodeFrame(GetId(id), entry.request);
          entry.stale = false;
          entry.asked = true;
        }
      }
    }
    if (!frames.empty() && !channel_->Send(frames, Clock::now() + kFrameTime)) Disconnect();
  }

  // When there will be something to do, if nobody says anything.
  Clock::time_point NextDue() {
    auto next = Clock::time_point::max();
    if (waits_) next = reclaim_due_;
    MutexLock lock(mutex_);
    bool is_anyone_watched = false;
    for (auto& [_, entry] : owner_.entries_) {
      is_anyone_watched |= entry.watched;
      bool has_work = !channel_ || !entry.watched || IsWanted(entry);
      if (has_work) next = std::min(next, channel_ ? entry.due : std::max(entry.due, connect_due_));
    }
    if (channel_ && is_anyone_watched) next = std::min(next, report_due_);
    return crew_.sleeps_until = next;
  }

  void Sleep() {
    pollfd polls[2] = {{wake_, POLLIN, 0}, {channel_ ? channel_->fd() : -1, POLLIN, 0}};
    auto due = NextDue();
    timespec limit{};
    bool is_limited = due != Clock::time_point::max();
    if (is_limited) {
      auto ns = std::max<int64_t>(0, std::chrono::nanoseconds(due - Clock::now()).count());
      limit = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    }
    ppoll(polls, 2, is_limited ? &limit : nullptr, nullptr);
    uint64_t ignored;
    [[maybe_unused]] ssize_t size = read(wake_, &ignored, sizeof ignored);
  }

  bool IsReadable() const {
    pollfd poll{channel_->fd(), POLLIN, 0};
    return ::poll(&poll, 1, 0) > 0;
  }

  void Hear() {
    Result<ReceivedFrame> frame = channel_->Receive(Clock::now() + kFrameTime);
    // Id 0 is the daemon's last word.
    if (!frame || frame->header.request_id == 0) return Disconnect();
    pause_ = options_.first_pause;
    const uint64_t id = frame->header.request_id / 2;
    const bool is_get = frame->header.request_id % 2 == 1;
    switch (frame->header.type) {
      case MessageType::kWatchReply:
        if (Result<WatchReply> reply = DecodeBody<WatchReply>(frame->body); reply && !reply->is_current) SetStale(id);
        return;
      case MessageType::kNewer: return SetStale(id);
      case MessageType::kGetReply: return HearCode(id, *std::move(frame));
      case MessageType::kError:
        if (Result<ErrorReply> error = DecodeBody<ErrorReply>(frame->body); error && id > 0) {
          HearError(id, is_get, *error);
        }
        return;
      default: return;
    }
  }

  void SetStale(uint64_t id, milliseconds pause = milliseconds(0)) {
    MutexLock lock(mutex_);
    if (Entry* entry = owner_.Find(id)) {
      entry->stale = true;
      entry->due = Clock::now() + pause;
    }
  }

  // What is refused stays refused until the next connection, or until there is news; who is busy is asked again.
  void HearError(uint64_t id, bool is_get, const ErrorReply& error) {
    MutexLock lock(mutex_);
    Entry* entry = owner_.Find(id);
    if (entry == nullptr) return;
    if (is_get) entry->asked = false;
    if (error.kind != ErrorKind::kBusy) return;
    if (is_get) {
      entry->stale = true;
    } else {
      entry->watched = false;
    }
    entry->due = Clock::now() + std::max(milliseconds(error.retry_after_ms), options_.longest_pause);
  }

  void HearCode(uint64_t id, ReceivedFrame frame) {
    Result<GetReply> reply = DecodeBody<GetReply>(frame.body);
    std::string canonical;
    GetRequest request;
    {
      MutexLock lock(mutex_);
      Entry* entry = owner_.Find(id);
      if (entry == nullptr) return;
      entry->asked = false;
      // Pinned: nobody is to see a change.
      if (!reply || !frame.descriptor || reply->pinned || reply->digest == entry->digest ||
          reply->digest == entry->refused || IsWorse(reply->origin, entry->origin)) {
        return;
      }
      canonical = entry->canonical;
      request = entry->request;
    }
    ServedFacts facts{*std::move(reply), "daemon", 0};
    GetReply told = facts.reply;
    Result<SealedMemfd> file = SealedMemfd::Adopt(std::move(frame.descriptor));
    std::unique_ptr<LoadedArtifact> code;
    if (file) {
      MutexLock linker(linker_);
      Result<std::unique_ptr<LoadedArtifact>> loaded =
          LoadedArtifact::Load(*std::move(file), told.size, told.digest, canonical);
      if (loaded) code = *std::move(loaded);
    }
    if (code == nullptr) return Refuse(id, told.digest);
    KernelHandle* handle = Take(id);
    if (handle == nullptr || !handle->HasRoom()) {
      {
        MutexLock linker(linker_);
        code.reset();
      }
      MutexLock lock(mutex_);
      if (handle != nullptr) GiveBack();
      if (Entry* entry = owner_.Find(id)) {
        entry->stale = true;
        entry->due = Clock::now() + kLookAgainIn;
      }
      return;
    }
    std::optional<SealedMemfd> kept = Adopt(id, *handle, std::move(code), std::move(facts));
    {
      MutexLock lock(mutex_);
      GiveBack();
    }
    // A copy that cannot be kept is no reason to fail.
    if (kept && options_.disk && request.target.empty() && !canonical.empty()) {
      (void)options_.disk->Store(request.kernel, request.threads, canonical, told, *kept);
    }
  }

  // The artifact, if calls go there now. REQUIRES: the handle was taken.
  std::optional<SealedMemfd> Adopt(uint64_t id, KernelHandle& handle, std::unique_ptr<LoadedArtifact> code,
                                   ServedFacts facts) {
    const std::string digest = facts.reply.digest, origin = facts.reply.origin;
    Result<std::unique_ptr<KernelVersion>> version = handle.Prepare(std::move(code), std::move(facts));
    if (!version) {
      Refuse(id, digest);
      return std::nullopt;
    }
    {
      MutexLock linker(linker_);
      handle.Publish(*std::move(version));
      MutexLock lock(mutex_);
      Entry* entry = owner_.Find(id);
      entry->digest = digest;
      entry->origin = origin;
      entry->has_retired = handle.HasRetired();
      if (entry->has_retired) {
        waits_ = true;
        reclaim_pause_ = kFirstReclaimPause;
        reclaim_due_ = Clock::now() + reclaim_pause_;
      }
    }
    Result<SealedMemfd> kept = handle.artifact().Duplicate();
    return kept ? std::optional<SealedMemfd>(*std::move(kept)) : std::nullopt;
  }

  void Refuse(uint64_t id, const std::string& digest) {
    MutexLock lock(mutex_);
    if (Entry* entry = owner_.Find(id)) entry->refused = digest;
  }

  Updates& owner_;
  const UpdatesOptions& options_;
  Crew& crew_;
  const int wake_;
  std::unique_ptr<Channel> channel_;
  milliseconds pause_ = options_.first_pause;
  Clock::time_point connect_due_{};
  Clock::time_point report_due_ = Clock::now() + options_.report_every;
  uint64_t taken_ = 0;  // the handle that this thread is at
  bool waits_ = false;  // replaced versions wait for their last calls
  milliseconds reclaim_pause_ = kFirstReclaimPause;
  Clock::time_point reclaim_due_{};
};

// ---- the application's side

Updates::Updates(UpdatesOptions options) : options_(std::move(options)) { static const ForkGuard guard; }

Updates::~Updates() {
  std::unique_ptr<Crew> crew;
  MutexLock lock(mutex_);
  crew = std::move(crew_);
  if (crew == nullptr || crew->process != generation) return;
  crew->stop = true;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t size = write(crew->wake.get(), &one, sizeof one);
  if (crew->socket >= 0) shutdown(crew->socket, SHUT_RDWR);  // ends what the thread waits for
}

Updates::Entry* Updates::Find(uint64_t id) {
  auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

Updates::Entry* Updates::Take(uint64_t id, bool wait) {
  for (;;) {
    Entry* entry = Find(id);
    if (entry == nullptr) return nullptr;
    const uint32_t process = generation;
    if (entry->holder != process) {  // nobody, or a thread that a fork left behind
      entry->holder = process;
      return entry;
    }
    if (!wait) return nullptr;
    uint32_t seen = given_back_;
    mutex_.Unlock();
    given_back_.wait(seen);
    mutex_.Lock();
  }
}

void Updates::GiveBack(uint64_t id) {
  if (Entry* entry = Find(id)) entry->holder = 0;
  ++given_back_;
  given_back_.notify_all();
}

bool Updates::StartThread() {
  if (crew_ != nullptr && crew_->process == generation) return true;
  auto crew = std::make_unique<Crew>();
  if (!crew->wake) return false;
  // The application's signals are not for this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    crew->thread = std::thread([this, crew = crew.get()] { Worker(*this, *crew).Run(); });
    crew_ = std::move(crew);
  } catch (const std::system_error&) {}
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return crew_ != nullptr && crew_->process == generation;
}

void Updates::Wake() {
  if (crew_ == nullptr || crew_->process != generation) return;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t size = write(crew_->wake.get(), &one, sizeof one);
}

void Updates::Watch(const std::shared_ptr<Updates>& updates, KernelHandle& handle, GetRequest request,
                    std::string canonical) {
  const GetReply reply = handle.facts().reply;
  request.budget_us = 0;
  request.no_compile = true;  // what is not there is nothing new
  request.no_artifact = false;
  MutexLock lock(mutex_);
  if (!updates->StartThread()) return;
  handle.updates_ = updates;
  handle.watch_ = ++updates->last_id_;
  Entry& entry = updates->entries_[handle.watch_];
  entry.handle = &handle;
  entry.request = std::move(request);
  entry.canonical = std::move(canonical);
  entry.fingerprint = reply.fingerprint;
  entry.target = reply.target;
  entry.digest = reply.digest;
  entry.origin = reply.origin;
  entry.due = Clock::now() + updates->options_.settle;
  if (entry.due < updates->crew_->sleeps_until) updates->Wake();
}

void Updates::Remove(KernelHandle& handle) {
  MutexLock lock(mutex_);
  Entry* entry = Take(handle.watch_, true);
  if (entry == nullptr) return;
  if (entry->watched && crew_ != nullptr && crew_->process == generation) {
    gone_.push_back({WatchId(handle.watch_), handle.calls() - entry->reported});
    Wake();
  }
  entries_.erase(handle.watch_);
}

Updates::Pause::Pause(Updates& updates, KernelHandle& handle) : updates_(updates), id_(handle.watch_) {
  MutexLock lock(mutex_);
  updates_.Take(id_, true);
}

Updates::Pause::~Pause() {
  MutexLock lock(mutex_);
  updates_.GiveBack(id_);
}

void Updates::LookAgain(KernelHandle& handle) {
  MutexLock lock(mutex_);
  if (Entry* entry = Find(handle.watch_)) {
    entry->stale = true;
    entry->refused.clear();
    Wake();
  }
}

}  // namespace hone
