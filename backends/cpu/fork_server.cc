#include "backends/cpu/fork_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backends/cpu/candidate.h"
#include "backends/processes/child_channel.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/start_thread.h"
#include "ir/native_artifact.h"

namespace hone {
namespace {

// In a new child: goes when its parent goes.
void TieTo(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
}

// How often the launcher looks at the clock, and how late it may wake up before the time since it last looked counts as
// nobody's: the machine slept, everything was stopped, or there was no processor for any of us. What never ends ends by
// its limit of processor time then.
constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::milliseconds kLate{50};

LaunchOutcome Await(pid_t child, int64_t limit_ns) {
  LaunchOutcome outcome;
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  std::chrono::nanoseconds left(limit_ns);
  MonotonicTime before = std::chrono::steady_clock::now();
  while (true) {
    const auto wait =
        std::clamp(std::chrono::ceil<std::chrono::milliseconds>(left), std::chrono::milliseconds(0), kLook);
    struct pollfd poll_fd{pidfd.get(), POLLIN, 0};
    int ready = ::poll(&poll_fd, 1, static_cast<int>(wait.count()));
    if (ready > 0) break;
    const MonotonicTime now = std::chrono::steady_clock::now();
    const MonotonicTime::duration passed = now - std::exchange(before, now);
    if (passed <= wait + kLate) left -= passed;
    if (left.count() > 0) continue;
    outcome.timed_out = true;
    ::kill(child, SIGKILL);
    break;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (WIFEXITED(status)) outcome.status.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.status.signal = WTERMSIG(status);
  return outcome;
}

[[noreturn]] void Serve(ChildChannel channel) {
  pid_t self = ::getpid();
  PrepareForCandidates();
  Result<Confinement> confined = EnterLauncherSandbox();
  Result<void> told =
      confined ? channel.Send(ChildMessage::kConfined, 0, EncodeConfinements({*confined}), {}, MonotonicTime::max())
               : channel.Send(ChildMessage::kError, 0, EncodeError(confined.error()), {}, MonotonicTime::max());
  if (!confined || !told) ::_exit(1);
  while (true) {
    Result<ChildFrame> frame = channel.Receive(MonotonicTime::max());
    if (!frame || frame->type != ChildMessage::kLaunch || frame->fds.size() != 2) ::_exit(0);
    Result<CandidateSpec> spec = DecodeCandidateSpec(frame->body);
    if (!spec) ::_exit(1);
    pid_t child = ::fork();
    if (child == 0) {
      TieTo(self);
      RunCandidate(*spec, frame->fds[0].get(), frame->fds[1].get());
    }
    Result<void> sent;
    if (child < 0)
      sent = channel.Send(ChildMessage::kError, frame->id, EncodeError(NoTask("process", errno)), {},
                          MonotonicTime::max());
    else
      sent = channel.Send(ChildMessage::kLaunched, frame->id, EncodeOutcome(Await(child, spec->limit_ns)), {},
                          MonotonicTime::max());
    if (!sent) ::_exit(0);
  }
}

class ForkServer : public Launcher {
 public:
  ForkServer(ChildChannel channel, Confinement confinement)
      : channel_(std::move(channel)), confinement_(std::move(confinement)) {}

  Result<Manifest> Admit(const SealedMemfd& artifact) const override {
    ReadOnlyMapping mapping = HONE_TRY(artifact.Map());
    Manifest manifest = HONE_TRY(OpenNativeArtifact(mapping.bytes()));
    if (manifest.launches != 1)
      return Error{ErrorKind::kInvalid,
                   "the artifact's number of launches is " + std::to_string(manifest.launches) + ", a CPU's code has 1",
                   ""};
    return manifest;
  }

  Result<LaunchOutcome> Run(const CandidateSpec& spec, const SealedMemfd& artifact, int arena_fd) override {
    uint64_t id = next_id_++;
    HONE_TRY(channel_.Send(ChildMessage::kLaunch, id, EncodeCandidateSpec(spec), {artifact.fd(), arena_fd},
                           MonotonicTime::max()));
    ChildFrame frame = HONE_TRY(channel_.Receive(MonotonicTime::max()));
    if (frame.type == ChildMessage::kError) return DecodeError(frame.body);
    if (frame.type != ChildMessage::kLaunched || frame.id != id)
      return Error{ErrorKind::kInternal, "the launcher answered another question", ""};
    return DecodeOutcome(frame.body);
  }

  const Confinement& confinement() const override { return confinement_; }

 private:
  ChildChannel channel_;
  const Confinement confinement_;
  uint64_t next_id_ = 1;
};

}  // namespace

Result<std::unique_ptr<Launcher>> StartForkServer() {
  auto [ours, theirs] = HONE_TRY(ChildChannel::Pair());
  pid_t runner = ::getpid();
  pid_t child = ::fork();
  if (child < 0) return NoTask("process", errno);
  if (child == 0) {
    TieTo(runner);
    // Nothing but its channel: nothing that a candidate could write to by an oversight of ours.
    const unsigned kept = static_cast<unsigned>(theirs.get());
    if (kept > 0) ::close_range(0, kept - 1, 0);
    ::close_range(kept + 1, ~0u, 0);
    Serve(ChildChannel(std::move(theirs)));
  }
  theirs.Reset();
  ChildFrame first = HONE_TRY(ours.Receive(MonotonicTime::max()));
  if (first.type == ChildMessage::kError) return DecodeError(first.body).Context("the launcher has no sandbox");
  std::vector<Confinement> confined = HONE_TRY(DecodeConfinements(first.body));
  if (first.type != ChildMessage::kConfined || confined.size() != 1)
    return Error{ErrorKind::kInternal, "the launcher did not say what holds it", ""};
  return std::unique_ptr<Launcher>(std::make_unique<ForkServer>(std::move(ours), std::move(confined[0])));
}

}  // namespace hone
