// One client's connection: bytes in, frames out and back, within limits. A client may stop reading, send a byte an
// hour, send garbage or die: none of it costs more than its own connection.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <vector>

#include "daemon/metrics.h"
#include "daemon/peer.h"

namespace hone {

struct ConnectionLimits {
  uint32_t requests = 64;  // unanswered; then nothing more is read
  std::chrono::milliseconds frame_time{30'000};
  std::chrono::milliseconds stall_time{10'000};
};

// What connections share.
struct ConnectionContext {
  ConnectionContext(FrameHandler& handler, Metrics& metrics) : handler(handler), metrics(metrics) {}
  FrameHandler& handler;  // called until the connection is closed
  Metrics& metrics;
  ConnectionLimits limits;
  size_t buffered = 0;  // bytes of unfinished frames, over all connections
  static constexpr size_t kMostBuffered = size_t{256} << 20;
};

class Connection final : public Peer {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;
  using Clock = std::chrono::steady_clock;

  Connection(Socket socket, const ClientId& client, std::shared_ptr<ConnectionContext> context,
             std::function<void(Connection&)> on_close);
  ~Connection() override;

  void Start();
  void Close();

  using Peer::Reply;
  void Reply(uint64_t request_id, MessageType type, std::string body) override;
  void ReplyPart(uint64_t request_id, MessageType type, std::string body) override;
  void ReplyHit(uint64_t request_id, const HotCodePtr& code) override;
  void ReplyWithCode(uint64_t request_id, std::string body, HotCodePtr code) override;

  // Why the connection has to be closed now; nullptr if it has not.
  const char* Overdue(Clock::time_point now) const;
  bool is_idle() const { return pending_ == 0 && out_.empty(); }
  Clock::time_point last_active() const { return last_active_; }
  // Refuses the client with a last word.
  void Refuse(const Error& error, uint32_t retry_after_ms = 0);

 private:
  // A frame that could not be sent at once.
  struct Outgoing {
    std::byte header[kFrameHeaderBytes];
    std::string body;
    HotCodePtr code;        // whose descriptor goes with it
    bool hit_body = false;  // the body is code->hit_body
    size_t sent = 0;        // bytes, header included
    const std::string& text() const { return hit_body ? code->hit_body : body; }
  };

  void WaitReadable();
  void OnReadable();
  bool ReadSome();  // false: nothing there, or closed
  void TakeFrames();
  bool MayTake() const;
  bool MayRead() const { return MayTake() && !ended_; }
  void Continue();
  void Send(Outgoing frame);
  bool Push(Outgoing& frame);
  void WaitWritable();
  void SendQueued();
  ssize_t SendNow(const Outgoing& frame);
  void FinishRequest();
  std::shared_ptr<Connection> Self() { return std::static_pointer_cast<Connection>(shared_from_this()); }

  Socket socket_;
  const std::shared_ptr<ConnectionContext> context_;
  std::function<void(Connection&)> on_close_;
  std::vector<std::byte> in_;
  size_t have_ = 0;       // bytes of `in_` that are filled
  uint32_t pending_ = 0;  // requests without their answer
  bool waiting_ = false;  // for the socket to be readable
  bool taking_ = false;   // frames are being handed to the handler
  bool ended_ = false;    // the client sends no more
  bool refused_ = false;  // closes once all is sent
  std::deque<Outgoing> out_;
  Clock::time_point last_active_ = Clock::now();
  Clock::time_point frame_begun_{};    // of an unfinished frame
  Clock::time_point stalled_since_{};  // the client has not taken what is in `out_`
};

}  // namespace hone
