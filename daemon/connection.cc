#include "daemon/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/log.h"

namespace hone {
namespace {

constexpr size_t kFirstBuffer = 4 << 10;
constexpr size_t kPauseReading = 1 << 20;  // of unsent answers
constexpr size_t kTurnBytes = 256 << 10;   // read from one connection before the others have their turn

}  // namespace

Connection::Connection(Socket socket, const ClientId& client, std::shared_ptr<ConnectionContext> context,
                       std::function<void(Connection&)> on_close)
    : Peer(client), socket_(std::move(socket)), context_(std::move(context)), on_close_(std::move(on_close)) {
  socket_.native_non_blocking(true);
}

Connection::~Connection() { context_->buffered -= in_.size(); }

void Connection::Start() {
  in_.resize(kFirstBuffer);
  context_->buffered += in_.size();
  // A client that died is noticed even while nothing is read from it.
  socket_.async_wait(Socket::wait_error, [self = Self()](const boost::system::error_code&) { self->Close(); });
  WaitReadable();
}

void Connection::Close() {
  if (closed()) return;
  closed_ = true;
  boost::system::error_code ignored;
  socket_.close(ignored);
  out_.clear();
  unsent_ = 0;
  context_->handler.OnGone(*this);
  on_close_(*this);
}

// ---- in

void Connection::WaitReadable() {
  if (waiting_ || closed()) return;
  waiting_ = true;
  socket_.async_wait(Socket::wait_read, [self = Self()](const boost::system::error_code& error) {
    self->waiting_ = false;
    if (!error) self->OnReadable();
  });
}

bool Connection::MayTake() const {
  return !closed() && !refused_ && pending_ < context_->limits.requests && unsent() < kPauseReading;
}

void Connection::OnReadable() {
  size_t turn = 0;
  while (MayRead() && turn < kTurnBytes) {
    size_t before = have_;
    if (!ReadSome()) break;
    turn += have_ - before;
    bool drained = have_ < in_.size();
    if (have_ >= kFrameHeaderBytes) TakeFrames();
    if (drained) break;
  }
  Continue();
}

bool Connection::ReadSome() {
  if (have_ == in_.size()) {
    // Grows as bytes arrive, not as they are promised. A whole frame always fits: longer ones were refused.
    size_t grown = std::min(in_.size() * 2, kFrameHeaderBytes + kRequestLimit);
    if (context_->buffered + grown - in_.size() > ConnectionContext::kMostBuffered) {
      Refuse({ErrorKind::kBusy, "too many unfinished requests at once", "honed"}, 1000);
      return false;
    }
    context_->buffered += grown - in_.size();
    in_.resize(grown);
  }
  iovec part{in_.data() + have_, in_.size() - have_};
  msghdr message{};  // no room for control data: the kernel closes the descriptors that nobody asked for
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t got = recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT);
  if (got > 0) {
    if (message.msg_flags & MSG_CTRUNC) {
      ++context_->metrics.uninvited_descriptors;
      LogDebug("uninvited_descriptor");
    }
    if (have_ == 0) frame_begun_ = Clock::now();
    have_ += static_cast<size_t>(got);
    return true;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got == 0 && pending_ > 0) {  // it may still read its answers; wait_error tells if it does not
    ended_ = true;
    return false;
  }
  Close();
  return false;
}

void Connection::TakeFrames() {
  size_t taken = 0;
  taking_ = true;
  while (MayTake() && have_ - taken >= kFrameHeaderBytes) {
    std::span<const std::byte> rest(in_.data() + taken, have_ - taken);
    Result<FrameHeader> header = DecodeHeader(rest.first<kFrameHeaderBytes>(), kRequestLimit);
    if (!header) {
      ++context_->metrics.bad_frames;
      Refuse(header.error());
      break;
    }
    if (rest.size() < kFrameHeaderBytes + header->length) break;
    ++pending_;
    last_active_ = Clock::now();
    context_->handler.OnRequest(shared_from_this(), *header, rest.subspan(kFrameHeaderBytes, header->length));
    taken += kFrameHeaderBytes + header->length;
  }
  taking_ = false;
  if (closed() || taken == 0) return;
  std::memmove(in_.data(), in_.data() + taken, have_ - taken);
  have_ -= taken;
  frame_begun_ = Clock::now();
  if (have_ == 0 && in_.size() > kFirstBuffer) {
    context_->buffered -= in_.size() - kFirstBuffer;
    in_.resize(kFirstBuffer);
    in_.shrink_to_fit();
  }
}

// After anything that may have made room: takes what was left in the buffer, then waits for more.
void Connection::Continue() {
  if (taking_ || closed()) return;
  if (refused_ && out_.empty()) return Close();
  if (MayTake() && have_ >= kFrameHeaderBytes) TakeFrames();
  if (ended_ && pending_ == 0 && out_.empty()) return Close();
  if (MayRead()) WaitReadable();
}

// ---- out

void Connection::FinishRequest() {
  if (pending_ > 0) --pending_;
}

void Connection::Reply(uint64_t request_id, MessageType type, std::string body) {
  FinishRequest();
  ReplyPart(request_id, type, std::move(body));
}

void Connection::ReplyPart(uint64_t request_id, MessageType type, std::string body) {
  Outgoing frame;
  EncodeHeader({kProtocolMax, type, request_id, body.size()}, frame.header);
  frame.body = std::move(body);
  Send(std::move(frame));
}

void Connection::ReplyHit(uint64_t request_id, const HotCodePtr& code) {
  FinishRequest();
  Outgoing frame;
  EncodeHeader({kProtocolMax, MessageType::kGetReply, request_id, code->hit_body.size()}, frame.header);
  frame.code = code;
  frame.hit_body = true;
  Send(std::move(frame));
}

void Connection::ReplyWithCode(uint64_t request_id, std::string body, HotCodePtr code) {
  FinishRequest();
  Outgoing frame;
  EncodeHeader({kProtocolMax, MessageType::kGetReply, request_id, body.size()}, frame.header);
  frame.body = std::move(body);
  frame.code = std::move(code);
  Send(std::move(frame));
}

void Connection::Refuse(const Error& error, uint32_t retry_after_ms) {
  if (closed() || refused_) return;
  refused_ = true;
  ++context_->metrics.connections_dropped;
  LogDebug("refused", {{"why", error.Text()}});
  ++pending_;
  Reply(0, ToReply(error, retry_after_ms));
}

ssize_t Connection::SendNow(const Outgoing& frame) {
  const std::string& body = frame.text();
  iovec parts[2];
  size_t from = std::min(frame.sent, kFrameHeaderBytes);
  parts[0] = {const_cast<std::byte*>(frame.header) + from, kFrameHeaderBytes - from};
  from = frame.sent - from;
  parts[1] = {const_cast<char*>(body.data()) + from, body.size() - from};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (frame.code && frame.sent == 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    int fd = frame.code->artifact.fd();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  ssize_t sent = sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent < 0 ? -errno : sent;
}

// The rest of a frame, as far as the socket takes it. False: the connection is of no more use.
bool Connection::Push(Outgoing& frame) {
  while (frame.sent < kFrameHeaderBytes + frame.text().size()) {
    ssize_t sent = SendNow(frame);
    if (sent == -EINTR) continue;
    if (sent == -ETOOMANYREFS) {  // more descriptors are on their way to clients than the kernel allows this user
      uint64_t id;
      std::memcpy(&id, frame.header + 8, sizeof id);
      frame.body = EncodeBody(ErrorReply{ErrorKind::kBusy, "too many descriptors are on their way", "honed", 100});
      frame.code.reset();
      frame.hit_body = false;
      EncodeHeader({kProtocolMax, MessageType::kError, id, frame.body.size()}, frame.header);
      continue;
    }
    if (sent < 0) return sent == -EAGAIN;
    frame.sent += static_cast<size_t>(sent);
  }
  return true;
}

void Connection::Send(Outgoing frame) {
  if (closed()) return;
  if (!out_.empty()) {
    unsent_ += kFrameHeaderBytes + frame.text().size();
    out_.push_back(std::move(frame));
    return;
  }
  if (!Push(frame)) return Close();
  last_active_ = Clock::now();
  if (size_t left = kFrameHeaderBytes + frame.text().size() - frame.sent; left > 0) {
    stalled_since_ = last_active_;
    unsent_ = left;
    out_.push_back(std::move(frame));
    return WaitWritable();
  }
  Continue();
}

void Connection::WaitWritable() {
  socket_.async_wait(Socket::wait_write, [self = Self()](const boost::system::error_code& error) {
    if (!error) self->SendQueued();
  });
}

void Connection::SendQueued() {
  if (closed()) return;
  while (!out_.empty()) {
    Outgoing& frame = out_.front();
    size_t before = kFrameHeaderBytes + frame.text().size() - frame.sent;
    if (!Push(frame)) return Close();
    size_t left = kFrameHeaderBytes + frame.text().size() - frame.sent;
    if (left != before) stalled_since_ = last_active_ = Clock::now();
    unsent_ -= std::min(unsent(), before - left);
    if (left > 0) return WaitWritable();
    out_.pop_front();
  }
  unsent_ = 0;
  Continue();
}

const char* Connection::Overdue(Clock::time_point now) const {
  if (!out_.empty() && now - stalled_since_ > context_->limits.stall_time) return "leaves its answers unread";
  if (have_ > 0 && pending_ < context_->limits.requests && now - frame_begun_ > context_->limits.frame_time) {
    return "takes too long to send a request";
  }
  return nullptr;
}

}  // namespace hone
