#include "daemon/dispatch.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"

namespace hone {

namespace {

Error OnlyLooks(std::string_view what) {
  return {ErrorKind::kUnsupported, fmt::format("a cache is only inspected here; start honed to {}", what), "honed"};
}

}  // namespace

Dispatch::Dispatch(HotSet& hot, Misses* misses, Tuning* tuning, Notifier* notifier, Admin& admin, Metrics& metrics)
    : hot_(hot), misses_(misses), tuning_(tuning), notifier_(notifier), admin_(admin), metrics_(metrics) {}

void Dispatch::OnRequest(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body) {
  switch (header.type) {
    case MessageType::kGet: return OnGet(peer, header.request_id, body);
    case MessageType::kHello: return OnHello(peer, header.request_id, body);
    case MessageType::kStatus:
    case MessageType::kStats:
    case MessageType::kList:
    case MessageType::kShow:
    case MessageType::kEdit:
    case MessageType::kVerify:
    case MessageType::kText:
    case MessageType::kPredict:
    case MessageType::kTop:
    case MessageType::kExplain: return admin_.Handle(peer, header, body);
    case MessageType::kTune:
      if (tuning_ == nullptr) return peer->ReplyError(header.request_id, OnlyLooks("refine kernels"));
      return tuning_->Handle(peer, header, body);
    case MessageType::kWatch:
    case MessageType::kCalls:
      if (notifier_ == nullptr) return peer->ReplyError(header.request_id, OnlyLooks("be told of better code"));
      return header.type == MessageType::kWatch ? notifier_->OnWatch(peer, header.request_id, body)
                                                : notifier_->OnCalls(peer, header.request_id, body);
    default:
      ++metrics_.bad_frames;
      peer->ReplyError(header.request_id,
                       {ErrorKind::kUnsupported,
                        fmt::format("no request has the number {}", static_cast<int>(header.type)), "frame"});
  }
}

void Dispatch::OnGone(const Peer& peer) {
  if (misses_ != nullptr) misses_->Forget(peer);
  if (tuning_ != nullptr) tuning_->OnGone(peer);
  if (notifier_ != nullptr) notifier_->OnGone(peer);
}

void Dispatch::OnHello(const PeerPtr& peer, uint64_t request_id, std::span<const std::byte> body) {
  Result<HelloRequest> hello = DecodeBody<HelloRequest>(body);
  if (!hello) {
    ++metrics_.bad_frames;
    return peer->ReplyError(request_id, hello.error());
  }
  if (hello->min_version > kProtocolMax || hello->max_version < kProtocolMin ||
      hello->min_version > hello->max_version) {
    return peer->ReplyError(
        request_id,
        {ErrorKind::kUnsupported,
         fmt::format("no common version: you speak {} to {}, honed {} speaks {} to {}; update the older one",
                     hello->min_version, hello->max_version, HONE_VERSION, kProtocolMin, kProtocolMax),
         "hello"});
  }
  LogDebug("hello", {{"client", hello->client}});
  peer->Reply(request_id, HelloReply{std::min(hello->max_version, kProtocolMax), "honed " HONE_VERSION});
}

void Dispatch::OnGet(const PeerPtr& peer, uint64_t request_id, std::span<const std::byte> body) {
  Stopwatch stopwatch;
  // The shortest way there is: bytes that were answered before are answered again. Nothing is decoded but the last
  // flag.
  if (body.size() > kGetTailBytes && body.back() <= std::byte{1}) {
    if (HotCodePtr code = hot_.Find(AsText(body.first(body.size() - kGetTailBytes)))) {
      ++metrics_.hits_memory;
      ++code->uses;
      if (body.back() == std::byte{1}) {
        peer->Reply(request_id, MessageType::kGetReply, code->hit_body);
      } else {
        peer->ReplyHit(request_id, code);
      }
      return metrics_.hit.Add(stopwatch.Microseconds());
    }
  }
  Result<GetRequest> request = DecodeBody<GetRequest>(body);
  if (!request) {
    ++metrics_.bad_frames;
    return peer->ReplyError(request_id, request.error());
  }
  if (misses_ != nullptr) return misses_->Ask(peer, request_id, *request, RequestName(*request), stopwatch);
  peer->ReplyError(request_id, OnlyLooks("be served"));
}

}  // namespace hone
