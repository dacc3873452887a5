#include "backends/sandbox/landlock.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/file.h"
#include "base/unique_fd.h"

namespace hone {
namespace {

constexpr uint32_t kAskVersion = 1;  // LANDLOCK_CREATE_RULESET_VERSION

// struct landlock_ruleset_attr as of version 6, which headers may be too old for: older kernels take its beginning.
struct RulesetAttributes {
  uint64_t files = 0;
  uint64_t network = 0;
  uint64_t scoped = 0;
};

size_t SizeFor(int abi) { return (abi >= 6 ? 3 : abi >= 4 ? 2 : 1) * sizeof(uint64_t); }

// Every right of the version, and none granted.
RulesetAttributes AllRights(int abi) {
  RulesetAttributes rights;
  // 13 rights of the first version (execute, write, read, list, remove, make …), then refer, truncate, ioctl of
  // devices.
  rights.files = (uint64_t{1} << (abi >= 5 ? 16 : abi >= 3 ? 15 : abi >= 2 ? 14 : 13)) - 1;
  if (abi >= 4) rights.network = 3;  // bind and connect by TCP
  if (abi >= 6) rights.scoped = 3;   // abstract sockets, signals
  return rights;
}

Error Denied(const char* call) {
  if (errno == ENOSYS)
    return Error{ErrorKind::kUnsupported, "this kernel has no Landlock (Linux 5.13), or a system-call filter hides it",
                 ""};
  if (errno == EOPNOTSUPP)
    return Error{ErrorKind::kUnsupported, "this kernel's Landlock is switched off; start it with lsm=landlock,…", ""};
  if (errno == EPERM)
    return Error{ErrorKind::kIo,
                 std::string("a system-call filter denies ") + call +
                     "; allow landlock_create_ruleset, landlock_add_rule and landlock_restrict_self (systemd: "
                     "SystemCallFilter=)",
                 ""};
  return ErrnoError(errno, call);
}

int Version() { return static_cast<int>(::syscall(SYS_landlock_create_ruleset, nullptr, 0, kAskVersion)); }

}  // namespace

int LandlockAbi() { return std::max(Version(), 0); }

namespace {

Result<UniqueFd> MakeRuleset(const RulesetAttributes& rights, int abi) {
  if (abi < 1) return Denied("landlock_create_ruleset");
  UniqueFd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rights, SizeFor(abi), 0)));
  if (!ruleset) return Denied("landlock_create_ruleset");
  return ruleset;
}

Result<void> Allow(const UniqueFd& ruleset, const std::string& path, uint64_t rights) {
  constexpr uint64_t kOfFiles = 1 | 2 | 4 | 1 << 14 | 1 << 15;  // execute, write, read, truncate, control devices
  struct __attribute__((packed)) {                              // struct landlock_path_beneath_attr
    uint64_t rights;
    int32_t parent;
  } rule{};
  UniqueFd parent(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat found{};
  if (!parent || ::fstat(parent.get(), &found) != 0) return ErrnoError(errno, path);
  rule.rights = S_ISDIR(found.st_mode) ? rights : rights & kOfFiles;
  rule.parent = parent.get();
  constexpr int kPathBeneath = 1;
  if (::syscall(SYS_landlock_add_rule, ruleset.get(), kPathBeneath, &rule, 0) != 0) return Denied("landlock_add_rule");
  return {};
}

}  // namespace

Result<int> DenyWritingFiles(const std::vector<std::string>& writable) {
  constexpr uint64_t kReading = 1 | 4 | 8;  // execute, read files, read directories
  const int abi = Version();
  const RulesetAttributes rights = AllRights(abi);
  const UniqueFd ruleset = HONE_TRY(MakeRuleset(rights, abi));
  HONE_TRY(Allow(ruleset, "/", kReading));
  for (const std::string& directory : writable) HONE_TRY(Allow(ruleset, directory, rights.files));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return ErrnoError(errno, "prctl");
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) return Denied("landlock_restrict_self");
  return abi;
}

Result<int> DenyFiles() {
  const int abi = Version();
  const UniqueFd ruleset = HONE_TRY(MakeRuleset(AllRights(abi), abi));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return ErrnoError(errno, "prctl");
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) return Denied("landlock_restrict_self");
  if (UniqueFd root(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); root)
    return Error{ErrorKind::kIo, "Landlock is on, and files can be opened all the same", ""};
  return abi;
}

}  // namespace hone
