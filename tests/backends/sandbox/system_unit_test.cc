// Builders and runners below the system-call filter that systemd installs for the system unit: they still lock
// themselves in, and still work.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <map>
#include <set>
#include <sstream>
#include <string>

#include "backends/cpu/host_target.h"
#include "backends/processes/builder_pool.h"
#include "backends/processes/runner_pool.h"
#include "backends/sandbox/landlock.h"
#include "backends/sandbox/sandbox.h"
#include "backends/sandbox/seccomp_filter.h"
#include "tests/backends/runner/hand_made.h"
#include "tests/backends/runner_fixture.h"

namespace hone {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::In;
using testing::kRelu;

std::string OutputOf(const std::string& command) {
  std::string output;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  char buffer[4096];
  for (size_t count; (count = ::fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, count);
  return ::pclose(pipe) == 0 ? output : "";
}

using Sets = std::map<std::string, std::vector<std::string>>;

// As systemd-analyze prints them: a line "@name", then its members, indented.
Sets ParseSets(const std::string& text) {
  Sets sets;
  std::string name;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || line[begin] == '#') continue;
    if (begin == 0)
      name = line;
    else
      sets[name].push_back(line.substr(begin));
  }
  return sets;
}

void Expand(const Sets& sets, const std::string& name, std::set<std::string>& calls) {
  if (name[0] != '@') {
    calls.insert(name);
    return;
  }
  auto set = sets.find(name);
  ASSERT_NE(set, sets.end()) << name;
  for (const std::string& member : set->second) Expand(sets, member, calls);
}

// Numbers of this machine's system calls, as its headers have them.
std::map<std::string, int> CallNumbers() {
  std::map<std::string, int> numbers;
  std::istringstream lines(OutputOf("echo '#include <asm/unistd.h>' | " HONE_TEST_CLANG " -E -dM -"));
  for (std::string define, name, value; lines >> define >> name && std::getline(lines, value);)
    if (name.starts_with("__NR_")) numbers[name.substr(5)] = std::atoi(value.c_str());
  return numbers;
}

std::string Unit() { return testing::ReadFile(HONE_SOURCE_DIR "/systemd/honed.service.in"); }

// The calls that the unit allows; the rest fails with EPERM.
std::set<std::string> AllowedByUnit(const Sets& sets) {
  std::set<std::string> calls;
  std::istringstream unit(Unit());
  for (std::string line; std::getline(unit, line);) {
    constexpr std::string_view kKey = "SystemCallFilter=";
    if (!line.starts_with(kKey)) continue;
    std::istringstream names(line.substr(kKey.size()));
    for (std::string name; names >> name;) Expand(sets, name, calls);
  }
  return calls;
}

// As systemd does for MemoryDenyWriteExecute=: memory is never written and run, nor made runnable later.
bool DenyWritableCode() {
  SeccompFilter filter;
  const auto deny = [&](int call, uint32_t flags) {
    filter.AddIf(SeccompFilter::Action::kDeny, call, 2, flags, flags);
  };
  deny(SYS_mmap, PROT_EXEC | PROT_WRITE);
  deny(SYS_mprotect, PROT_EXEC);
  deny(SYS_pkey_mprotect, PROT_EXEC);
  deny(SYS_shmat, SHM_EXEC);
  filter.Otherwise(SeccompFilter::Action::kAllow);
  return filter.Install(true);
}

bool InstallUnitFilter(const std::set<std::string>& allowed, const std::map<std::string, int>& numbers) {
  SeccompFilter filter;
  for (const std::string& name : allowed)
    if (auto call = numbers.find(name); call != numbers.end())
      filter.Add(SeccompFilter::Action::kAllow, {call->second});
  filter.Otherwise(SeccompFilter::Action::kDeny);
  return filter.Install(true);
}

// What a daemon below the filter would find. Ends its process: 0, or the number of the step that failed.
[[noreturn]] void BuildAndCheck() {
  auto must = [](bool holds, int step, const std::string& what) {
    if (holds) return;
    std::fprintf(stderr, "step %d: %s\n", step, what.c_str());
    ::_exit(step);
  };
  BuilderPoolOptions builder_options;
  builder_options.executable = HONE_BIN_DIR "/hone-builder";
  Result<std::unique_ptr<BuilderPool>> builders = BuilderPool::Start(builder_options);
  must(builders.has_value(), 10, builders ? "" : builders.error().Text());
  std::unique_ptr<RunnerPool> runners = testing::StartPool();
  Result<BuiltArtifact> built = (*builders)->Build({kRelu, "", *HostTarget()}, In(seconds(60)));
  must(built.has_value(), 11, built ? "" : built.error().Text());
  {
    Result<RunnerPool::Prepared> prepared = runners->Prepare(kRelu, In(seconds(60)));
    must(prepared.has_value(), 12, prepared ? "" : prepared.error().Text());
    Result<CheckReport> report = runners->Check(*prepared, built->object, {}, In(seconds(60)));
    must(report.has_value(), 13, report ? "" : report.error().Text());
    must(report->verified(), 14, report->failure ? report->failure->Text() : "");
  }
  std::vector<Confinement> found = (*builders)->Confinements();
  for (const Confinement& confinement : runners->Confinements()) found.push_back(confinement);
  must(found.size() == 3, 15, std::to_string(found.size()) + " of builder, runner and launcher said what holds them");
  for (const Confinement& confinement : found) must(confinement.complete(), 16, confinement.Text());
  ::_exit(0);
}

class SystemUnit : public ::testing::TestWithParam<const char*> {};

TEST_P(SystemUnit, ChildrenLockThemselvesInBelowItsFilter) {
  if (::access(HONE_BIN_DIR "/hone-builder", X_OK) != 0) GTEST_SKIP() << "[SKIP] hone-builder is not built";
  if (LandlockAbi() < 1) GTEST_SKIP() << "[SKIP] this kernel has no Landlock";
  ASSERT_THAT(Unit(), HasSubstr("\nMemoryDenyWriteExecute=yes\n"));
  const std::string text = OutputOf(GetParam());
  if (text.empty()) GTEST_SKIP() << "[SKIP] no systemd-analyze";
  const std::set<std::string> allowed = AllowedByUnit(ParseSets(text));
  ASSERT_GT(allowed.size(), 200u);
  const std::map<std::string, int> numbers = CallNumbers();
  ASSERT_GT(numbers.size(), 200u);
  pid_t child = ::fork();
  if (child == 0) {
    if (!InstallUnitFilter(allowed, numbers) || !DenyWritableCode()) ::_exit(9);
    void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) ::_exit(8);
    BuildAndCheck();
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

INSTANTIATE_TEST_SUITE_P(Sets, SystemUnit,
                         ::testing::Values("cat " HONE_SOURCE_DIR "/tests/backends/sandbox/systemd_252_sets.txt",
                                           "systemd-analyze --no-pager syscall-filter 2>/dev/null"));

}  // namespace
}  // namespace hone
