#include "backends/processes/remote_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/processes/child_messages.h"
#include "base/bytes.h"
#include "base/generated_code.h"

namespace hone {
namespace {

constexpr std::string_view kMark = "hone-runner";
constexpr size_t kTextLimit = 4096;
constexpr size_t kShown = 400;  // of a stranger's words
// More than any core does: 1,024 bytes a cycle multiplied and added eight times over, at 6 GHz.
constexpr double kMostFlopsPerUs = 5e7;
// Our clock and the device's are two, and so are the moments at which they are read.
constexpr double kClockError = 1.05, kClockErrorUs = 1'000;

Error Untrue(std::string why) { return {ErrorKind::kCorrupt, "what it says cannot be: " + std::move(why), ""}; }

}  // namespace

std::string EncodeHello(const RemoteHello& hello) {
  ByteWriter writer;
  writer.String(kMark);
  writer.U16(kRemoteVersion);
  writer.U32(HONE_ABI_VERSION);
  writer.String(hello.program);
  writer.String(PrintTarget(hello.target));
  return writer.Take();
}

Result<RemoteHello> DecodeHello(std::string_view body) {
  ByteReader reader(body);
  if (HONE_TRY(reader.String(kTextLimit)) != kMark) return Error{ErrorKind::kCorrupt, "it is no hone-runner", ""};
  const uint16_t version = HONE_TRY(reader.U16());
  // What follows is that version's.
  if (version != kRemoteVersion)
    return Error{
        ErrorKind::kUnsupported,
        fmt::format("its hone-runner speaks version {} of the channel, this honed version {}; install the same "
                    "hone on both",
                    version, kRemoteVersion),
        ""};
  const uint32_t abi = HONE_TRY(reader.U32());
  if (abi != HONE_ABI_VERSION)
    return Error{ErrorKind::kUnsupported,
                 fmt::format("its hone-runner runs code of interface {}, this honed makes {}; install the same hone on "
                             "both",
                             abi, HONE_ABI_VERSION),
                 ""};
  RemoteHello hello;
  hello.program = Printable(HONE_TRY(reader.String(kTextLimit)));
  hello.target = HONE_TRY(ParseTarget(HONE_TRY(reader.String(kTextLimit))));
  HONE_TRY(reader.Finish());
  return hello;
}

std::string EncodeAsk(const Digest256& artifact, std::string_view options) {
  ByteWriter writer;
  writer.Raw(artifact);
  writer.Raw(options);
  return writer.Take();
}

Result<std::pair<Digest256, std::string_view>> DecodeAsk(std::string_view body) {
  ByteReader reader(body);
  Digest256 digest = HONE_TRY(reader.Array<32>());
  return std::pair(digest, body.substr(reader.position()));
}

std::string Printable(std::string_view text) {
  std::string shown(text.substr(0, kShown));
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  if (text.size() > kShown) shown += "...";
  return shown;
}

Error Printable(Error error) { return {error.kind, Printable(error.message), Printable(error.where)}; }

Result<void> CheckPlausible(const CheckReport& report, const CheckOptions& asked, double elapsed_us) {
  if (!AreTimes(report)) return Untrue("a time that is none");
  const double most_us = elapsed_us * kClockError + kClockErrorUs;
  if (report.first_run_us + report.pack_us > most_us || report.check_us > most_us || report.time_us > most_us)
    return Untrue(
        fmt::format("a check of {:.0f} us within {:.0f}", std::max(report.check_us, report.first_run_us), elapsed_us));
  if (report.failure) return {};
  if (!std::isfinite(report.max_rel_err) || report.max_rel_err < 0 || report.samples <= 0)
    return Untrue("code that is right, with nothing compared");
  if (asked.full && !report.full) return Untrue("a full check in which not all was compared");
  return {};
}

Result<void> CheckPlausible(const RunTiming& timing, const TimeOptions& asked, double flops, double elapsed_us) {
  if (!AreTimes(timing) || timing.median_us <= 0 || timing.min_us > timing.median_us || timing.samples <= 0 ||
      timing.calls_per_sample <= 0)
    return Untrue("a time that is none");
  const double calls = static_cast<double>(timing.samples) * timing.calls_per_sample;
  if (timing.min_us * calls > elapsed_us * kClockError + kClockErrorUs || timing.median_us > elapsed_us * kClockError)
    return Untrue(fmt::format("{:.0f} calls of {:.3f} us within {:.0f} us", calls, timing.min_us, elapsed_us));
  if (flops > timing.median_us * kMostFlopsPerUs * std::max(asked.workers, 1))
    return Untrue(fmt::format("{:.6f} us for {:.0f} operations on {} threads, which no processor does",
                              timing.median_us, flops, std::max(asked.workers, 1)));
  return {};
}

}  // namespace hone
