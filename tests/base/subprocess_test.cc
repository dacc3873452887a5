#include "base/subprocess.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <thread>

#include "tests/support/deadline.h"
#include "tests/support/no_threads.h"

namespace hone {
namespace {

using ::testing::HasSubstr;
using testing::In;
using ::testing::Not;
using namespace std::chrono_literals;

Result<Subprocess> Shell(const std::string& script, SubprocessOptions options = {}) {
  options.executable = "/bin/sh";
  options.arguments = {"-c", script};
  return Subprocess::Start(options);
}

// What the script writes to descriptor 3.
std::string Output(const std::string& script, SubprocessOptions options = {}) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd in(ends[0]), out(ends[1]);
  options.fds.emplace_back(out.get(), 3);
  Result<Subprocess> child = Shell(script, options);
  EXPECT_TRUE(child) << child.error().message;
  out.Reset();
  std::string text(4096, '\0');
  size_t size = 0;
  for (ssize_t count; (count = ::read(in.get(), text.data() + size, text.size() - size)) > 0;)
    size += static_cast<size_t>(count);
  text.resize(size);
  EXPECT_TRUE(child->Wait(In(5s)).has_value());
  return text;
}

TEST(Subprocess, ReportsHowItEnded) {
  Result<Subprocess> child = Shell("exit 3");
  ASSERT_TRUE(child) << child.error().message;
  std::optional<ExitStatus> status = child->Wait(In(5s));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->Text(), "exit status 3");
  EXPECT_TRUE(child->HasEnded());

  child = Shell("kill -ABRT $$");
  status = child->Wait(In(5s));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->Text(), "killed by signal 6 (Aborted)");
}

TEST(Subprocess, SaysWhyItCannotStart) {
  Result<Subprocess> child = Subprocess::Start({.executable = "/nonexistent/program"});
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().kind, ErrorKind::kIo);
  EXPECT_THAT(child.error().message, HasSubstr("/nonexistent/program: No such file"));
}

TEST(Subprocess, WaitHasADeadlineAndKillIsPrompt) {
  Result<Subprocess> child = Shell("sleep 60");
  auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(child->Wait(In(50ms)).has_value());
  EXPECT_GE(std::chrono::steady_clock::now() - start, 50ms);
  EXPECT_EQ(child->Kill().signal, SIGKILL);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

// Two that want the same processor: each waits while the other runs.
TEST(Subprocess, SaysHowLongItWaitedForAProcessor) {
  cpu_set_t ours, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof ours, &ours), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &ours)) CPU_SET(cpu, &one);
  Result<Subprocess> first = Shell("while :; do :; done"), second = Shell("while :; do :; done");
  for (const Subprocess* child : {&*first, &*second}) ASSERT_EQ(::sched_setaffinity(child->pid(), sizeof one, &one), 0);
  for (int i = 0; i < 500 && (first->TimeQueued() < 50ms || second->TimeQueued() < 50ms); ++i)
    std::this_thread::sleep_for(10ms);
  EXPECT_GE(first->TimeQueued(), 50ms);
  EXPECT_GE(second->TimeQueued(), 50ms);
  first->Kill();
  EXPECT_EQ(first->TimeQueued(), 0ns);  // it is gone
}

TEST(Subprocess, KillTakesTheWholeGroup) {
  Result<Subprocess> child = Shell("sleep 60 & echo $! >&2; wait");
  std::string pid;
  for (int i = 0; i < 500 && pid.empty(); ++i, std::this_thread::sleep_for(10ms)) pid = child->ErrorTail();
  ASSERT_FALSE(pid.empty());
  child->Kill();
  // The orphan becomes a zombie of init or vanishes; either way it no longer sleeps.
  std::string state = "?";
  for (int i = 0; i < 500; ++i, std::this_thread::sleep_for(10ms)) {
    std::string path = "/proc/" + pid + "/stat";
    FILE* file = ::fopen(path.c_str(), "r");
    if (file == nullptr) return;
    char letter = 0;
    int fields = ::fscanf(file, "%*d (%*[^)]) %c", &letter);
    ::fclose(file);
    if (fields == 1 && (letter == 'Z' || letter == 'X')) return;
    state = letter;
  }
  ADD_FAILURE() << "grandchild still in state " << state;
}

TEST(Subprocess, KeepsTheEndOfStandardError) {
  Result<Subprocess> child = Shell("echo first >&2; echo second >&2; printf 'bell\\007' >&2");
  child->Wait(In(5s));
  EXPECT_EQ(child->ErrorTail(), "first|second|bell ");
  EXPECT_EQ(child->ErrorTail(6), "|bell ");
  child->ClearErrors();
  EXPECT_EQ(child->ErrorTail(), "");
}

TEST(Subprocess, InheritsOnlyTheListedDescriptors) {
  UniqueFd secret(::open("/proc/self/status", O_RDONLY));  // no O_CLOEXEC
  ASSERT_TRUE(secret);
  EXPECT_EQ(Output("for n in $(seq 0 63); do [ -e /proc/$$/fd/$n ] && echo $n >&3; done; true"), "0\n1\n2\n3\n");
}

TEST(Subprocess, MovesDescriptorsThatCollide) {
  // 3 <- b and 4 <- a, whatever numbers a and b have here.
  int a[2], b[2];
  ASSERT_EQ(::pipe2(a, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(b, O_CLOEXEC), 0);
  UniqueFd a0(a[0]), a1(::fcntl(a[1], F_DUPFD_CLOEXEC, 3)), b0(b[0]), b1(::fcntl(b[1], F_DUPFD_CLOEXEC, 3));
  ::close(a[1]), ::close(b[1]);
  SubprocessOptions options;
  options.fds = {{b1.get(), a1.get()}, {a1.get(), b1.get()}};  // swapped
  Result<Subprocess> child =
      Shell("echo to-a >&" + std::to_string(b1.get()) + "; echo to-b >&" + std::to_string(a1.get()), options);
  ASSERT_TRUE(child) << child.error().message;
  child->Wait(In(5s));
  char text[16] = {};
  ASSERT_GT(::read(a0.get(), text, sizeof text - 1), 0);
  EXPECT_STREQ(text, "to-a\n");
}

TEST(Subprocess, InheritsNoEnvironmentAndNoIgnoredSignals) {
  ::signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(Output("env | grep -v -e ^PWD -e ^_ -e ^SHLVL >&3; true", {.environment = {"A=1"}}), "A=1\n");
  EXPECT_EQ(Output("grep SigIgn /proc/self/status >&3"), "SigIgn:\t0000000000000000\n");
  ::signal(SIGPIPE, SIG_DFL);
}

TEST(Subprocess, LimitsMemoryFilesAndCores) {
  SubprocessOptions options;
  options.limits.file_size = 1 << 20;
  options.limits.nice = 5;
  int nice = std::min(::getpriority(PRIO_PROCESS, 0) + 5, 19);  // the tests may be niced themselves
  EXPECT_EQ(Output("ulimit -c >&3; ulimit -f >&3; nice >&3", options), "0\n2048\n" + std::to_string(nice) + "\n");
  options.limits.address_space = int64_t{1} << 30;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return;
#endif
#endif
  EXPECT_EQ(Output("ulimit -v >&3", options), "1048576\n");
#endif
}

TEST(Subprocess, IdleComesAfterEverybodyElse) {
  SubprocessOptions options;
  options.environment = {"PATH=/usr/bin:/bin"};
  options.limits.idle = true;
  // Of stat: the session, which has the number of its first process, and the policy (proc(5)).
  std::istringstream lines(
      Output("echo $$ >&3; cut -d' ' -f6,41 /proc/self/stat >&3; cat /proc/self/autogroup >&3", options));
  int shell = 0, session = 0, policy = 0;
  lines >> shell >> session >> policy;
  EXPECT_EQ(session, shell);
  EXPECT_EQ(policy, SCHED_IDLE);
  std::string group((std::istreambuf_iterator<char>(lines)), {});
  if (group.find("autogroup") != std::string::npos) { EXPECT_THAT(group, HasSubstr("nice 19")); }
  options.limits.idle = false;
  EXPECT_THAT(Output("cat /proc/self/autogroup >&3", options), Not(HasSubstr("nice 19")));
}

TEST(Subprocess, EndsAtItsProcessorTime) {
  Result<Subprocess> child = Shell("while :; do :; done");
  child->LimitCpu(1);
  std::optional<ExitStatus> status = child->Wait(In(20s));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->signal, SIGXCPU);
}

TEST(Subprocess, OutlivesTheThreadThatStartedIt) {
  std::optional<Subprocess> child;
  std::thread([&] { child.emplace(*Shell("sleep 60")); }).join();
  EXPECT_FALSE(child->Wait(In(100ms)).has_value());
}

// The first child of a process needs a thread that forks: one that had none to give may have one later.
TEST(Subprocess, SaysThatThereIsNoThreadToStartItFromAndStartsItLater) {
  const pid_t fresh = ::fork();
  if (fresh == 0) {
    {
      testing::NoThreads none;
      Result<Subprocess> child = Shell("exit 3");
      if (child || child.error().kind != ErrorKind::kBusy) ::_exit(1);
    }
    Result<Subprocess> child = Shell("exit 3");
    ::_exit(child && child->Wait(In(20s)).value_or(ExitStatus{}).code == 3 ? 0 : 2);
  }
  int status = 0;
  ::waitpid(fresh, &status, 0);
  EXPECT_EQ(status, 0);
}

// A process that starts a child and is then killed with -9: the child must go too.
TEST(Subprocess, DiesWithItsParent) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  pid_t middle = ::fork();
  if (middle == 0) {
    SubprocessOptions options;
    options.fds = {{ends[1], 3}};
    Result<Subprocess> child = Shell("echo started >&3; exec sleep 60", options);
    ::close(ends[1]);
    while (true) ::pause();
  }
  ::close(ends[1]);
  char text[16] = {};
  EXPECT_GT(::read(ends[0], text, sizeof text - 1), 0);
  ::kill(middle, SIGKILL);
  ::waitpid(middle, nullptr, 0);
  // End of file comes only when nobody holds the pipe any more.
  struct pollfd poll_fd{ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&poll_fd, 1, 10'000), 1);
  EXPECT_EQ(::read(ends[0], text, sizeof text), 0);
  ::close(ends[0]);
}

}  // namespace
}  // namespace hone
