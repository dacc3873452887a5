// What the kernel says of descriptors on their way.
#include "daemon/serve/unread.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/unique_fd.h"

namespace hone {
namespace {

class UnreadTest : public ::testing::Test {
 protected:
  UnreadTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_.Reset(ends[0]);
    theirs_.Reset(ends[1]);
    unread_ = std::make_unique<Unread>(ours_.get(), shares_.Of({1000, 1}), list_);
  }

  void Send(size_t bytes, bool with_descriptor) {
    std::vector<char> body(bytes);
    iovec part{body.data(), body.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (with_descriptor) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      int fd = code_.get();
      std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    ASSERT_EQ(sendmsg(ours_.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    unread_->Sent(bytes, with_descriptor);
  }
  void Read(size_t bytes) {
    std::vector<char> body(bytes);
    ASSERT_EQ(recv(theirs_.get(), body.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
  }
  size_t Count() {
    unread_->Look();
    return shares_.held();
  }

  Shares shares_{1000};
  Unread::List list_;
  UniqueFd ours_, theirs_, code_{memfd_create("code", MFD_CLOEXEC)};
  std::unique_ptr<Unread> unread_;
};

TEST_F(UnreadTest, KnowsWhatWasRead) {
  EXPECT_TRUE(unread_->MaySend());
  for (int i = 0; i < 16; ++i) Send(700, true);
  EXPECT_TRUE(unread_->full());
  EXPECT_FALSE(unread_->MaySend());
  EXPECT_EQ(Count(), 16u);
  for (int i = 0; i < 8; ++i) Read(700);
  EXPECT_GE(Count(), 8u);  // never fewer than there are …
  EXPECT_LT(Count(), 16u);
  for (int i = 0; i < 8; ++i) Read(700);
  EXPECT_EQ(Count(), 0u);  // … and exact when all is read
  EXPECT_TRUE(unread_->MaySend());
}

TEST_F(UnreadTest, BytesWithoutDescriptorsMakeNoDifference) {
  for (int round = 0; round < 100; ++round) {
    Send(100, false);
    Send(24, true);
    Send(5000, false);
    ASSERT_EQ(Count(), 1u);
    Read(100);
    ASSERT_EQ(Count(), 1u);
    Read(24);
    Read(5000);
    ASSERT_EQ(Count(), 0u);
  }
}

TEST_F(UnreadTest, CountsUntilTheReaderReadsOrLeaves) {
  Send(100, true);
  shutdown(ours_.get(), SHUT_RDWR);
  EXPECT_EQ(Count(), 1u);
  theirs_.Reset();
  EXPECT_EQ(Count(), 0u);
}

TEST_F(UnreadTest, IsOnTheListWhileAnythingIsUnread) {
  EXPECT_TRUE(list_.empty());
  Send(100, false);
  EXPECT_TRUE(list_.empty());
  Send(100, true);
  Send(100, true);
  EXPECT_EQ(&list_.front(), unread_.get());
  unread_.reset();
  EXPECT_TRUE(list_.empty());
  EXPECT_EQ(shares_.held(), 0u);
}

TEST_F(UnreadTest, MayNotSendBeyondItsClientsShare) {
  shares_.SetWhole(8, false);  // 6 are shared
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(unread_->MaySend());
    Send(100, true);
  }
  EXPECT_FALSE(unread_->MaySend());
  EXPECT_FALSE(unread_->full());
}

}  // namespace
}  // namespace hone
