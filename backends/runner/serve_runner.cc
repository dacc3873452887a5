#include "backends/runner/serve_runner.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cstdio>
#include <optional>

#include "backends/processes/child_messages.h"
#include "backends/processes/child_pool.h"
#include "backends/runner/guarded_arena.h"
#include "backends/runner/known_kernel.h"
#include "backends/runner/runner_check.h"
#include "backends/runner/workload.h"
#include "backends/sandbox/sandbox.h"
#include "backends/sandbox/seccomp_filter.h"
#include "base/clock.h"
#include "base/sealed_memfd.h"

namespace hone {
namespace {

class Runner {
 public:
  Runner(ChildChannel channel, Arena checked, Arena timed, std::unique_ptr<Launcher> launcher)
      : channel_(std::move(channel)),
        checked_{std::move(checked), Placement::kAtGuards},
        timed_{std::move(timed), Placement::kAligned},
        launcher_(std::move(launcher)),
        known_(*launcher_) {}

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
  // The kernel laid out for one purpose. Candidates are checked and timed in turns: both layouts stay.
  struct Layout {
    Arena arena;
    Placement placement;
    std::unique_ptr<Workload> workload = nullptr;
    std::vector<int64_t> sizes = {};  // as asked for
    bool full = false;
    double prepare_us = 0;
  };

  Result<std::string> Answer(ChildFrame& frame, ChildMessage& reply) {
    switch (frame.type) {
      case ChildMessage::kPrepare:
        reply = ChildMessage::kPrepared;
        timed_.workload.reset();
        kernel_ = frame.body;
        if (Result<void> ready = LayOut(checked_, {}, false); !ready) {
          kernel_.clear();
          return ready.error();
        }
        return std::string();
      case ChildMessage::kCheck: reply = ChildMessage::kChecked; return Check(frame);
      case ChildMessage::kRehearse: reply = ChildMessage::kRehearsed; return Rehearse(frame);
      case ChildMessage::kTime: reply = ChildMessage::kTimed; return Time(frame);
      default: return Error{ErrorKind::kInvalid, "a runner prepares, rehearses, checks and measures", ""};
    }
  }

  Result<void> LayOut(Layout& layout, const std::vector<int64_t>& sizes, bool full) {
    Stopwatch watch;
    layout.workload.reset();
    if (&layout == &checked_) known_.Forget();
    std::unique_ptr<Workload> workload = HONE_TRY(Workload::Open(kernel_, sizes, layout.arena, layout.placement));
    if (layout.placement == Placement::kAtGuards) HONE_TRY(workload->ComputeReference({.full = full}));
    layout.workload = std::move(workload);
    layout.sizes = sizes;
    layout.full = full;
    layout.prepare_us = watch.Microseconds();
    return {};
  }

  // The prepared kernel at these sizes.
  Result<void> Ensure(Layout& layout, const std::vector<int64_t>& sizes, bool full) {
    if (kernel_.empty()) return Error{ErrorKind::kInvalid, "no kernel was prepared", ""};
    if (layout.workload && sizes == layout.sizes && (!full || layout.full)) return {};
    return LayOut(layout, sizes, full);
  }

  Result<SealedMemfd> TakeArtifact(ChildFrame& frame) {
    if (frame.fds.size() != 1) return Error{ErrorKind::kInvalid, "no artifact came with the request", ""};
    return SealedMemfd::Adopt(std::move(frame.fds[0]));
  }

  Result<std::string> Check(ChildFrame& frame) {
    CheckOptions options = HONE_TRY(DecodeCheckOptions(frame.body));
    HONE_TRY(Ensure(checked_, options.sizes, options.full));
    Stopwatch watch;
    CheckReport report;
    Result<SealedMemfd> artifact = TakeArtifact(frame);
    if (artifact)
      report = HONE_TRY(Check(*artifact, options));
    else
      report.failure = std::move(artifact).error();
    report.check_us = watch.Microseconds();
    report.prepare_us = checked_.prepare_us;
    return EncodeCheckReport(report);
  }

  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options) {
    const auto check = [&] {
      return CheckCandidate(*checked_.workload, checked_.arena, *launcher_, artifact, options);
    };
    CheckReport report = HONE_TRY(check());
    const bool is_wrong = report.failure && report.failure->kind == ErrorKind::kWrongResult;
    if (HONE_TRY(known_.IsDoubtful(*checked_.workload, checked_.arena, is_wrong))) report = HONE_TRY(check());
    if (!report.failure) known_.Learn(artifact, options);
    return report;
  }

  Result<std::string> Rehearse(ChildFrame& frame) {
    const RehearsalQuestion question = HONE_TRY(DecodeRehearsalQuestion(frame.body));
    HONE_TRY(Ensure(checked_, question.check.sizes, false));
    if (frame.fds.size() > kMostRehearsed) return Error{ErrorKind::kInvalid, "more artifacts than are rehearsed", ""};
    std::vector<SealedMemfd> artifacts;
    for (UniqueFd& fd : frame.fds) artifacts.push_back(HONE_TRY(SealedMemfd::Adopt(std::move(fd))));
    return EncodeRehearsed(HONE_TRY(RehearseCandidates(*checked_.workload, checked_.arena, *launcher_,
                                                       std::move(artifacts), question.check, question.at_once)));
  }

  Result<std::string> Time(ChildFrame& frame) {
    TimeOptions options = HONE_TRY(DecodeTimeOptions(frame.body));
    HONE_TRY(Ensure(timed_, options.sizes, false));
    SealedMemfd artifact = HONE_TRY(TakeArtifact(frame));
    const auto time = [&] { return TimeCandidate(*timed_.workload, timed_.arena, *launcher_, artifact, options); };
    Result<RunTiming> timing = time();
    if (checked_.workload && HONE_TRY(known_.IsDoubtful(*checked_.workload, checked_.arena, false))) timing = time();
    return EncodeTiming(HONE_TRY(std::move(timing)));
  }

  ChildChannel channel_;
  Layout checked_, timed_;
  std::unique_ptr<Launcher> launcher_;
  KnownKernel known_;
  std::string kernel_;  // that was prepared last; it stays when it cannot be laid out at some sizes
};

// If memory runs out, this process and its candidates go first, and not the daemon or the application.
void VolunteerForOom() {
  UniqueFd fd(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (fd) [[maybe_unused]]
    ssize_t written = ::write(fd.get(), "500", 3);
}

}  // namespace

int RunRunner(const RunnerProgram& program) {
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(kChildChannelFd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    std::fprintf(stderr, "%s: started by honed only, with a socket as descriptor %d\n", program.name, kChildChannelFd);
    return 2;
  }
  VolunteerForOom();
  auto started = [&]() -> Result<Runner> {
    ChildChannel channel{UniqueFd(kChildChannelFd)};
    AvailableMemory();  // opens what it reads later, when nothing can be opened any more
    // Now, while this process is as good as empty.
    std::unique_ptr<Launcher> launcher;
    if (program.launcher_opens_files) launcher = HONE_TRY(program.start_launcher());
    Confinement confined = DenyRunnerFiles();
    if (!launcher) launcher = HONE_TRY(program.start_launcher());
    MemoryOptions memory;
    if (::fcntl(kMemoryTurnFd, F_GETFD) >= 0) memory.turns = kMemoryTurnFd;
    Arena checked = HONE_TRY(Arena::Create(memory)), timed = HONE_TRY(Arena::Create(memory));
    HONE_TRY(FilterRunner());
    confined.is_emulated = IsUnfiltered();
    HONE_TRY(channel.Send(ChildMessage::kConfined, 0, EncodeConfinements({confined, launcher->confinement()}), {},
                          MonotonicTime::max()));
    return Runner(std::move(channel), std::move(checked), std::move(timed), std::move(launcher));
  }();
  if (!started) {
    std::fprintf(stderr, "%s: %s\n", program.name, started.error().Text().c_str());
    return 1;
  }
  return started->Serve();
}

}  // namespace hone
