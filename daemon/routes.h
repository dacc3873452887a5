// Which function answers each request, and in which thread: one row a message. The functions' declarations come from
// the rows, as does the router's table.
#pragma once

#include <functional>
#include <span>
#include <stop_token>

#include "base/clock.h"
#include "client/protocol/protocol.h"
#include "daemon/inspect/admin.h"
#include "daemon/metrics.h"
#include "daemon/serve/answers.h"
#include "daemon/serve/attached_devices.h"
#include "daemon/serve/compilations.h"
#include "daemon/serve/hot_set.h"
#include "daemon/serve/misses.h"
#include "daemon/serve/notify.h"
#include "daemon/serve/peer.h"

namespace hone {

// Who answers. `misses`, `tuning` and `notifier` are nullptr in a daemon that only looks: then nothing is served and
// nothing refined.
struct Services {
  HotSet& hot;
  Misses* misses;
  Searcher* tuning;
  Notifier* notifier;
  Admin& admin;
  Metrics& metrics;
  AttachedDevices* attached = nullptr;  // nullptr: none can be
};

// Whose request it is. Lasts for the call.
struct Asked {
  const PeerPtr& peer;
  uint64_t request_id = 0;
  Stopwatch begun{};  // when it was read

  void Refuse(const Error& error) const { peer->ReplyError(request_id, error); }
};

// Makes the next part of an answer; `more` in all but the last. `stop`: nobody wants it any more.
template <typename Reply>
using NextPart = std::function<Result<Reply>(const std::stop_token& stop)>;

// A daemon that only serves, from code that it was given, answers these.
//
// IN_LOOP(X): in the loop's thread. Sees to it that the request is answered, now or later.
//   void AnswerX(Services&, const Asked&, XRequest)
// ONCE(X, lane): in a thread of the lane, which may depend on the `request`.
//   Result<XReply> AnswerX(Admin&, const XRequest&)
// IN_PARTS(X, lane): what it returns is called in a thread of the lane until there is no more.
//   NextPart<XReply> AnswerX(Admin&, const XRequest&)
#define HONE_SERVING_ROUTES(IN_LOOP, ONCE, IN_PARTS) \
  IN_LOOP(Hello)                                     \
  IN_LOOP(Get)                                       \
  IN_LOOP(Watch)                                     \
  IN_LOOP(Calls)                                     \
  ONCE(Status, Lane::kQuick)                         \
  ONCE(Health, Lane::kQuick)                         \
  ONCE(Stats, Lane::kQuick)                          \
  ONCE(Missing, Lane::kQuick)                        \
  ONCE(Show, Lane::kQuick)                           \
  IN_PARTS(List, Lane::kList)

// The others need what makes code, or a cache that can be changed.
#define HONE_ROUTES(IN_LOOP, ONCE, IN_PARTS)                               \
  HONE_SERVING_ROUTES(IN_LOOP, ONCE, IN_PARTS)                             \
  IN_LOOP(Tune)                                                            \
  IN_LOOP(Stop)                                                            \
  IN_LOOP(Attach)                                                          \
  IN_LOOP(Device)                                                          \
  ONCE(Top, Lane::kQuick)                                                  \
  ONCE(Edit, Lane::kQuick)                                                 \
  IN_PARTS(Verify, Lane::kWork)                                            \
  ONCE(Text, request.what == TextKind::kCode ? Lane::kWork : Lane::kQuick) \
  ONCE(TargetText, Lane::kWork)                                            \
  ONCE(Predict, Lane::kWork)                                               \
  ONCE(Explain, Lane::kWork)                                               \
  IN_PARTS(Export, Lane::kList)                                            \
  ONCE(Upload, Lane::kQuick)                                               \
  IN_PARTS(Import, Lane::kWork)

#define HONE_IN_LOOP(name) void Answer##name(Services& services, const Asked& asked, name##Request request);
#define HONE_ONCE(name, lane) Result<name##Reply> Answer##name(Admin& admin, const name##Request& request);
#define HONE_IN_PARTS(name, lane) NextPart<name##Reply> Answer##name(Admin& admin, const name##Request& request);
HONE_ROUTES(HONE_IN_LOOP, HONE_ONCE, HONE_IN_PARTS)
#undef HONE_IN_LOOP
#undef HONE_ONCE
#undef HONE_IN_PARTS

// What a frame of a type leads to.
struct Route {
  MessageType type;
  void (*answer)(Services& services, Answers& answers, const Asked& asked, std::span<const std::byte> body);
};
std::span<const Route> AllRoutes();
std::span<const Route> ServingRoutes();  // of a daemon that makes no code

}  // namespace hone
