// What children send to the daemon: headers, and the bodies of every message. Whatever the bytes, they decode or are
// refused; what decodes keeps its meaning when it is encoded again. The first byte chooses the decoder.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/processes/child_channel.h"
#include "backends/processes/child_messages.h"
#include "backends/runner/candidate_spec.h"
#include "backends/sandbox/sandbox.h"
#include "base/check.h"

namespace hone {
namespace {

template <typename Decode, typename Encode>
void Check(std::string_view body, Decode decode, Encode encode) {
  auto decoded = decode(body);
  if (!decoded) return;
  auto again = decode(encode(*decoded));
  HONE_CHECK(again.has_value());
  HONE_CHECK(encode(*again) == encode(*decoded));
}

void Run(uint8_t choice, std::string_view body) {
  switch (choice % 10) {
    case 0: return Check(body, DecodeBuildRequest, EncodeBuildRequest);
    case 1: return Check(body, DecodeBuilt, EncodeBuilt);
    case 2: return Check(body, DecodeCheckOptions, EncodeCheckOptions);
    case 3: return Check(body, DecodeCheckReport, EncodeCheckReport);
    case 4: return Check(body, DecodeTimeOptions, EncodeTimeOptions);
    case 5: return Check(body, DecodeTiming, EncodeTiming);
    case 6: return Check(body, DecodeCandidateSpec, EncodeCandidateSpec);
    case 7: (void)DecodeError(body); return;
    case 8: return Check(body, DecodeConfinements, EncodeConfinements);
    default:
      if (body.size() < kChildHeaderBytes) return;
      if (Result<ChildHeader> header = DecodeChildHeader(body)) {
        std::array<char, kChildHeaderBytes> again = EncodeChildHeader(*header);
        HONE_CHECK(body.substr(0, kChildHeaderBytes) == std::string_view(again.data(), again.size()));
      }
  }
}

}  // namespace
}  // namespace hone

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  hone::Run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
