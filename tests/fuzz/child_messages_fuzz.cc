// What children send to the daemon: headers, and the bodies of every message. Whatever the bytes, they decode or are
// refused; what decodes keeps its meaning when it is encoded again. The first byte chooses the decoder, or that the
// bytes are all that a device on another machine says.
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/processes/child_channel.h"
#include "backends/processes/child_messages.h"
#include "backends/processes/remote_messages.h"
#include "backends/processes/remote_runner.h"
#include "backends/runner/candidate_spec.h"
#include "backends/runner/launcher.h"
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

// The device has said it all before it is asked: its answers are to questions 1, 2 and 3. `greets`: a hello is there
// before what it says.
void Converse(std::string_view said, bool greets) {
  auto [ours, theirs] = *ChildChannel::Pair();
  const int size = 1 << 20;
  (void)::setsockopt(ours.fd(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  const MonotonicTime now = std::chrono::steady_clock::now();
  CpuTarget target;
  target.cpu = "generic";
  if (greets) (void)ours.Send(ChildMessage::kHello, 0, EncodeHello({"hone-runner", target}), {}, now);
  (void)::send(ours.fd(), said.data(), said.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  (void)::shutdown(ours.fd(), SHUT_WR);
  using std::chrono::milliseconds;
  RemoteRunner runner(std::move(theirs), {milliseconds(1'000), milliseconds(1'000), milliseconds(1'000)});
  if (!runner.Greet()) return;
  const SealedMemfd code = *SealedMemfd::Create({});
  auto turn = runner.Prepare("add(M=1,N=2)", now + std::chrono::seconds(1));
  if (!turn) return;
  Result<CheckReport> report = (*turn)->Check(code, {.full = true});
  HONE_CHECK(!report || report->failure || (report->full && report->samples > 0));
  Result<RunTiming> timing = (*turn)->Time(code, {});
  HONE_CHECK(!timing || timing->median_us > 0);
}

void Run(uint8_t choice, std::string_view body) {
  switch (choice % 17) {
    case 0: return Check(body, DecodeBuildRequest, EncodeBuildRequest);
    case 1: return Check(body, DecodeBuilt, EncodeBuilt);
    case 2: return Check(body, DecodeCheckOptions, EncodeCheckOptions);
    case 3: return Check(body, DecodeCheckReport, EncodeCheckReport);
    case 4: return Check(body, DecodeTimeOptions, EncodeTimeOptions);
    case 5: return Check(body, DecodeTiming, EncodeTiming);
    case 6: return Check(body, DecodeCandidateSpec, EncodeCandidateSpec);
    case 7: (void)DecodeError(body); return;
    case 8: return Check(body, DecodeConfinements, EncodeConfinements);
    case 10: return Check(body, DecodeHello, EncodeHello);
    case 11: (void)DecodeAsk(body); return;
    case 12: return Converse(body, true);
    case 13: return Converse(body, false);
    case 14: return Check(body, DecodeRehearsalQuestion, EncodeRehearsalQuestion);
    case 15: return Check(body, DecodeRehearsed, EncodeRehearsed);
    case 16: return Check(body, DecodeRehearsals, EncodeRehearsals);
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
