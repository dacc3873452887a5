#include "backends/processes/remote_runner.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "backends/processes/child_messages.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLook{50};               // how often whoever waits looks whether he is to stop
constexpr size_t kSlowestBytesPerS = 64 << 10;  // a channel that takes less is given up

// What a call of it does at its largest sizes; 0 of one that does not parse: the device will say so.
double FlopsOf(const std::string& text) {
  Result<Kernel> kernel = ParseKernel(text);
  return kernel && IsStatic(*kernel) ? FlopCount(*kernel) : 0;
}

}  // namespace

RemoteRunner::RemoteRunner(UniqueFd socket, RemoteLimits limits) : limits_(limits), channel_(std::move(socket)) {}

Error RemoteRunner::GiveUp(Error why) {
  MutexLock lock(mutex_);
  if (!lost_) {
    lost_ = Error{ErrorKind::kUnavailable, "the device " + why.message, "device"};
    LogWarn("device_lost", {{"why", lost_->message}});
    ::shutdown(channel_.fd(), SHUT_RDWR);  // and whoever has the turn hears of it
    changed_.NotifyAll();
  }
  return *lost_;
}

std::optional<Error> RemoteRunner::Lost() {
  {
    MutexLock lock(mutex_);
    if (lost_ || has_turn_) return lost_;
  }
  pollfd poll_fd{channel_.fd(), POLLRDHUP, 0};
  if (::poll(&poll_fd, 1, 0) == 1) return GiveUp({ErrorKind::kUnavailable, "has hung up", ""});
  return std::nullopt;
}

bool RemoteRunner::IsAtWork() {
  MutexLock lock(mutex_);
  return has_turn_;
}

// False: to stop.
Result<bool> RemoteRunner::WaitReadable(MonotonicTime deadline, const std::stop_token& stop) const {
  while (!stop.stop_requested()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return Error{ErrorKind::kTimeout, "", ""};
    pollfd poll_fd{channel_.fd(), POLLIN, 0};
    if (::poll(&poll_fd, 1, static_cast<int>(std::min(left, kLook).count())) > 0) return true;
  }
  return false;
}

Result<RemoteHello> RemoteRunner::Greet() {
  Result<ChildFrame> frame = channel_.Receive(steady_clock::now() + limits_.hello);
  if (!frame && frame.error().kind == ErrorKind::kUnavailable)
    return GiveUp({ErrorKind::kUnavailable, "hung up before it said what it is", ""});
  if (!frame && frame.error().kind == ErrorKind::kTimeout)
    return GiveUp({ErrorKind::kTimeout,
                   fmt::format("did not say within {} s what it is; the command has to end in hone-runner --stdio",
                               limits_.hello.count() / 1000),
                   ""});
  if (!frame)
    return GiveUp({ErrorKind::kCorrupt, "does not speak as hone-runner --stdio does: " + frame.error().message, ""});
  if (frame->type != ChildMessage::kHello || frame->id != 0 || !frame->fds.empty())
    return GiveUp({ErrorKind::kCorrupt, "does not begin as hone-runner --stdio does", ""});
  Result<RemoteHello> hello = DecodeHello(frame->body);
  if (!hello) return GiveUp(Error(hello.error()).Context("was refused"));
  return hello;
}

Result<std::unique_ptr<RemoteRunner::Turn>> RemoteRunner::Prepare(const std::string& kernel, MonotonicTime deadline,
                                                                  std::stop_token stop) {
  {
    MutexLock lock(mutex_);
    while (has_turn_ && !lost_ && !stop.stop_requested()) {
      const auto left = deadline - steady_clock::now();
      if (left <= left.zero()) return Error{ErrorKind::kBusy, "the device is at work for somebody else", "device"};
      changed_.WaitFor(mutex_, std::min<MonotonicTime::duration>(left, std::chrono::hours(1)), stop);
    }
    if (lost_) return *lost_;
    if (stop.stop_requested()) return Error{ErrorKind::kUnavailable, "given up", ""};
    has_turn_ = true;
  }
  std::unique_ptr<Turn> turn(new Turn(*this, FlopsOf(kernel), stop));
  HONE_TRY(Ask(ChildMessage::kPrepare, ChildMessage::kPrepared, kernel, stop));
  return turn;
}

void RemoteRunner::EndTurn() {
  MutexLock lock(mutex_);
  has_turn_ = false;
  changed_.NotifyAll();
}

Result<void> RemoteRunner::Say(ChildMessage type, uint64_t id, std::string_view body) {
  {
    MutexLock lock(mutex_);
    if (lost_) return *lost_;
  }
  const auto patience = limits_.silence + std::chrono::seconds(body.size() / kSlowestBytesPerS);
  Result<void> sent = channel_.Send(type, id, body, {}, steady_clock::now() + patience);
  if (sent) return {};
  if (sent.error().kind == ErrorKind::kUnavailable) return GiveUp({ErrorKind::kUnavailable, "has hung up", ""});
  if (sent.error().kind == ErrorKind::kTimeout)
    return GiveUp({ErrorKind::kTimeout, fmt::format("takes nothing more ({} bytes were to go)", body.size()), ""});
  return GiveUp(std::move(sent).error().Context("takes nothing more"));
}

Result<ChildFrame> RemoteRunner::Await(uint64_t id, const std::stop_token& stop) {
  const MonotonicTime end = steady_clock::now() + limits_.answer;
  while (true) {
    const Result<bool> readable = WaitReadable(std::min(end, steady_clock::now() + limits_.silence), stop);
    if (readable && !*readable) return Error{ErrorKind::kUnavailable, "given up", ""};
    Result<ChildFrame> frame =
        readable ? channel_.Receive(steady_clock::now() + limits_.silence) : Result<ChildFrame>(readable.error());
    if (!frame) {
      switch (frame.error().kind) {
        case ErrorKind::kUnavailable: return GiveUp({ErrorKind::kUnavailable, "has hung up", ""});
        case ErrorKind::kTimeout:
          return GiveUp(
              {ErrorKind::kTimeout,
               steady_clock::now() >= end
                   ? fmt::format("did not answer within {} s", limits_.answer.count() / 1000)
                   : fmt::format("was silent for {:.3g} s", static_cast<double>(limits_.silence.count()) / 1000),
               ""});
        default: return GiveUp(std::move(frame).error().Context("sent garbage"));
      }
    }
    if (!frame->fds.empty()) return GiveUp({ErrorKind::kCorrupt, "sent descriptors along", ""});
    if (frame->type == ChildMessage::kAlive && frame->id == 0 && frame->body.empty()) continue;
    if (frame->id == id) return frame;
    // The answer to a question that was given up.
    if (frame->id == 0 || frame->id > id)
      return GiveUp({ErrorKind::kCorrupt, "answered a question that nobody asked", ""});
  }
}

Result<ChildFrame> RemoteRunner::Ask(ChildMessage question, ChildMessage answer, std::string_view body,
                                     const std::stop_token& stop) {
  const uint64_t id = ++last_id_;
  HONE_TRY(Say(question, id, body));
  ChildFrame frame = HONE_TRY(Await(id, stop));
  if (frame.type == ChildMessage::kError) {
    Error error = DecodeError(frame.body);
    if (EncodeError(error) != frame.body) return GiveUp({ErrorKind::kCorrupt, "sent garbage: " + error.message, ""});
    error = Printable(std::move(error));
    // Its own runners are lost, or it is at its wits' end: nothing that code is to blame for.
    if (error.kind == ErrorKind::kUnavailable || error.kind == ErrorKind::kInternal)
      return GiveUp(std::move(error).Context("cannot go on"));
    return error;
  }
  if (frame.type != answer) return GiveUp({ErrorKind::kCorrupt, "answered another question", ""});
  return frame;
}

Result<std::string> RemoteRunner::Turn::AskAbout(ChildMessage question, ChildMessage answer, std::string_view options,
                                                 const SealedMemfd& artifact) {
  const ReadOnlyMapping bytes = HONE_TRY(artifact.Map());
  if (bytes.bytes().size() > kRemoteArtifactBytes)
    return Error{ErrorKind::kLimit, fmt::format("{} bytes of code are too many for a device", bytes.bytes().size()),
                 ""};
  const Digest256 digest = Hash256(bytes.bytes());
  if (runner_.kept_.Find(digest) == nullptr) {
    HONE_TRY(runner_.Say(ChildMessage::kArtifact, 0, AsText(bytes.bytes())));
    runner_.kept_.Put(digest, true);
  }
  ChildFrame frame = HONE_TRY(runner_.Ask(question, answer, EncodeAsk(digest, options), stop_));
  return std::move(frame.body);
}

Result<CheckReport> RemoteRunner::Turn::Check(const SealedMemfd& artifact, const CheckOptions& options) {
  const Stopwatch watch;
  const std::string body =
      HONE_TRY(AskAbout(ChildMessage::kCheck, ChildMessage::kChecked, EncodeCheckOptions(options), artifact));
  Result<CheckReport> report = DecodeCheckReport(body);
  if (!report) return runner_.GiveUp(std::move(report).error().Context("sent garbage"));
  if (Result<void> plausible = CheckPlausible(*report, options, watch.Microseconds()); !plausible)
    return runner_.GiveUp(std::move(plausible).error().Context("is not believed"));
  if (report->failure) report->failure = Printable(*std::move(report->failure));
  return report;
}

Result<RunTiming> RemoteRunner::Turn::Time(const SealedMemfd& artifact, const TimeOptions& options) {
  const Stopwatch watch;
  const std::string body =
      HONE_TRY(AskAbout(ChildMessage::kTime, ChildMessage::kTimed, EncodeTimeOptions(options), artifact));
  Result<RunTiming> timing = DecodeTiming(body);
  if (!timing) return runner_.GiveUp(std::move(timing).error().Context("sent garbage"));
  if (Result<void> plausible = CheckPlausible(*timing, options, flops_, watch.Microseconds()); !plausible)
    return runner_.GiveUp(std::move(plausible).error().Context("is not believed"));
  timing->protocol = Printable(timing->protocol);
  return timing;
}

}  // namespace hone
