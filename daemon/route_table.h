// Makes a router's table of the rows of daemon/routes.h: who reads the request, and where its answer is made.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <type_traits>
#include <utility>

#include "daemon/routes.h"

namespace hone {

using Body = std::span<const std::byte>;

// nullopt: it was refused.
template <typename Request>
std::optional<Request> Read(Services& services, const Asked& asked, Body body) {
  Result<Request> request = DecodeBody<Request>(body);
  if (request) return *std::move(request);
  ++services.metrics.bad_frames;
  asked.Refuse(request.error());
  return std::nullopt;
}

// What brings code along, or times that nobody can check, is for the user whose honed this is, and root.
template <typename Request>
constexpr bool kForOwners = std::is_same_v<Request, UploadRequest> || std::is_same_v<Request, ImportRequest> ||
                            std::is_same_v<Request, AttachRequest>;

// Whether it was refused because of who asks.
template <typename Request>
bool IsForOthers(const Asked& asked) {
  if constexpr (!kForOwners<Request>) return false;
  const uid_t uid = asked.peer->client().uid;
  if (uid == geteuid() || uid == 0) return false;
  asked.Refuse({ErrorKind::kInvalid,
                fmt::format("only uid {}, whose honed this is, and root may {}", geteuid(),
                            std::is_same_v<Request, AttachRequest> ? "lend it devices" : "import"),
                "honed"});
  return true;
}

template <typename Request, auto answer>
void InLoop(Services& services, Answers&, const Asked& asked, Body body) {
  if (IsForOthers<Request>(asked)) return;
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

#define HONE_LANE(name, lane) [](const name##Request& request [[maybe_unused]]) { return lane; }
#define HONE_LOOP_ROUTE(name) {MessageType::k##name, InLoop<name##Request, Answer##name>},
#define HONE_ONCE_ROUTE(name, lane) {MessageType::k##name, Once<name##Request, Answer##name, HONE_LANE(name, lane)>},
#define HONE_PARTS_ROUTE(name, lane) \
  {MessageType::k##name, InParts<name##Request, Answer##name, HONE_LANE(name, lane)>},
// {HONE_TABLE(ROWS)}: of HONE_ROUTES, or a part of it.
#define HONE_TABLE(rows) rows(HONE_LOOP_ROUTE, HONE_ONCE_ROUTE, HONE_PARTS_ROUTE)

}  // namespace hone
