#include "backends/gpu/device_child.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "backends/gpu/device_process.h"
#include "base/file.h"
#include "base/log.h"
#include "base/start_thread.h"

namespace hone {
namespace {

constexpr std::chrono::seconds kLoading{20};
// Some drivers compile at the first launch (PoCL does, for some tenths of a second), which is no run of the
// candidate's: the first calls of code that is new to its device have so much longer than their limit.
constexpr std::chrono::seconds kFirstLaunch{2};
constexpr int64_t kLookMs = 50;
constexpr std::chrono::milliseconds kDying{50};  // between the end of a channel and that of its process

}  // namespace

Result<void> DeviceChild::Start(const std::string& own, std::span<const int> others) {
  auto [ours, theirs] = HONE_TRY(ChildChannel::Pair());
  const pid_t host = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return NoTask("process", errno);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != host) ::_exit(127);
    ChildChannel channel(std::move(theirs));
    ours = {};
    for (const int other : others) ::close(other);
    if (const Result<void> narrowed = NarrowDeviceSandbox(own); !narrowed) {
      LogError("device_sandbox", {{"error", narrowed.error().Text()}});
      ::_exit(127);
    }
    RunDeviceProcess(std::move(channel));
  }
  channel_ = std::move(ours);
  pid_ = child;
  return {};
}

ExitStatus DeviceChild::End(std::chrono::milliseconds grace) {
  ExitStatus ended;
  if (pid_ < 0) return ended;
  int status = 0;
  // It may have died by itself: then that is what counts.
  if (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (grace.count() > 0) ::usleep(static_cast<useconds_t>(std::chrono::microseconds(grace).count()));
    if (grace.count() == 0 || ::waitpid(pid_, &status, WNOHANG) == 0) {
      ::kill(pid_, SIGKILL);
      while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
    }
  }
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  channel_ = {};
  pid_ = -1;
  return ended;
}

bool WatchedRun::Begin(std::string_view spec, const std::vector<int>& fds) {
  seen_ = RunStage::kSetup;
  deadline_ = std::chrono::steady_clock::now() + kLoading;
  return child_->channel().Send(ChildMessage::kLaunch, id_, spec, fds, deadline_).has_value();
}

MonotonicTime WatchedRun::Deadline() {
  const RunStage stage = status_->stage.load();
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (seen_ == RunStage::kSetup && stage != seen_)
    deadline_ = now + limit_ + (status_->is_first ? kFirstLaunch : std::chrono::seconds{0});
  if (seen_ < RunStage::kRepeat && stage >= RunStage::kRepeat)
    deadline_ = std::min<MonotonicTime>(deadline_, now + limit_);
  seen_ = stage;
  return deadline_;
}

Result<LaunchOutcome> WatchedRun::Finish() {
  pollfd waited{child_->fd(), POLLIN, 0};
  if (::poll(&waited, 1, 0) > 0) {
    Result<ChildFrame> reply = child_->channel().Receive(std::chrono::steady_clock::now() + kLoading);
    if (reply && reply->type == ChildMessage::kLaunched && reply->id == id_) {
      LaunchOutcome outcome = HONE_TRY(DecodeOutcome(reply->body));
      if (outcome.status.code == kExitMisdeed || outcome.status.code == kExitDriver) child_->End(kDying);
      return outcome;
    }
  }
  // It hangs, or died.
  LaunchOutcome outcome;
  outcome.timed_out = std::chrono::steady_clock::now() >= deadline_;
  outcome.status = child_->End(kDying);
  return outcome;
}

bool WatchedRun::WasLostBeforeItRan(const LaunchOutcome& outcome) const {
  return !child_->IsAlive() && !outcome.timed_out && status_->stage.load() == RunStage::kSetup;
}

size_t AwaitOne(std::span<WatchedRun* const> runs, int owner, MonotonicTime until) {
  std::vector<pollfd> waited;
  for (const WatchedRun* run : runs) waited.push_back({run->child().fd(), POLLIN, 0});
  waited.push_back({owner, POLLRDHUP, 0});
  while (true) {
    MonotonicTime first = until;
    size_t late = runs.size();
    for (size_t i = 0; i < runs.size(); ++i) {
      const MonotonicTime deadline = runs[i]->Deadline();
      if (deadline < first) first = deadline, late = i;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - std::chrono::steady_clock::now());
    const int ready =
        ::poll(waited.data(), waited.size(), static_cast<int>(std::clamp<int64_t>(left.count(), 0, kLookMs)));
    if (ready > 0 && waited.back().revents != 0) {
      for (const WatchedRun* run : runs) run->child().End(std::chrono::milliseconds(0));
      ::_exit(0);
    }
    for (size_t i = 0; ready > 0 && i < runs.size(); ++i)
      if (waited[i].revents != 0) return i;
    if (left.count() <= 0) return late;
  }
}

}  // namespace hone
