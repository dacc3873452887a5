// The messages between honed and its clients: the list of what may be asked, and the fields of every request and reply
// in the order in which they travel. docs/protocol.md is the same for readers who write a client of their own.
//
// A new message is a row of HONE_REQUESTS and two structs in one of the headers included here: the codec, the fuzzer
// and the tests take it from the list. Other fields in a message that there is are a new version.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "client/protocol/bundle_messages.h"
#include "client/protocol/inspect_messages.h"
#include "client/protocol/message_traits.h"
#include "client/protocol/refine_messages.h"
#include "client/protocol/serve_messages.h"

namespace hone {

inline constexpr uint16_t kProtocolMin = 1;  // oldest version that this build speaks
inline constexpr uint16_t kProtocolMax = 1;  // newest

// X(name, number, replies): a nameRequest has the number, its nameReply the next one; replies as in Replies. Whoever
// may connect may ask all of it. Numbers are sent: never use one again, nor those of kError and kNewer.
#define HONE_REQUESTS(X)  \
  X(Hello, 2, kOne)       \
  X(Get, 4, kOne)         \
  X(Status, 6, kOne)      \
  X(Stats, 8, kOne)       \
  X(List, 10, kMany)      \
  X(Show, 12, kOne)       \
  X(Edit, 14, kOne)       \
  X(Verify, 16, kMany)    \
  X(Text, 18, kOne)       \
  X(Tune, 20, kMany)      \
  X(Watch, 22, kOne)      \
  X(Calls, 24, kOne)      \
  X(Predict, 28, kOne)    \
  X(Top, 30, kOne)        \
  X(Explain, 32, kOne)    \
  X(Health, 34, kOne)     \
  X(Export, 36, kMany)    \
  X(Upload, 38, kOne)     \
  X(Import, 40, kMany)    \
  X(TargetText, 42, kOne) \
  X(Stop, 44, kOne)       \
  X(Missing, 46, kOne)    \
  X(Attach, 48, kOne)     \
  X(Device, 50, kOne)     \
  X(CopySpeed, 52, kOne)

enum class MessageType : uint16_t {
  kError = 1,   // ErrorReply, in place of any reply
  kNewer = 26,  // NewerNotice, of honed's own accord, to a WatchRequest
#define HONE_NUMBERS(name, number, replies) k##name = number, k##name##Reply = number + 1,
  HONE_REQUESTS(HONE_NUMBERS)
#undef HONE_NUMBERS
};

HONE_REQUESTS(HONE_REQUEST_TRAITS)
HONE_MESSAGE_TRAITS(ErrorReply, kError)
HONE_MESSAGE_TRAITS(NewerNotice, kNewer)

#define HONE_PAIR(name, number, replies) , name##Request, name##Reply
using AllMessages = MessageList<ErrorReply, NewerNotice HONE_REQUESTS(HONE_PAIR)>;
#undef HONE_PAIR

// Any request may be answered with it. Its grammar is the same in every version.
struct ErrorReply {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
  std::string where;
  uint32_t retry_after_ms = 0;  // kBusy: when to ask again
  HONE_FIELDS(kind, message, where, retry_after_ms)
};

// Optional first message. The reply names the version to use from then on: the highest that both sides speak.
struct HelloRequest {
  uint16_t min_version = kProtocolMin;
  uint16_t max_version = kProtocolMax;
  std::string client;  // who asks, for the log: "hone 0.1.0"
  HONE_FIELDS(min_version, max_version, client)
};
struct HelloReply {
  uint16_t version = kProtocolMax;
  std::string server;  // "honed 0.1.0"
  HONE_FIELDS(version, server)
};

}  // namespace hone
