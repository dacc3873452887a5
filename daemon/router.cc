#include "daemon/router.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"

namespace hone {
namespace {

using Body = std::span<const std::byte>;
using Route = void (*)(Services& services, Answers& answers, const Asked& asked, Body body);

// nullopt: it was refused.
template <typename Request>
std::optional<Request> Read(Services& services, const Asked& asked, Body body) {
  Result<Request> request = DecodeBody<Request>(body);
  if (request) return *std::move(request);
  ++services.metrics.bad_frames;
  asked.Refuse(request.error());
  return std::nullopt;
}

// What brings code along is for the user whose honed this is, and root.
template <typename Request>
constexpr bool kForOwners = std::is_same_v<Request, UploadRequest> || std::is_same_v<Request, ImportRequest>;

// Whether it was refused because of who asks.
template <typename Request>
bool IsForOthers(const Asked& asked) {
  if constexpr (!kForOwners<Request>) return false;
  const uid_t uid = asked.peer->client().uid;
  if (uid == geteuid() || uid == 0) return false;
  asked.Refuse(
      {ErrorKind::kInvalid, fmt::format("only uid {}, whose honed this is, and root may import", geteuid()), "honed"});
  return true;
}

template <typename Request, auto answer>
void InLoop(Services& services, Answers&, const Asked& asked, Body body) {
  std::optional<Request> request = Read<Request>(services, asked, body);
  if (request) answer(services, asked, *std::move(request));
}

template <typename Request, auto answer, auto lane>
void Once(Services& services, Answers& answers, const Asked& asked, Body body) {
  static_assert(MessageTraits<Request>::kReplies == Replies::kOne);
  if (IsForOthers<Request>(asked)) return;
  std::optional<Request> read = Read<Request>(services, asked, body);
  if (!read) return;
  answers.Push(lane(*read), asked.peer, asked.request_id, body.size(),
               [&admin = services.admin, request = *std::move(read)](const std::stop_token&) {
                 Result<ReplyTo<Request>> reply = answer(admin, request);
                 return reply ? AnswerPart::Of(*reply) : AnswerPart::Failed(reply.error());
               });
}

template <typename Request, auto answer, auto lane>
void InParts(Services& services, Answers& answers, const Asked& asked, Body body) {
  static_assert(MessageTraits<Request>::kReplies == Replies::kMany);
  if (IsForOthers<Request>(asked)) return;
  std::optional<Request> request = Read<Request>(services, asked, body);
  if (!request) return;
  answers.Push(lane(*request), asked.peer, asked.request_id, body.size(),
               [next = answer(services.admin, *request)](const std::stop_token& stop) {
                 Result<ReplyTo<Request>> part = next(stop);
                 return part ? AnswerPart::Of(*part, part->more) : AnswerPart::Failed(part.error());
               });
}

struct Row {
  MessageType type;
  Route route;
};

#define HONE_LANE(name, lane) [](const name##Request& request [[maybe_unused]]) { return lane; }
#define HONE_IN_LOOP(name) {MessageType::k##name, InLoop<name##Request, Answer##name>},
#define HONE_ONCE(name, lane) {MessageType::k##name, Once<name##Request, Answer##name, HONE_LANE(name, lane)>},
#define HONE_IN_PARTS(name, lane) {MessageType::k##name, InParts<name##Request, Answer##name, HONE_LANE(name, lane)>},
constexpr Row kTable[] = {HONE_ROUTES(HONE_IN_LOOP, HONE_ONCE, HONE_IN_PARTS)};
#undef HONE_IN_PARTS
#undef HONE_ONCE
#undef HONE_IN_LOOP
#undef HONE_LANE

// nullptr: there is no such request.
constexpr Route RouteOf(MessageType type) {
  for (const Row& row : kTable)
    if (row.type == type) return row.route;
  return nullptr;
}

#define HONE_ROUTED(name, number, replies) \
  static_assert(RouteOf(MessageType::k##name) != nullptr, #name " has no row in HONE_ROUTES");
HONE_REQUESTS(HONE_ROUTED)
#undef HONE_ROUTED

Error OnlyLooks(std::string_view what) {
  return {ErrorKind::kUnsupported, fmt::format("a cache is only inspected here; start honed to {}", what), "honed"};
}

}  // namespace

void Router::OnRequest(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body) {
  const Asked asked{peer, header.request_id};
  if (header.type == MessageType::kGet && AnswerFromMemory(asked, body)) return;
  if (Route route = RouteOf(header.type)) return route(services_, answers_, asked, body);
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
  services.misses->Ask(asked.peer, asked.request_id, request, RequestName(request), asked.begun);
}

void AnswerTune(Services& services, const Asked& asked, TuneRequest request) {
  if (services.tuning == nullptr) return asked.Refuse(OnlyLooks("refine kernels"));
  services.tuning->Handle(asked.peer, asked.request_id, request);
}

void AnswerStop(Services& services, const Asked& asked, StopRequest request) {
  if (services.tuning == nullptr) return asked.Refuse(OnlyLooks("refine kernels"));
  asked.peer->Reply(asked.request_id, StopReply{services.tuning->Stop(*asked.peer, request.request)});
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
