#include "daemon/notify.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/log.h"

namespace hone {
namespace {

constexpr size_t kLongestTarget = 1024;
constexpr size_t kLongestDigest = 64;
constexpr uint32_t kRetryMs = 10'000;
// Of one kernel in one report: more than any processor makes in the seconds between two.
constexpr uint64_t kMostCalls = uint64_t{1} << 36;

}  // namespace

void Notifier::OnWatch(const PeerPtr& peer, uint64_t request_id, std::span<const std::byte> body) {
  Result<WatchRequest> request = DecodeBody<WatchRequest>(body);
  if (!request) {
    ++metrics_.bad_frames;
    return peer->ReplyError(request_id, request.error());
  }
  Remove(*peer, request_id);
  Result<WatchReply> reply = WatchReply{};
  if (request->watch) reply = Add(peer, request_id, *std::move(request));
  Count();
  if (reply) return peer->Reply(request_id, *reply);
  bool is_busy = reply.error().kind == ErrorKind::kBusy;
  metrics_.busy += is_busy;
  peer->ReplyError(request_id, reply.error(), is_busy ? kRetryMs : 0);
}

Result<WatchReply> Notifier::Add(const PeerPtr& peer, uint64_t id, WatchRequest request) {
  std::optional<Fingerprint> fingerprint = ParseFingerprint(request.fingerprint);
  if (!fingerprint) return Error{ErrorKind::kInvalid, "32 hexadecimal digits are wanted", "fingerprint"};
  if (request.target.size() > kLongestTarget || request.digest.size() > kLongestDigest) {
    return Error{ErrorKind::kInvalid, "longer than any", request.target.size() > kLongestTarget ? "target" : "digest"};
  }
  auto busy = [](const char* what, size_t limit) {
    return Error{ErrorKind::kBusy, fmt::format("too many {}; at most {}", what, limit), "honed"};
  };
  auto listener = listeners_.find(peer.get());
  if (listener == listeners_.end()) {
    if (listeners_.size() >= limits_.connections) return busy("connections that watch", limits_.connections);
  } else if (listener->second.watches.size() >= limits_.watches_of_one) {
    return busy("watches on one connection", limits_.watches_of_one);
  }
  if (watches_ >= limits_.watches) return busy("watches", limits_.watches);

  Watch watch{fmt::format("{} {}", fingerprint->Hex(), request.target), std::move(request.digest), *fingerprint, {}};
  HotCodePtr code = hot_.FindCode(watch.code);
  if (code) watch.class_fingerprint = code->class_fingerprint;
  WatchReply reply{code && code->reply.digest == watch.digest};
  by_code_[watch.code].insert({peer.get(), id});
  Listener& added = listeners_[peer.get()];
  added.peer = peer;
  added.watches.emplace(id, std::move(watch));
  peer->Keep(true);
  ++watches_;
  return reply;
}

void Notifier::Remove(const Peer& peer, uint64_t id) {
  auto listener = listeners_.find(&peer);
  if (listener == listeners_.end()) return;
  auto watch = listener->second.watches.find(id);
  if (watch == listener->second.watches.end()) return;
  auto code = by_code_.find(watch->second.code);
  code->second.erase({&peer, id});
  if (code->second.empty()) by_code_.erase(code);
  listener->second.watches.erase(watch);
  --watches_;
  if (!listener->second.watches.empty()) return;
  listener->second.peer->Keep(false);
  listeners_.erase(listener);
}

void Notifier::OnGone(const Peer& peer) {
  auto listener = listeners_.find(&peer);
  if (listener == listeners_.end()) return;
  PeerPtr alive = listener->second.peer;
  std::vector<uint64_t> ids;
  for (const auto& [id, _] : listener->second.watches) ids.push_back(id);
  for (uint64_t id : ids) Remove(peer, id);
  Count();
}

void Notifier::Announce(const NewerNotice& notice) {
  auto found = by_code_.find(fmt::format("{} {}", notice.fingerprint, notice.target));
  if (found == by_code_.end()) return;
  // Telling one may close its connection, and so change the set.
  std::vector<std::pair<PeerPtr, uint64_t>> told;
  for (const auto& [peer, id] : found->second) {
    Listener& listener = listeners_.at(peer);
    std::string& held = listener.watches.at(id).digest;
    if (held != notice.digest) told.emplace_back(listener.peer, id);
    held = notice.digest;  // from now on, or it was refused: once is enough
  }
  const std::string body = EncodeBody(notice);
  for (const auto& [peer, id] : told) peer->ReplyPart(id, NewerNotice::kType, body);
  metrics_.notices += told.size();
  LogInfo("newer", {{"fingerprint", notice.fingerprint}, {"told", told.size()}});
}

void Notifier::OnCalls(const PeerPtr& peer, uint64_t request_id, std::span<const std::byte> body) {
  Result<CallsRequest> request = DecodeBody<CallsRequest>(body);
  if (!request) {
    ++metrics_.bad_frames;
    return peer->ReplyError(request_id, request.error());
  }
  if (request->counts.size() > limits_.watches_of_one) {
    return peer->ReplyError(request_id, {ErrorKind::kLimit, "more counts than there can be watches", "calls"});
  }
  auto listener = listeners_.find(peer.get());
  for (const CallCount& count : request->counts) {
    if (listener == listeners_.end()) break;
    auto found = listener->second.watches.find(count.watch);
    if (found == listener->second.watches.end()) continue;
    Watch& watch = found->second;
    if (!watch.class_fingerprint) {
      if (HotCodePtr code = hot_.FindCode(watch.code)) watch.class_fingerprint = code->class_fingerprint;
    }
    if (!watch.class_fingerprint) continue;
    const uint64_t calls = std::min(count.calls, kMostCalls);
    metrics_.calls_reported += calls;
    cache_.NoteUse(watch.fingerprint, *watch.class_fingerprint, calls);
  }
  peer->Reply(request_id, CallsReply{});
}

void Notifier::Count() {
  metrics_.watches = static_cast<uint32_t>(watches_);
  metrics_.watchers = static_cast<uint32_t>(listeners_.size());
}

}  // namespace hone
