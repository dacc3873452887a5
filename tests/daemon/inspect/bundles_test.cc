// Bundles whose client does not come back: between two pieces of an upload, and between two parts of an import.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "daemon/inspect/bundle_uploads.h"
#include "daemon/routes.h"
#include "tests/daemon/test_server.h"
#include "tests/support/no_threads.h"
#include "tests/support/sample_bundles.h"

namespace hone::bundles_test {
namespace {

using namespace std::chrono_literals;
using testing::FakeWorkerPools;
using testing::LoopThread;
using testing::TestServer;

size_t FilesOfUploads() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += std::filesystem::read_symlink(entry.path(), gone).string().find("hone-bundle") != std::string::npos;
  }
  return count;
}

TEST(BundleUploads, OneThatDoesNotGoOnIsDroppedThoughNobodyBeginsAnother) {
  BundleUploads uploads(200ms);
  Result<UploadReply> begun = uploads.Add({.upload = 0, .total = 10, .offset = 0, .bytes = "12345"}, "");
  ASSERT_TRUE(begun) << begun.error().Text();
  ASSERT_EQ(FilesOfUploads(), 1u);
  EXPECT_TRUE(TestServer::Eventually([] { return FilesOfUploads() == 0; }));
  EXPECT_EQ(uploads.Take(begun->upload).error().kind, ErrorKind::kNotFound);
}

TEST(BundleUploads, OneThatGoesOnStays) {
  BundleUploads uploads(200ms);
  Result<UploadReply> reply = uploads.Add({.upload = 0, .total = 20, .offset = 0, .bytes = "x"}, "");
  for (uint64_t offset = 1; offset < 20; ++offset) {
    std::this_thread::sleep_for(40ms);
    reply = uploads.Add({.upload = reply->upload, .total = 20, .offset = offset, .bytes = "x"}, "");
    ASSERT_TRUE(reply) << offset << ": " << reply.error().Text();
  }
  EXPECT_TRUE(uploads.Take(reply->upload));
}

TEST(BundleUploads, ThoseThatDoNotGoOnMakeRoom) {
  BundleUploads uploads(36s);
  const UploadRequest begin{.upload = 0, .total = 10, .offset = 0, .bytes = "12345"};
  std::vector<uint64_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(uploads.Add(begin, "")->upload);
  Result<UploadReply> fifth = uploads.Add(begin, "");
  ASSERT_FALSE(fifth);
  EXPECT_EQ(fifth.error().kind, ErrorKind::kBusy);
  std::this_thread::sleep_for(1800ms);
  const UploadRequest goes_on{.upload = ids[1], .total = 10, .offset = 5, .bytes = "67"};
  ASSERT_TRUE(uploads.Add(goes_on, ""));
  std::this_thread::sleep_for(1800ms);
  EXPECT_TRUE(uploads.Add(begin, ""));
  EXPECT_EQ(uploads.Take(ids[0]).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(uploads.Take(ids[1]).error().kind, ErrorKind::kInvalid) << "the one that went on is there, not all of it";
}

TEST(BundleUploads, AreRefusedWhileThereIsNoThreadToLookAfterThem) {
  BundleUploads uploads(200ms);
  const UploadRequest first{.upload = 0, .total = 10, .offset = 0, .bytes = "12345"};
  {
    testing::NoThreads none;
    Result<UploadReply> begun = uploads.Add(first, "");
    ASSERT_FALSE(begun);
    EXPECT_EQ(begun.error().kind, ErrorKind::kBusy);
    EXPECT_EQ(FilesOfUploads(), 0u);
  }
  EXPECT_TRUE(uploads.Add(first, ""));
}

class ImportTest : public ::testing::Test {
 protected:
  ImportTest() {
    cache_ = *ScheduleCache::Open({});
    CpuTarget host;
    host.cpu = "generic";
    host.cores = 1;
    path_ = std::make_unique<RequestPath>(*cache_, pools_, metrics_, Devices::OfCpu(host, "cc 1"));
    admin_.reset(new Admin{.loop = loop_.loop,
                           .cache = *cache_,
                           .serving = pools_,
                           .own = pools_,
                           .path = *path_,
                           .metrics = metrics_,
                           .facts = {},
                           .forget = [](const Fingerprint&) {}});
    admin_->get_ready = [this](const std::vector<Imported>& kernels) {
      for (const Imported& kernel : kernels) worths_.push_back(kernel.worth);
      if (!kernels.empty()) ready_.push_back(kernels.size());
    };
  }
  // All with times and calls that somebody says.
  NextPart<ImportReply> Import(int kernels, std::optional<Timing> measured = {}, uint64_t calls = 1) {
    BundleSample sample = SampleBundle(0);
    std::string schedule;  // any that can be read
    for (int i = 1; i <= kernels; ++i) {
      const std::string request = "add(M=1,N=" + std::to_string(i) + ")";
      const ResolvedKernel identity = *path_->Identify({request, "", 0});
      Record record;
      record.key = identity.key;
      record.shape = identity.shape;
      record.label = identity.label;
      record.request = request;
      record.origin = Origin::kTuned;
      if (schedule.empty()) schedule = Space::Open(identity.key.canonical, identity.target)->Default()->schedule;
      record.schedule = schedule;
      record.measured = measured;
      sample.entries.push_back({std::move(record), identity.class_text, calls});
    }
    const std::string bytes = *sample.Write(std::nullopt);
    Result<UploadReply> upload =
        admin_->uploads.Add({.upload = 0, .total = bytes.size(), .offset = 0, .bytes = bytes}, "");
    EXPECT_TRUE(upload) << upload.error().Text();
    return AnswerImport(*admin_, {.upload = upload->upload, .trust = ""});
  }
  // How many kernels were to be made ready, each time.
  std::vector<size_t> Ready() {
    std::vector<size_t> ready;
    loop_.Do([&] { ready = ready_; });
    return ready;
  }

  FakeWorkerPools pools_;
  Metrics metrics_;
  std::unique_ptr<ScheduleCache> cache_;
  std::unique_ptr<RequestPath> path_;
  std::unique_ptr<Admin> admin_;
  std::vector<size_t> ready_;
  std::vector<double> worths_;
  LoopThread loop_;  // last: nothing of it runs when the others go
};

TEST_F(ImportTest, AllIsMadeReadyAtTheEnd) {
  NextPart<ImportReply> next = Import(300);
  Result<ImportReply> part = next({});
  ASSERT_TRUE(part) << part.error().Text();
  EXPECT_TRUE(part->more);
  EXPECT_THAT(Ready(), ::testing::IsEmpty());
  part = next({});
  ASSERT_TRUE(part) << part.error().Text();
  EXPECT_FALSE(part->more);
  next = nullptr;
  EXPECT_THAT(Ready(), ::testing::ElementsAre(300));
}

TEST_F(ImportTest, TheMostThatABundleCanSayIsWorthMost) {
  Timing most;
  most.time = std::chrono::nanoseconds::max();
  NextPart<ImportReply> next = Import(1, most, std::numeric_limits<uint64_t>::max());
  ASSERT_TRUE(next({}));
  next = nullptr;
  EXPECT_THAT(Ready(), ::testing::ElementsAre(1));
  EXPECT_GT(worths_.at(0), 1e37);
}

// Whatever time the bundle says.
TEST_F(ImportTest, WhatTurnsOutToBeSlowerGivesWayToWhatWasServedBefore) {
  const KernelRequest ask{"add(M=1,N=1)", "", 0};
  Timing best;
  best.time = std::chrono::nanoseconds(1);
  for (const bool is_slower : {true, false}) {
    const LookUpResult first = *path_->LookUp(ask);
    if (!first.code) { ASSERT_TRUE(path_->Compile(first, {})); }
    const Record own = (*cache_->Lookup(first.identity.key))->record;
    EXPECT_EQ(own.origin, Origin::kDefault);
    ASSERT_TRUE(Import(1, best)({}));
    const LookUpResult found = *path_->LookUp(ask);
    ASSERT_TRUE(found.known && !found.code);
    EXPECT_EQ(found.known->origin, Origin::kImported);
    pools_.slow_schedule = is_slower ? found.known->schedule : "";
    Result<Compiled> compiled = path_->Compile(found, {});
    ASSERT_TRUE(compiled) << compiled.error().Text();
    const CacheHit hit = **cache_->Lookup(first.identity.key);
    EXPECT_TRUE(hit.artifact_current);
    EXPECT_EQ(compiled->code->reply.expected_us, 2);
    EXPECT_EQ(hit.record.schedule, is_slower ? own.schedule : found.known->schedule);
    EXPECT_EQ(hit.record.origin, is_slower ? Origin::kDefault : Origin::kImported);
    EXPECT_EQ(hit.record.source.has_value(), !is_slower);
    EXPECT_EQ(hit.record.measured->time, std::chrono::nanoseconds(2000));
  }
}

TEST_F(ImportTest, WhatWasStoredIsMadeReadyWhenTheClientDoesNotWaitForTheRest) {
  NextPart<ImportReply> next = Import(300);
  Result<ImportReply> part = next({});
  ASSERT_TRUE(part) << part.error().Text();
  EXPECT_TRUE(part->more);
  next = nullptr;
  EXPECT_THAT(Ready(), ::testing::ElementsAre(256));
}

}  // namespace
}  // namespace hone::bundles_test
