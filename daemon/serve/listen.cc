#include "daemon/serve/listen.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "base/paths.h"

namespace hone {
namespace {

using std::chrono::steady_clock;

constexpr int kFirstInherited = 3;  // sd_listen_fds(3)
constexpr int kBacklog = 4096;

std::optional<long> NumberIn(const char* name) {
  const char* text = getenv(name);
  long value = 0;
  if (text == nullptr) return std::nullopt;
  auto [end, code] = std::from_chars(text, text + strlen(text), value);
  if (code != std::errc() || *end != '\0') return std::nullopt;
  return value;
}

UniqueFd NewSocket() { return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

bool TakesConnections(const sockaddr_un& address) {
  UniqueFd socket = NewSocket();
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
}

Result<UniqueFd> LockPath(const sockaddr_un& address, steady_clock::time_point deadline) {
  const std::string socket = address.sun_path, path = socket + ".lock";
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return ErrnoError(errno, "cannot open the lock", path);
  while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return ErrnoError(errno, "cannot lock", path);
    if (!TakesConnections(address) && steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    char pid[32] = {};
    ssize_t size = pread(lock.get(), pid, sizeof pid - 1, 0);
    while (size > 0 && pid[size - 1] == '\n') pid[--size] = '\0';
    return Error{ErrorKind::kBusy,
                 std::string("another honed") + (size > 0 ? std::string(" (process ") + pid + ")" : "") +
                     " serves this socket; stop it or choose another with --socket",
                 socket};
  }
  std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(lock.get(), 0) != 0 || pwrite(lock.get(), pid.data(), pid.size(), 0) < 0) {
    return ErrnoError(errno, "cannot write the lock", path);
  }
  return lock;
}

}  // namespace

Result<ListeningSocket> BindSocket(const std::string& path, std::chrono::milliseconds patience) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path[0] != '/') return Error{ErrorKind::kInvalid, "a socket's path must be absolute", path};
  if (path.size() >= sizeof address.sun_path) {
    return Error{ErrorKind::kInvalid,
                 "a socket's path has at most " + std::to_string(sizeof address.sun_path - 1) + " bytes", path};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  HONE_TRY(EnsurePrivateDirectory(path.substr(0, std::max<size_t>(path.rfind('/'), 1))));
  ListeningSocket listening;
  listening.path = path;
  listening.lock = HONE_TRY(LockPath(address, steady_clock::now() + patience));
  listening.socket = NewSocket();
  if (!listening.socket) return ErrnoError(errno, "cannot make a socket");
  struct stat status;
  if (lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) return Error{ErrorKind::kInvalid, "there is a file that is no socket", path};
    unlink(path.c_str());  // left by a honed that was killed: we have its lock
  }
  mode_t before = umask(0177);
  int bound = bind(listening.socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  int code = errno;
  umask(before);
  if (bound != 0) return ErrnoError(code, "cannot bind", path);
  return listening;
}

void OpenToOthers(const ListeningSocket& bound, bool is_open) {
  if (bound.inherited) return;
  if (chmod(bound.path.c_str(), is_open ? 0666 : 0600) != 0)
    LogWarn("socket_mode", {{"socket", bound.path}, {"why", std::strerror(errno)}});
  for (size_t end = bound.path.rfind('/'); is_open && end > 0; end = bound.path.rfind('/', end - 1)) {
    const std::string directory = bound.path.substr(0, end);
    struct stat status;
    if (stat(directory.c_str(), &status) == 0 && (status.st_mode & S_IXOTH) == 0)
      LogWarn("socket_out_of_reach", {{"why", fmt::format("server.users names other users, who cannot enter {}: chmod "
                                                          "o+x it, or set server.socket to a path that they can reach",
                                                          directory)}});
  }
}

Result<void> StartListening(const ListeningSocket& bound) {
  // An inherited one does so already. Were this to be repeated, its clients would see us on the other side instead of
  // root, whose service manager opened it and vouches for us, and refuse us.
  if (bound.inherited) return {};
  if (listen(bound.socket.get(), kBacklog) != 0) return ErrnoError(errno, "cannot listen", bound.path);
  return {};
}

Result<std::optional<ListeningSocket>> InheritedSocket() {
  std::optional<long> pid = NumberIn("LISTEN_PID"), count = NumberIn("LISTEN_FDS");
  // Children must not take it for theirs.
  unsetenv("LISTEN_PID");
  unsetenv("LISTEN_FDS");
  unsetenv("LISTEN_FDNAMES");
  if (!pid || *pid != getpid() || !count || *count < 1) return std::optional<ListeningSocket>();
  auto invalid = [](std::string what) { return Error{ErrorKind::kInvalid, std::move(what), "socket activation"}; };
  if (*count != 1) return invalid("expected one socket, got " + std::to_string(*count));
  int accepts = 0;
  socklen_t size = sizeof accepts;
  sockaddr_un address{};
  socklen_t length = sizeof address;
  if (getsockopt(kFirstInherited, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) != 0 || accepts == 0 ||
      getsockname(kFirstInherited, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      address.sun_family != AF_UNIX) {
    return invalid("descriptor 3 is no listening Unix socket");
  }
  ListeningSocket listening;
  listening.inherited = true;
  listening.socket.Reset(kFirstInherited);
  listening.path = address.sun_path;
  fcntl(kFirstInherited, F_SETFD, FD_CLOEXEC);
  fcntl(kFirstInherited, F_SETFL, fcntl(kFirstInherited, F_GETFL) | O_NONBLOCK);
  return std::optional<ListeningSocket>(std::move(listening));
}

void StopListening(ListeningSocket& listening) {
  if (!listening.inherited && !listening.path.empty()) unlink(listening.path.c_str());
  listening.path.clear();
  listening.socket.Reset();
}

void NotifyServiceManager(const std::string& state) {
  std::optional<std::string> path = Environment("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (!path || path->size() >= sizeof address.sun_path || ((*path)[0] != '/' && (*path)[0] != '@')) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path->data(), path->size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return;
  (void)sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path->size()));
}

}  // namespace hone
