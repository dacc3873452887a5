#include "client/protocol/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/file.h"
#include "base/paths.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Error TimedOut(std::string what) { return {ErrorKind::kTimeout, std::move(what), "honed"}; }
Error Gone() { return {ErrorKind::kUnavailable, "the daemon closed the connection", "honed"}; }

// Waits until the socket is ready for `events`, or the deadline.
Result<void> WaitFor(int fd, short events, Deadline deadline, const char* what) {
  for (;;) {
    auto left = deadline - steady_clock::now();
    if (left <= steady_clock::duration::zero()) return TimedOut(what);
    timespec limit;
    auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    limit.tv_sec = ns / 1'000'000'000;
    limit.tv_nsec = ns % 1'000'000'000;
    pollfd poll{fd, events, 0};
    int ready = ppoll(&poll, 1, &limit, nullptr);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return ErrnoError(errno, "cannot wait for the daemon");
  }
}

// Another user who may write the directory could put a socket of his own there, and one who listens could send code.
Result<void> CheckDirectory(const std::string& path) {
  std::string directory = path.substr(0, std::max<size_t>(path.rfind('/'), 1));
  struct stat status;
  if (lstat(directory.c_str(), &status) != 0) {
    if (errno == ENOENT) return Error{ErrorKind::kUnavailable, "no daemon: there is no such directory", directory};
    return ErrnoError(errno, "cannot look at the socket's directory", directory);
  }
  if (!S_ISDIR(status.st_mode)) return Error{ErrorKind::kInvalid, "not a directory", directory};
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    return Error{ErrorKind::kInvalid, "belongs to another user (" + std::to_string(status.st_uid) + ")", directory};
  }
  if (status.st_mode & 022) {
    return Error{
        ErrorKind::kInvalid,
        "others may write it, so a socket in it is not to be trusted; take a folder of your own, or chmod go-w it",
        directory};
  }
  return {};
}

// The uid besides our own and root's whose daemon is believed: $HONE_DAEMON_UID.
bool IsTrustedUid(uid_t uid) {
  if (uid == geteuid() || uid == 0) return true;
  std::optional<std::string> trusted = Environment("HONE_DAEMON_UID");
  return trusted && *trusted == std::to_string(uid);
}

}  // namespace

Result<std::string> ChooseSocketPath() {
  if (std::optional<std::string> named = Environment("HONE_SOCKET")) return *named;
  Result<std::string> own = DefaultSocketPath();
  if (own && access(own->c_str(), F_OK) == 0) return own;
  if (access(kSystemSocketPath, F_OK) == 0) return std::string(kSystemSocketPath);
  return own;
}

Result<void> CheckSocketPath(const std::string& path) {
  constexpr size_t kMostBytes = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty() || path[0] != '/') return Error{ErrorKind::kInvalid, "a socket's path must be absolute", path};
  if (path.size() > kMostBytes) {
    return Error{ErrorKind::kInvalid, "a socket's path has at most " + std::to_string(kMostBytes) + " bytes", path};
  }
  return CheckDirectory(path);
}

Result<Channel> Channel::Connect(const std::string& path, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  HONE_TRY(CheckSocketPath(path));
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return ErrnoError(errno, "cannot make a socket");
  // EAGAIN: the daemon's queue of connections is full (it may be stopped). There is nothing to poll for.
  milliseconds pause{1};
  while (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return Error{ErrorKind::kUnavailable, "no daemon listens on the socket; start honed", path};
    }
    if (errno != EAGAIN) return ErrnoError(errno, "cannot connect", path);
    auto left = deadline - steady_clock::now();
    if (left <= steady_clock::duration::zero()) return TimedOut("the daemon accepts no connection");
    std::this_thread::sleep_for(std::min<steady_clock::duration>(left, pause));
    pause = std::min(pause * 2, milliseconds(50));
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoError(errno, "cannot see who listens", path);
  }
  if (!IsTrustedUid(peer.uid)) {
    return Error{ErrorKind::kInvalid,
                 "the daemon runs as user " + std::to_string(peer.uid) +
                     ", who is neither you nor root; HONE_DAEMON_UID allows one",
                 path};
  }
  return Channel(std::move(socket));
}

Result<void> Channel::Send(std::string_view frame, Deadline deadline) {
  while (!frame.empty()) {
    ssize_t sent = ::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      frame.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      HONE_TRY(WaitFor(socket_.get(), POLLOUT, deadline, "the daemon does not read its requests"));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return Gone();
    } else if (errno != EINTR) {
      return ErrnoError(errno, "cannot send to the daemon");
    }
  }
  return {};
}

Result<void> Channel::SendRequest(const std::string& frame, Deadline deadline) {
  if (frame.size() > kFrameHeaderBytes + kRequestLimit) {
    return Error{ErrorKind::kLimit,
                 "a request of " + std::to_string(frame.size()) + " bytes; at most " + std::to_string(kRequestLimit) +
                     " are accepted",
                 "request"};
  }
  clean_ = false;
  Result<void> sent = Send(frame, deadline);
  if (sent || sent.error().kind != ErrorKind::kUnavailable) return sent;
  // A daemon that sends a client away says why before it closes.
  Result<ReceivedFrame> last = Receive(deadline);
  if (last && last->header.type == MessageType::kError) {
    if (Result<ErrorReply> word = DecodeBody<ErrorReply>(last->body)) return FromReply(*std::move(word));
  }
  return sent;
}

Result<void> Channel::Fill(std::span<std::byte> out, Deadline deadline, ReceivedFrame& frame) {
  while (!out.empty()) {
    iovec part{out.data(), out.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t got = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got > 0) {
      out = out.subspan(static_cast<size_t>(got));
      frame.lost_descriptor |= (message.msg_flags & MSG_CTRUNC) != 0;
      for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
          int fd;
          std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
          frame.descriptor.Reset(fd);  // more than one: the last stays, the others are closed
        }
      }
    } else if (got == 0 || errno == ECONNRESET) {
      return Gone();
    } else if (errno == EAGAIN) {
      HONE_TRY(WaitFor(socket_.get(), POLLIN, deadline, "the daemon did not answer in time"));
    } else if (errno != EINTR) {
      return ErrnoError(errno, "cannot receive from the daemon");
    }
  }
  return {};
}

Result<ReceivedFrame> Channel::Receive(Deadline deadline) {
  std::byte bytes[kFrameHeaderBytes];
  ReceivedFrame frame;
  HONE_TRY(Fill(bytes, deadline, frame));
  frame.header = HONE_TRY(DecodeHeader(bytes, kReplyLimit));
  frame.body.resize(frame.header.length);
  HONE_TRY(Fill(frame.body, deadline, frame));
  return frame;
}

Result<ReceivedFrame> Channel::AwaitFrame(uint64_t id, MessageType type, Deadline deadline, uint32_t* retry_after_ms) {
  clean_ = false;
  for (;;) {
    ReceivedFrame frame = HONE_TRY(Receive(deadline));
    // Id 0 is the daemon's own word about the connection: it is about to close it.
    if (frame.header.type == MessageType::kError && (frame.header.request_id == id || frame.header.request_id == 0)) {
      ErrorReply reply = HONE_TRY(DecodeBody<ErrorReply>(frame.body));
      clean_ = frame.header.request_id == id;
      if (retry_after_ms != nullptr) *retry_after_ms = reply.retry_after_ms;
      return FromReply(std::move(reply));
    }
    if (frame.header.request_id != id) continue;  // an answer that nobody waits for any more
    if (frame.header.type != type) {
      return Error{ErrorKind::kCorrupt,
                   "an answer of type " + std::to_string(static_cast<int>(frame.header.type)) + ", expected " +
                       std::to_string(static_cast<int>(type)),
                   "honed"};
    }
    clean_ = true;
    if (frame.lost_descriptor) {
      return Error{
          ErrorKind::kLimit,
          "code came, and this process has no descriptor free for it; close some, or raise the limit (ulimit -n)",
          "descriptors"};
    }
    return frame;
  }
}

}  // namespace hone
