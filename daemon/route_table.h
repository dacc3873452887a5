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
  if (request) return *std::move(request);
  ++services.metrics.bad_frames;
  asked.Refuse(request.error());
  return std::nullopt;
}

// What makes the answer for who asks.
template <typename Request, auto answer>
constexpr auto AnswerFor(const Asked& asked [[maybe_unused]]) -> decltype(answer) {
  if constexpr (requires(Admin& admin, const Request& request) { AnswerForOthers(admin, request); }) {
    if (!asked.IsOwner()) return static_cast<decltype(answer)>(&AnswerForOthers);
  }
  return answer;
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
               [&admin = services.admin, request = *std::move(read),
                make = AnswerFor<Request, answer>(asked)](const std::stop_token&) {
                 Result<ReplyTo<Request>> reply = make(admin, request);
                 return reply ? AnswerPart::Of(*reply) : AnswerPart::Failed(reply.error());
               });
}

template <typename Request, auto answer, auto lane>
void InParts(Services& services, Answers& answers, const Asked& asked, Body body) {
  static_assert(MessageTraits<Request>::kReplies == Replies::kMany);
  std::optional<Request> request = Read<Request>(services, asked, body);
  if (!request) return;
  answers.Push(lane(*request), asked.peer, asked.request_id, body.size(),
               [next = AnswerFor<Request, answer>(asked)(services.admin, *request)](const std::stop_token& stop) {
                 Result<ReplyTo<Request>> part = next(stop);
                 return part ? AnswerPart::Of(*part, part->more) : AnswerPart::Failed(part.error());
               });
}

// By a pointer: closures of two files, themselves a template's argument, are one symbol to clang's linker.
#define HONE_LANE(name, lane) +[](const name##Request& request [[maybe_unused]]) { return lane; }
#define HONE_LOOP_ROUTE(name, others) {MessageType::k##name, others, InLoop<name##Request, Answer##name>},
#define HONE_ONCE_ROUTE(name, others, lane) \
  {MessageType::k##name, others, Once<name##Request, Answer##name, HONE_LANE(name, lane)>},
#define HONE_PARTS_ROUTE(name, others, lane) \
  {MessageType::k##name, others, InParts<name##Request, Answer##name, HONE_LANE(name, lane)>},
// {HONE_TABLE(ROWS)}: of HONE_ROUTES, or a part of it.
#define HONE_TABLE(rows) rows(HONE_LOOP_ROUTE, HONE_ONCE_ROUTE, HONE_PARTS_ROUTE)

}  // namespace hone
