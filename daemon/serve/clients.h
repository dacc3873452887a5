// Who asks: a process of a user. What clients hold of what all share is counted by it.
#pragma once

#include <sys/types.h>

#include <compare>

namespace hone {

// As the kernel says of the other end of a socket; a process that forked or passed its socket on is still the one that
// connected.
struct ClientId {
  uid_t uid = 0;
  pid_t pid = 0;
  auto operator<=>(const ClientId&) const = default;
};

}  // namespace hone
