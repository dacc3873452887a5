// What child processes may still do once they have locked themselves in, tried in forks.
#include "backends/sandbox/sandbox.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "backends/sandbox/landlock.h"
#include "backends/sandbox/seccomp_filter.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/subprocess.h"
#include "base/unique_fd.h"

namespace hone::sandbox_test {
namespace {

using Action = SeccompFilter::Action;
using ::testing::HasSubstr;
using ::testing::Not;

// Runs `body` in a fork; how it ended.
ExitStatus InFork(const std::function<int()>& body) {
  pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

// errno of opening a file that everybody may read; 0 if it opens.
int ErrorOfOpening(const char* path) { return ::open(path, O_RDONLY | O_CLOEXEC) >= 0 ? 0 : errno; }

bool EnterBuilder() { return EnterBuilderSandbox().has_value(); }
bool EnterLauncher() { return EnterLauncherSandbox().has_value(); }
bool EnterRunner() {
  DenyRunnerFiles();
  return FilterRunner().has_value();
}

TEST(Sandbox, NoFileOpens) {
  if (LandlockAbi() < 1) GTEST_SKIP() << "[SKIP] this kernel has no Landlock";
  for (bool (*enter)() : {EnterBuilder, EnterLauncher})
    EXPECT_EQ(InFork([=] { return enter() ? ErrorOfOpening("/etc/passwd") : 99; }).code, EACCES);
  EXPECT_EQ(InFork([] { return EnterRunner() ? ErrorOfOpening("/etc/passwd") : 99; }).code, EPERM);  // no openat at all
}

TEST(Sandbox, MemfdsStillOpen) {
  for (bool (*enter)() : {EnterBuilder, EnterLauncher})
    EXPECT_EQ(InFork([&] {
                UniqueFd memfd(::memfd_create("hone-test", MFD_CLOEXEC));
                if (!enter()) return 99;
                return ErrorOfOpening(("/proc/self/fd/" + std::to_string(memfd.get())).c_str());
              }).code,
              0);
}

TEST(Sandbox, AttacksEndTheProcess) {
  const std::function<void()> attacks[] = {
      [] { ::socket(AF_UNIX, SOCK_STREAM, 0); },
      [] { ::execl("/bin/true", "true", nullptr); },
      [] { ::syscall(SYS_ptrace, 16, 1, 0, 0); },
      [] { ::syscall(SYS_unshare, 0x10000000); },
  };
  for (bool (*enter)() : {EnterBuilder, EnterLauncher, EnterRunner})
    for (const auto& attack : attacks)
      EXPECT_EQ(InFork([&] {
                  if (!enter()) return 99;
                  attack();
                  return 0;
                }).signal,
                SIGSYS);
  for (bool (*enter)() : {EnterBuilder, EnterRunner})
    EXPECT_EQ(InFork([&] { return enter() ? static_cast<int>(::fork() < 0) : 99; }).signal, SIGSYS);
}

TEST(Sandbox, OnlyLaunchersMapCode) {
  auto map_code = [](bool (*enter)()) {
    return InFork([=] {
             if (!enter()) return 99;
             return ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
                        ? errno
                        : 0;
           })
        .code;
  };
  EXPECT_EQ(map_code(EnterBuilder), EPERM);
  EXPECT_EQ(map_code(EnterRunner), EPERM);
  EXPECT_EQ(map_code(EnterLauncher), 0);
}

// What EnterBuilderSandbox finds below a filter that answers landlock_create_ruleset in its own way, in its own words.
std::string FoundBelow(Action action) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  InFork([&] {
    SeccompFilter filter;
    filter.Add(action, {SYS_landlock_create_ruleset});
    filter.Otherwise(Action::kAllow);
    if (!filter.Install(true)) return 99;
    Result<Confinement> found = EnterBuilderSandbox();
    std::string text = found ? (found->is_refused ? "refused; " : "absent; ") + found->Text() : found.error().Text();
    return ::write(ends[1], text.data(), text.size()) > 0 ? 0 : 98;
  });
  ::close(ends[1]);
  std::string text = ReadAll(ends[0], 4096).value_or("");
  ::close(ends[0]);
  return text;
}

TEST(Sandbox, SaysWhyThereIsNoLandlock) {
  EXPECT_THAT(FoundBelow(Action::kAbsent), HasSubstr("absent; builder: system calls filtered, files that this user can "
                                                     "read: this kernel has no Landlock"));
  EXPECT_THAT(FoundBelow(Action::kDeny), HasSubstr("refused; builder: "));
  EXPECT_THAT(FoundBelow(Action::kDeny), HasSubstr("a system-call filter denies landlock_create_ruleset; allow "));
}

// In a process below a filter that answers seccomp as an emulator does: absent.
std::string FoundWithoutFilters(bool goes_on, Action answer) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  InFork([&] {
    SeccompFilter filter;
    filter.Add(answer, {SYS_seccomp});
    filter.Otherwise(Action::kAllow);
    if (!filter.Install(true)) return 99;
    if (goes_on) GoOnWithoutFilters();
    Result<Confinement> found = EnterLauncherSandbox();
    std::string text = found ? found->Text() : "refused: " + found.error().Text();
    if (found && found->complete()) text += " complete";
    return ::write(ends[1], text.data(), text.size()) > 0 ? 0 : 98;
  });
  ::close(ends[1]);
  std::string text = ReadAll(ends[0], 4096).value_or("");
  ::close(ends[0]);
  return text;
}

TEST(Sandbox, WithoutFiltersOnlyWhatIsEmulatedGoesOnAndSaysSo) {
  EXPECT_THAT(FoundWithoutFilters(false, Action::kAbsent), HasSubstr("refused: seccomp"));
  EXPECT_THAT(FoundWithoutFilters(true, Action::kDeny), HasSubstr("refused: seccomp"));
  const std::string emulated = FoundWithoutFilters(true, Action::kAbsent);
  EXPECT_THAT(emulated, HasSubstr("launcher: system calls not filtered, since it is emulated, "));
  EXPECT_THAT(emulated, Not(HasSubstr("complete")));
  // Where there are filters, there is one whatever was said.
  EXPECT_THAT(FoundWithoutFilters(true, Action::kAllow), HasSubstr("launcher: system calls filtered, "));
}

TEST(Sandbox, AnEmulatorHasNoNetworkAndWritesNoFiles) {
  EXPECT_EQ(InFork([] {
              if (!EnterEmulatorSandbox()) return 99;
              if (::socket(AF_INET, SOCK_STREAM, 0) >= 0) return 1;
              if (LandlockAbi() > 0 && ::open("/tmp", O_WRONLY | O_TMPFILE, 0600) >= 0) return 2;
              return ::open("/proc/self/status", O_RDONLY) >= 0 ? 0 : 3;
            }).code,
            0);
}

TEST(Sandbox, WhatTalksWithAnotherMachineHasNoNetworkAndWritesNoFiles) {
  EXPECT_EQ(InFork([] {
              if (!EnterStdioSandbox()) return 99;
              if (::socket(AF_INET, SOCK_STREAM, 0) >= 0) return 1;
              if (LandlockAbi() > 0 && ::open("/tmp", O_WRONLY | O_TMPFILE, 0600) >= 0) return 2;
              if (LandlockAbi() > 0 && ::open("/dev/shm", O_WRONLY | O_TMPFILE, 0600) >= 0) return 3;
              // It starts runners, which have their own.
              if (::open("/dev/null", O_RDWR) < 0 || ::open("/proc/self/status", O_RDONLY) < 0) return 4;
              return DenyRunnerFiles().landlock == LandlockAbi() && FilterRunner() ? 0 : 5;
            }).code,
            0);
}

// Who starts it may write in /proc, or its own threads' directory could not be among what it is left with.
TEST(Sandbox, AProcessWithADriverWritesInProcToItsOwnThreadsAlone) {
  const std::string others = "/proc/" + std::to_string(::getpid()) + "/comm", own = ::testing::TempDir();
  EXPECT_EQ(InFork([&] {
              if (!EnterDeviceSandbox(own)) return 99;
              if (::open(others.c_str(), O_WRONLY) < 0) return 98;
              const pid_t device = ::fork();
              if (device == 0) {
                if (!NarrowDeviceSandbox(own)) ::_exit(1);
                const std::string name = "/proc/self/task/" + std::to_string(::gettid()) + "/comm";
                if (::open(name.c_str(), O_WRONLY | O_TRUNC) < 0) ::_exit(2);
                if (LandlockAbi() > 0 && ::open(others.c_str(), O_WRONLY) >= 0) ::_exit(3);
                if (LandlockAbi() > 0 && ::open("/proc/self/oom_score_adj", O_WRONLY) >= 0) ::_exit(4);
                ::_exit(0);
              }
              int status = 0;
              return ::waitpid(device, &status, 0) == device && WIFEXITED(status) ? WEXITSTATUS(status) : 97;
            }).code,
            0);
}

TEST(Sandbox, ConfinementsRoundTrip) {
  Confinement one{"builder", 7, "", false, uint64_t{4} << 30, 32 << 20, 64}, other{"runner", 0, "why", true, 0, 0, 9};
  const std::string bytes = EncodeConfinements({one, other});
  Result<std::vector<Confinement>> back = DecodeConfinements(bytes);
  ASSERT_TRUE(back) << back.error().Text();
  EXPECT_EQ(EncodeConfinements(*back), bytes);
  EXPECT_EQ((*back)[0].Text(),
            "builder: system calls filtered, no files (Landlock 7), 4096 MiB of memory, 32 MiB a file, "
            "64 descriptors");
  EXPECT_TRUE((*back)[0].complete());
  EXPECT_FALSE((*back)[1].complete());
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(DecodeConfinements(bytes.substr(0, size))) << size;
  Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = bytes;
    damaged[rng.Below(damaged.size())] = static_cast<char>(rng.Below(256));
    if (Result<std::vector<Confinement>> read = DecodeConfinements(damaged)) (void)EncodeConfinements(*read);
  }
}

}  // namespace
}  // namespace hone::sandbox_test
