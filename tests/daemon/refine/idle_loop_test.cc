// What idle time refines: exactly what was asked for.
#include "daemon/refine/idle_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/daemon/test_server.h"

namespace hone {
namespace {

using testing::FakeWorkerPools;
using testing::TestServer;
using testing::TestServerOptions;

TestServerOptions TwoCores() {
  TestServerOptions options;
  options.cores = 2;
  return options;
}

// Processes that say what they are asked to search, and search nothing.
class ListeningWorkerPools : public FakeWorkerPools {
 public:
  ListeningWorkerPools(Mutex& mutex, std::vector<std::string>& kernels) : mutex_(mutex), kernels_(kernels) {}
  Result<std::unique_ptr<Evaluator>> MakeEvaluator(const std::string& kernel, const Target& target,
                                                   const std::stop_token& stop) override {
    MutexLock lock(mutex_);
    kernels_.push_back(kernel);
    return FakeWorkerPools::MakeEvaluator(kernel, target, stop);
  }

 private:
  Mutex& mutex_;
  std::vector<std::string>& kernels_;
};

class IdleLoopTest : public ::testing::Test {
 protected:
  void Start() {
    IdleLimits limits;
    limits.busy_cores = 1000;
    limits.stalled = 1000;
    limits.quiet = std::chrono::milliseconds(10);
    limits.on_battery = true;
    loop_ = std::make_unique<IdleLoop>(
        *server_.cache, *server_.path, *server_.tuning, server_.metrics, limits, 1.0,
        [this]() -> Result<std::unique_ptr<WorkerPools>> {
          if (failures_ > 0) {
            --failures_;
            return Error{ErrorKind::kUnavailable, "no processes", ""};
          }
          return std::unique_ptr<WorkerPools>(std::make_unique<ListeningWorkerPools>(mutex_, kernels_));
        });
  }
  std::vector<std::string> Searched() {
    MutexLock lock(mutex_);
    return kernels_;
  }
  std::vector<Record> Records() {
    std::vector<Record> records;
    EXPECT_TRUE(server_.cache->ForEachRecord(std::nullopt, [&](const Record& record) {
      records.push_back(record);
      return true;
    }));
    return records;
  }

  TestServer server_{TwoCores()};
  Mutex mutex_;
  std::vector<std::string> kernels_;
  std::atomic<int> failures_{0};  // of starting processes, to come
  std::unique_ptr<IdleLoop> loop_;
};

struct Asked {
  const char* text;
  uint32_t threads;
};
class IdleLoopOfThreads : public IdleLoopTest, public ::testing::WithParamInterface<Asked> {};

TEST_P(IdleLoopOfThreads, SearchesTheKernelThatWasAskedFor) {
  GetRequest request;
  request.threads = GetParam().threads;
  ASSERT_TRUE(server_.Get(GetParam().text, request));
  const std::vector<Record> before = Records();
  ASSERT_EQ(before.size(), 1u);
  Start();
  ASSERT_TRUE(TestServer::Eventually([&] { return !Searched().empty(); }));
  loop_->Close();
  EXPECT_EQ(Searched().at(0), before[0].key.canonical);
  EXPECT_EQ(Records(), before);
  EXPECT_EQ(server_.pools.builds, 1) << "it is there already";
  EXPECT_EQ(server_.cache->UseOf(before[0].key.fingerprint)->calls, 0u) << "nobody used it meanwhile";
}

INSTANTIATE_TEST_SUITE_P(All, IdleLoopOfThreads,
                         ::testing::Values(Asked{"matmul(M=4,N=4,K=4)", 0}, Asked{"matmul(M=4,N=4,K=4)", 1},
                                           Asked{"matmul(M=4,N=4,K=4)", 2}, Asked{"matmul(M=4,N=4,K=4)", 3},
                                           Asked{"matmul(M=4,N=4,K=4,threads=1)", 0},
                                           Asked{"matmul(M=4,N=4,K=4,threads=2)", 3}));

// The pause after a failure is far below the one of a loop that has nothing to do, which is longer than this waits.
TEST_F(IdleLoopTest, AFailureCostsALittleTime) {
  ASSERT_TRUE(server_.Get("matmul(M=4,N=4,K=4)"));
  failures_ = 2;
  Start();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(15);
  while (Searched().empty() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(Searched().empty());
  EXPECT_EQ(failures_, 0);
  loop_->Close();
}

// A slice's trials are shared out among the cases of a range of sizes; that these were fewer than a slice, or none,
// is no sign that there is nothing left to try.
TEST_F(IdleLoopTest, ARangeOfSizesIsRefinedForMoreThanASlice) {
  GetRequest request;
  request.target = "scripted:0";
  ASSERT_TRUE(server_.Get("matmul(M=1..7,N=16,K=16)", request));
  Start();
  EXPECT_TRUE(TestServer::Eventually([&] {
    const IdleLoop::Plan plan = loop_->plan();
    return !plan.tasks.empty() && plan.tasks[0].trials >= 128;
  }));
  loop_->Close();
}

TEST_F(IdleLoopTest, WordsThatMeanAnotherKernelNowAreNotSearched) {
  ASSERT_TRUE(server_.Get("matmul(M=4,N=4,K=4)"));
  Record record = Records().at(0);
  record.request = "matmul(M=8,N=8,K=8)";
  ASSERT_TRUE(server_.cache->Put({.record = record, .class_text = "", .artifact = {}}, Durability::kSoon));
  Start();
  ASSERT_TRUE(TestServer::Eventually([&] { return loop_->plan().refinable == 1 && loop_->plan().waiting == 0; }));
  loop_->Close();
  EXPECT_TRUE(Searched().empty());
  EXPECT_EQ(Records().size(), 1u);
}

}  // namespace
}  // namespace hone
