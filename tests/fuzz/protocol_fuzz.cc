// Frames as a connection brings them: headers and the body of every message. Whatever the bytes, they decode or are
// refused; what decodes has one spelling, and takes memory in proportion to its bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"
#include "client/protocol/protocol.h"

namespace hone {
namespace {

template <typename Message>
void Try(std::span<const std::byte> body) {
  if (Result<Message> message = DecodeBody<Message>(body)) HONE_CHECK(EncodeBody(*message) == AsText(body));
}

void Run(std::span<const std::byte> bytes) {
  while (bytes.size() >= kFrameHeaderBytes) {
    Result<FrameHeader> header = DecodeHeader(bytes.first<kFrameHeaderBytes>(), kRequestLimit);
    if (!header) return;
    std::byte again[kFrameHeaderBytes];
    EncodeHeader(*header, again);
    HONE_CHECK(AsText(again) == AsText(bytes.first(kFrameHeaderBytes)));
    bytes = bytes.subspan(kFrameHeaderBytes);
    // A length that promises more than there is: the body is what there is, as after a client's death.
    std::span<const std::byte> body = bytes.first(std::min<size_t>(header->length, bytes.size()));
    AllMessages::ForEach([&]<typename Message>() {
      if (kTypeOf<Message> == header->type) Try<Message>(body);
    });
    bytes = bytes.subspan(body.size());
  }
}

}  // namespace
}  // namespace hone

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hone::Run(std::as_bytes(std::span(data, size)));
  return 0;
}
