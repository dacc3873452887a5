#include "backends/cpu/serve_stdio.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include "backends/cpu/host_target.h"
#include "backends/cpu/named_targets.h"
#include "backends/processes/child_channel.h"
#include "backends/processes/child_messages.h"
#include "backends/processes/held_runner.h"
#include "backends/processes/remote_messages.h"
#include "backends/sandbox/sandbox.h"
#include "base/bytes.h"
#include "base/cpu_features.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/sealed_memfd.h"
#include "base/subprocess.h"

namespace hone {
namespace {

constexpr std::chrono::minutes kLimit{5};  // of one check or timing: boards are slow, and references are in double
constexpr std::chrono::milliseconds kAlive{1'000};

// Standard input and output become the channel's alone: whatever else is printed here goes to standard error.
Result<ChildChannel> TakeStdio() {
  UniqueFd in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)), out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!in || !out) return ErrnoError(errno, "standard input and output");
  UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing || ::dup2(nothing.get(), STDIN_FILENO) < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    return ErrnoError(errno, "standard input and output");
  ::signal(SIGPIPE, SIG_IGN);
  return ChildChannel(std::move(in), std::move(out));
}

// What this device passes for: itself, or a lesser one whose code it runs.
Result<Target> TargetToSay(const std::string& asked) {
  Target target = HONE_TRY(HostTarget());
  if (asked.empty()) return target;
  if (asked.find(' ') != std::string::npos) {
    target = HONE_TRY(ParseTarget(asked));
    if (target.cpu() == nullptr) return Error{ErrorKind::kUnsupported, "this device is a CPU", "--target"};
  } else {
    CpuTarget named = HONE_TRY(NamedCpu(asked.starts_with("cpu:") ? asked.substr(4) : asked));
    named.cores = target.cores();
    target = std::move(named);
  }
  HONE_TRY(CheckProcessor(IsaName(target.cpu()->isa), target.cpu()->features));
  return target;
}

class StdioRunner {
 public:
  StdioRunner(ChildChannel channel, std::unique_ptr<RunnerPool> runners)
      : channel_(std::move(channel)), runners_(std::move(runners)) {}

  Result<void> Say(ChildMessage type, uint64_t id, std::string_view body) {
    MutexLock lock(saying_);
    return channel_.Send(type, id, body, {}, MonotonicTime::max());
  }

  int Serve() {
    while (true) {
      Result<ChildFrame> frame = channel_.Receive(MonotonicTime::max());
      if (!frame && frame.error().kind == ErrorKind::kUnavailable) return 0;  // honed is done
      if (!frame) {
        std::fprintf(stderr, "hone-runner: what comes in is not honed's: %s\n", frame.error().Text().c_str());
        return 1;
      }
      ChildMessage reply{};
      const Result<std::string> body = [&] {
        AtWork at_work(*this);
        return Answer(*frame, reply);
      }();
      if (frame->type == ChildMessage::kArtifact && body) continue;
      const Result<void> said =
          body ? Say(reply, frame->id, *body) : Say(ChildMessage::kError, frame->id, EncodeError(body.error()));
      if (!said) return 0;
    }
  }

 private:
  // While it lives, honed hears that we do.
  class AtWork {
   public:
    explicit AtWork(StdioRunner& device) : device_(device) {
      MutexLock lock(device_.work_);
      device_.is_at_work_ = true;
      device_.changed_.NotifyAll();
    }
    ~AtWork() {
      MutexLock lock(device_.work_);
      device_.is_at_work_ = false;
    }

   private:
    StdioRunner& device_;
  };

  void SayAlive(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      bool is_at_work = false;
      {
        MutexLock lock(work_);
        changed_.WaitFor(work_, kAlive, stop);
        is_at_work = is_at_work_;
      }
      if (is_at_work) (void)Say(ChildMessage::kAlive, 0, "");
    }
  }

  Result<std::string> Answer(const ChildFrame& frame, ChildMessage& reply) {
    switch (frame.type) {
      case ChildMessage::kPrepare:
        reply = ChildMessage::kPrepared;
        runner_.reset();
        runner_ = HONE_TRY(HeldRunner::Hold(*runners_, frame.body, kLimit));
        return std::string();
      case ChildMessage::kArtifact:
        if (frame.body.size() > kRemoteArtifactBytes) return Error{ErrorKind::kLimit, "an artifact of that size", ""};
        artifacts_.Put(Hash256(frame.body), HONE_TRY(SealedMemfd::Create(AsBytes(frame.body))));
        return std::string();
      case ChildMessage::kCheck: {
        reply = ChildMessage::kChecked;
        const auto [artifact, options] = HONE_TRY(Asked(frame));
        return EncodeCheckReport(HONE_TRY(runner_->Check(*artifact, HONE_TRY(DecodeCheckOptions(options)))));
      }
      case ChildMessage::kTime: {
        reply = ChildMessage::kTimed;
        const auto [artifact, options] = HONE_TRY(Asked(frame));
        return EncodeTiming(HONE_TRY(runner_->Time(*artifact, HONE_TRY(DecodeTimeOptions(options)))));
      }
      default: return Error{ErrorKind::kInvalid, "a device prepares, checks and measures", ""};
    }
  }

  Result<std::pair<SealedMemfd*, std::string_view>> Asked(const ChildFrame& frame) {
    const auto [digest, options] = HONE_TRY(DecodeAsk(frame.body));
    SealedMemfd* artifact = artifacts_.Find(digest);
    if (artifact == nullptr || !runner_)
      return Error{ErrorKind::kInternal, "asked of a kernel or of code that did not come before", ""};
    return std::pair(artifact, options);
  }

  ChildChannel channel_;
  const std::unique_ptr<RunnerPool> runners_;
  std::unique_ptr<HeldRunner> runner_;
  KeptArtifacts<SealedMemfd> artifacts_;
  Mutex saying_;  // a frame is said as a whole
  Mutex work_;
  CondVar changed_;
  bool is_at_work_ HONE_GUARDED_BY(work_) = false;
  std::jthread alive_{[this](const std::stop_token& stop) { SayAlive(stop); }};  // last: ends first
};

}  // namespace

int ServeStdio(const StdioOptions& options) {
  const auto serve = [&]() -> Result<int> {
    RemoteHello hello{"hone-runner " HONE_VERSION, HONE_TRY(TargetToSay(options.target))};
    RunnerPoolOptions pool;
    pool.executable = options.runner.empty() ? HONE_TRY(FindOwnProgram("hone-runner")) : options.runner;
    ChildChannel channel = HONE_TRY(TakeStdio());
    // This process reads what another machine sends: it and all that it starts have no network and write no files. The
    // runners lock themselves in further, as ever.
    if (!options.is_emulated) HONE_TRY(EnterStdioSandbox());
    StdioRunner device(std::move(channel), HONE_TRY(RunnerPool::Start(pool)));
    if (!device.Say(ChildMessage::kHello, 0, EncodeHello(hello))) return 0;
    return device.Serve();
  };
  const Result<int> ended = serve();
  if (ended) return *ended;
  std::fprintf(stderr, "hone-runner: %s\n", ended.error().Text().c_str());
  return 1;
}

}  // namespace hone
