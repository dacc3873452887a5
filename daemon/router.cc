#include "daemon/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"

namespace hone {
namespace {

// "" if there is no such request.
std::string_view NameOf(MessageType type) {
  switch (type) {
#define HONE_NAME(name, number, replies) \
  case MessageType::k##name: return #name;
    HONE_REQUESTS(HONE_NAME)
#undef HONE_NAME
    default: return "";
  }
}

Error OnlyLooks(std::string_view what) {
  return {ErrorKind::kUnsupported, fmt::format("a cache is only inspected here; start honed to {}", what), "honed"};
}

// nullptr: the target is no attached device's name.
Result<AttachedDevicePtr> FindAttached(Services& services, const Asked& asked, const std::string& target) {
  if (services.attached == nullptr) return AttachedDevicePtr();
  return services.attached->Find(target, asked.peer->client());
}

}  // namespace

void Router::OnRequest(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body) {
  const Asked asked{peer, header.request_id};
  if (header.type == MessageType::kGet && AnswerFromMemory(asked, body)) return;
  for (const Route& route : routes_)
    if (route.type == header.type) {
      if (!route.others.empty() && !asked.IsOwner())
        return asked.Refuse({ErrorKind::kInvalid,
                             fmt::format("only uid {}, whose honed this is, and root may {}", geteuid(), route.others),
                             "honed"});
      return route.answer(services_, answers_, asked, body);
    }
  if (!NameOf(header.type).empty())
    return asked.Refuse({ErrorKind::kUnsupported,
                         "that is nothing for this daemon, which has no compiler: it serves what bundles hold; ask "
                         "honed on the machine that they come from",
                         "honed-edge"});
  ++services_.metrics.bad_frames;
  asked.Refuse(
      {ErrorKind::kUnsupported, fmt::format("no request has the number {}", static_cast<int>(header.type)), "frame"});
}

// The shortest way there is: bytes that were answered before are answered again. Nothing is decoded but the last flag.
bool Router::AnswerFromMemory(const Asked& asked, std::span<const std::byte> body) {
  if (body.size() <= kGetTailBytes || body.back() > std::byte{1}) return false;
  HotCodePtr code = services_.hot.Find(AsText(body.first(body.size() - kGetTailBytes)));
  if (!code) return false;
  ++services_.metrics.hits_memory;
  ++code->uses;
  if (body.back() == std::byte{1}) {
    asked.peer->Reply(asked.request_id, MessageType::kGetReply, code->hit_body);
  } else {
    asked.peer->ReplyHit(asked.request_id, code);
  }
  services_.metrics.hit.Add(asked.begun.Microseconds());
  return true;
}

void Router::OnGone(const Peer& peer) {
  answers_.Forget(peer);
  if (services_.misses != nullptr) services_.misses->Forget(peer);
  if (services_.tuning != nullptr) services_.tuning->OnGone(peer);
  if (services_.notifier != nullptr) services_.notifier->OnGone(peer);
  if (services_.attached != nullptr) services_.attached->OnGone(peer);
}

void Router::Close() {
  services_.admin.own.Shutdown();  // ends what is asked of it
  answers_.Close();
}

void AnswerHello(Services&, const Asked& asked, HelloRequest request) {
  if (request.min_version > kProtocolMax || request.max_version < kProtocolMin ||
      request.min_version > request.max_version) {
    return asked.Refuse(
        {ErrorKind::kUnsupported,
         fmt::format("no common version: you speak {} to {}, honed {} speaks {} to {}; update the older one",
                     request.min_version, request.max_version, HONE_VERSION, kProtocolMin, kProtocolMax),
         "hello"});
  }
  LogDebug("hello", {{"client", request.client}});
  asked.peer->Reply(asked.request_id, HelloReply{std::min(request.max_version, kProtocolMax), "honed " HONE_VERSION});
}

void AnswerGet(Services& services, const Asked& asked, GetRequest request) {
  if (services.misses == nullptr) return asked.Refuse(OnlyLooks("be served"));
  Result<AttachedDevicePtr> on = FindAttached(services, asked, request.target);
  if (!on) return asked.Refuse(on.error());
  services.misses->Ask(asked.peer, asked.request_id, request, RequestName(request), asked.begun, *on);
}

void AnswerTune(Services& services, const Asked& asked, TuneRequest request) {
  if (services.tuning == nullptr) return asked.Refuse(OnlyLooks("refine kernels"));
  Result<AttachedDevicePtr> on = FindAttached(services, asked, request.target);
  if (!on) return asked.Refuse(on.error());
  services.tuning->Handle(asked.peer, asked.request_id, request, *on);
}

void AnswerStop(Services& services, const Asked& asked, StopRequest request) {
  if (services.tuning == nullptr) return asked.Refuse(OnlyLooks("refine kernels"));
  asked.peer->Reply(asked.request_id, StopReply{services.tuning->Stop(*asked.peer, request.request)});
}

// Its last answer on this connection, which is the device's from then on.
void AnswerAttach(Services& services, const Asked& asked, AttachRequest request) {
  if (services.attached == nullptr) return asked.Refuse(OnlyLooks("lend it a device"));
  if (Result<void> room = services.attached->MakeRoom(); !room) return asked.Refuse(room.error());
  Result<UniqueFd> channel = asked.peer->ReplyAndHandOver(asked.request_id, MessageType::kAttachReply,
                                                          EncodeBody(AttachReply{services.attached->NextName()}));
  if (!channel) return asked.Refuse(channel.error());
  const uint64_t silence_ms = std::min<uint64_t>(request.silence_ms, 24 * 3600 * 1000);
  services.attached->Attach(asked.peer->client(), *std::move(channel), std::chrono::milliseconds(silence_ms));
}

void AnswerDevice(Services& services, const Asked& asked, DeviceRequest request) {
  if (services.attached == nullptr) return asked.Refuse(OnlyLooks("lend it a device"));
  services.attached->WhenKnown(request.device, asked.peer,
                               [peer = asked.peer, id = asked.request_id](const Result<AttachedDevicePtr>& device) {
                                 if (!device) return peer->ReplyError(id, device.error());
                                 peer->Reply(id, DeviceReply{(*device)->target_text, (*device)->program});
                               });
}

void AnswerWatch(Services& services, const Asked& asked, WatchRequest request) {
  if (services.notifier == nullptr) return asked.Refuse(OnlyLooks("be told of better code"));
  services.notifier->OnWatch(asked.peer, asked.request_id, std::move(request));
}

void AnswerCalls(Services& services, const Asked& asked, CallsRequest request) {
  if (services.notifier == nullptr) return asked.Refuse(OnlyLooks("be told of better code"));
  services.notifier->OnCalls(asked.peer, asked.request_id, request);
}

}  // namespace hone
