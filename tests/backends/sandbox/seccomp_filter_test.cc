#include "backends/sandbox/seccomp_filter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <thread>

#include "base/subprocess.h"

namespace hone::seccomp_filter_test {
namespace {

using Action = SeccompFilter::Action;

// Runs `body` in a fork, under the filter; how the fork ended.
ExitStatus Under(const SeccompFilter& filter, const std::function<int()>& body) {
  pid_t child = ::fork();
  if (child == 0) {
    if (!filter.Install(true)) ::_exit(99);
    ::syscall(SYS_exit_group, body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

TEST(SeccompFilter, AllowsDeniesAndKills) {
  SeccompFilter filter;
  filter.Add(Action::kAllow, {SYS_exit_group, SYS_getppid})
      .Add(Action::kAbsent, {SYS_getuid})
      .Add(Action::kKill, {SYS_getgid});
  filter.Otherwise(Action::kDeny);
  EXPECT_EQ(Under(filter, [] { return ::syscall(SYS_getppid) > 0 ? 1 : 2; }).code, 1);
  EXPECT_EQ(Under(filter, [] { return ::syscall(SYS_getuid) < 0 ? errno : 0; }).code, ENOSYS);
  EXPECT_EQ(Under(filter, [] { return ::syscall(SYS_getegid) < 0 ? errno : 0; }).code, EPERM);
  EXPECT_EQ(Under(filter, [] { return static_cast<int>(::syscall(SYS_getgid)); }).signal, SIGSYS);
}

TEST(SeccompFilter, LooksAtArguments) {
  SeccompFilter filter;
  filter.Add(Action::kAllow, {SYS_exit_group});
  filter.AddIf(Action::kAllow, SYS_openat, 2, O_ACCMODE | O_CREAT, O_RDONLY);
  filter.Add(Action::kAllow, {SYS_getppid});  // the number is still known after a rule that looked at arguments
  filter.Otherwise(Action::kDeny);
  EXPECT_EQ(Under(filter, [] { return ::syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY) >= 0 ? 1 : 2; }).code, 1);
  for (int flags : {O_WRONLY, O_RDWR, O_RDONLY | O_CREAT})
    EXPECT_EQ(
        Under(filter, [=] { return ::syscall(SYS_openat, AT_FDCWD, "/dev/null", flags, 0) < 0 ? errno : 0; }).code,
        EPERM);
  EXPECT_EQ(Under(filter, [] { return ::syscall(SYS_getppid) > 0 ? 1 : 2; }).code, 1);
}

}  // namespace
}  // namespace hone::seccomp_filter_test
