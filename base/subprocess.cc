#include "base/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/start_thread.h"

namespace hone {
namespace {

Error IoError(std::string_view what, int code) {
  return Error{ErrorKind::kIo, fmt::format("{}: {}", what, std::strerror(code)), ""};
}

// The thread that does all forking. Never joined and never destroyed: children must live until the process ends, also
// while its static objects are being torn down.
class Forker {
 public:
  // kBusy: its thread could not be started; the next who asks tries again.
  static Result<Forker*> Instance() {
    static std::atomic<Forker*> current{nullptr};
    Forker* forker = current.load();
    // Our own process may itself be a fork, which has no threads but the one that forked.
    while (forker == nullptr || forker->owner_ != ::getpid()) {
      auto fresh = std::make_unique<Forker>();
      if (current.compare_exchange_strong(forker, fresh.get())) forker = fresh.release();
    }
    HONE_TRY(forker->Start());
    return forker;
  }

  pid_t Fork(std::function<pid_t()> fork) {
    std::packaged_task<pid_t()> task(std::move(fork));
    std::future<pid_t> pid = task.get_future();
    {
      MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.NotifyOne();
    return pid.get();
  }

 private:
  Result<void> Start() {
    MutexLock lock(mutex_);
    if (is_started_) return {};
    HONE_TRY(StartThread([this] { Loop(); })).detach();
    is_started_ = true;
    return {};
  }

  void Loop() {
    while (true) {
      std::packaged_task<pid_t()> task;
      {
        MutexLock lock(mutex_);
        while (tasks_.empty()) changed_.Wait(mutex_);
        task = std::move(tasks_.front());
        tasks_.erase(tasks_.begin());
      }
      task();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::packaged_task<pid_t()>> tasks_ HONE_GUARDED_BY(mutex_);
  const pid_t owner_ = ::getpid();
  bool is_started_ HONE_GUARDED_BY(mutex_) = false;
};

// Everything the child needs between fork and exec, prepared before: there it may only make system calls.
struct Plan {
  const char* executable;
  char* const* argv;
  char* const* envp;
  const std::vector<std::pair<int, int>>* fds;
  int null_fd, error_fd, report_fd;
  int first_free_fd;  // above every descriptor involved
  const SubprocessLimits& limits;
  pid_t parent;
};

void SetLimit(int resource, int64_t value) {
  struct rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return;
  rlim_t wanted = static_cast<rlim_t>(value);
  limit.rlim_cur = limit.rlim_max = std::min(wanted, limit.rlim_max);
  ::setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

[[noreturn]] void GiveUp(const Plan& plan) {
  int code = errno;
  [[maybe_unused]] ssize_t written = ::write(plan.report_fd, &code, sizeof code);
  ::_exit(127);
}

// A number past RLIMIT_NOFILE is EBADF to dup2 and EINVAL to fcntl.
void Duplicate(const Plan& plan, int from, int to) {
  if (::dup2(from, to) >= 0) return;
  if (errno == EBADF) errno = EMFILE;
  GiveUp(plan);
}

// Linux may share processors among sessions first (sched(7), autogroups), and by priority only within one: a session of
// our own, with the lowest share.
void YieldToOtherSessions() {
  ::setsid();
  int fd = ::open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] ssize_t written = ::write(fd, "19", 2);
  ::close(fd);
}

void Join(const std::string& group) {
  int fd = ::open(group.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] ssize_t written = ::write(fd, "0", 1);
  ::close(fd);
}

// Runs in the child, with the parent's memory copied and its locks in any state: async-signal-safe calls only.
[[noreturn]] void Exec(Plan plan) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);  // the parent died before the line above
  if (plan.limits.idle) {
    YieldToOtherSessions();
    if (!plan.limits.idle_group.empty()) Join(plan.limits.idle_group);
  } else {
    ::setpgid(0, 0);
  }

  // Two moves, so that no target number overwrites a descriptor that is still to be moved.
  int count = static_cast<int>(plan.fds->size()), spare = plan.first_free_fd;
  for (int i = 0; i < count; ++i) Duplicate(plan, (*plan.fds)[static_cast<size_t>(i)].first, spare + i);
  int report = ::fcntl(plan.report_fd, F_DUPFD_CLOEXEC, spare + count);
  if (report < 0) {
    if (errno == EINVAL) errno = EMFILE;
    GiveUp(plan);
  }
  plan.report_fd = report;
  Duplicate(plan, plan.null_fd, 0);
  Duplicate(plan, plan.error_fd, 1);
  Duplicate(plan, plan.error_fd, 2);
  int highest = 2;
  for (int i = 0; i < count; ++i) {
    int target = (*plan.fds)[static_cast<size_t>(i)].second;
    Duplicate(plan, spare + i, target);
    highest = std::max(highest, target);
  }
  for (int fd = 3; fd < highest; ++fd) {
    bool wanted = false;
    for (const auto& pair : *plan.fds) wanted |= pair.second == fd;
    if (!wanted) ::close(fd);
  }
  if (highest + 1 < report) ::close_range(static_cast<unsigned>(highest) + 1, static_cast<unsigned>(report) - 1, 0);
  ::close_range(static_cast<unsigned>(report) + 1, ~0u, 0);

  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);

  SetLimit(RLIMIT_CORE, 0);
  SetLimit(RLIMIT_NOFILE, std::max(plan.limits.open_files, report + 1));
  if (plan.limits.file_size > 0) SetLimit(RLIMIT_FSIZE, plan.limits.file_size);
  if (plan.limits.address_space > 0 && !kShadowMemory) SetLimit(RLIMIT_AS, plan.limits.address_space);
  if (plan.limits.nice != 0) ::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + plan.limits.nice);
  if (plan.limits.idle) {
    sched_param none_given{};
    ::sched_setscheduler(0, SCHED_IDLE, &none_given);
  }
  ::execve(plan.executable, plan.argv, plan.envp);
  GiveUp(plan);
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string ExitStatus::Text() const {
  if (signal == 0) return fmt::format("exit status {}", code);
  const char* name = ::sigdescr_np(signal);
  return fmt::format("killed by signal {} ({})", signal, name != nullptr ? name : "unknown");
}

Subprocess::Subprocess(pid_t pid, UniqueFd pidfd, UniqueFd errors)
    : pid_(pid), pidfd_(std::move(pidfd)), errors_(std::move(errors)) {}

Subprocess::Subprocess(Subprocess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      errors_(std::move(other.errors_)),
      ended_(other.ended_) {}

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  if (this == &other) return *this;
  if (pid_ > 0) Kill();
  pid_ = std::exchange(other.pid_, -1);
  pidfd_ = std::move(other.pidfd_);
  errors_ = std::move(other.errors_);
  ended_ = other.ended_;
  return *this;
}

Subprocess::~Subprocess() {
  if (pid_ > 0) Kill();
}

Result<Subprocess> Subprocess::Start(const SubprocessOptions& options) {
  std::vector<std::string> arguments = options.arguments, environment = options.environment;
  arguments.insert(arguments.begin(), options.executable);
  std::vector<char*> argv = Pointers(arguments), envp = Pointers(environment);

  UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_fd) return IoError("/dev/null", errno);
  UniqueFd errors(::memfd_create("hone-stderr", MFD_CLOEXEC));
  if (!errors) return IoError("memfd_create", errno);
  ::fcntl(errors.get(), F_SETFL, O_APPEND);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return IoError("pipe2", errno);
  UniqueFd report_in(ends[0]), report_out(ends[1]);

  Plan plan{options.executable.c_str(), argv.data(), envp.data(),    &options.fds, null_fd.get(), errors.get(),
            report_out.get(),           0,           options.limits, ::getpid()};
  plan.first_free_fd = std::max({2, plan.null_fd, plan.error_fd, plan.report_fd});
  for (const auto& [from, to] : options.fds) {
    HONE_CHECK(from >= 0 && to >= 3);
    plan.first_free_fd = std::max({plan.first_free_fd, from, to});
  }
  ++plan.first_free_fd;
  pid_t pid = HONE_TRY(Forker::Instance())->Fork([&plan]() -> pid_t {
    pid_t child = ::fork();
    if (child == 0) Exec(plan);
    return child < 0 ? -errno : child;
  });
  if (pid < 0) return NoTask("process", -pid);

  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) {  // no descriptor was left: without one nobody could wait for it
    int code = errno;
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {}
    return IoError("pidfd_open", code);
  }
  Subprocess child(pid, std::move(pidfd), std::move(errors));
  report_out.Reset();
  int code = 0;
  ssize_t count = 0;
  do count = ::read(report_in.get(), &code, sizeof code);
  while (count < 0 && errno == EINTR);
  if (count == sizeof code) return IoError(fmt::format("cannot start {}", options.executable), code);
  return child;
}

std::optional<ExitStatus> Subprocess::Wait(MonotonicTime deadline) {
  while (!ended_) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    struct pollfd poll_fd{pidfd_.get(), POLLIN, 0};
    int timeout = static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
    int ready = ::poll(&poll_fd, 1, timeout);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && timeout == 0) return std::nullopt;
    if (ready <= 0) continue;
    ::kill(-pid_, SIGKILL);  // what it left behind: until it is reaped the group's number is its own
    siginfo_t info{};
    if (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0) {
      if (errno == EINTR) continue;
      ended_ = ExitStatus{};  // ECHILD: somebody ignores SIGCHLD, so the status is lost
    } else if (info.si_code == CLD_EXITED) {
      ended_ = ExitStatus{info.si_status, 0};
    } else {
      ended_ = ExitStatus{0, info.si_status};
    }
  }
  return ended_;
}

bool Subprocess::HasEnded() { return Wait(MonotonicTime()).has_value(); }

std::chrono::nanoseconds Subprocess::TimeQueued() const {
  if (ended_) return {};  // its number may be another's by now
  // Nanoseconds on a processor, nanoseconds waiting for one, and how often (Documentation/scheduler/sched-stats.rst).
  const Result<std::string> text = ReadFile(fmt::format("/proc/{}/schedstat", pid_), 128);
  long long run = 0, queued = 0;
  if (!text || std::sscanf(text->c_str(), "%lld %lld", &run, &queued) != 2) return {};
  return std::chrono::nanoseconds(queued);
}

ExitStatus Subprocess::Kill() {
  if (!HasEnded()) {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);  // it may not have reached setpgid yet
  }
  return *Wait(MonotonicTime::max());
}

void Subprocess::LimitCpu(int seconds) {
  struct rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  if (seconds > 0) {
    clockid_t clock{};
    struct timespec used{};
    if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return;  // it has ended
    limit.rlim_cur = static_cast<rlim_t>(used.tv_sec + 1 + seconds);
  }
  ::prlimit(pid_, RLIMIT_CPU, &limit, nullptr);
}

std::string Subprocess::ErrorTail(size_t max_bytes) const {
  struct stat info{};
  if (::fstat(errors_.get(), &info) != 0) return "";
  size_t size = static_cast<size_t>(info.st_size), wanted = std::min(size, max_bytes);
  std::string text(wanted, '\0');
  ssize_t count = ::pread(errors_.get(), text.data(), wanted, static_cast<off_t>(size - wanted));
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = c == '\n' ? '|' : ' ';
  return text;
}

void Subprocess::ClearErrors() { [[maybe_unused]] int ignored = ::ftruncate(errors_.get(), 0); }

Result<std::string> FindOwnProgram(const std::string& name) {
  char path[PATH_MAX];
  ssize_t count = ::readlink("/proc/self/exe", path, sizeof path);
  if (count <= 0) return IoError("/proc/self/exe", errno);
  std::string folder(path, static_cast<size_t>(count));
  folder.resize(folder.rfind('/'));
  for (const std::string& candidate : {folder + "/" + name, folder + "/../libexec/hone/" + name})
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  return Error{ErrorKind::kNotFound, fmt::format("{} is neither beside {} nor in ../libexec/hone of it", name, folder),
               ""};
}

}  // namespace hone
