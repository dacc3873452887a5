// One client's connection: bytes in, frames out and back, within limits. A client may stop reading, send a byte an
// hour, send garbage or die: none of it costs more than its own connection.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "daemon/serve/connection_context.h"
#include "daemon/serve/peer.h"

namespace hone {

class Connection final : public Peer {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;
  using Clock = std::chrono::steady_clock;

  // `part`: of ConnectionContext::connections.
  Connection(Socket socket, const ClientId& client, Shares::Part part, std::shared_ptr<ConnectionContext> context,
             std::function<void(Connection&)> on_close);

  void Start();
  void Close();

  using Peer::Reply;
  void Reply(uint64_t request_id, MessageType type, std::string body) override;
  void ReplyPart(uint64_t request_id, MessageType type, std::string body) override;
  void ReplyHit(uint64_t request_id, const HotCodePtr& code) override;
  void ReplyWithCode(uint64_t request_id, std::string body, HotCodePtr code) override;
  Result<UniqueFd> ReplyAndHandOver(uint64_t request_id, MessageType type, std::string body) override;

  // Why the connection has to be closed now; nullptr if it has not.
  const char* Overdue(Clock::time_point now) const;
  bool is_idle() const { return pending_ == 0 && out_.empty(); }
  // Whether descriptors that were sent are unread: closing it would not take them back.
  bool HasUnread();
  size_t TakeRead() { return unread_->TakeRead(); }  // Unread::TakeRead. REQUIRES: !closed()
  Clock::time_point last_active() const { return last_active_; }
  // Refuses the client with a last word.
  void Refuse(const Error& error, uint32_t retry_after_ms = 0);
  // Sends what was held back, as far as it may be; whether any was.
  bool SendHeldBack(size_t most = SIZE_MAX);
  bool KeepsTurn() { return has_turn_ = !held_back_.empty(); }  // ConnectionContext::AddTurn
  // Answers that others' unread ones have kept from being sent for too long become "busy".
  void GiveUpHeldBack(Clock::time_point now);

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

  void WaitGone();
  void WaitReadable();
  void OnReadable();
  bool ReadSome();  // false: nothing there, or closed
  void TakeFrames();
  void HandOver(const FrameHeader& header, std::span<const std::byte> body);
  bool MayTake() const;
  bool MayRead() const { return MayTake() && !ended_; }
  void Continue();
  void Send(Outgoing frame);
  void SendCode(uint64_t request_id, Outgoing frame);
  bool MaySendCode();
  bool TrySendCode(Outgoing& frame);
  static void MakeBusy(Outgoing& frame);
  bool Push(Outgoing& frame);
  void Pushed(Outgoing frame);
  void WaitWritable();
  void SendQueued();
  ssize_t SendNow(const Outgoing& frame);
  void Answered(uint64_t request_id);
  void FinishRequest();
  template <typename Work>
  void CloseIfOutOfMemory(const Work& work);
  std::shared_ptr<Connection> Self() { return std::static_pointer_cast<Connection>(shared_from_this()); }

  Socket socket_;
  const std::shared_ptr<ConnectionContext> context_;
  std::function<void(Connection&)> on_close_;
  Shares::Part connection_;
  Shares::Part bytes_;  // of `in_` beyond its first size, and of requests without their answer
  std::unique_ptr<Unread> unread_;
  std::vector<std::byte> in_;
  size_t have_ = 0;                                       // bytes of `in_` that are filled
  uint32_t pending_ = 0;                                  // requests without their answer
  bool waiting_ = false;                                  // for the socket to be readable
  bool taking_ = false;                                   // frames are being handed to the handler
  bool is_last_ = false;                                  // of the frame in hand: no byte has come after it
  bool ended_ = false;                                    // the client sends no more
  bool refused_ = false;                                  // closes once all is sent
  bool crowded_ = false;                                  // no more bytes for the next request until one is answered
  bool reads_ = true;                                     // MayRead(), when it was looked at last
  std::optional<uint64_t> handed_over_;                   // the request that the handler is called for, unanswered
  std::unordered_multimap<uint64_t, size_t> unanswered_;  // bytes of requests, by id, once the handler has returned
  std::deque<Outgoing> out_;
  std::deque<Outgoing> held_back_;  // answers with descriptors; their requests count as pending
  bool has_turn_ = false;
  Clock::time_point last_active_ = Clock::now();
  Clock::time_point frame_begun_{};    // of an unfinished frame, or when honed began to read on
  Clock::time_point stalled_since_{};  // nothing of `out_` and `held_back_` could be sent
};

}  // namespace hone
