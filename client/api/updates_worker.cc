#include "client/api/updates_worker.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace hone {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectTime{250};
constexpr milliseconds kFrameTime{5'000};  // for a daemon that stops within a frame
constexpr milliseconds kLookAgainIn{20};   // at a handle that somebody is at

uint64_t GetId(uint64_t id) { return 2 * id + 1; }
constexpr uint64_t kCallsId = 1;

// Code that was searched for is not given up for code that was not: a record may have been removed and made again.
bool IsWorse(const std::string& origin, const std::string& held) {
  auto is_default = [](const std::string& name) { return name == "default" || name == "transferred"; };
  return is_default(origin) && !is_default(held);
}

// It says nothing about the code: descriptors or memory may be free later.
bool IsWantOfRoom(const Error& error) { return error.kind == ErrorKind::kLimit || error.kind == ErrorKind::kIo; }

}  // namespace

Updates::Crew::~Crew() {
  if (IsOurs()) {
    if (thread.joinable()) thread.join();
  } else {  // there is nothing to join, and the parent's connection must not be shut down
    new std::thread(std::move(thread));
    if (socket >= 0) close(socket);
  }
}

void Updates::Worker::Run() {
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

bool Updates::Worker::Stopped() {
  MutexLock lock(mutex_);
  return crew_.stop;
}

void Updates::Worker::Reclaim() {
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
    if (Updatable* handle = Take(id)) {
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

Updatable* Updates::Worker::Take(uint64_t id) {
  MutexLock lock(mutex_);
  Entry* entry = owner_.Take(id, false);
  if (entry == nullptr) return nullptr;
  taken_ = id;
  return entry->handle;
}

void Updates::Worker::Connect() {
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

void Updates::Worker::Disconnect() {
  {
    MutexLock lock(mutex_);
    crew_.socket = -1;
  }
  channel_.reset();
}

void Updates::Worker::Tell() {
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

Updates::Clock::time_point Updates::Worker::NextDue() {
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

void Updates::Worker::Sleep() {
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

bool Updates::Worker::IsReadable() const {
  pollfd poll{channel_->fd(), POLLIN, 0};
  return ::poll(&poll, 1, 0) > 0;
}

void Updates::Worker::Hear() {
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

void Updates::Worker::SetStale(uint64_t id, milliseconds pause) {
  MutexLock lock(mutex_);
  if (Entry* entry = owner_.Find(id)) AskLater(*entry, pause);
}

void Updates::Worker::HearError(uint64_t id, bool is_get, const ErrorReply& error) {
  MutexLock lock(mutex_);
  Entry* entry = owner_.Find(id);
  if (entry == nullptr) return;
  if (is_get) entry->asked = false;
  if (error.kind != ErrorKind::kBusy) return;
  const milliseconds pause = std::max(milliseconds(error.retry_after_ms), options_.longest_pause);
  if (is_get) return AskLater(*entry, pause);
  entry->watched = false;
  entry->due = Clock::now() + pause;
}

void Updates::Worker::AskLater(Entry& entry, milliseconds pause) {
  entry.stale = true;
  entry.due = Clock::now() + pause;
}

void Updates::Worker::HearCode(uint64_t id, ReceivedFrame frame) {
  Result<GetReply> reply = DecodeBody<GetReply>(frame.body);
  std::string canonical;
  GetRequest request;
  Updatable::Open open = nullptr;
  {
    MutexLock lock(mutex_);
    Entry* entry = owner_.Find(id);
    if (entry == nullptr) return;
    entry->asked = false;
    if (reply && (reply->fingerprint != entry->fingerprint || reply->target != entry->target)) {
      // A honed that was started since knows it by other names.
      entry->fingerprint = reply->fingerprint;
      entry->target = reply->target;
      entry->watched = false;
    }
    // Pinned: nobody is to see a change.
    if (!reply || reply->pinned || reply->digest == entry->digest || reply->digest == entry->refused ||
        IsWorse(reply->origin, entry->origin)) {
      return;
    }
    if (frame.lost_descriptor) return AskLater(*entry, options_.longest_pause);
    if (!frame.descriptor) return;
    canonical = entry->canonical;
    request = entry->request;
    open = entry->handle->opener();
  }
  ServedFacts facts{*std::move(reply), "daemon", 0};
  GetReply told = facts.reply;
  Result<SealedMemfd> file = SealedMemfd::Adopt(std::move(frame.descriptor));
  if (!file) return Refuse(id, told.digest, file.error());
  Result<std::unique_ptr<Updatable::Code>> code = open(*std::move(file), told, canonical);
  if (!code) return Refuse(id, told.digest, code.error());
  Updatable* handle = Take(id);
  if (handle == nullptr || !handle->HasRoom()) {
    code->reset();
    MutexLock lock(mutex_);
    if (handle != nullptr) GiveBack();
    if (Entry* entry = owner_.Find(id)) AskLater(*entry, kLookAgainIn);
    return;
  }
  std::optional<SealedMemfd> kept = Adopt(id, *handle, *std::move(code), std::move(facts));
  {
    MutexLock lock(mutex_);
    GiveBack();
  }
  // A copy that cannot be kept is no reason to fail.
  if (kept && options_.disk && request.target.empty() && !canonical.empty()) {
    (void)options_.disk->Store(request.kernel, request.threads, canonical, told, *kept);
  }
}

std::optional<SealedMemfd> Updates::Worker::Adopt(uint64_t id, Updatable& handle, std::unique_ptr<Updatable::Code> code,
                                                  ServedFacts facts) {
  const std::string digest = facts.reply.digest, origin = facts.reply.origin;
  Result<std::unique_ptr<Updatable::Version>> version = handle.PrepareCode(std::move(code), std::move(facts));
  if (!version) {
    Refuse(id, digest, version.error());
    return std::nullopt;
  }
  handle.PublishVersion(*std::move(version));
  {
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
  Result<SealedMemfd> kept = handle.CopyArtifact();
  return kept ? std::optional<SealedMemfd>(*std::move(kept)) : std::nullopt;
}

void Updates::Worker::Refuse(uint64_t id, const std::string& digest, const Error& why) {
  MutexLock lock(mutex_);
  Entry* entry = owner_.Find(id);
  if (entry == nullptr) return;
  if (IsWantOfRoom(why)) return AskLater(*entry, options_.longest_pause);
  entry->refused = digest;
}

}  // namespace hone
