// The frame in which messages (client/protocol/messages.h) travel between honed and its clients, and their codec.
// docs/protocol.md is the same for readers who write a client of their own.
//
//   frame ::= magic "HONE" version:u16 type:u16 request_id:u64 length:u64 body
//
// All integers are little-endian. `length` is the body's, at most a limit that each side chooses. A reply carries its
// request's id; replies may come in another order than requests. A GetReply carries the artifact's descriptor
// (SCM_RIGHTS) with its first byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "client/protocol/messages.h"

namespace hone {

inline constexpr size_t kFrameHeaderBytes = 24;
inline constexpr size_t kRequestLimit = (size_t{1} << 20) + 4096;  // a kernel's text (ParseLimits) and the rest
inline constexpr size_t kReplyLimit = size_t{64} << 20;            // generated code as text is the longest

struct FrameHeader {
  uint16_t version = kProtocolMax;
  MessageType type = MessageType::kError;
  uint64_t request_id = 0;
  uint64_t length = 0;
};

// kCorrupt: not a frame; kUnsupported: a version that this build does not speak; kLimit: a body longer than `limit`.
Result<FrameHeader> DecodeHeader(std::span<const std::byte, kFrameHeaderBytes> bytes, uint64_t limit);
void EncodeHeader(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out);

template <typename Message>
std::string EncodeBody(const Message& message);

// A whole frame, header and body.
template <typename Message>
std::string EncodeFrame(uint64_t request_id, const Message& message);

// kCorrupt unless `body` is exactly one Message. Never allocates more than a small multiple of body.size().
template <typename Message>
Result<Message> DecodeBody(std::span<const std::byte> body);

ErrorReply ToReply(const Error& error, uint32_t retry_after_ms = 0);
Error FromReply(ErrorReply reply);

}  // namespace hone
