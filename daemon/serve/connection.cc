#include "daemon/serve/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"

namespace hone {
namespace {

constexpr size_t kFirstBuffer = 4 << 10;
constexpr size_t kPauseReading = 1 << 20;  // of unsent answers
constexpr size_t kTurnBytes = 256 << 10;   // read from one connection before the others have their turn
constexpr uint32_t kRetryMs = 1000;

}  // namespace

Connection::Connection(Socket socket, const ClientId& client, Shares::Part part,
                       std::shared_ptr<ConnectionContext> context, std::function<void(Connection&)> on_close)
    : Peer(client),
      socket_(std::move(socket)),
      context_(std::move(context)),
      on_close_(std::move(on_close)),
      connection_(std::move(part)),
      bytes_(context_->frame_bytes.Of(client)),
      unread_(std::make_unique<Unread>(socket_.native_handle(), context_->descriptors.Of(client), context_->unread)) {
  socket_.native_non_blocking(true);
}

void Connection::Start() {
  CloseIfOutOfMemory([&] {
    in_.resize(kFirstBuffer);
    WaitGone();
    WaitReadable();
  });
}

void Connection::Close() {
  if (closed()) return;
  closed_ = true;
  boost::system::error_code ignored;
  if (HasUnread()) {
    context_->Linger(UniqueFd(socket_.release(ignored)), std::move(unread_), std::move(connection_));
  } else {
    socket_.close(ignored);
    connection_ = {};
  }
  out_.clear();
  held_back_.clear();
  unsent_ = 0;
  context_->handler.OnGone(*this);
  on_close_(*this);
}

// A client that died is noticed even while nothing is read from it. What the reactor tells may be meant for a socket
// that was closed while its event was under way and whose place this one took, so the socket itself is asked.
void Connection::WaitGone() {
  if (closed()) return;
  socket_.async_wait(Socket::wait_error, [self = Self()](const boost::system::error_code&) {
    if (self->closed()) return;
    pollfd socket{self->socket_.native_handle(), POLLPRI, 0};
    if (poll(&socket, 1, 0) != 0) return self->Close();
    self->CloseIfOutOfMemory([&] { self->WaitGone(); });
  });
}

// ---- in

void Connection::WaitReadable() {
  if (waiting_ || closed()) return;
  waiting_ = true;
  socket_.async_wait(Socket::wait_read, [self = Self()](const boost::system::error_code& error) {
    self->waiting_ = false;
    if (!error) self->CloseIfOutOfMemory([&] { self->OnReadable(); });
  });
}

bool Connection::MayTake() const {
  return !closed() && !refused_ && !crowded_ && pending_ < context_->limits.requests && unsent() < kPauseReading;
}

void Connection::OnReadable() {
  SendHeldBack();  // who asks for more has read, most likely
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
    const size_t more = grown - in_.size();
    if (!bytes_.MayTake(more)) {
      crowded_ = pending_ > 0;
      if (!crowded_) Refuse({ErrorKind::kBusy, "too many bytes of requests at once", "honed"}, kRetryMs);
      return false;
    }
    in_.resize(grown);
    bytes_.Take(more);
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
  // It may still read its answers, made or not; wait_error tells if it does not.
  if (got == 0 && (pending_ > 0 || !out_.empty())) {
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
    crowded_ = pending_ > 0 && !bytes_.MayTake(header->length);
    if (crowded_) break;
    is_last_ = rest.size() == kFrameHeaderBytes + header->length;
    HandOver(*header, rest.subspan(kFrameHeaderBytes, header->length));
    taken += kFrameHeaderBytes + header->length;
  }
  taking_ = false;
  if (closed() || taken == 0) return;
  std::memmove(in_.data(), in_.data() + taken, have_ - taken);
  have_ -= taken;
  frame_begun_ = Clock::now();
  if (have_ == 0 && in_.size() > kFirstBuffer) {
    bytes_.Give(in_.size() - kFirstBuffer);
    in_.resize(kFirstBuffer);
    in_.shrink_to_fit();
  }
}

// One that its client has no more bytes for, or honed no memory, is answered so.
void Connection::HandOver(const FrameHeader& header, std::span<const std::byte> body) {
  ++pending_;
  last_active_ = Clock::now();
  handed_over_ = header.request_id;
  if (!bytes_.MayTake(body.size())) {
    ++context_->metrics.busy;
    return ReplyError(header.request_id,
                      {ErrorKind::kBusy, "too many bytes of requests wait for their answers", "honed"}, kRetryMs);
  }
  try {
    context_->handler.OnRequest(shared_from_this(), header, body);
  } catch (const std::bad_alloc&) {
    LogWarn("out_of_memory", {{"bytes", body.size()}});
    if (!handed_over_) return;
    return ReplyError(header.request_id, {ErrorKind::kBusy, "out of memory", "honed"}, kRetryMs);
  }
  if (!handed_over_) return;
  handed_over_.reset();
  unanswered_.emplace(header.request_id, body.size());
  bytes_.Take(body.size());
}

// After anything that may have made room: takes what was left in the buffer, then waits for more.
void Connection::Continue() {
  if (taking_ || closed()) return;
  if (MayTake() && have_ >= kFrameHeaderBytes) TakeFrames();
  if (refused_ && out_.empty()) return Close();  // maybe for what was taken just now
  if (ended_ && pending_ == 0 && out_.empty()) return Close();
  const bool has_paused = !std::exchange(reads_, MayRead());
  if (!reads_) return;
  if (has_paused) frame_begun_ = Clock::now();  // its bytes were left where they are meanwhile
  WaitReadable();
}

// ---- out

// Its bytes are nobody's any more.
void Connection::Answered(uint64_t request_id) {
  if (handed_over_ == request_id) return handed_over_.reset();
  auto found = unanswered_.empty() ? unanswered_.end() : unanswered_.find(request_id);
  if (found == unanswered_.end()) return;
  bytes_.Give(found->second);
  unanswered_.erase(found);
}

void Connection::FinishRequest() {
  if (pending_ > 0) --pending_;
  crowded_ = false;
}

void Connection::Reply(uint64_t request_id, MessageType type, std::string body) {
  Answered(request_id);
  FinishRequest();
  ReplyPart(request_id, type, std::move(body));
}

void Connection::ReplyPart(uint64_t request_id, MessageType type, std::string body) {
  Outgoing frame;
  EncodeHeader({kProtocolMax, type, request_id, body.size()}, frame.header);
  frame.body = std::move(body);
  CloseIfOutOfMemory([&] { Send(std::move(frame)); });
}

void Connection::ReplyHit(uint64_t request_id, const HotCodePtr& code) {
  Outgoing frame;
  EncodeHeader({kProtocolMax, MessageType::kGetReply, request_id, code->hit_body.size()}, frame.header);
  frame.code = code;
  frame.hit_body = true;
  CloseIfOutOfMemory([&] { SendCode(request_id, std::move(frame)); });
}

void Connection::ReplyWithCode(uint64_t request_id, std::string body, HotCodePtr code) {
  Outgoing frame;
  EncodeHeader({kProtocolMax, MessageType::kGetReply, request_id, body.size()}, frame.header);
  frame.body = std::move(body);
  frame.code = std::move(code);
  CloseIfOutOfMemory([&] { SendCode(request_id, std::move(frame)); });
}

Result<UniqueFd> Connection::ReplyAndHandOver(uint64_t request_id, MessageType type, std::string body) {
  if (closed()) return Error{ErrorKind::kUnavailable, "the client is gone", ""};
  if (!taking_ || !is_last_ || handed_over_ != request_id || pending_ != 1 || !out_.empty() || !held_back_.empty() ||
      HasUnread())
    return Error{ErrorKind::kInvalid, "wanted a connection on which nothing else is asked", "honed"};
  Outgoing frame;
  EncodeHeader({kProtocolMax, type, request_id, body.size()}, frame.header);
  frame.body = std::move(body);
  const bool is_sent = Push(frame) && frame.sent == kFrameHeaderBytes + frame.body.size();
  Answered(request_id);
  FinishRequest();
  UniqueFd socket;
  if (is_sent) {
    boost::system::error_code ignored;
    socket = UniqueFd(socket_.release(ignored));
  }
  Close();
  if (!socket) return Error{ErrorKind::kUnavailable, "the client takes no reply", ""};
  return socket;
}

void Connection::Refuse(const Error& error, uint32_t retry_after_ms) {
  if (closed() || refused_) return;
  refused_ = true;
  ++context_->metrics.connections_dropped;
  LogDebug("refused", {{"why", error.Text()}});
  held_back_.clear();
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

void Connection::MakeBusy(Outgoing& frame) {
  uint64_t id;
  std::memcpy(&id, frame.header + 8, sizeof id);
  frame.body = EncodeBody(ErrorReply{ErrorKind::kBusy, "too many descriptors are on their way", "honed", 100});
  frame.code.reset();
  frame.hit_body = false;
  EncodeHeader({kProtocolMax, MessageType::kError, id, frame.body.size()}, frame.header);
}

// The rest of a frame, as far as the socket takes it. False: the connection is of no more use.
bool Connection::Push(Outgoing& frame) {
  while (frame.sent < kFrameHeaderBytes + frame.text().size()) {
    ssize_t sent = SendNow(frame);
    if (sent == -EINTR) continue;
    if (sent == -ETOOMANYREFS) {  // other programs of this user have as many on their way as the kernel allows
      MakeBusy(frame);
      continue;
    }
    if (sent < 0) return sent == -EAGAIN;
    unread_->Sent(static_cast<size_t>(sent), frame.code && frame.sent == 0);
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
  Pushed(std::move(frame));
}

// What the socket did not take of it waits.
void Connection::Pushed(Outgoing frame) {
  last_active_ = Clock::now();
  if (size_t left = kFrameHeaderBytes + frame.text().size() - frame.sent; left > 0) {
    stalled_since_ = last_active_;
    unsent_ = left;
    out_.push_back(std::move(frame));
    return WaitWritable();
  }
  Continue();
}

// ---- out, with descriptors

void Connection::SendCode(uint64_t request_id, Outgoing frame) {
  Answered(request_id);
  if (closed() || refused_) return;
  if (held_back_.empty() && MaySendCode() && TrySendCode(frame)) return;
  if (held_back_.empty() && out_.empty()) stalled_since_ = Clock::now();
  held_back_.push_back(std::move(frame));
  ++context_->metrics.held_back;
  if (!std::exchange(has_turn_, true)) context_->AddTurn(std::static_pointer_cast<Connection>(shared_from_this()));
}

// False: the socket takes nothing. REQUIRES: MaySendCode()
bool Connection::TrySendCode(Outgoing& frame) {
  if (!Push(frame)) {
    Close();
    return true;
  }
  if (frame.sent == 0) return false;
  FinishRequest();
  Pushed(std::move(frame));
  return true;
}

bool Connection::MaySendCode() {
  if (!out_.empty()) return false;
  if (unread_->MaySend()) return true;
  unread_->Look();
  return unread_->MaySend() || (!unread_->full() && context_->LookAround() && unread_->MaySend());
}

bool Connection::HasUnread() {
  unread_->Look();
  return !unread_->empty();
}

bool Connection::SendHeldBack(size_t most) {
  bool any_sent = false;
  CloseIfOutOfMemory([&] {
    for (; most > 0 && !held_back_.empty() && MaySendCode(); --most) {
      Outgoing frame = std::move(held_back_.front());
      held_back_.pop_front();
      if (!TrySendCode(frame)) return held_back_.push_front(std::move(frame));
      any_sent = true;
      stalled_since_ = last_active_;
    }
  });
  return any_sent;
}

void Connection::GiveUpHeldBack(Clock::time_point now) {
  if (held_back_.empty() || HasUnread() || now - stalled_since_ <= context_->limits.stall_time) return;
  CloseIfOutOfMemory([&] {
    for (Outgoing& frame : std::exchange(held_back_, {})) {
      ++context_->metrics.busy;
      MakeBusy(frame);
      FinishRequest();
      Send(std::move(frame));
    }
  });
}

void Connection::WaitWritable() {
  socket_.async_wait(Socket::wait_write, [self = Self()](const boost::system::error_code& error) {
    if (!error) self->CloseIfOutOfMemory([&] { self->SendQueued(); });
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
  context_->handler.OnTaken(*this);
  SendHeldBack();
  Continue();
}

template <typename Work>
void Connection::CloseIfOutOfMemory(const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    ++context_->metrics.connections_dropped;
    Close();
  }
}

const char* Connection::Overdue(Clock::time_point now) const {
  const bool leaves_unread = !out_.empty() || (!held_back_.empty() && !unread_->empty());
  if (leaves_unread && now - stalled_since_ > context_->limits.stall_time) return "leaves its answers unread";
  if (have_ > 0 && reads_ && MayRead() && now - frame_begun_ > context_->limits.frame_time)
    return "takes too long to send a request";
  return nullptr;
}

}  // namespace hone
