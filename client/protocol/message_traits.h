// What is known of each message besides its fields, and what goes through the fields of any.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

namespace hone {

enum class Replies : uint8_t {
  kOne,
  kMany,  // with the request's id, `more` in all but the last
};

// kType: its number; kName: "GetRequest". Of a request also Reply, the message, and kReplies.
template <typename Message>
struct MessageTraits;

template <typename Message>
inline constexpr auto kTypeOf = MessageTraits<Message>::kType;
template <typename Request>
using ReplyTo = typename MessageTraits<Request>::Reply;

template <typename... Messages>
struct MessageList {
  // visit.operator()<Message>() for each, in order.
  template <typename Visit>
  static void ForEach(const Visit& visit) {
    (visit.template operator()<Messages>(), ...);
  }
};

#define HONE_MESSAGE_TRAITS(Message, type)                  \
  struct Message;                                           \
  template <>                                               \
  struct MessageTraits<Message> {                           \
    static constexpr MessageType kType = MessageType::type; \
    static constexpr std::string_view kName = #Message;     \
  };

// A row of HONE_REQUESTS.
#define HONE_REQUEST_TRAITS(name, number, replies)             \
  HONE_MESSAGE_TRAITS(name##Reply, k##name##Reply)             \
  struct name##Request;                                        \
  template <>                                                  \
  struct MessageTraits<name##Request> {                        \
    using Reply = name##Reply;                                 \
    static constexpr MessageType kType = MessageType::k##name; \
    static constexpr std::string_view kName = #name "Request"; \
    static constexpr Replies kReplies = Replies::replies;      \
  };

// Stands in a message, or in what one is made of: all its fields in the order in which they travel.
//   Fields(): references to them     kFieldNames: "kernel, target"
#define HONE_FIELDS(...)                                        \
  static constexpr std::string_view kFieldNames = #__VA_ARGS__; \
  template <typename = void>                                    \
  auto Fields() {                                               \
    return std::tie(__VA_ARGS__);                               \
  }                                                             \
  template <typename = void>                                    \
  auto Fields() const {                                         \
    return std::tie(__VA_ARGS__);                               \
  }

}  // namespace hone
