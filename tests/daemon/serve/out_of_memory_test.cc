// What an allocation that fails costs: the request that wanted it, and nothing that comes after. Each test fails the
// first one of a thread, then the second, and so on to the last that the work under test makes.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "base/file.h"
#include "daemon/serve/answers.h"
#include "daemon/serve/transfers.h"
#include "tests/daemon/test_server.h"
#include "tests/support/temporary_directory.h"

namespace hone::out_of_memory_test {
namespace {

using namespace std::chrono_literals;
using testing::LoopThread;
using testing::Soon;
using testing::TestServer;
using testing::TestServerOptions;

std::atomic<pid_t> failing_thread{0};
std::atomic<int> allocations_left{0};

bool IsToFail() {
  static thread_local pid_t self = 0;
  if (self == 0) self = gettid();
  return failing_thread.load(std::memory_order_relaxed) == self && allocations_left.fetch_sub(1) == 1;
}

// While it lives, the n-th allocation of a thread fails, once: of those by `new`, and of the event loop's own.
class FailingAllocation {
 public:
  FailingAllocation(pid_t thread, int nth) {
    allocations_left = nth;
    failing_thread = thread;
  }
  ~FailingAllocation() { failing_thread = 0; }
  static bool happened() { return allocations_left <= 0; }
};

constexpr int kMost = 400;  // allocations of any work here

pid_t ThreadNamed(const std::string& name) {
  for (const std::string& thread : ListDirectory("/proc/self/task").value_or(std::vector<std::string>()))
    if (ReadFile("/proc/self/task/" + thread + "/comm", 64).value_or("") == name + "\n") return std::stoi(thread);
  return 0;
}

pid_t ThreadOf(TestServer& server) {
  pid_t thread = 0;
  server.Do([&] { thread = gettid(); });
  return thread;
}

class HeardPeer : public Peer {
 public:
  explicit HeardPeer(const ClientId& client) : Peer(client) {}
  void Reply(uint64_t, MessageType type, std::string) override {
    last_type = type;
    ++ended;
  }
  void ReplyPart(uint64_t, MessageType, std::string) override {}
  void ReplyHit(uint64_t, const HotCodePtr&) override {}
  void ReplyWithCode(uint64_t, std::string, HotCodePtr) override {}

  std::atomic<int> ended{0};
  std::atomic<MessageType> last_type{MessageType::kError};
};

AnswerPart Stats(const std::stop_token&) { return {MessageType::kStatsReply, "", false}; }

TEST(OutOfMemory, ARequestThatCannotBeQueuedLeavesNothingBehind) {
  constexpr size_t kBytes = size_t{3} << 20;  // of the four that a client's requests may hold
  LoopThread loop;
  Metrics metrics;
  std::unique_ptr<Answers> answers;
  loop.Do([&] { answers = std::make_unique<Answers>(loop.loop, metrics); });
  bool has_happened = true;
  for (int n = 1; n < kMost && has_happened; ++n) {
    auto peer = std::make_shared<HeardPeer>(ClientId{1, 1});
    bool is_refused = false;
    loop.Do([&] {
      MakePart make = Stats;
      FailingAllocation failing(gettid(), n);
      try {
        answers->Push(Lane::kQuick, peer, 1, kBytes, std::move(make));
      } catch (const std::bad_alloc&) { is_refused = true; }
      has_happened = failing.happened();
    });
    const int before = is_refused ? 0 : 1;
    ASSERT_TRUE(TestServer::Eventually([&] { return peer->ended == before; })) << n;
    loop.Do([&] { answers->Push(Lane::kQuick, peer, 2, kBytes, Stats); });
    ASSERT_TRUE(TestServer::Eventually([&] { return peer->ended == before + 1; })) << n;
    EXPECT_EQ(peer->last_type, MessageType::kStatsReply) << n;
    loop.Do([&] {
      try {
        FailingAllocation failing(gettid(), n);
        answers->Push(Lane::kQuick, peer, 3, kBytes, Stats);
      } catch (const std::bad_alloc&) {}
      answers->Forget(*peer);
    });
  }
  EXPECT_FALSE(has_happened);
  loop.Do([&] { answers->Close(); });
}

TEST(OutOfMemory, ADonorThatCannotBeReadIsReadTheNextTime) {
  TestServer server;
  const ResolvedKernel identity = *server.path->Identify({"matmul(M=64,N=64,K=64)", "", 0});
  Record record;
  record.key = identity.key;
  record.shape = identity.shape;
  record.label = identity.label;
  record.request = "matmul(M=64,N=64,K=64)";
  record.origin = Origin::kTuned;
  record.schedule = Space::Open(identity.key.canonical, identity.target)->Default()->schedule;
  ASSERT_TRUE(
      server.cache->Put({.record = record, .class_text = identity.class_text, .artifact = {}}, Durability::kSoon));
  Transfers transfers(*server.cache, 1);
  ASSERT_TRUE(TestServer::Eventually([&] { return transfers.IsReady() && transfers.donors().size() == 1; }));
  const pid_t reader = ThreadNamed("hone-donors");
  ASSERT_NE(reader, 0);
  bool has_happened = true;
  for (int n = 1; n < kMost && has_happened; ++n) {
    {
      FailingAllocation failing(reader, n);
      transfers.ReadAgain(identity.key.fingerprint);
      for (int tries = 0; tries < 50 && !failing.happened(); ++tries) std::this_thread::sleep_for(1ms);
      has_happened = failing.happened();
    }
    transfers.ReadAgain(identity.key.fingerprint);
    ASSERT_TRUE(TestServer::Eventually([&] { return transfers.donors().size() == 1; })) << n;
  }
  EXPECT_FALSE(has_happened);
}

// Whoever waits is answered: with code, with what went wrong, or by the end of the connection. Whoever asks for the
// same next is given it.
void ExpectAnAnswerWhicheverFails(TestServer& server, const std::function<std::string(int)>& kernel_of) {
  const pid_t thread = ThreadOf(server);
  int in_a_row = 0;  // that did not happen: the loop's own timers allocate, too
  for (int n = 1; n < kMost && in_a_row < 3; ++n) {
    Channel channel = server.Connect();
    ASSERT_TRUE(channel.Call(StatusRequest{}, Soon()));
    const std::string kernel = kernel_of(n);
    {
      FailingAllocation failing(thread, n);
      Result<GetReply> reply = channel.Call(GetRequest{.kernel = kernel}, std::chrono::steady_clock::now() + 3s);
      if (!reply) { ASSERT_NE(reply.error().kind, ErrorKind::kTimeout) << n << ": " << reply.error().Text(); }
      in_a_row = failing.happened() ? 0 : in_a_row + 1;
    }
    Result<GetReply> reply = server.Get(kernel);
    ASSERT_TRUE(reply) << n << ": " << reply.error().Text();
  }
  EXPECT_EQ(in_a_row, 3);
}

TEST(OutOfMemory, WhoWaitsForACompilationIsAnswered) {
  TestServer server;
  ExpectAnAnswerWhicheverFails(server, [](int n) { return "add(M=1,N=" + std::to_string(n) + ")"; });
}

TEST(OutOfMemory, WhoWaitsForALookupIsAnswered) {
  TestServer server;
  const std::string kernel = "add(M=1,N=1)";
  ASSERT_TRUE(server.Get(kernel));
  const Fingerprint fingerprint = server.path->Identify({kernel, "", 0})->key.fingerprint;
  ExpectAnAnswerWhicheverFails(server, [&](int) {
    server.Do([&] { server.hot->Forget(fingerprint); });
    return kernel;
  });
}

// Answers with descriptors are held back until it has read sixteen; it is given the others, or closed.
TEST(OutOfMemory, WhoReadsGetsWhatWasHeldBack) {
  TestServer server;
  const std::string kernel = "add(M=1,N=1)";
  ASSERT_TRUE(server.Get(kernel));
  const pid_t thread = ThreadOf(server);
  bool has_happened = true;
  for (int n = 1; n < kMost && has_happened; ++n) {
    const uint64_t before = server.metrics.held_back;
    Channel slow = server.Connect();
    for (uint64_t id = 1; id <= 20; ++id) ASSERT_TRUE(slow.Send(EncodeFrame(id, GetRequest{.kernel = kernel}), Soon()));
    ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.held_back == before + 4; })) << n;
    FailingAllocation failing(thread, n);
    std::this_thread::sleep_for(30ms);  // turns are taken in vain
    for (uint64_t id = 1; id <= 20; ++id) {
      Result<ReceivedFrame> answer = slow.Receive(std::chrono::steady_clock::now() + 3s);
      if (answer) continue;
      ASSERT_NE(answer.error().kind, ErrorKind::kTimeout) << n << ", " << id << ": " << answer.error().Text();
      break;
    }
    has_happened = failing.happened();
  }
  EXPECT_FALSE(has_happened);
}

TEST(OutOfMemory, WorkIsHandedToTheLoopOnceThereIsMemoryForThat) {
  LoopThread loop;
  std::atomic<int> done{0};
  bool has_happened = true;
  for (int n = 1; n < kMost && has_happened; ++n) {
    {
      std::function<void()> work = [&done] { ++done; };
      FailingAllocation failing(gettid(), n);
      loop.loop.Post(std::move(work));
      has_happened = failing.happened();
    }
    ASSERT_TRUE(TestServer::Eventually([&] { return done == n; })) << n;
  }
  EXPECT_FALSE(has_happened);
}

TEST(OutOfMemory, MemoryCountsWhatItHoldsAndNoMore) {
  auto code = std::make_shared<HotCode>();
  code->key = "a kernel and its target";
  code->artifact = *SealedMemfd::Create(std::vector<std::byte>(100));
  bool has_happened = true;
  for (int n = 1; n < kMost && has_happened; ++n) {
    HotSet set({1000, 10, 10});
    try {
      FailingAllocation failing(gettid(), n);
      set.Insert("request", code);
    } catch (const std::bad_alloc&) {}
    has_happened = allocations_left <= 0;
    EXPECT_EQ(set.bytes(), set.entries() * 100) << n;
    set.Forget(code->fingerprint);
    EXPECT_EQ(set.bytes(), 0u) << n;
    set.Insert("request", code);
    EXPECT_EQ(set.Find("request"), code) << n;
  }
  EXPECT_FALSE(has_happened);
}

Channel ConnectTo(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return Channel(std::move(socket));
}

TEST(OutOfMemory, ClientsComeInAfterOneThatCouldNot) {
  TemporaryDirectory directory;
  TestServer server;
  server.Listen(directory / "socket");
  const pid_t thread = ThreadOf(server);
  bool has_happened = true;
  for (int n = 1; n < kMost && has_happened; ++n) {
    {
      FailingAllocation failing(thread, n);
      Channel first = ConnectTo(directory / "socket");
      for (int tries = 0; tries < 20 && !failing.happened(); ++tries) std::this_thread::sleep_for(1ms);
      has_happened = failing.happened();
    }
    Channel next = ConnectTo(directory / "socket");
    Result<StatusReply> status = next.Call(StatusRequest{}, std::chrono::steady_clock::now() + 5s);
    ASSERT_TRUE(status) << n << ": " << status.error().Text();
  }
  EXPECT_FALSE(has_happened);
}

TEST(OutOfMemory, WhoStallsIsClosedThoughALookAtTheConnectionsFailed) {
  TestServerOptions options;
  options.server.frame_time = 100ms;
  TestServer server(options);
  const pid_t thread = ThreadOf(server);
  for (int n = 1; n <= 6; ++n) {
    Channel stalled = server.Connect();
    const std::string half = EncodeFrame(1, StatusRequest{}).substr(0, 10);
    ASSERT_EQ(send(stalled.fd(), half.data(), half.size(), MSG_NOSIGNAL), 10);
    std::this_thread::sleep_for(20ms);  // honed has read it
    FailingAllocation failing(thread, n);
    ASSERT_TRUE(TestServer::Eventually([&] { return server.metrics.connections == 0; })) << n;
  }
}

}  // namespace
}  // namespace hone::out_of_memory_test

void* operator new(std::size_t size) {
  if (hone::out_of_memory_test::IsToFail()) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
// What Boost.Asio takes its memory with.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  void* memory = nullptr;
  if (hone::out_of_memory_test::IsToFail()) return memory;
  return posix_memalign(&memory, std::max(alignment, sizeof(void*)), size) == 0 ? memory : nullptr;
}
