// The whole way of better code: from the daemon's record into a running program.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <thread>

#include "client/api/client.h"
#include "tests/daemon/test_server.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/versions.h"

namespace hone::live_swap_test {
namespace {

using std::chrono::milliseconds;
using testing::kLayouts;
using testing::Layout;
using testing::Soon;
using testing::TestServer;
using testing::TestServerOptions;
using testing::VersionBytes;
using testing::VersionCode;
using testing::VersionData;
using testing::VersionManifest;

// What the versions compute has nothing to do with it: the kernel is only a name here.
constexpr const char* kKernel = "matmul(M=4,N=4,K=4)";

class LiveSwapTest : public ::testing::Test {
 protected:
  LiveSwapTest() { Start(); }

  void Start(int cores = 1, bool listens = true) {
    TestServerOptions options;
    options.cores = cores;
    options.cache = directory_ / "cache";
    server_ = std::make_unique<TestServer>(options);
    server_->pools.make_code = [](const std::string& kernel) { return VersionBytes(Layout::kPlain, 0, kernel); };
    if (listens) server_->Listen(socket());
    canonical_ = server_->path->Identify({kKernel, "", 0})->key.canonical;
  }

  std::string socket() const { return directory_ / "sock"; }

  // Who looks for better versions often, and soon again where honed was busy.
  ClientOptions Impatient() const {
    ClientOptions options;
    options.socket = socket();
    options.updates.settle = milliseconds(1);
    options.updates.first_pause = milliseconds(5);
    options.updates.longest_pause = milliseconds(50);
    options.updates.report_every = milliseconds(20);
    return options;
  }

  std::unique_ptr<Client> Connect() {
    ClientOptions options = Impatient();
    options.disk_cache = directory_ / "client";
    options.threads.threads = 2;
    return *Client::Create(options);
  }

  std::unique_ptr<KernelHandle> Get(Client& client, bool frozen = false) {
    GetOptions options;
    options.frozen = frozen;
    Result<std::unique_ptr<KernelHandle>> handle = client.Get(kKernel, options);
    EXPECT_TRUE(handle) << handle.error().Text();
    EXPECT_TRUE((*handle)->Bind(1, w_.data()));
    return *std::move(handle);
  }

  void Promote(Layout layout, int tag) { server_->Promote(kKernel, VersionBytes(layout, tag, canonical_)); }
  void PromoteCode(const Manifest& manifest, int tag) {
    server_->Promote(kKernel, VersionBytes(manifest, VersionCode(Layout::kPlain, tag)));
  }
  int Call(KernelHandle& handle) { return VersionData(1).Call(handle, w_); }
  bool Becomes(KernelHandle& handle, int tag) {
    return TestServer::Eventually([&] { return Call(handle) == tag; });
  }
  bool IsWatched(uint32_t watches = 1) {
    return TestServer::Eventually([&] { return server_->metrics.watches == watches; });
  }
  // What has been set in motion is done, whatever it was: another kernel's update came through after it.
  void Settle(Client& client) {
    Result<std::unique_ptr<KernelHandle>> probe = client.Get("add(M=1,N=1)", {});
    ASSERT_TRUE(probe);
    std::string canonical = server_->path->Identify({"add(M=1,N=1)", "", 0})->key.canonical;
    server_->Promote("add(M=1,N=1)", VersionBytes(Layout::kPlain, ++probes_, canonical));
    ASSERT_TRUE(TestServer::Eventually([&] { return (*probe)->swaps() == 1; }));
  }

  TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
  std::string canonical_;
  std::vector<float> w_ = VersionData::Constant();
  int probes_ = 100;
};

TEST_F(LiveSwapTest, AHeldKernelBecomesTheBetterCode) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_EQ(Call(*handle), 0);
  EXPECT_EQ(handle->facts().reply.origin, "default");
  ASSERT_TRUE(IsWatched());
  for (int tag = 1; tag <= 6; ++tag) {
    Promote(static_cast<Layout>(tag % kLayouts), tag);
    ASSERT_TRUE(Becomes(*handle, tag)) << tag;
    EXPECT_EQ(handle->swaps(), static_cast<uint64_t>(tag));
  }
  EXPECT_EQ(handle->facts().reply.origin, "tuned");
  EXPECT_EQ(handle->facts().source, "daemon");
}

TEST_F(LiveSwapTest, CodeThatBecameBetterBeforeItWasWatchedIsSeen) {
  auto client = Connect();
  auto handle = Get(*client);
  Promote(Layout::kTwice, 1);  // in the moment in which it was not watched yet, or right after
  EXPECT_TRUE(Becomes(*handle, 1));
}

TEST_F(LiveSwapTest, TheCopyOnDiskIsTheNewOne) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  Promote(Layout::kReversed, 1);
  ASSERT_TRUE(Becomes(*handle, 1));
  server_.reset();
  EXPECT_TRUE(TestServer::Eventually([&] {
    auto other = Connect();
    auto copy = Get(*other);
    return copy->facts().source == "disk" && Call(*copy) == 1;
  }));
}

TEST_F(LiveSwapTest, FrozenHandlesNeverChange) {
  auto client = Connect();
  auto frozen = Get(*client, true);
  auto live = Get(*client);
  ASSERT_TRUE(IsWatched(1));
  Promote(Layout::kTwice, 1);
  ASSERT_TRUE(Becomes(*live, 1));
  EXPECT_EQ(Call(*frozen), 0);
  EXPECT_FALSE(frozen->is_live());
}

TEST_F(LiveSwapTest, WhatIsPinnedNeverChanges) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  Fingerprint fingerprint = *ParseFingerprint(handle->facts().reply.fingerprint);
  ASSERT_TRUE(server_->cache->Pin(fingerprint, true));
  // Nothing here replaces a pinned record; should something do it, programs stay with what they have.
  Promote(Layout::kTwice, 1);
  Settle(*client);
  EXPECT_EQ(Call(*handle), 0);
  ASSERT_TRUE(server_->cache->Pin(fingerprint, false));
  Promote(Layout::kTwice, 2);
  EXPECT_TRUE(Becomes(*handle, 2));
}

TEST_F(LiveSwapTest, TuningRefusesWhatIsPinned) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(server_->cache->Pin(*ParseFingerprint(handle->facts().reply.fingerprint), true));
  Channel channel = server_->Connect();
  Result<TuneReply> tuned = channel.Call(TuneRequest{.kernel = kKernel}, Soon());
  ASSERT_FALSE(tuned);
  EXPECT_EQ(tuned.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(tuned.error().message.find("pinned"), std::string::npos) << tuned.error().Text();
}

TEST_F(LiveSwapTest, CodeThatCannotBeTakenLeavesTheHeldOneAndTheNextIsTaken) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  Manifest manifest = VersionManifest(Layout::kPlain, canonical_);
  manifest.operands.pop_back();
  PromoteCode(manifest, 1);  // other operands
  Settle(*client);
  EXPECT_EQ(Call(*handle), 0);
  manifest = VersionManifest(Layout::kPlain, "matmul of something else");
  PromoteCode(manifest, 2);  // another kernel's code
  Settle(*client);
  EXPECT_EQ(Call(*handle), 0);
  manifest = VersionManifest(Layout::kPlain, canonical_);
  manifest.target = "avx2 cpu=generic features=nosuchfeature l1=32768 l2=524288 l3=4194304 cores=1";
  PromoteCode(manifest, 3);  // for another processor
  Settle(*client);
  EXPECT_EQ(Call(*handle), 0);
  std::vector<std::byte> damaged = VersionBytes(Layout::kPlain, 4, canonical_);
  damaged.resize(damaged.size() / 2);
  server_->Promote(kKernel, damaged);
  Settle(*client);
  EXPECT_EQ(Call(*handle), 0);
  EXPECT_EQ(handle->swaps(), 0u);
  Promote(Layout::kHalvesSwapped, 5);
  EXPECT_TRUE(Becomes(*handle, 5));
}

TEST_F(LiveSwapTest, TunedCodeIsNotGivenUpForTheDefault) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  Promote(Layout::kTwice, 1);
  ASSERT_TRUE(Becomes(*handle, 1));
  // As after `hone rm` and another program's request.
  server_->Promote(kKernel, VersionBytes(Layout::kPlain, 2, canonical_), Origin::kDefault);
  Settle(*client);
  EXPECT_EQ(Call(*handle), 1);
}

TEST_F(LiveSwapTest, AConstantIsPackedOnceItIsBound) {
  auto client = Connect();
  auto handle = *client->Get(kKernel, {});
  VersionData data(1);
  ASSERT_EQ(data.Call(*handle, w_, w_.data()), 0);
  ASSERT_TRUE(IsWatched());
  Promote(Layout::kTwice, 1);
  Settle(*client);
  EXPECT_EQ(data.Call(*handle, w_, w_.data()), 0);  // each call brings it
  ASSERT_TRUE(handle->Bind(1, w_.data()));
  EXPECT_TRUE(Becomes(*handle, 1));
}

TEST_F(LiveSwapTest, FollowsADaemonThatWasKilledAndStartedAgain) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  for (int tag = 1; tag <= 3; ++tag) {
    server_.reset();
    EXPECT_EQ(Call(*handle), tag - 1);
    Start();
    Promote(static_cast<Layout>(tag % kLayouts), tag);  // before or after it has come back
    ASSERT_TRUE(Becomes(*handle, tag)) << tag;
    ASSERT_TRUE(IsWatched());
  }
  server_.reset();
  Start();
  ASSERT_TRUE(IsWatched());
  EXPECT_EQ(Call(*handle), 3);
}

// As after an update that names kernels otherwise, or on a machine that was given more cores.
TEST_F(LiveSwapTest, FollowsADaemonThatKnowsTheKernelByAnotherName) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  const std::string before = handle->facts().reply.fingerprint;
  server_.reset();
  Start(/*cores=*/2, /*listens=*/false);
  ASSERT_TRUE(server_->Get(kKernel));
  Promote(Layout::kReversed, 1);
  server_->Listen(socket());
  ASSERT_TRUE(Becomes(*handle, 1));
  EXPECT_NE(handle->facts().reply.fingerprint, before);
  Promote(Layout::kTwice, 2);
  EXPECT_TRUE(Becomes(*handle, 2));
}

TEST_F(LiveSwapTest, CodeFromTheDiskIsReplacedWhenTheDaemonIsThere) {
  (void)Get(*Connect());
  server_.reset();
  auto client = Connect();
  auto handle = Get(*client);
  EXPECT_EQ(handle->facts().source, "disk");
  Start();
  Promote(Layout::kReversed, 1);
  EXPECT_TRUE(Becomes(*handle, 1));
  EXPECT_EQ(handle->facts().source, "daemon");
}

TEST_F(LiveSwapTest, CallsAreReported) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  Fingerprint fingerprint = *ParseFingerprint(handle->facts().reply.fingerprint);
  uint64_t before = server_->cache->UseOf(fingerprint)->calls;
  for (int i = 0; i < 777; ++i) ASSERT_EQ(Call(*handle), 0);
  uint64_t calls = handle->calls();
  EXPECT_TRUE(TestServer::Eventually([&] { return server_->metrics.calls_reported >= calls; }));
  EXPECT_GE(server_->cache->UseOf(fingerprint)->calls, before + 777);
  for (int i = 0; i < 111; ++i) ASSERT_EQ(Call(*handle), 0);
  calls = handle->calls();
  handle.reset();  // the last ones are not lost
  EXPECT_TRUE(TestServer::Eventually([&] { return server_->metrics.calls_reported == calls; }));
  EXPECT_TRUE(IsWatched(0));
}

TEST_F(LiveSwapTest, ACallThatNeverReturnsKeepsVersionsFromPilingUp) {
  static std::atomic<bool> inside{false}, go_on{false};
  inside = go_on = false;
  ClientOptions options = Impatient();
  options.use_disk_cache = false;
  options.application.count = 1;
  options.application.parallel_for = [](void*, int64_t n, int64_t, ThreadPool::Body body, void* ctx) {
    if (!inside.exchange(true)) go_on.wait(false);
    body(0, n, 0, ctx);
    return 0;
  };
  auto client = *Client::Create(options);
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  int slow = -2;
  std::thread caller([&] { slow = VersionData(2).Call(*handle, w_); });
  while (!inside) std::this_thread::yield();
  Promote(Layout::kTwice, 1);
  ASSERT_TRUE(Becomes(*handle, 1));
  Promote(Layout::kReversed, 2);
  ASSERT_TRUE(Becomes(*handle, 2));
  uint64_t asked = server_->metrics.hits_memory + server_->metrics.hits_disk;
  Promote(Layout::kHalvesSwapped, 3);
  Promote(Layout::kTwice, 4);
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(Call(*handle), 2);
  EXPECT_EQ(server_->metrics.hits_memory + server_->metrics.hits_disk, asked);  // what cannot be held is not asked for
  go_on = true;
  go_on.notify_all();
  caller.join();
  EXPECT_EQ(slow, 0);
  EXPECT_TRUE(Becomes(*handle, 4));
  EXPECT_EQ(handle->swaps(), 3u);
}

TEST_F(LiveSwapTest, HandlesOutliveTheirClientAndGoWhileUpdatesCome) {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, swapped{0};
  (void)Get(*Connect());  // so that there is a record to replace
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      VersionData data(i);
      while (!stop) {
        auto client = Connect();
        std::vector<std::unique_ptr<KernelHandle>> handles;
        for (int h = 0; h < 3; ++h) handles.push_back(Get(*client));
        if (i % 2 == 0) client.reset();
        auto until = std::chrono::steady_clock::now() + milliseconds(10 * (i + 1));
        while (std::chrono::steady_clock::now() < until) {
          for (auto& handle : handles) wrong += data.Call(*handle, w_) < 0;
          std::this_thread::sleep_for(milliseconds(1));
        }
        for (auto& handle : handles) swapped += static_cast<int>(handle->swaps());
      }
    });
  }
  for (int tag = 1; tag <= 60; ++tag) {
    Promote(static_cast<Layout>(tag % kLayouts), tag % 8 + 1);
    std::this_thread::sleep_for(milliseconds(10));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(swapped, 20);
  EXPECT_TRUE(IsWatched(0));
}

TEST_F(LiveSwapTest, AChildProcessCallsWhatItInheritedAndGetsUpdatesOnceItAsks) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  pid_t child = fork();
  if (child == 0) {
    alarm(30);
    if (Call(*handle) != 0) _exit(1);
    char byte;
    if (read(go[0], &byte, 1) != 1) _exit(2);  // the parent's is another by now
    std::this_thread::sleep_for(milliseconds(50));
    if (Call(*handle) != 0) _exit(3);
    if (!handle->Bind(1, w_.data())) _exit(4);
    {
      auto own = Get(*client);
      if (Call(*own) != 1) _exit(5);
      for (int i = 0; i < 5000 && Call(*handle) != 1; ++i) std::this_thread::sleep_for(milliseconds(1));
      if (Call(*handle) != 1) _exit(6);
    }
    handle.reset();
    client.reset();
    _exit(0);
  }
  Promote(Layout::kTwice, 1);
  ASSERT_TRUE(Becomes(*handle, 1));
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  Promote(Layout::kReversed, 2);  // the parent's connection is as it was
  EXPECT_TRUE(Becomes(*handle, 2));
  close(go[0]);
  close(go[1]);
}

TEST_F(LiveSwapTest, ForksAtAnyMomentLeaveTheChildACallableKernel) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  std::atomic<bool> stop{false};
  std::thread promoting([&] {
    for (int tag = 1; !stop; ++tag) Promote(static_cast<Layout>(tag % kLayouts), tag % 8 + 1);
  });
  int failed = 0;
  for (int i = 0; i < 40; ++i) {
    pid_t child = fork();
    if (child == 0) {
      alarm(30);
      if (Call(*handle) < 0) _exit(1);
      if (!handle->Bind(1, w_.data()) || Call(*handle) < 0) _exit(2);
      handle.reset();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    failed += status != 0;
  }
  stop = true;
  promoting.join();
  EXPECT_EQ(failed, 0);
}

TEST_F(LiveSwapTest, AForkWhileConstantsArePackedLeavesTheChildAFreeHandle) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  std::string code = VersionCode(Layout::kReversed, 1);
  std::string slow = "EXPORT int hone_pack(const hone_env *env, int32_t operand, const void *src, void *dst) {\n";
  size_t at = code.find("EXPORT int hone_pack");
  code.replace(at, code.find('\n', at) - at + 1, slow + "for (volatile long i = 0; i < 300000000; ++i) {}\n");
  server_->Promote(kKernel, VersionBytes(VersionManifest(Layout::kReversed, canonical_), code));
  int children = 0;
  while (handle->swaps() == 0) {
    pid_t child = fork();
    if (child == 0) {
      alarm(10);
      if (!handle->Bind(1, w_.data()) || Call(*handle) < 0) _exit(1);
      handle.reset();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "child " << children;
    ++children;
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GE(children, 3) << "packing was to take longer";
  EXPECT_EQ(Call(*handle), 1);
}

TEST_F(LiveSwapTest, ADaemonThatHangsHoldsNobodyUp) {
  auto client = Connect();
  auto handle = Get(*client);
  ASSERT_TRUE(IsWatched());
  std::atomic<bool> go_on{false};
  std::thread hanging([&] { server_->Do([&] { go_on.wait(false); }); });
  std::this_thread::sleep_for(milliseconds(50));
  auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(Call(*handle), 0);
  EXPECT_TRUE(handle->Bind(1, w_.data()));
  handle.reset();
  client.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(2));
  go_on = true;
  go_on.notify_all();
  hanging.join();
}

}  // namespace
}  // namespace hone::live_swap_test
