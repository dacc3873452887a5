// The builder pool with a scripted builder: this very program, started again with --fake-builder, does what the
// kernel's text says. Then the real one.
#include "backends/builder_pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "backends/child_messages.h"
#include "backends/child_pool.h"
#include "backends/landlock.h"
#include "backends/sandbox.h"
#include "base/file.h"
#include "base/hash.h"
#include "tests/backends/hand_made.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// ---- The scripted builder ----

void Reply(ChildChannel& channel, uint64_t id, int object) {
  (void)channel.Send(ChildMessage::kBuilt, id, EncodeBuilt({"a schedule", {}}), {object}, MonotonicTime::max());
}

void RawWrite(const void* data, size_t size) {
  [[maybe_unused]] ssize_t written = ::send(kChildChannelFd, data, size, MSG_NOSIGNAL);
}

void Act(ChildChannel& channel, const ChildFrame& frame) {
  BuildRequest request = *DecodeBuildRequest(frame.body);
  const std::string& act = request.kernel;
  if (act == "abort") {
    std::fprintf(stderr, "LLVM ERROR: scripted\n");
    std::abort();
  }
  if (act == "spin")
    while (true) asm volatile("");
  if (act == "sleep") ::pause();
  if (act == "linger") {  // somebody has its channel open for longer than it lives
    if (::fork() == 0) ::setsid(), ::sleep(5), ::_exit(0);
    ::pause();
  }
  if (act == "eat")
    for (std::vector<std::string> food;;) food.emplace_back(size_t{16} << 20, 'x');
  if (act == "garbage") RawWrite("this is no frame at all, not even nearly", 40);
  if (act == "close") ::_exit(0);
  if (act == "cut")
    RawWrite(EncodeChildHeader({ChildMessage::kBuilt, 0, frame.id, 1000}).data(), kChildHeaderBytes), ::_exit(0);
  if (act == "huge") {
    std::array<char, kChildHeaderBytes> header = EncodeChildHeader({ChildMessage::kBuilt, 0, frame.id, 0});
    std::memset(header.data() + 16, 0xff, 4);
    RawWrite(header.data(), header.size());
  }
  if (act == "bad-body") (void)channel.Send(ChildMessage::kBuilt, frame.id, "\xff\xff\xff", {0}, MonotonicTime::max());
  if (act == "no-object") (void)channel.Send(ChildMessage::kBuilt, frame.id, EncodeBuilt({}), {}, MonotonicTime::max());
  if (act == "wrong-type") (void)channel.Send(ChildMessage::kChecked, frame.id, "", {}, MonotonicTime::max());
  if (act == "other-id") Reply(channel, frame.id + 7, 0);
  if (act == "refuse")
    (void)channel.Send(ChildMessage::kError, frame.id,
                       EncodeError({ErrorKind::kUnsupported, "scripted refusal", "k:1:2"}), {}, MonotonicTime::max());
  if (act == "unsealed") {
    int fd = ::memfd_create("unsealed", MFD_ALLOW_SEALING);
    [[maybe_unused]] ssize_t written = ::write(fd,
                                               "\x7f"
                                               "ELF",
                                               4);
    Reply(channel, frame.id, fd);
  }
  if (act == "no-elf") Reply(channel, frame.id, SealedMemfd::Create(AsBytes("not an object"))->fd());
  if (act == "large-file") {
    ::signal(SIGXFSZ, SIG_IGN);
    std::vector<std::byte> bytes(size_t{3} << 20);
    Result<SealedMemfd> object = SealedMemfd::Create(bytes);
    if (!object)
      (void)channel.Send(ChildMessage::kError, frame.id, EncodeError(object.error()), {}, MonotonicTime::max());
    else
      Reply(channel, frame.id, object->fd());
  }
  if (act == "good" || act == "slow") {
    if (act == "slow") std::this_thread::sleep_for(milliseconds(1300));
    std::string bytes = testing::ReadFile(request.schedule);
    Result<SealedMemfd> object = SealedMemfd::Create(AsBytes(bytes));
    Reply(channel, frame.id, object->fd());
  }
  if (act == "killed" || (act == "killed-once" && ::access((request.schedule + ".killed").c_str(), F_OK) != 0)) {
    testing::WriteFile(request.schedule + ".killed", "");
    ::kill(::getpid(), SIGKILL);
  }
  if (act == "killed-once")
    Reply(channel, frame.id, SealedMemfd::Create(AsBytes(testing::ReadFile(request.schedule)))->fd());
  if (act == "hello-again")
    (void)channel.Send(ChildMessage::kConfined, 0, EncodeConfinements({}) + "x", {}, MonotonicTime::max());
  if (act == "descriptors") {  // sixteen with each byte
    std::array<char, kChildHeaderBytes> header = EncodeChildHeader({ChildMessage::kBuilt, 16, frame.id, 1 << 20});
    std::vector<char> bytes(header.begin(), header.end());
    bytes.resize(bytes.size() + 1000);
    for (char& byte : bytes) {
      struct iovec part{&byte, 1};
      alignas(struct cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
      struct msghdr message{};
      message.msg_iov = &part, message.msg_iovlen = 1;
      message.msg_control = control, message.msg_controllen = sizeof control;
      struct cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(16 * sizeof(int));
      std::memset(CMSG_DATA(rights), 0, 16 * sizeof(int));
      if (::sendmsg(kChildChannelFd, &message, MSG_NOSIGNAL) < 0) break;
    }
    ::pause();
  }
  if (act == "pid")
    (void)channel.Send(ChildMessage::kExplained, frame.id, std::to_string(::getpid()), {}, MonotonicTime::max());
}

// Before main: gtest must not see the flag. Constructors get the arguments from glibc.
__attribute__((constructor)) void BecomeFakeBuilder(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "--fake-builder") != 0) return;
  if (argc > 2 && std::strcmp(argv[2], "die-at-start") == 0) ::_exit(3);
  ChildChannel channel{UniqueFd(kChildChannelFd)};
  while (true) {
    Result<ChildFrame> frame = channel.Receive(MonotonicTime::max());
    if (!frame) ::_exit(0);
    Act(channel, *frame);
  }
}

// ---- The tests ----

MonotonicTime In(milliseconds time) { return std::chrono::steady_clock::now() + time; }

BuilderPoolOptions FakeOptions(int builders = 1) {
  BuilderPoolOptions options;
  options.executable = "/proc/self/exe";
  options.arguments = {"--fake-builder"};
  options.builders = builders;
  options.address_space = int64_t{1} << 30;
  options.object_bytes = 2 << 20;
  options.nice = 0;  // beside other work a child below it may get nothing for seconds, and these tests have deadlines
  return options;
}

std::unique_ptr<BuilderPool> StartPool(const BuilderPoolOptions& options) {
  Result<std::unique_ptr<BuilderPool>> pool = BuilderPool::Start(options);
  EXPECT_TRUE(pool) << pool.error().Text();
  return std::move(*pool);
}

class FakeBuilder : public ::testing::Test {
 protected:
  FakeBuilder() {
    const char kernel[] = "kernel relu(x: f32[N]) -> y: f32[N] where N=64 { y[i] = max(x[i], 0.0) }";
    manifest_ = testing::ManifestOf(kernel);
    bytes_ = testing::CompileArtifact(testing::CPrologue() + testing::CManifest(EncodeManifest(manifest_)) +
                                      testing::Entry(""));
    testing::WriteFile(Good(), std::string(AsText(bytes_)));
  }
  std::string Good() const { return folder_.path() + "/good.so"; }

  Result<BuiltArtifact> Ask(const std::string& act, milliseconds time = seconds(20)) {
    return pool_->Build({act, Good(), Target{}}, In(time));
  }

  // `act` fails as said, and the next request is answered.
  void ExpectFailure(const std::string& act, ErrorKind kind, const std::string& message, bool replaced = true) {
    SCOPED_TRACE(act);
    uint64_t restarts = pool_->Stats().restarts;
    Result<BuiltArtifact> built = Ask(act);
    ASSERT_FALSE(built);
    EXPECT_EQ(built.error().kind, kind) << built.error().Text();
    EXPECT_THAT(built.error().Text(), HasSubstr(message));
    built = Ask("good");
    ASSERT_TRUE(built) << built.error().Text();
    EXPECT_EQ(pool_->Stats().restarts, restarts + (replaced ? 1 : 0));
  }

  testing::ScratchFolder folder_;
  Manifest manifest_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<BuilderPool> pool_ = StartPool(FakeOptions());
};

TEST_F(FakeBuilder, HandsOverTheObject) {
  Result<BuiltArtifact> built = Ask("good");
  ASSERT_TRUE(built) << built.error().Text();
  EXPECT_EQ(built->schedule, "a schedule");
  EXPECT_EQ(built->manifest.kernel, manifest_.kernel);
  EXPECT_EQ(built->object.size(), bytes_.size());
  Digest256 digest = Hash256(bytes_);
  EXPECT_EQ(built->digest, AsText(std::as_bytes(std::span(digest))));
}

TEST_F(FakeBuilder, ACrashCostsOneRequest) {
  ExpectFailure("abort", ErrorKind::kBuildFailed, "killed by signal 6 (Aborted); it said: LLVM ERROR: scripted");
  ExpectFailure("close", ErrorKind::kBuildFailed, "the builder died: exit status 0");
  ExpectFailure("cut", ErrorKind::kBuildFailed, "the builder died");
  EXPECT_EQ(pool_->Stats().crashed, 3u);
}

TEST_F(FakeBuilder, ErrorsOfTheBuilderPassThrough) {
  ExpectFailure("refuse", ErrorKind::kUnsupported, "k:1:2: scripted refusal", false);
}

TEST_F(FakeBuilder, GarbageIsRefused) {
  ExpectFailure("garbage", ErrorKind::kBuildFailed, "the builder answered garbage: not a frame");
  ExpectFailure("huge", ErrorKind::kBuildFailed, "garbage");
  ExpectFailure("hello-again", ErrorKind::kBuildFailed, "a question that nobody asked");
  ExpectFailure("other-id", ErrorKind::kBuildFailed, "a question that nobody asked");
  ExpectFailure("wrong-type", ErrorKind::kBuildFailed, "answered another question");
  ExpectFailure("no-object", ErrorKind::kBuildFailed, "answered another question");
  ExpectFailure("bad-body", ErrorKind::kBuildFailed, "the builder's answer", false);
}

// The open descriptors of this process.
size_t Descriptors() { return ListDirectory("/proc/self/fd").value_or(std::vector<std::string>()).size(); }

TEST_F(FakeBuilder, TooManyDescriptorsEndTheChild) {
  ASSERT_TRUE(Ask("good"));
  const size_t before = Descriptors();
  struct rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const struct rlimit few{before + 60, usual.rlim_max};  // more would not fit
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  ExpectFailure("descriptors", ErrorKind::kBuildFailed, "descriptors in a frame that may have 16");
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_EQ(Descriptors(), before);
}

TEST_F(FakeBuilder, WithoutFreeDescriptorsRequestsFailAndThePoolLives) {
  ASSERT_TRUE(Ask("good"));
  struct rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  auto limit_to = [&](rlim_t count) {
    const struct rlimit limit{count, usual.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  };
  const size_t open = Descriptors();
  // From none free to all that a child's start takes: each number leads to a failure of its own.
  for (rlim_t free = 0; free < 12; ++free) {
    SCOPED_TRACE(free);
    limit_to(open - 1 + free);
    Result<BuiltArtifact> built = Ask("good", seconds(5));
    if (!built) {
      EXPECT_THAT(built.error().Text(), AnyOf(HasSubstr("RLIMIT_NOFILE"), HasSubstr("Too many open files"),
                                              HasSubstr("keeps dying and is being restarted")));
    }
    (void)Ask("abort", milliseconds(500));  // and another one has to be started
    limit_to(usual.rlim_cur);
    for (int tries = 0; !Ask("good", seconds(10)); ++tries) ASSERT_LT(tries, 20);
  }
}

TEST_F(FakeBuilder, OneThatIsKilledByOthersIsReplacedAndItsWorkDoneAgain) {
  Result<BuiltArtifact> built = Ask("killed-once");
  EXPECT_TRUE(built) << built.error().Text();
  EXPECT_EQ(pool_->Stats().restarts, 1u);
  built = Ask("killed");
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().kind, ErrorKind::kBuildFailed);
  EXPECT_THAT(built.error().Text(), HasSubstr("killed by signal 9"));
  EXPECT_EQ(pool_->Stats().builds, 2u);
  EXPECT_EQ(pool_->Stats().crashed, 3u);  // tried twice, and no more
}

TEST_F(FakeBuilder, BadObjectsAreRefused) {
  ExpectFailure("unsealed", ErrorKind::kInvalid, "seals", false);
  ExpectFailure("no-elf", ErrorKind::kBuildFailed, "artifact refused", false);
  ExpectFailure("large-file", ErrorKind::kIo, "File too large", false);
}

TEST_F(FakeBuilder, MemoryIsLimited) {
  if (kShadowMemory) GTEST_SKIP() << "[SKIP] sanitizers need all address space";
  ExpectFailure("eat", ErrorKind::kBuildFailed, "killed by signal 6");  // std::bad_alloc, not the OOM killer
}

TEST_F(FakeBuilder, DeadlinesKill) {
  for (const char* act : {"spin", "sleep"}) {
    auto start = std::chrono::steady_clock::now();
    Result<BuiltArtifact> built = Ask(act, milliseconds(200));
    ASSERT_FALSE(built);
    EXPECT_EQ(built.error().kind, ErrorKind::kTimeout) << built.error().Text();
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(5));
    EXPECT_TRUE(Ask("good"));
  }
  EXPECT_EQ(pool_->Stats().timed_out, 2u);
}

TEST_F(FakeBuilder, ThePoolsOwnDeadlineComesFirst) {
  BuilderPoolOptions options = FakeOptions();
  options.deadline = milliseconds(1000);  // what an instrumented child needs on a busy machine, and more
  pool_ = StartPool(options);
  EXPECT_EQ(Ask("sleep", seconds(60)).error().kind, ErrorKind::kTimeout);
  EXPECT_EQ(Ask("slow", seconds(60)).error().kind, ErrorKind::kTimeout);  // an answer that comes too late is none
  EXPECT_TRUE(Ask("good"));
}

TEST_F(FakeBuilder, ProcessorTimeIsLimitedPerRequest) {
  BuilderPoolOptions options = FakeOptions();
  options.cpu_seconds = 1;
  pool_ = StartPool(options);
  ExpectFailure("spin", ErrorKind::kBuildFailed, "CPU time limit");
}

TEST_F(FakeBuilder, OneProcessAnswersManyRequests) {
  Result<std::string> pid = pool_->Explain({"pid", "", Target{}}, In(seconds(5)));
  ASSERT_TRUE(pid) << pid.error().Text();
  EXPECT_TRUE(Ask("good"));
  EXPECT_EQ(*pool_->Explain({"pid", "", Target{}}, In(seconds(5))), *pid);
  EXPECT_FALSE(Ask("abort"));
  EXPECT_NE(*pool_->Explain({"pid", "", Target{}}, In(seconds(5))), *pid);
}

TEST_F(FakeBuilder, ABuilderKilledWhileIdleIsReplaced) {
  std::string pid = *pool_->Explain({"pid", "", Target{}}, In(seconds(5)));
  ::kill(std::stoi(pid), SIGKILL);
  std::this_thread::sleep_for(milliseconds(50));
  Result<BuiltArtifact> built = Ask("good");
  EXPECT_TRUE(built) << built.error().Text();
}

TEST_F(FakeBuilder, BusyUntilTheDeadline) {
  std::thread first([&] { EXPECT_TRUE(Ask("slow")); });
  while (pool_->Stats().busy == 0) std::this_thread::yield();
  EXPECT_EQ(Ask("good", milliseconds(30)).error().kind, ErrorKind::kBusy);
  EXPECT_TRUE(Ask("good"));  // waits for the first one
  first.join();
}

TEST_F(FakeBuilder, BuildersWorkSideBySide) {
  pool_ = StartPool(FakeOptions(4));
  std::vector<std::thread> threads;
  std::atomic<int> good{0}, crashed{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i)
        if ((t + i) % 5 == 0)
          crashed += !Ask("abort");
        else
          good += Ask("good").has_value();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(crashed, 16);
  EXPECT_EQ(good, 64);
  EXPECT_EQ(pool_->Stats().busy, 0);
}

TEST_F(FakeBuilder, APauseEndsByResumeOrShutdown) {
  for (bool resume : {true, false}) {
    pool_->Pause();
    std::atomic<int> waiting{2};
    std::thread asks([&] {
      EXPECT_EQ(Ask("good").has_value(), resume);
      --waiting;
    });
    std::thread waits([&] {
      pool_->AwaitResume();
      --waiting;
    });
    std::this_thread::sleep_for(milliseconds(100));
    EXPECT_EQ(waiting, 2);
    resume ? pool_->Resume() : pool_->Shutdown();
    asks.join();
    waits.join();
    pool_->AwaitResume();  // at once
  }
}

TEST_F(FakeBuilder, APauseIsNotTheBuildersTime) {
  BuilderPoolOptions options = FakeOptions();
  options.deadline = milliseconds(400);
  pool_ = StartPool(options);
  ASSERT_TRUE(Ask("good"));
  pool_->Pause();
  std::thread resume([&] {
    std::this_thread::sleep_for(milliseconds(900));
    pool_->Resume();
  });
  Result<BuiltArtifact> built = Ask("good");
  EXPECT_TRUE(built) << built.error().Text();
  resume.join();
  EXPECT_EQ(Ask("sleep").error().kind, ErrorKind::kTimeout);  // and what never answers is given up all the same
}

TEST_F(FakeBuilder, ShutdownEndsCallsUnderWay) {
  std::thread killer([&] {
    while (pool_->Stats().busy == 0) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(50));
    pool_->Shutdown();
  });
  EXPECT_EQ(Ask("sleep").error().kind, ErrorKind::kUnavailable);
  killer.join();
  EXPECT_EQ(Ask("good").error().kind, ErrorKind::kUnavailable);
}

// Where others have taken all processors, it may take seconds until a process that was killed has ended.
TEST_F(FakeBuilder, CallsUnderWayDoNotWaitForTheKilled) {
  std::thread killer([&] {
    while (pool_->Stats().busy == 0) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(100));
    pool_->Shutdown();
  });
  auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(Ask("linger").error().kind, ErrorKind::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(4));
  killer.join();
}

TEST_F(FakeBuilder, BuildersThatDieAtStartAreTriedMoreAndMoreSlowly) {
  BuilderPoolOptions options = FakeOptions();
  options.arguments = {"--fake-builder", "die-at-start"};
  pool_ = StartPool(options);
  auto start = std::chrono::steady_clock::now();
  int attempts = 0;
  for (; std::chrono::steady_clock::now() - start < milliseconds(600); ++attempts)
    EXPECT_FALSE(Ask("good", seconds(1)));
  EXPECT_LT(attempts, 20);
  EXPECT_LT(pool_->Stats().restarts, 20u);
}

TEST(BuilderPool, SaysThatTheProgramIsMissing) {
  BuilderPoolOptions options;
  options.executable = "/nonexistent/hone-builder";
  EXPECT_THAT(BuilderPool::Start(options).error().Text(), HasSubstr("/nonexistent/hone-builder"));
}

// ---- The real builder ----

class RealBuilder : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access(HONE_BIN_DIR "/hone-builder", X_OK) != 0) GTEST_SKIP() << "[SKIP] hone-builder is not built";
    BuilderPoolOptions options;
    options.executable = HONE_BIN_DIR "/hone-builder";
    pool_ = StartPool(options);
  }
  std::unique_ptr<BuilderPool> pool_;
};

TEST_F(RealBuilder, BuildsTheSameBytesInAnyProcess) {
  BuildRequest request{"conv2d(C=16,H=14,W=14,O=24,R=3,S=3,pad=1,const=1)+bias+relu", "", *HostTarget()};
  Result<BuiltArtifact> first = pool_->Build(request, In(seconds(60)));
  ASSERT_TRUE(first) << first.error().Text();
  EXPECT_FALSE(first->schedule.empty());
  EXPECT_EQ(first->manifest.operands.size(), 4u);
  BuilderPoolOptions options;
  options.executable = HONE_BIN_DIR "/hone-builder";
  Result<BuiltArtifact> other = StartPool(options)->Build(request, In(seconds(60)));
  ASSERT_TRUE(other) << other.error().Text();
  EXPECT_EQ(other->digest, first->digest);
  EXPECT_EQ(pool_->Build(request, In(seconds(60)))->digest, first->digest);
}

TEST_F(RealBuilder, RefusesWithAPlace) {
  Result<BuiltArtifact> built = pool_->Build({"matmul(M=3,N=0,K=4)", "", *HostTarget()}, In(seconds(60)));
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().kind, ErrorKind::kInvalid);
  EXPECT_THAT(built.error().where, HasSubstr("kernel:1:"));
  built = pool_->Build({"matmul(M=3,N=3,K=4)", "no such step", *HostTarget()}, In(seconds(60)));
  ASSERT_FALSE(built);
  EXPECT_EQ(pool_->Stats().restarts, 0u);
}

TEST_F(RealBuilder, ExplainsItsCode) {
  Result<std::string> text = pool_->Explain({"add(M=8,N=64)", "", *HostTarget()}, In(seconds(60)));
  ASSERT_TRUE(text) << text.error().Text();
  EXPECT_THAT(*text, HasSubstr("define"));
  EXPECT_THAT(*text, HasSubstr("hone_entry"));
}

TEST_F(RealBuilder, IsLockedIn) {
  Result<BuiltArtifact> built = pool_->Build({"add(M=8,N=64)", "", *HostTarget()}, In(seconds(60)));
  ASSERT_TRUE(built) << built.error().Text();
  const std::vector<Confinement> confinements = pool_->Confinements();
  ASSERT_EQ(confinements.size(), 1u);
  EXPECT_EQ(confinements[0].complete(), LandlockAbi() > 0) << confinements[0].Text();
  EXPECT_EQ(confinements[0].address_space, kShadowMemory ? 0 : uint64_t{4} << 30);
  // One of our children is the builder; its status shows what holds it.
  bool found = false;
  for (const std::string& name : ListDirectory("/proc").value_or(std::vector<std::string>())) {
    std::string folder = "/proc/" + name, status = testing::ReadFile(folder + "/status");
    if (status.find("Name:\thone-builder\n") == std::string::npos ||
        status.find("PPid:\t" + std::to_string(::getpid()) + "\n") == std::string::npos)
      continue;
    found = true;
    EXPECT_THAT(status, HasSubstr("Seccomp:\t2"));
    EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
    std::string limits = testing::ReadFile(folder + "/limits");
    EXPECT_THAT(limits, HasSubstr("Max core file size        0"));
    std::string stat = testing::ReadFile(folder + "/stat");
    std::istringstream fields(stat.substr(stat.rfind(')') + 1));
    std::string field;
    for (int i = 0; i < 17; ++i) fields >> field;                                         // fields 3 to 19
    EXPECT_EQ(field, std::to_string(std::min(::getpriority(PRIO_PROCESS, 0) + 10, 19)));  // the tests may be niced, too
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace hone
