// Makes a router's table of the rows of daemon/routes.h: who reads the request, and where its answer is made.
#pragma once

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
  if constexpr (requires { request->for_others; }) {
    if (request) request->for_others = !asked.IsOwner();
  }
  if (request) return *std::move(request);
  ++services.metrics.bad_frames;
  asked.Refuse(request.error());
  return std::nullopt;
}

template <typename Request, auto answer>
void InLoop(Services& services, Answers&, const Asked& asked, Body body) {
  std::optional<Request> request = Read<Request>(services, asked, body);
  if (request) answer(services, asked, *std::move(request));
}

template <typename Request, auto answer, auto lane>
void Once(Services& services, Answers& answers, const Asked& asked, Body body) {
  static_assert(MessageTraits<Request>::kReplies == Replies::kOne);
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
  std::optional<Request> request = Read<Request>(services, asked, body);
  if (!request) return;
  answers.Push(lane(*request), asked.peer, asked.request_id, body.size(),
               [next = answer(services.admin, *request)](const std::stop_token& stop) {
                 Result<ReplyTo<Request>> part = next(stop);
                 return part ? AnswerPart::Of(*part, part->more) : AnswerPart::Failed(part.error());
               });
}

#define HONE_LANE(name, lane) [](const name##Request& request [[maybe_unused]]) { return lane; }
#define HONE_LOOP_ROUTE(name, others) {MessageType::k##name, others, InLoop<name##Request, Answer##name>},
#define HONE_ONCE_ROUTE(name, others, lane) \
  {MessageType::k##name, others, Once<name##Request, Answer##name, HONE_LANE(name, lane)>},
#define HONE_PARTS_ROUTE(name, others, lane) \
  {MessageType::k##name, others, InParts<name##Request, Answer##name, HONE_LANE(name, lane)>},
// {HONE_TABLE(ROWS)}: of HONE_ROUTES, or a part of it.
#define HONE_TABLE(rows) rows(HONE_LOOP_ROUTE, HONE_ONCE_ROUTE, HONE_PARTS_ROUTE)

}  // namespace hone
