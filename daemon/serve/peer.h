// Who asked, as seen by those who answer: requests name their peer and their id, whatever the transport.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "client/protocol/protocol.h"
#include "daemon/serve/clients.h"
#include "daemon/serve/hot_set.h"

namespace hone {

// Used by the event loop's thread alone, but for client(), closed() and unsent().
class Peer : public std::enable_shared_from_this<Peer> {
 public:
  explicit Peer(const ClientId& client) : client_(client) {}
  virtual ~Peer() = default;

  const ClientId& client() const { return client_; }

  // A last or only reply to a request. Nothing happens if the peer is gone.
  virtual void Reply(uint64_t request_id, MessageType type, std::string body) = 0;
  // More replies to this request will follow.
  virtual void ReplyPart(uint64_t request_id, MessageType type, std::string body) = 0;
  // As Reply, a hit: the code's own encoded reply, with its descriptor.
  virtual void ReplyHit(uint64_t request_id, const HotCodePtr& code) = 0;
  // As Reply, with a descriptor.
  virtual void ReplyWithCode(uint64_t request_id, std::string body, HotCodePtr code) = 0;

  // As Reply, the last there is: the connection ends here, and the socket is the caller's. kInvalid, and no reply was
  // sent: other requests or bytes of the client's are under way.
  virtual Result<UniqueFd> ReplyAndHandOver(uint64_t, MessageType, std::string) {
    return Error{ErrorKind::kInvalid, "wanted a connection on which nothing else is asked", "honed"};
  }

  template <typename Message>
  void Reply(uint64_t request_id, const Message& message) {
    Reply(request_id, kTypeOf<Message>, EncodeBody(message));
  }
  void ReplyError(uint64_t request_id, const Error& error, uint32_t retry_after_ms = 0) {
    Reply(request_id, ToReply(error, retry_after_ms));
  }

  bool closed() const { return closed_.load(std::memory_order_relaxed); }
  // Whoever waits for word from here is not closed to make room, until each Keep was taken back.
  void Keep() { ++kept_; }
  void KeepNoLonger() { --kept_; }
  bool is_kept() const { return kept_ > 0; }
  size_t unsent() const { return unsent_.load(std::memory_order_relaxed); }  // bytes that the client has not taken yet

 protected:
  std::atomic<bool> closed_{false};
  std::atomic<size_t> unsent_{0};
  int kept_ = 0;

 private:
  const ClientId client_;
};
using PeerPtr = std::shared_ptr<Peer>;

// What is done with frames.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // `body` lasts for the call. Every request is answered exactly once, now or later (ReplyPart aside).
  virtual void OnRequest(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body) = 0;
  // The peer was behind, and has taken everything that was sent to it: unsent() is 0 again.
  virtual void OnTaken(const Peer& peer) = 0;
  // No more is to be done for this peer.
  virtual void OnGone(const Peer& peer) = 0;
};

}  // namespace hone
