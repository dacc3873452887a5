#include "backends/gpu/device_host.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include "backends/gpu/device_process.h"
#include "backends/processes/child_channel.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "base/unique_fd.h"
#include "ir/device_artifact.h"

namespace hone {
namespace {

// What a driver writes (compiled code, temporary files) stays in a directory of this user's. Whoever finds nobody else
// in it, empties it first.
class DriverDirectory {
 public:
  static Result<DriverDirectory> Open() {
    const char* base = ::getenv("XDG_RUNTIME_DIR");
    std::string path =
        (base != nullptr && *base == '/' ? std::string(base) : "/tmp") + "/hone-device-" + std::to_string(::geteuid());
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoError(errno, path);
    UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!directory) return ErrnoError(errno, path);
    struct stat is{};
    if (::fstat(directory.get(), &is) != 0 || is.st_uid != ::geteuid() || (is.st_mode & 077) != 0)
      return Error{ErrorKind::kIo, "it belongs to somebody else, or others may write to it; remove it", path};
    if (::flock(directory.get(), LOCK_EX | LOCK_NB) == 0) {
      std::error_code ignored;
      for (const auto& entry : std::filesystem::directory_iterator(path, ignored))
        std::filesystem::remove_all(entry.path(), ignored);
    }
    ::flock(directory.get(), LOCK_SH);
    return DriverDirectory(std::move(path), std::move(directory));
  }

  const std::string& path() const { return path_; }

  // Where drivers look for a place to write.
  void Announce() const {
    for (const char* name : {"HOME", "TMPDIR", "XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH"})
      ::setenv(name, path_.c_str(), 1);
  }

 private:
  DriverDirectory(std::string path, UniqueFd directory) : path_(std::move(path)), directory_(std::move(directory)) {}
  std::string path_;
  UniqueFd directory_;  // locked, by us and by what we fork
};

class DeviceHost {
 public:
  // `own`: the directory that drivers may write to.
  DeviceHost(ChildChannel runner, std::string own) : runner_(std::move(runner)), own_(std::move(own)) {}

  [[noreturn]] void Serve() {
    while (true) {
      Result<ChildFrame> frame = runner_.Receive(MonotonicTime::max());
      if (!frame || frame->type != ChildMessage::kLaunch || frame->fds.size() != 2) Quit();
      const Result<CandidateSpec> spec = DecodeCandidateSpec(frame->body);
      if (!spec) Quit();
      const Result<LaunchOutcome> outcome = Launch(*frame, spec->limit_ns);
      const Result<void> sent =
          outcome
              ? runner_.Send(ChildMessage::kLaunched, frame->id, EncodeOutcome(*outcome), {}, MonotonicTime::max())
              : runner_.Send(ChildMessage::kError, frame->id, EncodeError(outcome.error()), {}, MonotonicTime::max());
      if (!sent) Quit();
    }
  }

 private:
  static constexpr std::chrono::seconds kLoading{20};
  // Some drivers compile at the first launch (PoCL does, for some tenths of a second), which is no run of the
  // candidate's: the first calls of code that is new to its device have so much longer than their limit.
  static constexpr std::chrono::seconds kFirstLaunch{2};
  static constexpr int64_t kLookMs = 50;

  Result<LaunchOutcome> Launch(ChildFrame& frame, int64_t limit_ns) {
    BufferPlan plan;
    plan.bytes = kStatusBytes;
    const MappedBuffer shared = HONE_TRY(MapBuffer(plan, frame.fds[1].get(), false));
    const auto& status = *reinterpret_cast<const CandidateStatus*>(shared.data);
    const std::chrono::nanoseconds limit(limit_ns);
    Result<LaunchOutcome> outcome = LaunchWatching(frame, limit, status);
    // A device that was lost, or a process that ended, since the last candidate: this one did not run and is not to
    // blame, unless it befalls a second process, too.
    if (outcome && !IsAlive() && !outcome->timed_out && status.stage.load() == RunStage::kSetup)
      outcome = LaunchWatching(frame, limit, status);
    ::munmap(shared.base, shared.size);
    return outcome;
  }

  bool IsAlive() const { return device_pid_ >= 0; }

  Result<LaunchOutcome> LaunchWatching(ChildFrame& frame, std::chrono::nanoseconds limit,
                                       const CandidateStatus& status) {
    if (!IsAlive()) HONE_TRY(StartDevice());
    MonotonicTime deadline = std::chrono::steady_clock::now() + kLoading;
    const Result<void> sent =
        device_.Send(ChildMessage::kLaunch, frame.id, frame.body, {frame.fds[0].get(), frame.fds[1].get()}, deadline);
    if (sent && Await(deadline, limit, status)) {
      Result<ChildFrame> reply = device_.Receive(deadline);
      if (reply && reply->type == ChildMessage::kLaunched && reply->id == frame.id) {
        LaunchOutcome outcome = HONE_TRY(DecodeOutcome(reply->body));
        if (outcome.status.code == kExitMisdeed || outcome.status.code == kExitDriver) EndDevice();
        return outcome;
      }
    }
    // It hangs, or died.
    LaunchOutcome outcome;
    outcome.timed_out = std::chrono::steady_clock::now() >= deadline;
    outcome.status = EndDevice();
    return outcome;
  }

  // False: the device process had its time, `limit` from when the candidate began to run. Ends this process if the
  // runner has ended.
  bool Await(MonotonicTime& deadline, std::chrono::nanoseconds limit, const CandidateStatus& status) {
    for (RunStage seen = RunStage::kSetup;;) {
      const RunStage stage = status.stage.load();
      if (seen == RunStage::kSetup && stage != seen)
        deadline =
            std::chrono::steady_clock::now() + limit + (status.is_first ? kFirstLaunch : std::chrono::seconds{0});
      if (seen < RunStage::kRepeat && stage >= RunStage::kRepeat)
        deadline = std::min<MonotonicTime>(deadline, std::chrono::steady_clock::now() + limit);
      seen = stage;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      struct pollfd fds[] = {{device_.fd(), POLLIN, 0}, {runner_.fd(), POLLRDHUP, 0}};
      const int ready = ::poll(fds, 2, static_cast<int>(std::clamp<int64_t>(left.count(), 0, kLookMs)));
      if (ready > 0 && fds[1].revents != 0) Quit();
      if (ready > 0 && fds[0].revents != 0) return true;
      if (left.count() <= 0) return false;
    }
  }

  Result<void> StartDevice() {
    auto [ours, theirs] = HONE_TRY(ChildChannel::Pair());
    const pid_t host = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) return NoTask("process", errno);
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != host) ::_exit(127);
      ChildChannel channel(std::move(theirs));
      ours = {};
      runner_ = {};
      if (const Result<void> narrowed = NarrowDeviceSandbox(own_); !narrowed) {
        LogError("device_sandbox", {{"error", narrowed.error().Text()}});
        ::_exit(127);
      }
      RunDeviceProcess(std::move(channel));
    }
    device_ = std::move(ours);
    device_pid_ = child;
    return {};
  }

  ExitStatus EndDevice() {
    ExitStatus ended;
    int status = 0;
    // It may have died by itself: then that is what counts.
    if (::waitpid(device_pid_, &status, WNOHANG) == 0) {
      ::usleep(50'000);
      if (::waitpid(device_pid_, &status, WNOHANG) == 0) {
        ::kill(device_pid_, SIGKILL);
        while (::waitpid(device_pid_, &status, 0) < 0 && errno == EINTR) {}
      }
    }
    if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
    device_ = {};
    device_pid_ = -1;
    return ended;
  }

  [[noreturn]] void Quit() {
    if (device_pid_ > 0) ::kill(device_pid_, SIGKILL);
    ::_exit(0);
  }

  ChildChannel runner_, device_;
  const std::string own_;
  pid_t device_pid_ = -1;
};

class DeviceLauncher : public Launcher {
 public:
  DeviceLauncher(ChildChannel channel, Confinement confinement)
      : channel_(std::move(channel)), confinement_(std::move(confinement)) {}

  Result<Manifest> Admit(const SealedMemfd& artifact) const override {
    ReadOnlyMapping mapping = HONE_TRY(artifact.Map());
    return HONE_TRY(DecodeDeviceArtifact(mapping.bytes())).manifest;
  }

  Result<LaunchOutcome> Run(const CandidateSpec& spec, const SealedMemfd& artifact, int arena_fd) override {
    const uint64_t id = next_id_++;
    HONE_TRY(channel_.Send(ChildMessage::kLaunch, id, EncodeCandidateSpec(spec), {artifact.fd(), arena_fd},
                           MonotonicTime::max()));
    ChildFrame frame = HONE_TRY(channel_.Receive(MonotonicTime::max()));
    if (frame.type == ChildMessage::kError) return DecodeError(frame.body);
    if (frame.type != ChildMessage::kLaunched || frame.id != id)
      return Error{ErrorKind::kInternal, "the device's host answered another question", ""};
    return DecodeOutcome(frame.body);
  }

  const Confinement& confinement() const override { return confinement_; }

 private:
  ChildChannel channel_;
  const Confinement confinement_;
  uint64_t next_id_ = 1;
};

// `own` gets the directory that drivers may write to.
Result<Confinement> LockIn(std::string& own) {
  static const DriverDirectory directory = HONE_TRY(DriverDirectory::Open());
  directory.Announce();
  own = directory.path();
  return EnterDeviceSandbox(own);
}

[[noreturn]] void ServeRunner(ChildChannel channel) {
  std::string own;
  const Result<Confinement> locked = LockIn(own);
  const Result<void> told =
      locked ? channel.Send(ChildMessage::kConfined, 0, EncodeConfinements({*locked}), {}, MonotonicTime::max())
             : channel.Send(ChildMessage::kError, 0, EncodeError(locked.error()), {}, MonotonicTime::max());
  if (!locked || !told) ::_exit(1);
  DeviceHost(std::move(channel), std::move(own)).Serve();
}

}  // namespace

Result<std::unique_ptr<Launcher>> StartDeviceHost() {
  auto [ours, theirs] = HONE_TRY(ChildChannel::Pair());
  const pid_t child = ::fork();
  if (child < 0) return ErrnoError(errno, "fork");
  if (child == 0) {
    // Nothing of the runner's but this channel, and where its errors go.
    const int kept = theirs.get();
    if (kept > 3) ::close_range(3, static_cast<unsigned>(kept) - 1, 0);
    ::close_range(static_cast<unsigned>(kept) + 1, ~0u, 0);
    ServeRunner(ChildChannel(std::move(theirs)));
  }
  theirs.Reset();
  ChildFrame first = HONE_TRY(ours.Receive(MonotonicTime::max()));
  if (first.type == ChildMessage::kError) return DecodeError(first.body).Context("a device's host has no sandbox");
  std::vector<Confinement> confined = HONE_TRY(DecodeConfinements(first.body));
  if (first.type != ChildMessage::kConfined || confined.size() != 1)
    return Error{ErrorKind::kInternal, "a device's host did not say what holds it", ""};
  return std::unique_ptr<Launcher>(std::make_unique<DeviceLauncher>(std::move(ours), std::move(confined[0])));
}

void MeasureCopiesLockedIn(ChildChannel channel, const char* target) {
  const auto locked = []() -> Result<void> {
    std::string own;
    HONE_TRY(LockIn(own));
    return NarrowDeviceSandbox(own);
  }();
  if (locked) MeasureCopies(std::move(channel), target);
  (void)channel.Send(ChildMessage::kError, 0, EncodeError(locked.error()), {}, MonotonicTime::max());
  ::_exit(1);
}

}  // namespace hone
