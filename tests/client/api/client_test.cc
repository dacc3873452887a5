// What a client makes of a daemon that comes, goes and stands still; the daemon is a few lines here.
#include "client/api/client.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/subprocess.h"
#include "ir/language/parse.h"
#include "tests/support/temporary_directory.h"

namespace hone::client_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kKernel = "add(M=1,N=4)";

UniqueFd ListenAt(const std::string& path) {
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(listener.get(), 16), 0);
  return listener;
}

// Answers every request with a refusal, as soon as `together` of them wait for an answer.
class Refusing {
 public:
  explicit Refusing(const std::string& path) : listener_(ListenAt(path)), thread_([this] { Serve(); }) {}
  ~Refusing() {
    stop_ = true;
    thread_.join();
  }
  // All connections are closed, as by a daemon that is started anew, which goes on listening.
  void Restart() {
    restart_ = true;
    while (restart_) std::this_thread::sleep_for(milliseconds(1));
  }
  std::atomic<size_t> together{1};
  std::atomic<int> hang_ups{0};  // so many of the next requests get no answer: their connections are closed

 private:
  void Serve() {
    std::vector<Channel> channels;
    std::vector<std::pair<size_t, uint64_t>> asked;  // who, and the request's number
    while (!stop_) {
      if (restart_) {
        channels.clear();
        restart_ = false;
      }
      std::vector<pollfd> polls{{listener_.get(), POLLIN, 0}};
      for (const Channel& channel : channels) polls.push_back({channel.fd(), POLLIN, 0});
      poll(polls.data(), polls.size(), 1);
      for (size_t i = 0; i < channels.size(); ++i)
        if (polls[i + 1].revents != 0)
          if (Result<ReceivedFrame> frame = channels[i].Receive(steady_clock::now() + milliseconds(100)))
            asked.emplace_back(i, frame->header.request_id);
      if (polls[0].revents != 0)
        channels.emplace_back(UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      if (!asked.empty() && hang_ups > 0) {
        --hang_ups;
        channels.clear();
        asked.clear();
      }
      if (asked.size() < together) continue;
      const ErrorReply refusal{ErrorKind::kUnsupported, "not today", "test"};
      for (const auto& [who, id] : asked)
        EXPECT_TRUE(channels[who].Send(EncodeFrame(id, refusal), steady_clock::now() + milliseconds(100)));
      asked.clear();
    }
  }

  const UniqueFd listener_;
  std::atomic<bool> stop_{false}, restart_{false};
  std::thread thread_;
};

class ClientTest : public ::testing::Test {
 protected:
  std::unique_ptr<Client> Connect(bool use_disk_cache, bool start_daemon = false) const {
    ClientOptions options;
    options.start_daemon = start_daemon;
    options.socket = socket_;
    options.disk_cache = directory_ / "client";
    options.use_disk_cache = use_disk_cache;
    options.threads.threads = 1;
    options.patience = milliseconds(100);
    return *Client::Create(options);
  }
  // In the disk cache, as after an earlier answer.
  void StoreCode() const {
    const std::string code = "code";
    GetReply reply;
    const Digest256 digest = Hash256(code);
    reply.digest.assign(reinterpret_cast<const char*>(digest.data()), digest.size());
    reply.size = code.size();
    ASSERT_TRUE(DiskCache({.directory = directory_ / "client"})
                    .Store(kKernel, 0, "canonical", reply, *SealedMemfd::Create(AsBytes(code))));
  }

  TemporaryDirectory directory_;
  const std::string socket_ = directory_ / "sock";
};

TEST_F(ClientTest, EveryConnectionThatARestartedDaemonClosedIsPassedOver) {
  constexpr size_t kThreads = 4;
  Refusing daemon(socket_);
  std::unique_ptr<Client> client = Connect(false);
  daemon.together = kThreads;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&] { EXPECT_EQ(client->Fetch(kKernel, {}).error().kind, ErrorKind::kUnsupported); });
  for (std::thread& thread : threads) thread.join();
  daemon.together = 1;
  daemon.Restart();
  const Result<Served> served = client->Fetch(kKernel, {});
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().Text(), "test: not today");
}

TEST_F(ClientTest, ADaemonThatHangsUpIsAskedAgain) {
  Refusing daemon(socket_);
  for (const bool start_daemon : {false, true}) {
    daemon.hang_ups = 4;
    const Result<Served> served = Connect(false, start_daemon)->Fetch(kKernel, {});
    ASSERT_FALSE(served);
    EXPECT_EQ(served.error().Text(), "test: not today");
  }
}

TEST_F(ClientTest, ADaemonThatGoesOnHangingUpIsAskedUntilTheDeadlineIfItIsToBeStarted) {
  constexpr int kMany = 1'000'000;
  Refusing daemon(socket_);
  daemon.hang_ups = kMany;
  GetOptions options;
  options.deadline = milliseconds(500);
  auto begin = steady_clock::now();
  EXPECT_EQ(Connect(false, true)->Fetch(kKernel, options).error().kind, ErrorKind::kUnavailable);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(400));
  EXPECT_LT(kMany - daemon.hang_ups, 50);
  options.deadline = milliseconds(60'000);
  begin = steady_clock::now();
  EXPECT_EQ(Connect(false, false)->Fetch(kKernel, options).error().kind, ErrorKind::kUnavailable);
  EXPECT_LT(steady_clock::now() - begin, options.deadline / 2);
}

TEST_F(ClientTest, ADaemonThatGoesOnHangingUpDoesNotKeepACopyOnDiskFromBeingUsed) {
  Refusing daemon(socket_);
  daemon.hang_ups = 1'000'000;
  StoreCode();
  GetOptions options;
  options.deadline = milliseconds(60'000);
  const auto begin = steady_clock::now();
  const Result<Served> served = Connect(true)->Fetch(kKernel, options);
  ASSERT_TRUE(served) << served.error().Text();
  EXPECT_EQ(served->source, "disk");
  EXPECT_LT(steady_clock::now() - begin, options.deadline / 2);
}

// What client/hone.h says of hone_get.
TEST_F(ClientTest, TheDeepestTextIsReadOnAStackOfTwoMebibytes) {
  if (kShadowMemory) GTEST_SKIP() << "[SKIP] a sanitizer's functions need more";
  Refusing daemon(socket_);
  const std::unique_ptr<Client> client = Connect(false);
  constexpr int kDepth = 190;
  std::string expression = "x[i]";
  for (int i = 0; i < kDepth; ++i) expression = "max(" + expression + ", (1.0 + x[i]))";
  const std::string kernel = "kernel k(x: f32[64]) -> y: f32[64] { y[i] = " + expression + " }";
  ASSERT_TRUE(ParseKernel(kernel));
  struct Asker {
    Client& client;
    const std::string& kernel;
    static void* Run(void* self) {
      auto& [client, kernel] = *static_cast<Asker*>(self);
      EXPECT_EQ(client.Fetch(kernel, {}).error().kind, ErrorKind::kUnsupported);
      return nullptr;
    }
  } asker{*client, kernel};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 2 << 20), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, Asker::Run, &asker), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST_F(ClientTest, ASocketInADirectoryThatOthersMayWriteIsRefusedAtOnce) {
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0777));
  ClientOptions options;
  options.socket = socket_;
  const Result<std::unique_ptr<Client>> client = Client::Create(options);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().kind, ErrorKind::kInvalid);
  options.socket = directory_ / "not there yet/sock";
  EXPECT_TRUE(Client::Create(options));
}

TEST_F(ClientTest, ARelativeDiskCacheIsWhereTheProcessWasWhenItAskedForOne) {
  const std::filesystem::path before = std::filesystem::current_path();
  StoreCode();
  std::filesystem::current_path(directory_.path());
  ClientOptions options;
  options.socket = socket_;
  options.disk_cache = "client";
  options.patience = milliseconds(100);
  const std::unique_ptr<Client> client = *Client::Create(options);
  std::filesystem::current_path(before);
  const Result<Served> served = client->Fetch(kKernel, {});
  ASSERT_TRUE(served) << served.error().Text();
  EXPECT_EQ(served->source, "disk");
}

TEST_F(ClientTest, SignalsDoNotMakeASilentDaemonCostTheWholeDeadline) {
  const UniqueFd silent = ListenAt(socket_);
  StoreCode();
  std::unique_ptr<Client> client = Connect(true);

  struct sigaction nothing{}, before;
  nothing.sa_handler = [](int) {};
  sigaction(SIGUSR1, &nothing, &before);
  std::atomic<bool> done{false};
  std::thread disturber([&, asker = pthread_self()] {
    for (; !done; std::this_thread::sleep_for(milliseconds(10))) pthread_kill(asker, SIGUSR1);
  });
  GetOptions options;
  options.deadline = milliseconds(60'000);
  const auto begin = steady_clock::now();
  const Result<Served> served = client->Fetch(kKernel, options);
  const auto took = steady_clock::now() - begin;
  done = true;
  disturber.join();
  sigaction(SIGUSR1, &before, nullptr);
  ASSERT_TRUE(served) << served.error().Text();
  EXPECT_EQ(served->source, "disk");
  EXPECT_GE(took, milliseconds(100));
  EXPECT_LT(took, options.deadline / 2);
}

}  // namespace
}  // namespace hone::client_test
