// Descriptors on their way: sent to a client that has not read them yet. The kernel counts them for honed's user as a
// whole, refuses that user's programs any more beyond RLIMIT_NOFILE of them (ETOOMANYREFS), and goes on counting when
// honed closes its end: only the reader takes them away. So few may be on their way over one socket, and over all
// sockets of a client its share of what there may be at all.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "daemon/serve/shares.h"

namespace hone {

// Of one socket. What was read is not known at once but by looking, which costs a system call. Not thread-safe.
class Unread : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  using List = boost::intrusive::list<Unread, boost::intrusive::constant_time_size<false>>;
  static constexpr size_t kMost = 16;

  // Puts itself on `sockets` while anything seems to be unread.
  Unread(int socket, Shares::Part part, List& sockets) : socket_(socket), part_(std::move(part)), sockets_(sockets) {}
  Unread(const Unread&) = delete;
  Unread& operator=(const Unread&) = delete;

  bool full() const { return part_.held() == kMost; }
  bool empty() const { return part_.held() == 0; }
  // Whether one more may be sent, as far as is known.
  bool MaySend() const { return !full() && part_.MayTake(1); }
  // Bytes went out, the first of them with a descriptor if it says so.
  void Sent(size_t bytes, bool with_descriptor);
  // Asks the kernel how much was read.
  void Look();
  // How many were found read since it was asked last.
  size_t TakeRead() { return std::exchange(read_, 0); }

 private:
  const int socket_;
  Shares::Part part_;  // how many are unread
  List& sockets_;
  uint64_t sent_ = 0;                     // bytes
  std::array<uint64_t, kMost> starts_{};  // at which byte each of them went; a ring
  size_t first_ = 0;
  size_t read_ = 0;
};

}  // namespace hone
