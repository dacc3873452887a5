// The builder pool with a scripted builder, then with the real one.
#include "backends/processes/builder_pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>

#include "backends/sandbox/landlock.h"
#include "backends/sandbox/sandbox.h"
#include "base/file.h"
#include "base/hash.h"
#include "tests/backends/processes/fake_builder.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using testing::FakeBuilder;
using testing::FakeOptions;
using ::testing::HasSubstr;
using testing::In;
using testing::StartPool;

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
  ExpectFailure("no-time", ErrorKind::kBuildFailed, "the builder's answer: a time that is none", false);
}

TEST_F(FakeBuilder, BuildsForOneUserAlone) {
  auto build_for = [&](std::optional<uint32_t> user) {
    return pool_->Build({"good", Good(), Target{}, user}, In(seconds(20))).has_value();
  };
  EXPECT_TRUE(build_for(1000));  // by one that has built for nobody
  EXPECT_TRUE(build_for(1000));
  EXPECT_TRUE(build_for({}));
  EXPECT_EQ(pool_->Stats().restarts, 0u);
  EXPECT_TRUE(build_for(1001));
  EXPECT_EQ(pool_->Stats().restarts, 1u);
  EXPECT_TRUE(build_for(1001));
  EXPECT_EQ(pool_->Stats().restarts, 1u);
  EXPECT_TRUE(build_for(1000));
  EXPECT_EQ(pool_->Stats().restarts, 2u);
}

TEST_F(FakeBuilder, OfSeveralTheOneOfTheUserIsTaken) {
  BuilderPoolOptions options = FakeOptions();
  options.builders = 2;
  pool_ = StartPool(options);
  for (uint32_t user : {1000, 1001, 1000, 1001, 1001, 1000})
    EXPECT_TRUE(pool_->Build({"good", Good(), Target{}, user}, In(seconds(20)))) << user;
  EXPECT_EQ(pool_->Stats().restarts, 0u);
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
  ExpectFailure("descriptors", ErrorKind::kBuildFailed, "descriptors in a frame that may have 32");
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

// A process that was killed looks alive until it has been given a processor to end on.
TEST_F(FakeBuilder, WorkIsNotDoneAgainByOneThatWasKilledWithTheFirst) {
  pool_ = StartPool(FakeOptions(3));
  Result<BuiltArtifact> built = Ask("all-killed-once");
  EXPECT_TRUE(built) << built.error().Text();
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

// Whoever waits hears what is wrong: who tries to start one, who waits behind it, and who comes between two tries.
TEST_F(FakeBuilder, OneThatCannotBeStartedIsTheReasonForWhoWaitsToo) {
  const std::string program = folder_.path() + "/program";
  ASSERT_EQ(::symlink("/proc/self/exe", program.c_str()), 0);
  BuilderPoolOptions options = FakeOptions();
  options.executable = program;
  pool_ = StartPool(options);
  ASSERT_EQ(::unlink(program.c_str()), 0);
  EXPECT_FALSE(Ask("abort"));
  for (int tries = 0; tries < 8; ++tries) {
    SCOPED_TRACE(tries);
    auto expect_the_reason = [&](milliseconds time) {
      Result<BuiltArtifact> built = Ask("good", time);
      ASSERT_FALSE(built);
      EXPECT_EQ(built.error().kind, ErrorKind::kUnavailable);
      EXPECT_THAT(built.error().Text(), HasSubstr(program));
    };
    std::jthread first([&] { expect_the_reason(milliseconds(300)); });
    expect_the_reason(milliseconds(100));
  }
  ASSERT_EQ(::symlink("/proc/self/exe", program.c_str()), 0);
  EXPECT_TRUE(Ask("good"));
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
