// Which function answers each request, and in which thread: one row a message. The functions' declarations come from
// the rows, as does the router's table.
#pragma once

#include <unistd.h>

#include <functional>
#include <span>
#include <stop_token>
#include <string_view>

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
  // The user whose honed this is, or root.
  bool IsOwner() const { return peer->client().uid == geteuid() || peer->client().uid == 0; }
};

// Makes the next part of an answer; `more` in all but the last. `stop`: nobody wants it any more.
template <typename Reply>
using NextPart = std::function<Result<Reply>(const std::stop_token& stop)>;

// A daemon that only serves, from code that it was given, answers these.
//
// `others`: what users besides the one whose honed it is, and root, are told that they may not do, where they may
// connect; kMay where they may (the table of docs/security.md).
//
// IN_LOOP(X, others): in the loop's thread. Sees to it that the request is answered, now or later.
//   void AnswerX(Services&, const Asked&, XRequest)
// ONCE(X, others, lane): in a thread of the lane, which may depend on the `request`.
//   Result<XReply> AnswerX(Admin&, const XRequest&)
// IN_PARTS(X, others, lane): what it returns is called in a thread of the lane until there is no more.
//   NextPart<XReply> AnswerX(Admin&, const XRequest&)
inline constexpr std::string_view kMay = "";

#define HONE_SERVING_ROUTES(IN_LOOP, ONCE, IN_PARTS)       \
  IN_LOOP(Hello, kMay)                                     \
  IN_LOOP(Get, kMay)                                       \
  IN_LOOP(Watch, kMay)                                     \
  IN_LOOP(Calls, kMay)                                     \
  ONCE(Status, kMay, Lane::kQuick)                         \
  ONCE(Health, kMay, Lane::kQuick)                         \
  ONCE(Stats, kMay, Lane::kQuick)                          \
  ONCE(Missing, "see what it was asked for", Lane::kQuick) \
  ONCE(Show, kMay, Lane::kQuick)                           \
  IN_PARTS(List, kMay, Lane::kList)

// The others need what makes code, or a cache that can be changed.
#define HONE_ROUTES(IN_LOOP, ONCE, IN_PARTS)                                             \
  HONE_SERVING_ROUTES(IN_LOOP, ONCE, IN_PARTS)                                           \
  IN_LOOP(Tune, "have it search")                                                        \
  IN_LOOP(Stop, kMay) /* one's own search */                                             \
  IN_LOOP(Attach, "lend it devices")                                                     \
  IN_LOOP(Device, kMay) /* one's own */                                                  \
  ONCE(Top, "see what it refines", Lane::kQuick)                                         \
  ONCE(Edit, "remove or pin kernels", Lane::kQuick)                                      \
  IN_PARTS(Verify, "check its cache", Lane::kWork)                                       \
  ONCE(Text, kReadRecords, request.what == TextKind::kCode ? Lane::kWork : Lane::kQuick) \
  ONCE(TargetText, kReadRecords, Lane::kWork)                                            \
  ONCE(Predict, kMay, Lane::kWork)                                                       \
  ONCE(CopySpeed, kMay, Lane::kWork)                                                     \
  ONCE(Explain, kReadRecords, Lane::kWork)                                               \
  IN_PARTS(Export, "export its cache", Lane::kList)                                      \
  ONCE(Upload, "import", Lane::kQuick)                                                   \
  IN_PARTS(Import, "import", Lane::kWork)
inline constexpr std::string_view kReadRecords = "see its schedules and code";

#define HONE_IN_LOOP(name, others) void Answer##name(Services& services, const Asked& asked, name##Request request);
#define HONE_ONCE(name, others, lane) Result<name##Reply> Answer##name(Admin& admin, const name##Request& request);
#define HONE_IN_PARTS(name, others, lane) \
  NextPart<name##Reply> Answer##name(Admin& admin, const name##Request& request);
HONE_ROUTES(HONE_IN_LOOP, HONE_ONCE, HONE_IN_PARTS)
#undef HONE_IN_LOOP
#undef HONE_ONCE
#undef HONE_IN_PARTS

// Those that tell others than its owner less.
Result<StatusReply> AnswerForOthers(Admin& admin, const StatusRequest& request);
Result<ShowReply> AnswerForOthers(Admin& admin, const ShowRequest& request);
NextPart<ListReply> AnswerForOthers(Admin& admin, const ListRequest& request);

// What a frame of a type leads to.
struct Route {
  MessageType type;
  std::string_view others;  // as above
  void (*answer)(Services& services, Answers& answers, const Asked& asked, std::span<const std::byte> body);
};
std::span<const Route> AllRoutes();
std::span<const Route> ServingRoutes();  // of a daemon that makes no code

}  // namespace hone
