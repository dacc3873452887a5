// One connection to honed, seen from a client: every wait ends at a deadline, whatever the daemon does.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "client/protocol/protocol.h"

namespace hone {

using Deadline = std::chrono::steady_clock::time_point;

struct ReceivedFrame {
  FrameHeader header;
  std::vector<std::byte> body;
  UniqueFd descriptor;           // that came with it; none in most
  bool lost_descriptor = false;  // one came for which this process had no room
};

// Not thread-safe. After an error the connection is of no further use.
class Channel {
 public:
  // Connects to the daemon's socket. kUnavailable: nothing listens there; kInvalid: the directory, or the process that
  // listens, is not to be trusted; kTimeout.
  static Result<Channel> Connect(const std::string& path, Deadline deadline);
  // Over a connected socket: one end of a pair.
  explicit Channel(UniqueFd socket) : socket_(std::move(socket)) {}

  // kUnavailable: the daemon is gone; kTimeout.
  Result<void> Send(std::string_view frame, Deadline deadline);
  // kUnavailable, kTimeout, kCorrupt, kLimit.
  Result<ReceivedFrame> Receive(Deadline deadline);

  // Sends a request; its id.
  template <typename Request>
  Result<uint64_t> Ask(const Request& request, Deadline deadline) {
    uint64_t id = ++last_id_;
    HONE_TRY(SendRequest(EncodeFrame(id, request), deadline));
    return id;
  }
  // The next reply to request `id`; the daemon's error as it is, its retry hint in `retry_after_ms`. kLimit: code came,
  // and this process had no descriptor free for it.
  template <typename Reply>
  Result<Reply> Await(uint64_t id, Deadline deadline, UniqueFd* descriptor = nullptr,
                      uint32_t* retry_after_ms = nullptr) {
    ReceivedFrame frame = HONE_TRY(AwaitFrame(id, kTypeOf<Reply>, deadline, retry_after_ms));
    if (descriptor != nullptr) *descriptor = std::move(frame.descriptor);
    return DecodeBody<Reply>(frame.body);
  }
  template <typename Request>
  Result<ReplyTo<Request>> Call(const Request& request, Deadline deadline) {
    uint64_t id = HONE_TRY(Ask(request, deadline));
    return Await<ReplyTo<Request>>(id, deadline);
  }

  int fd() const { return socket_.get(); }
  // The last request was answered, be it with an error: the connection may be used for another one.
  bool clean() const { return clean_; }

 private:
  Result<void> SendRequest(const std::string& frame, Deadline deadline);
  Result<ReceivedFrame> AwaitFrame(uint64_t id, MessageType type, Deadline deadline, uint32_t* retry_after_ms);
  Result<void> Fill(std::span<std::byte> out, Deadline deadline, ReceivedFrame& frame);

  UniqueFd socket_;
  uint64_t last_id_ = 0;
  bool clean_ = true;
};

// Whether a daemon may be looked for there. kInvalid: no path of a socket, or the directory is not to be trusted;
// kUnavailable: there is no such directory; kIo.
Result<void> CheckSocketPath(const std::string& path);

// Which socket to use without being told: $HONE_SOCKET, else this user's, else the system's if only that is there.
Result<std::string> ChooseSocketPath();

}  // namespace hone
