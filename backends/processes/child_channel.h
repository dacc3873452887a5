// How we talk with our child processes: frames over a socket pair, some with descriptors. Both ends are ours, but a
// child may have gone wild, so what it sends is checked like anything from outside. The same frames, without
// descriptors, go to the runners of other machines (backends/processes/remote_messages.h).
//
//   frame ::= magic:u32 "hnc1"  type:u8  fds:u8  reserved:u16 = 0  id:u64  length:u32  body
//
// Little-endian. The `fds` descriptors (SCM_RIGHTS) come with the frame's first byte. A reply carries its request's id.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hone {

// Numbers are fixed only between programs of one build, which their magic does not prove: parent and children are
// installed together.
enum class ChildMessage : uint8_t {
  kError = 1,     // in place of any reply: an Error
  kConfined = 9,  // unasked, with id 0, before anything else: what holds the child
  kBuild = 2,
  kBuilt = 3,  // with the object
  kExplain = 4,
  kExplained = 5,
  kPrepare = 10,
  kPrepared = 11,
  kCheck = 12,  // with the artifact
  kChecked = 13,
  kTime = 14,  // with the artifact
  kTimed = 15,
  kLaunch = 20,  // with the artifact and the buffers
  kLaunched = 21,
  kRehearse = 22,  // with the artifacts, and for a device's host with the buffers
  kRehearsed = 23,
  kRenew = 24,  // to a device's host
  kRenewed = 25,
  kListed = 30,  // unasked: the devices of a kind, a target a line
  kCopied = 31,  // unasked: how fast copies to a device are
  // With the runner of another machine; their numbers and bodies change with kRemoteVersion.
  kHello = 40,     // unasked, with id 0, before anything else: what it is
  kAlive = 41,     // unasked, with id 0: still at work
  kArtifact = 42,  // code that later questions name; no answer
};

struct ChildFrame {
  ChildMessage type = ChildMessage::kError;
  uint64_t id = 0;
  std::string body;
  std::vector<UniqueFd> fds;
};

inline constexpr size_t kChildHeaderBytes = 20;
inline constexpr size_t kChildBodyLimit = size_t{64} << 20;
inline constexpr size_t kChildFdLimit = 32;

struct ChildHeader {
  ChildMessage type = ChildMessage::kError;
  uint8_t fds = 0;
  uint64_t id = 0;
  uint32_t length = 0;
};
std::array<char, kChildHeaderBytes> EncodeChildHeader(const ChildHeader& header);
Result<ChildHeader> DecodeChildHeader(std::string_view bytes);  // kCorrupt. REQUIRES: kChildHeaderBytes of them

// Asked when a deadline has come: a later one, or nullopt if that was it. May take its time.
using Postpone = std::function<std::optional<MonotonicTime>()>;

// One end of a socket pair. One thread at a time may send, and one receive.
class ChildChannel {
 public:
  ChildChannel() = default;
  explicit ChildChannel(UniqueFd socket) : socket_(std::move(socket)) {}
  // Over any two streams, such as a program's standard input and output: frames have no descriptors there.
  // REQUIRES: SIGPIPE is ignored.
  ChildChannel(UniqueFd in, UniqueFd out) : socket_(std::move(in)), out_(std::move(out)) {}

  static Result<std::pair<ChildChannel, UniqueFd>> Pair();  // ours, and the child's end

  // kUnavailable: the other side is gone; kTimeout; kIo; kLimit above kChildBodyLimit.
  Result<void> Send(ChildMessage type, uint64_t id, std::string_view body, const std::vector<int>& fds,
                    MonotonicTime deadline, const Postpone& postpone = {});
  // Waits for the next frame. kUnavailable: the other side is gone; kTimeout: not all of it came until the deadline
  // (the channel is of no use afterwards if a part of it came); kCorrupt: not a frame, or one with more descriptors
  // than it announced, which are closed as they come; kLimit: we have no descriptor free for what came with it.
  Result<ChildFrame> Receive(MonotonicTime deadline, const Postpone& postpone = {});

  int fd() const { return socket_.get(); }  // that it receives from
  explicit operator bool() const { return static_cast<bool>(socket_); }

 private:
  // A deadline, and who may postpone it.
  struct Patience {
    MonotonicTime deadline;
    const Postpone& postpone;
  };
  static Result<void> WaitFor(int fd, short events, Patience& patience);
  Result<void> ReceiveBytes(char* data, size_t size, std::vector<UniqueFd>* fds, size_t most_fds, Patience& patience);
  UniqueFd socket_;
  UniqueFd out_;  // none: the socket, both ways
};

// Bodies that several messages share.
std::string EncodeError(const Error& error);
Error DecodeError(std::string_view body);  // kCorrupt if it is none

}  // namespace hone
