// Frames with descriptors, as a peer sends them.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>
#include <string>
#include <vector>

namespace hone::testing {

// Sends all of `frame` at once.
inline void SendWithDescriptors(int socket, const std::string& frame, const std::vector<int>& descriptors) {
  const size_t bytes = descriptors.size() * sizeof(int);
  iovec part{const_cast<char*>(frame.data()), frame.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
  ASSERT_LE(CMSG_SPACE(bytes), sizeof control);
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
  ASSERT_EQ(sendmsg(socket, &message, MSG_NOSIGNAL), static_cast<ssize_t>(frame.size()));
}

}  // namespace hone::testing
