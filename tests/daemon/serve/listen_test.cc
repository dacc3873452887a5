// The socket's own rules: who may listen where, and who may connect.
#include "daemon/serve/listen.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/file.h"
#include "tests/daemon/test_server.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using testing::Soon;
using testing::TestServer;
using testing::TestServerOptions;

// Clients may connect.
Result<ListeningSocket> Listen(const std::string& path) {
  ListeningSocket listening = HONE_TRY(BindSocket(path));
  HONE_TRY(StartListening(listening));
  return listening;
}

TEST(Listen, MakesASocketThatOnlyItsUserMayUse) {
  testing::ScratchFolder folder;
  std::string path = folder.path() + "/run/honed.sock";
  Result<ListeningSocket> listening = BindSocket(path);
  ASSERT_TRUE(listening) << listening.error().Text();
  struct stat status;
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat((folder.path() + "/run").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  StopListening(*listening);
  EXPECT_FALSE(fs::exists(path));
}

TEST(Listen, OtherUsersReachItWhereTheyMayConnect) {
  testing::ScratchFolder folder;
  const std::string path = folder.path() + "/run/honed.sock";
  Result<ListeningSocket> listening = BindSocket(path);
  ASSERT_TRUE(listening) << listening.error().Text();
  auto mode = [&] {
    struct stat status;
    return stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
  };
  OpenToOthers(*listening, true);
  EXPECT_EQ(mode(), 0666u);
  OpenToOthers(*listening, false);  // the configuration was read again
  EXPECT_EQ(mode(), 0600u);
}

TEST(Listen, ASecondOneIsToldWhoIsThere) {
  testing::ScratchFolder folder;
  std::string path = folder.path() + "/honed.sock";
  Result<ListeningSocket> first = Listen(path);
  ASSERT_TRUE(first);
  Result<ListeningSocket> second = BindSocket(path);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::kBusy);
  EXPECT_NE(second.error().message.find(std::to_string(getpid())), std::string::npos);
  EXPECT_TRUE(fs::exists(path));
}

TEST(Listen, NobodyConnectsBeforeAllIsReady) {
  testing::ScratchFolder folder;
  std::string path = folder.path() + "/honed.sock";
  Result<ListeningSocket> listening = BindSocket(path);
  ASSERT_TRUE(listening);
  EXPECT_EQ(Channel::Connect(path, Soon()).error().kind, ErrorKind::kUnavailable);
  ASSERT_TRUE(StartListening(*listening));
  EXPECT_TRUE(Channel::Connect(path, Soon()));
}

TEST(Listen, ASecondOneWaitsForOneThatStartsOrEnds) {
  testing::ScratchFolder folder;
  std::string path = folder.path() + "/honed.sock";
  Result<ListeningSocket> first = BindSocket(path);
  ASSERT_TRUE(first);
  EXPECT_EQ(BindSocket(path, std::chrono::milliseconds(20)).error().kind, ErrorKind::kBusy);
  std::thread starts([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(StartListening(*first));
  });
  EXPECT_EQ(BindSocket(path, std::chrono::hours(1)).error().kind, ErrorKind::kBusy);
  starts.join();
  first->socket.Reset();
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    StopListening(*first);
    first->lock.Reset();
  });
  EXPECT_TRUE(BindSocket(path, std::chrono::hours(1)));
  ends.join();
}

TEST(Listen, ASocketLeftByAKilledDaemonIsReplaced) {
  testing::ScratchFolder folder;
  std::string path = folder.path() + "/honed.sock";
  { ASSERT_TRUE(BindSocket(path)); }  // closed without removing its file, as by kill -9
  ASSERT_TRUE(fs::exists(path));
  EXPECT_TRUE(BindSocket(path));
}

TEST(Listen, AFileThatIsNoSocketStays) {
  testing::ScratchFolder folder;
  std::string path = folder.path() + "/precious";
  testing::WriteFile(path, "data");
  EXPECT_EQ(BindSocket(path).error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(testing::ReadFile(path), "data");
}

TEST(Listen, RefusesDirectoriesThatOthersMayWrite) {
  testing::ScratchFolder folder;
  fs::permissions(folder.path(), fs::perms(0777));
  EXPECT_EQ(BindSocket(folder.path() + "/honed.sock").error().kind, ErrorKind::kInvalid);
  EXPECT_FALSE(BindSocket("/tmp/honed.sock"));
  EXPECT_FALSE(BindSocket("relative.sock"));
  EXPECT_FALSE(BindSocket("/" + std::string(200, 'x') + "/honed.sock"));
  fs::permissions(folder.path(), fs::perms(0700));
}

TEST(Listen, ClientsRefuseASocketWhereOthersMayWrite) {
  testing::ScratchFolder folder;
  std::string path = folder.path() + "/honed.sock";
  Result<ListeningSocket> listening = Listen(path);
  ASSERT_TRUE(listening);
  EXPECT_TRUE(Channel::Connect(path, Soon()));
  fs::permissions(folder.path(), fs::perms(0722));
  EXPECT_EQ(Channel::Connect(path, Soon()).error().kind, ErrorKind::kInvalid);
  fs::permissions(folder.path(), fs::perms(0700));
}

TEST(Listen, WhoIsAloneStopsAndWhoComesThisMomentIsLeftForTheNext) {
  testing::ScratchFolder folder;
  std::string path = folder.path() + "/honed.sock";
  Result<ListeningSocket> listening = Listen(path);
  ASSERT_TRUE(listening);
  UniqueFd managers(dup(listening->socket.get()));  // a service manager keeps it
  TestServer server;
  server.Do([&] { server.server->Accept(UniqueFd(listening->socket.Release())); });
  std::atomic<int> answers{0}, left{0};
  const auto try_to_leave = [&] {
    server.server->StopAcceptingIfAlone([&](bool is_alone) {
      left += is_alone;
      ++answers;
    });
  };
  {
    Result<Channel> client = Channel::Connect(path, Soon());
    ASSERT_TRUE(client && client->Call(StatusRequest{}, Soon()));
    server.Do(try_to_leave);
    EXPECT_TRUE(TestServer::Eventually([&] { return answers == 1; }));
    EXPECT_EQ(left, 0);
    Result<Channel> second = Channel::Connect(path, Soon());  // it goes on
    ASSERT_TRUE(second && second->Call(StatusRequest{}, Soon()));
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 0; }));
  std::optional<Result<Channel>> late;
  server.Do([&] {
    late.emplace(Channel::Connect(path, Soon()));
    try_to_leave();
  });
  EXPECT_TRUE(TestServer::Eventually([&] { return answers == 2; }));
  ASSERT_TRUE(late->has_value());
  if (left == 0) {
    EXPECT_TRUE((*late)->Call(StatusRequest{}, Soon()));
  } else {
    UniqueFd next(accept4(managers.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    EXPECT_TRUE(next) << "it was accepted and dropped";
  }
}

TEST(Listen, ClientsAreServedOverTheSocketAndMakeRoomForEachOther) {
  testing::ScratchFolder folder;
  std::string path = folder.path() + "/honed.sock";
  Result<ListeningSocket> listening = Listen(path);
  ASSERT_TRUE(listening);
  TestServerOptions options;
  options.server.connections = 10;  // 8 of them shared, 4 for one client
  TestServer server(options);
  server.Do([&] { server.server->Accept(UniqueFd(listening->socket.Release())); });
  std::vector<Channel> channels;
  for (int i = 0; i < 20; ++i) {
    channels.push_back(*Channel::Connect(path, Soon()));
    ASSERT_TRUE(channels.back().Call(StatusRequest{}, Soon())) << i;
    EXPECT_LE(server.metrics.connections, 4u);
  }
  // Those who are waiting for an answer are not sent away: the newcomer is, with a hint.
  server.pools.Hold();
  channels.clear();
  for (int i = 0; i < 4; ++i) {
    channels.push_back(*Channel::Connect(path, Soon()));
    ASSERT_TRUE(channels.back().Ask(GetRequest{.kernel = "add(M=1,N=" + std::to_string(i + 1) + ")"}, Soon()));
  }
  ASSERT_TRUE(
      TestServer::Eventually([&] { return server.metrics.builds_running + server.metrics.builds_queued == 4; }));
  Channel late = *Channel::Connect(path, Soon());
  Result<StatusReply> refused = late.Call(StatusRequest{}, Soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kBusy);
  server.pools.Release();
  for (Channel& channel : channels) EXPECT_TRUE(channel.Await<GetReply>(1, Soon()));
}

TEST(Listen, OtherUsersAreTurnedAway) {
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] only root can become another user";
  testing::ScratchFolder folder;
  std::string path = folder.path() + "/honed.sock";
  Result<ListeningSocket> listening = Listen(path);
  ASSERT_TRUE(listening);
  fs::permissions(path, fs::perms(0666));  // as the socket of a system service
  fs::permissions(folder.path(), fs::perms(0755));
  TestServer server;
  server.Do([&] { server.server->Accept(UniqueFd(listening->socket.Release())); });
  auto try_as = [&](uid_t uid) {
    pid_t child = fork();
    if (child == 0) {
      if (setresuid(uid, uid, uid) != 0) _exit(9);
      Result<Channel> channel = Channel::Connect(path, Soon());
      if (!channel) _exit(2);
      _exit(channel->Call(StatusRequest{}, Soon()) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(try_as(0), 0);
  EXPECT_EQ(try_as(4711), 1);
  EXPECT_EQ(server.metrics.connections_refused, 1u);
  ServerLimits limits;
  limits.users = {4711};
  server.Do([&] { server.server->SetLimits(limits); });
  EXPECT_EQ(try_as(4711), 0);
  EXPECT_EQ(try_as(4712), 1);
}

TEST(Listen, WhoIsNoLongerServedIsSentAway) {
  TestServer server;
  Channel own = server.Connect(), other = server.Connect({4711, 1});
  ServerLimits limits;
  limits.users = {4711};
  server.Do([&] { server.server->SetLimits(limits); });
  EXPECT_TRUE(own.Call(StatusRequest{}, Soon()));
  EXPECT_TRUE(other.Call(StatusRequest{}, Soon()));
  server.Do([&] { server.server->SetLimits({}); });
  EXPECT_TRUE(own.Call(StatusRequest{}, Soon()));
  EXPECT_FALSE(other.Call(StatusRequest{}, Soon()));
}

TEST(Listen, TakesTheSocketThatSystemdOpened) {
  testing::ScratchFolder folder;
  std::string path = folder.path() + "/honed.sock";
  pid_t child = fork();
  if (child == 0) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) _exit(1);
    if (listen(socket.get(), 5) != 0 || dup2(socket.get(), 3) != 3) _exit(2);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", "1", 1);
    if (Result<std::optional<ListeningSocket>> other = InheritedSocket(); !other || *other) _exit(3);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    Result<std::optional<ListeningSocket>> ours = InheritedSocket();
    if (!ours || !*ours || (*ours)->path != path || !(*ours)->inherited) _exit(4);
    if (getenv("LISTEN_FDS") != nullptr) _exit(5);
    StopListening(**ours);
    _exit(fs::exists(path) ? 0 : 6);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace hone
