#include "daemon/serve/unread.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>

namespace hone {

void Unread::Sent(size_t bytes, bool with_descriptor) {
  if (with_descriptor) {
    if (empty()) sockets_.push_back(*this);
    starts_[(first_ + part_.held()) % kMost] = sent_;
    part_.Take(1);
  }
  sent_ += bytes;
}

void Unread::Look() {
  if (empty()) return;
  // Bytes of memory that are queued at the reader, at least as many as are unread: what was sent before them was read.
  int queued = 0;
  if (ioctl(socket_, SIOCOUTQ, &queued) != 0) return;
  const uint64_t read = sent_ - std::min<uint64_t>(sent_, static_cast<uint64_t>(queued));
  while (!empty() && starts_[first_] < read) {
    first_ = (first_ + 1) % kMost;
    part_.Give(1);
    ++read_;
  }
  if (empty()) unlink();
}

}  // namespace hone
