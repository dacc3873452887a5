#include "daemon/serve/notify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/log.h"

namespace hone {
namespace {

constexpr size_t kLongestTarget = 1024;
constexpr size_t kLongestDigest = 64;
constexpr uint32_t kRetryMs = 10'000;

// How often a kernel can have been called in that time, by all processors: in a sixteenth of what a call is expected to
// take, since that may be an estimate, or have been measured with cold caches.
uint64_t MostCalls(MonotonicTime::duration passed, double call_us) {
  constexpr double kLeastUs = 0.01, kFaster = 16;
  const double processors = std::max(1u, std::thread::hardware_concurrency());
  const double passed_us = std::chrono::duration<double, std::micro>(passed).count();
  return static_cast<uint64_t>(passed_us * processors / std::max(kLeastUs, call_us / kFaster));
}

}  // namespace

void Notifier::Watch::See(const HotCodePtr& code) {
  if (!code) return;
  class_fingerprint = code->class_fingerprint;
  call_us = code->reply.expected_us;
}

void Notifier::SetLimits(const NotifyLimits& limits) {
  limits_ = limits;
  connections_.SetWhole(limits.connections, limits.several_users);
  watches_.SetWhole(limits.watches, limits.several_users);
}

void Notifier::OnWatch(const PeerPtr& peer, uint64_t request_id, WatchRequest request) {
  Remove(*peer, request_id);
  Result<WatchReply> reply = WatchReply{};
  if (request.watch) reply = Add(peer, request_id, std::move(request));
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
  auto known = listeners_.find(peer.get());
  const bool is_new = known == listeners_.end();
  Listener fresh;
  Listener& listener = is_new ? fresh : known->second;
  if (is_new) {
    fresh = {peer, {}, connections_.Of(peer->client()), watches_.Of(peer->client())};
    if (!fresh.connection.TryTake(1)) return busy("connections that watch", limits_.connections);
  } else if (listener.watches.size() >= limits_.watches_of_one) {
    return busy("watches on one connection", limits_.watches_of_one);
  }
  if (!listener.held.MayTake(1)) return busy("watches", limits_.watches);

  Watch watch{.code = fmt::format("{} {}", fingerprint->Hex(), request.target),
              .digest = std::move(request.digest),
              .fingerprint = *fingerprint,
              .begun = std::chrono::steady_clock::now()};
  HotCodePtr code = hot_.FindCode(watch.code);
  watch.See(code);
  WatchReply reply{code && code->reply.digest == watch.digest};
  std::string by = watch.code;
  listener.watches.emplace(id, std::move(watch));
  listener.held.Take(1);
  if (is_new) {
    listeners_.emplace(peer.get(), std::move(fresh));
    peer->Keep();
  }
  by_code_[std::move(by)].insert({peer.get(), id});  // last: nothing is found here that does not exist
  return reply;
}

void Notifier::Remove(const Peer& peer, uint64_t id) {
  auto found = listeners_.find(&peer);
  if (found == listeners_.end()) return;
  Listener& listener = found->second;
  auto watch = listener.watches.find(id);
  if (watch == listener.watches.end()) return;
  if (auto code = by_code_.find(watch->second.code); code != by_code_.end()) {
    code->second.erase({&peer, id});
    if (code->second.empty()) by_code_.erase(code);
  }
  listener.watches.erase(watch);
  listener.held.Give(1);
  if (!listener.watches.empty()) return;
  listener.peer->KeepNoLonger();
  listeners_.erase(found);
}

void Notifier::OnGone(const Peer& peer) {
  auto listener = listeners_.find(&peer);
  if (listener == listeners_.end()) return;
  PeerPtr alive = listener->second.peer;
  for (size_t left = listener->second.watches.size(); left > 0; --left) {
    Remove(peer, listener->second.watches.begin()->first);
  }
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
  for (const auto& [peer, id] : told) peer->ReplyPart(id, MessageType::kNewer, body);
  metrics_.notices += told.size();
  LogInfo("newer", {{"fingerprint", notice.fingerprint}, {"told", told.size()}});
}

void Notifier::OnCalls(const PeerPtr& peer, uint64_t request_id, const CallsRequest& request) {
  if (request.counts.size() > limits_.watches_of_one) {
    return peer->ReplyError(request_id, {ErrorKind::kLimit, "more counts than there can be watches", "calls"});
  }
  auto listener = listeners_.find(peer.get());
  const MonotonicTime now = std::chrono::steady_clock::now();
  for (const CallCount& count : request.counts) {
    if (listener == listeners_.end()) break;
    auto found = listener->second.watches.find(count.watch);
    if (found == listener->second.watches.end()) continue;
    Watch& watch = found->second;
    if (!watch.class_fingerprint) watch.See(hot_.FindCode(watch.code));
    if (!watch.class_fingerprint) continue;
    const uint64_t most = MostCalls(now - watch.begun, watch.call_us);
    const uint64_t calls = std::min(count.calls, most - std::min(most, watch.counted));
    watch.counted += calls;
    cache_.NoteUse(watch.fingerprint, *watch.class_fingerprint, calls);
    metrics_.calls_reported += calls;  // last: whoever reads it from another thread finds the calls noted
  }
  peer->Reply(request_id, CallsReply{});
}

void Notifier::Count() {
  metrics_.watches = static_cast<uint32_t>(watches_.held());
  metrics_.watchers = static_cast<uint32_t>(listeners_.size());
}

}  // namespace hone
