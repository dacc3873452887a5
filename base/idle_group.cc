#include "base/idle_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "base/log.h"

namespace hone {
namespace {

Error Unsupported(std::string message) { return {ErrorKind::kUnsupported, std::move(message), ""}; }

bool HasWord(const std::string& text, std::string_view word, char separator) {
  std::istringstream words(text);
  for (std::string each; std::getline(words, each, separator);)
    if (each == word) return true;
  return false;
}

// A line of /proc/self/mountinfo: "36 35 98:0 ROOT MOUNTPOINT OPTIONS … - TYPE SOURCE SUPER-OPTIONS".
struct Mount {
  std::string root, point, type, options;
};

std::optional<Mount> ParseMount(const std::string& line) {
  std::istringstream words(line);
  std::string skipped;
  Mount mount;
  words >> skipped >> skipped >> skipped >> mount.root >> mount.point;
  while (words >> skipped && skipped != "-") {}
  words >> mount.type >> skipped >> mount.options;
  return words ? std::optional(mount) : std::nullopt;
}

Result<void> WriteInto(const std::string& path, std::string_view text) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return ErrnoError(errno, "open", path);
  return WriteAll(file.get(), text);
}

std::string ReadSmall(const std::string& path) {
  std::string text = ReadFile(path, 1 << 16).value_or("");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

constexpr std::string_view kName = "hone-idle-";

// Groups of those who were killed.
void RemoveLeftOver(const std::string& directory) {
  for (const std::string& name : ListDirectory(directory).value_or(std::vector<std::string>())) {
    if (!name.starts_with(kName)) continue;
    const std::string process = "/proc/" + name.substr(kName.size());
    if (::access(process.c_str(), F_OK) != 0) ::rmdir((directory + "/" + name).c_str());
  }
}

Result<void> MakeDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return ErrnoError(errno, "mkdir", path);
  return {};
}

// systemd marks what it hands over.
bool IsOurs(const std::string& directory) {
  char value = 0;
  for (const char* name : {"user.delegate", "trusted.delegate"})
    if (::getxattr(directory.c_str(), name, &value, 1) == 1 && value == '1') return true;
  return false;
}

bool SharesProcessors(const std::string& directory) {
  return HasWord(ReadSmall(directory + "/cgroup.subtree_control"), "cpu", ' ');
}

// Whether a group of version 2 may have one below that shares processors with it.
Result<void> MayShare(const std::string& directory) {
  if (!HasWord(ReadSmall(directory + "/cgroup.controllers"), "cpu", ' '))
    return Unsupported(directory + " does not share processors");
  if (!SharesProcessors(directory) && !IsOurs(directory)) return Unsupported(directory + " is not ours to share");
  return {};
}

// Makes the new group below `own`, in version 2, a threaded one: such a group competes with its parent's own threads,
// and threads of one process may be in either.
Result<void> Share(const std::string& own, const std::string& below) {
  HONE_TRY(WriteInto(below + "/cgroup.type", "threaded"));
  return SharesProcessors(own) ? Result<void>() : WriteInto(own + "/cgroup.subtree_control", "+cpu");
}

}  // namespace

Result<GroupPlace> FindGroup(std::string_view groups, std::string_view mounts) {
  // "4:cpu,cpuacct:/PATH" of version 1, "0::/PATH" of version 2, which has what no hierarchy of version 1 has taken.
  std::string path;
  bool is_unified = false;
  std::istringstream lines{std::string(groups)};
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_cpu = HasWord(controllers, "cpu", ',');
    if (!is_cpu && (!controllers.empty() || !path.empty())) continue;
    path = line.substr(second + 1);
    is_unified = !is_cpu;
    if (is_cpu) break;
  }
  if (path.empty()) return Unsupported("this system has no control groups");
  std::istringstream mounted{std::string(mounts)};
  for (std::string line; std::getline(mounted, line);) {
    std::optional<Mount> mount = ParseMount(line);
    if (!mount || mount->type != (is_unified ? "cgroup2" : "cgroup")) continue;
    if (!is_unified && !HasWord(mount->options, "cpu", ',')) continue;
    // What is mounted may be a part of the hierarchy.
    const std::string root = mount->root == "/" ? "" : mount->root;
    if (path.compare(0, root.size(), root) != 0) continue;
    std::string below = path.substr(root.size());
    if (!below.empty() && below[0] != '/') continue;
    if (below == "/") below.clear();
    return GroupPlace{mount->point + below, is_unified};
  }
  return Unsupported("the hierarchy of control groups that shares processors is not mounted");
}

Result<IdleGroup> IdleGroup::Create() {
  return CreateBelow(HONE_TRY(FindGroup(HONE_TRY(ReadFile("/proc/self/cgroup", 1 << 16)),
                                        HONE_TRY(ReadFile("/proc/self/mountinfo", 1 << 22)))));
}

Result<IdleGroup> IdleGroup::CreateBelow(const GroupPlace& own) {
  // Nobody's fault: most processes own no group.
  if (::access(own.directory.c_str(), W_OK) != 0) return Unsupported(own.directory + " is not ours to divide");
  if (own.is_unified) HONE_TRY(MayShare(own.directory));
  RemoveLeftOver(own.directory);
  const std::string directory = fmt::format("{}/{}{}", own.directory, kName, ::getpid());
  HONE_TRY(MakeDirectory(directory));
  Result<void> made = own.is_unified ? Share(own.directory, directory) : Result<void>();
  if (made) made = WriteInto(directory + "/cpu.idle", "1");
  if (!made) {
    ::rmdir(directory.c_str());
    return Unsupported("this system has no idle control groups: " + made.error().Text());
  }
  return IdleGroup(own, directory);
}

std::string IdleGroup::ThreadsOf(const std::string& directory) const {
  return directory + (own_.is_unified ? "/cgroup.threads" : "/tasks");
}

IdleGroup::Visit::Visit(const IdleGroup* group) : group_(group) {
  if (group_ != nullptr) (void)WriteInto(group_->ThreadsOf(group_->directory_), "0");
}

IdleGroup::Visit::~Visit() {
  if (group_ == nullptr) return;
  if (Result<void> back = WriteInto(group_->ThreadsOf(group_->own_.directory), "0"); !back)
    LogWarn("left_in_idle_group", {{"why", back.error().Text()}});
}

void IdleGroup::Recall() const {
  std::istringstream threads(ReadSmall(ThreadsOf(directory_)));
  for (std::string thread; std::getline(threads, thread);) {
    const bool is_ours = ::access(("/proc/self/task/" + thread).c_str(), F_OK) == 0;
    if (is_ours) (void)WriteInto(ThreadsOf(own_.directory), thread);  // it may have ended, or gone back
  }
}

IdleGroup::~IdleGroup() {
  if (!directory_.empty()) ::rmdir(directory_.c_str());
}

}  // namespace hone
