// hone-runner: stays resident, checks and measures artifacts for the daemon, over the socket it was started with
// (descriptor 3), one kernel at a time. It never maps foreign code for execution itself: its launcher's children do.
#include <fcntl.h>
#include <sys/socket.h>

#include <cstdio>
#include <optional>

#include "backends/arena.h"
#include "backends/child_messages.h"
#include "backends/child_pool.h"
#include "backends/launcher.h"
#include "backends/runner_check.h"
#include "backends/workload.h"
#include "base/clock.h"
#include "base/sealed_memfd.h"

namespace hone {
namespace {

class Runner {
 public:
  Runner(ChildChannel channel, Arena arena, Launcher launcher)
      : channel_(std::move(channel)), arena_(std::move(arena)), launcher_(std::move(launcher)) {}

  int Serve() {
    while (true) {
      Result<ChildFrame> frame = channel_.Receive(MonotonicTime::max());
      if (!frame) return frame.error().kind == ErrorKind::kUnavailable ? 0 : 1;  // the parent is done, or mad
      ChildMessage reply{};
      Result<std::string> body = Answer(*frame, reply);
      if (!body && body.error().kind == ErrorKind::kUnavailable) {
        std::fprintf(stderr, "hone-runner: the launcher died: %s\n", body.error().Text().c_str());
        return 1;
      }
      Result<void> sent =
          body ? channel_.Send(reply, frame->id, *body, {}, MonotonicTime::max())
               : channel_.Send(ChildMessage::kError, frame->id, EncodeError(body.error()), {}, MonotonicTime::max());
      if (!sent) return 0;
    }
  }

 private:
  Result<std::string> Answer(ChildFrame& frame, ChildMessage& reply) {
    switch (frame.type) {
      case ChildMessage::kPrepare:
        reply = ChildMessage::kPrepared;
        kernel_.clear();
        HONE_TRY(Prepare(frame.body, {}, Placement::kAtGuards, false));
        return std::string();
      case ChildMessage::kCheck: reply = ChildMessage::kChecked; return Check(frame);
      case ChildMessage::kTime: reply = ChildMessage::kTimed; return Time(frame);
      default: return Error{ErrorKind::kInvalid, "a runner prepares, checks and measures", ""};
    }
  }

  Result<void> Prepare(const std::string& kernel, const std::vector<int64_t>& sizes, Placement placement, bool full) {
    Stopwatch watch;
    workload_.reset();
    std::unique_ptr<Workload> workload = HONE_TRY(Workload::Open(kernel, sizes, arena_, placement));
    if (placement == Placement::kAtGuards) HONE_TRY(workload->ComputeReference({.full = full}));
    workload_ = std::move(workload);
    kernel_ = kernel;
    sizes_ = sizes;
    full_ = full;
    prepare_us_ = watch.Microseconds();
    return {};
  }

  // The prepared kernel at these sizes, laid out as wanted.
  Result<void> Ensure(const std::vector<int64_t>& sizes, Placement placement, bool full) {
    if (kernel_.empty()) return Error{ErrorKind::kInvalid, "no kernel was prepared", ""};
    if (workload_ && sizes == sizes_ && workload_->placement() == placement && (!full || full_)) return {};
    return Prepare(std::string(kernel_), sizes, placement, full);
  }

  Result<SealedMemfd> TakeArtifact(ChildFrame& frame) {
    if (frame.fds.size() != 1) return Error{ErrorKind::kInvalid, "no artifact came with the request", ""};
    return SealedMemfd::Adopt(std::move(frame.fds[0]));
  }

  Result<std::string> Check(ChildFrame& frame) {
    CheckOptions options = HONE_TRY(DecodeCheckOptions(frame.body));
    HONE_TRY(Ensure(options.sizes, Placement::kAtGuards, options.full));
    Stopwatch watch;
    CheckReport report;
    Result<SealedMemfd> artifact = TakeArtifact(frame);
    if (artifact)
      report = HONE_TRY(CheckCandidate(*workload_, arena_, launcher_, *artifact, options));
    else
      report.failure = std::move(artifact).error();
    report.check_us = watch.Microseconds();
    report.prepare_us = prepare_us_;
    return EncodeCheckReport(report);
  }

  Result<std::string> Time(ChildFrame& frame) {
    TimeOptions options = HONE_TRY(DecodeTimeOptions(frame.body));
    HONE_TRY(Ensure(options.sizes, Placement::kAligned, false));
    SealedMemfd artifact = HONE_TRY(TakeArtifact(frame));
    return EncodeTiming(HONE_TRY(TimeCandidate(*workload_, arena_, launcher_, artifact, options)));
  }

  ChildChannel channel_;
  Arena arena_;
  Launcher launcher_;
  std::unique_ptr<Workload> workload_;
  std::string kernel_;          // that was prepared last; it stays when it cannot be laid out at some sizes
  std::vector<int64_t> sizes_;  // as asked for
  bool full_ = false;
  double prepare_us_ = 0;
};

// If memory runs out, this process and its candidates go first, and not the daemon or the application.
void VolunteerForOom() {
  UniqueFd fd(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (fd) [[maybe_unused]]
    ssize_t written = ::write(fd.get(), "500", 3);
}

int Main() {
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(kChildChannelFd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    std::fprintf(stderr, "hone-runner: started by honed only, with a socket as descriptor %d\n", kChildChannelFd);
    return 2;
  }
  VolunteerForOom();
  Result<Arena> arena = Arena::Create();
  if (!arena) {
    std::fprintf(stderr, "hone-runner: %s\n", arena.error().Text().c_str());
    return 1;
  }
  // Now, while this process is as good as empty.
  Result<Launcher> launcher = Launcher::Start(arena->fd());
  if (!launcher) {
    std::fprintf(stderr, "hone-runner: %s\n", launcher.error().Text().c_str());
    return 1;
  }
  return Runner(ChildChannel{UniqueFd(kChildChannelFd)}, std::move(*arena), std::move(*launcher)).Serve();
}

}  // namespace
}  // namespace hone

int main() { return hone::Main(); }
