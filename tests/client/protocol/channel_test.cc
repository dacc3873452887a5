// Who may be at the other end of a channel.
#include "client/protocol/channel.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>

#include "tests/support/c_artifact.h"
#include "tests/support/no_free_descriptor.h"
#include "tests/support/send_descriptors.h"

namespace hone {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kSomebody = 65534;

// Listens at `path` as `user`, in a process of its own, until destroyed.
class Listener {
 public:
  Listener(const std::string& path, uid_t user) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path, path.data(), path.size());
      int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
      // Whoever calls listen is who clients see.
      bool listens = ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                     (user == ::geteuid() || ::setuid(user) == 0) && ::listen(socket, 4) == 0;
      [[maybe_unused]] ssize_t written = ::write(ready[1], listens ? "y" : "n", 1);
      ::pause();
    }
    char answer = 'n';
    [[maybe_unused]] ssize_t count = ::read(ready[0], &answer, 1);
    EXPECT_EQ(answer, 'y');
    ::close(ready[0]), ::close(ready[1]);
  }
  ~Listener() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

Result<Channel> ConnectTo(const std::string& path) {
  return Channel::Connect(path, std::chrono::steady_clock::now() + std::chrono::seconds(5));
}

class ChannelTest : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("HONE_DAEMON_UID"); }
  testing::ScratchFolder folder_;
  const std::string path_ = folder_.path() + "/honed.sock";
};

TEST_F(ChannelTest, OwnDaemonsAreTrusted) {
  Listener listener(path_, ::geteuid());
  Result<Channel> channel = ConnectTo(path_);
  EXPECT_TRUE(channel) << channel.error().Text();
}

TEST_F(ChannelTest, AnotherUsersDaemonIsNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "[SKIP] needs root, to be two users";
  Listener listener(path_, kSomebody);
  Result<Channel> channel = ConnectTo(path_);
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error().kind, ErrorKind::kInvalid);
  EXPECT_THAT(channel.error().Text(), HasSubstr("the daemon runs as user 65534, who is neither you nor root"));
  ::setenv("HONE_DAEMON_UID", "65533", 1);
  EXPECT_FALSE(ConnectTo(path_));
  ::setenv("HONE_DAEMON_UID", "65534", 1);
  channel = ConnectTo(path_);
  EXPECT_TRUE(channel) << channel.error().Text();
}

TEST_F(ChannelTest, ASocketWhereOthersMayWriteIsNot) {
  Listener listener(path_, ::geteuid());
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
  Result<Channel> channel = ConnectTo(path_);
  ASSERT_FALSE(channel);
  EXPECT_THAT(channel.error().Text(), HasSubstr("others may write it"));
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0700), 0);
  EXPECT_TRUE(ConnectTo(path_));
}

TEST(Channel, CodeThatComesWhileNoDescriptorIsFreeIsALimitAndTheNextIsTaken) {
  const Deadline soon = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Channel channel{UniqueFd(ends[0])};
  const UniqueFd daemon(ends[1]);
  UniqueFd code;
  {
    const uint64_t id = *channel.Ask(GetRequest{}, soon);
    testing::SendWithDescriptors(daemon.get(), EncodeFrame(id, GetReply{}), {STDIN_FILENO});
    const Result<GetReply> reply = [&] {
      const testing::NoFreeDescriptor none;
      return channel.Await<GetReply>(id, soon, &code);
    }();
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().kind, ErrorKind::kLimit);
    EXPECT_THAT(reply.error().Text(), HasSubstr("descriptor"));
  }
  EXPECT_TRUE(channel.clean());
  const uint64_t id = *channel.Ask(GetRequest{}, soon);
  testing::SendWithDescriptors(daemon.get(), EncodeFrame(id, GetReply{}), {STDIN_FILENO});
  EXPECT_TRUE(channel.Await<GetReply>(id, soon, &code));
  EXPECT_TRUE(code);
}

}  // namespace
}  // namespace hone
