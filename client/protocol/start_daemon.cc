#include "client/protocol/start_daemon.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/mutex.h"
#include "base/paths.h"

extern char** environ;

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

bool IsProgram(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

// The last line that honed logged since `from`.
std::string LastWords(const std::string& log, off_t from) {
  UniqueFd file(open(log.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return "";
  char bytes[2048];
  struct stat status{};
  if (fstat(file.get(), &status) != 0) return "";
  from = std::max<off_t>(from, status.st_size - static_cast<off_t>(sizeof bytes));
  ssize_t got = pread(file.get(), bytes, sizeof bytes, from);
  std::string text(bytes, got > 0 ? static_cast<size_t>(got) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (size_t line = text.rfind('\n'); line != std::string::npos) text.erase(0, line + 1);
  return text;
}

// Children that had not ended at their deadline. Only ever tried: a child process, whose parent's thread may have held
// the lock, does without.
struct LateStarts {
  inline static Mutex mutex;
  inline static std::vector<pid_t> pids HONE_GUARDED_BY(mutex);
};

void KeepLateStart(pid_t child) {
  if (!LateStarts::mutex.TryLock()) return;
  LateStarts::pids.push_back(child);
  LateStarts::mutex.Unlock();
}

// Runs honed, which leaves a background process behind and ends once that listens. Its output goes to `log`.
Result<pid_t> Spawn(const std::string& program, const std::string& socket, const std::string& cache, int log) {
  std::vector<std::string> words = {program, "--detach", "--socket", socket};
  if (!cache.empty()) words.insert(words.end(), {"--cache", cache});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, log, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawn_file_actions_addchdir_np(&actions, "/");
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  int code = posix_spawn(&child, program.c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) return ErrnoError(code, "cannot start honed", program);
  return child;
}

// Only one program at a time: the others find the daemon running when it is their turn.
Result<UniqueFd> TakeStartLock(const std::string& path, Deadline deadline) {
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return ErrnoError(errno, "cannot open the lock for starting honed", path);
  while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoError(errno, "cannot lock", path);
    if (steady_clock::now() >= deadline) {
      return Error{ErrorKind::kTimeout, "another program is starting honed and takes too long", path};
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return lock;
}

}  // namespace

Result<std::string> FindDaemon() {
  char program[4096];
  if (ssize_t size = readlink("/proc/self/exe", program, sizeof program); size > 0) {
    std::string_view path(program, static_cast<size_t>(size));
    std::string beside = std::string(path.substr(0, path.rfind('/') + 1)) + "honed";
    if (IsProgram(beside)) return beside;
  }
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&FindDaemon), &info) != 0 && info.dli_fname != nullptr) {
    std::string library = info.dli_fname;
    std::string directory = library.substr(0, library.rfind('/') + 1);
    for (const char* way : {"../bin/honed", "../../bin/honed"}) {
      if (!directory.empty() && IsProgram(directory + way)) return directory + way;
    }
  }
  if (std::optional<std::string> path = Environment("PATH")) {
    for (size_t begin = 0; begin <= path->size();) {
      size_t end = std::min(path->find(':', begin), path->size());
      std::string candidate = path->substr(begin, end - begin) + "/honed";
      if (candidate[0] == '/' && IsProgram(candidate)) return candidate;
      begin = end + 1;
    }
  }
  return Error{ErrorKind::kNotFound, "there is no honed beside this program nor in PATH; start it yourself", "honed"};
}

void ReapLateStarts() {
  if (!LateStarts::mutex.TryLock()) return;
  std::erase_if(LateStarts::pids, [](pid_t child) { return waitpid(child, nullptr, WNOHANG) != 0; });
  LateStarts::mutex.Unlock();
}

Result<void> StartDaemon(const std::string& socket, const std::string& cache, Deadline deadline) {
  std::string program = HONE_TRY(FindDaemon());
  std::string directory = socket.substr(0, socket.rfind('/'));
  struct stat there{};
  if (lstat(socket.c_str(), &there) == 0 && !S_ISSOCK(there.st_mode))
    return Error{ErrorKind::kInvalid, "there is a file that is no socket", socket};
  // The directories that XDG gives us are made; one that the user named must be there.
  if (access(directory.c_str(), F_OK) != 0) HONE_TRY(EnsurePrivateDirectory(directory));
  UniqueFd lock = HONE_TRY(TakeStartLock(socket + ".start", deadline));
  if (Channel::Connect(socket, deadline)) return {};
  std::string log_path = directory + "/honed.log";
  UniqueFd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log) return ErrnoError(errno, "cannot open honed's log", log_path);
  struct stat status{};
  fstat(log.get(), &status);
  constexpr off_t kLogLimit = 16 << 20;
  if (status.st_size > kLogLimit && ftruncate(log.get(), 0) == 0) status.st_size = 0;
  pid_t child = HONE_TRY(Spawn(program, socket, cache, log.get()));
  int ended = 0;
  while (waitpid(child, &ended, WNOHANG) == 0) {
    if (steady_clock::now() >= deadline) {
      KeepLateStart(child);
      return Error{ErrorKind::kTimeout, "honed was started and does not listen yet", log_path};
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  if (Channel::Connect(socket, deadline)) return {};
  std::string words = LastWords(log_path, status.st_size);
  return Error{ErrorKind::kUnavailable, "honed ended at once: " + (words.empty() ? "see its log" : words), log_path};
}

}  // namespace hone
