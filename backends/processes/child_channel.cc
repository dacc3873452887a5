#include "backends/processes/child_channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/bytes.h"
#include "base/file.h"

namespace hone {
namespace {

constexpr uint32_t kMagic = 0x31636e68;  // "hnc1"

// What stands where a frame should: mostly words, of a program that is not what was meant.
std::string Shown(std::string_view bytes) {
  std::string shown;
  for (char c : bytes)
    shown += c >= ' ' && c <= '~' && c != '"' && c != '\\' ? std::string(1, c)
                                                           : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return shown;
}

}  // namespace

std::array<char, kChildHeaderBytes> EncodeChildHeader(const ChildHeader& header) {
  ByteWriter writer;
  writer.U32(kMagic);
  writer.U8(static_cast<uint8_t>(header.type));
  writer.U8(header.fds);
  writer.U16(0);
  writer.U64(header.id);
  writer.U32(header.length);
  std::array<char, kChildHeaderBytes> bytes;
  std::memcpy(bytes.data(), writer.view().data(), bytes.size());
  return bytes;
}

Result<ChildHeader> DecodeChildHeader(std::string_view bytes) {
  ByteReader reader(bytes.substr(0, kChildHeaderBytes));
  uint32_t magic = HONE_TRY(reader.U32());
  if (magic != kMagic)
    return Error{
        ErrorKind::kCorrupt,
        fmt::format("not a frame: it begins \"{}\", wanted \"hnc1\"", Shown(bytes.substr(0, kChildHeaderBytes))), ""};
  ChildHeader header;
  header.type = static_cast<ChildMessage>(HONE_TRY(reader.U8()));
  header.fds = HONE_TRY(reader.U8());
  uint16_t reserved = HONE_TRY(reader.U16());
  header.id = HONE_TRY(reader.U64());
  header.length = HONE_TRY(reader.U32());
  if (reserved != 0 || header.fds > kChildFdLimit || header.length > kChildBodyLimit)
    return Error{ErrorKind::kCorrupt,
                 fmt::format("a frame of {} bytes with {} descriptors, the limits are {} and {}", header.length,
                             header.fds, kChildBodyLimit, kChildFdLimit),
                 ""};
  return header;
}

Result<std::pair<ChildChannel, UniqueFd>> ChildChannel::Pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return ErrnoError(errno, "socketpair");
  return std::pair(ChildChannel(UniqueFd(ends[0])), UniqueFd(ends[1]));
}

Result<void> ChildChannel::WaitFor(int fd, short events, Patience& patience) {
  while (true) {
    struct pollfd poll_fd{fd, events, 0};
    int timeout = -1;
    if (patience.deadline != MonotonicTime::max()) {
      auto left =
          std::chrono::ceil<std::chrono::milliseconds>(patience.deadline - std::chrono::steady_clock::now()).count();
      timeout = static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
    }
    int ready = ::poll(&poll_fd, 1, timeout);
    if (ready > 0) return {};
    if (ready == 0) {
      const std::optional<MonotonicTime> later = patience.postpone ? patience.postpone() : std::nullopt;
      if (!later) return Error{ErrorKind::kTimeout, "no answer in time", ""};
      patience.deadline = *later;
      continue;
    }
    if (errno != EINTR) return ErrnoError(errno, "poll");
  }
}

Result<void> ChildChannel::Send(ChildMessage type, uint64_t id, std::string_view body, const std::vector<int>& fds,
                                MonotonicTime deadline, const Postpone& postpone) {
  Patience patience{deadline, postpone};
  if (body.size() > kChildBodyLimit || fds.size() > (out_ ? 0 : kChildFdLimit))
    return Error{ErrorKind::kLimit, fmt::format("a message of {} bytes and {} descriptors", body.size(), fds.size()),
                 ""};
  std::array<char, kChildHeaderBytes> header =
      EncodeChildHeader({type, static_cast<uint8_t>(fds.size()), id, static_cast<uint32_t>(body.size())});
  size_t total = header.size() + body.size(), done = 0;
  while (done < total) {
    struct iovec parts[2];
    size_t from_header = std::min(done, header.size()), from_body = done - from_header;
    parts[0] = {header.data() + from_header, header.size() - from_header};
    parts[1] = {const_cast<char*>(body.data()) + from_body, body.size() - from_body};
    struct msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    alignas(struct cmsghdr) char control[CMSG_SPACE(kChildFdLimit * sizeof(int))] = {};
    if (done == 0 && !fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      struct cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    }
    ssize_t count = out_ ? ::writev(out_.get(), parts, 2) : ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      done += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HONE_TRY(WaitFor(out_ ? out_.get() : fd(), POLLOUT, patience));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return Error{ErrorKind::kUnavailable, "the other process is gone", ""};
    } else if (errno != EINTR) {
      return ErrnoError(errno, out_ ? "write" : "sendmsg");
    }
  }
  return {};
}

Result<void> ChildChannel::ReceiveBytes(char* data, size_t size, std::vector<UniqueFd>* fds, size_t most_fds,
                                        Patience& patience) {
  for (size_t done = 0; done < size;) {
    struct iovec part{data + done, size - done};
    struct msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(struct cmsghdr) char control[CMSG_SPACE(kChildFdLimit * sizeof(int))];
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (out_) {
      HONE_TRY(WaitFor(fd(), POLLIN, patience));
      message.msg_controllen = 0;
    }
    ssize_t count =
        out_ ? ::read(fd(), part.iov_base, part.iov_len) : ::recvmsg(fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      HONE_TRY(WaitFor(fd(), POLLIN, patience));
      continue;
    }
    if (count == 0 || (count < 0 && errno == ECONNRESET))
      return Error{ErrorKind::kUnavailable, "the other process is gone", ""};
    if (count < 0) return ErrnoError(errno, out_ ? "read" : "recvmsg");
    // Descriptors are ours from here on, also those that nobody asked for: they are closed with the frame.
    size_t came = 0;
    for (struct cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      size_t number = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      came += number;
      for (size_t i = 0; i < number; ++i) {
        int received = -1;
        std::memcpy(&received, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
        fds->emplace_back(received);
      }
    }
    // Cut short although there was room for more: it is our own table that is full.
    if ((message.msg_flags & MSG_CTRUNC) != 0 && came < kChildFdLimit)
      return Error{ErrorKind::kLimit, "no descriptor is free for what a child sent; raise RLIMIT_NOFILE", ""};
    if ((message.msg_flags & MSG_CTRUNC) != 0 || fds->size() > most_fds)
      return Error{ErrorKind::kCorrupt,
                   fmt::format("{} descriptors in a frame that may have {}", fds->size(), most_fds), ""};
    done += static_cast<size_t>(count);
  }
  return {};
}

Result<ChildFrame> ChildChannel::Receive(MonotonicTime deadline, const Postpone& postpone) {
  Patience patience{deadline, postpone};
  ChildFrame frame;
  char bytes[kChildHeaderBytes];
  HONE_TRY(ReceiveBytes(bytes, sizeof bytes, &frame.fds, kChildFdLimit, patience));
  ChildHeader header = HONE_TRY(DecodeChildHeader({bytes, sizeof bytes}));
  frame.type = header.type;
  frame.id = header.id;
  if (frame.fds.size() > header.fds)
    return Error{ErrorKind::kCorrupt,
                 fmt::format("{} descriptors in a frame that announced {}", frame.fds.size(), header.fds), ""};
  // The length is a claim: memory is taken as the bytes come.
  for (size_t done = 0; done < header.length;) {
    size_t piece = std::min<size_t>(header.length - done, 1 << 20);
    frame.body.resize(done + piece);
    HONE_TRY(ReceiveBytes(frame.body.data() + done, piece, &frame.fds, header.fds, patience));
    done += piece;
  }
  if (frame.fds.size() != header.fds)
    return Error{ErrorKind::kCorrupt,
                 fmt::format("{} descriptors in a frame that announced {}", frame.fds.size(), header.fds), ""};
  return frame;
}

std::string EncodeError(const Error& error) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(error.kind));
  writer.String(error.message);
  writer.String(error.where);
  return writer.Take();
}

namespace {

Result<void> DecodeErrorInto(std::string_view body, Error& error) {
  ByteReader reader(body);
  error.kind = HONE_TRY(reader.Enumerator(ErrorKind::kInvalid, ErrorKind::kInternal));
  error.message = HONE_TRY(reader.String(1 << 20));
  error.where = HONE_TRY(reader.String(1 << 16));
  return reader.Finish();
}

}  // namespace

Error DecodeError(std::string_view body) {
  Error error;
  Result<void> decoded = DecodeErrorInto(body, error);
  return decoded ? error : std::move(decoded).error().Context("an error that does not decode");
}

}  // namespace hone
