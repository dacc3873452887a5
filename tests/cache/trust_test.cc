// A cache that somebody else can change is not opened: neither it nor what its files name is touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "cache/schedule_cache.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Trust : public ::testing::Test {
 protected:
  std::string Cache() const { return directory_ / "above/cache"; }

  Result<std::unique_ptr<ScheduleCache>> Open(const std::string& directory) {
    CacheOptions options;
    options.directory = directory;
    return ScheduleCache::Open(options);
  }
  void SetUp() override {
    Result<std::unique_ptr<ScheduleCache>> cache = Open(Cache());
    ASSERT_TRUE(cache.has_value()) << cache.error().Text();
    ASSERT_TRUE((*cache)->Put(SampleEntry(1), Durability::kSynced).has_value());
  }
  void Mode(const std::string& path, mode_t mode) { ASSERT_EQ(chmod(path.c_str(), mode), 0); }
  void GiveAway(const std::string& path) { ASSERT_EQ(lchown(path.c_str(), 12345, 12345), 0); }

  void ExpectRefused(const std::string& directory, const std::string& where, const std::string& what) {
    Result<std::unique_ptr<ScheduleCache>> cache = Open(directory);
    ASSERT_FALSE(cache.has_value());
    EXPECT_EQ(cache.error().kind, ErrorKind::kInvalid);
    EXPECT_EQ(cache.error().where, where);
    EXPECT_THAT(cache.error().message, HasSubstr(what));
    CacheOptions inspect;
    inspect.directory = directory;
    inspect.inspect = true;
    EXPECT_FALSE(ScheduleCache::Open(inspect).has_value());
  }

  TemporaryDirectory directory_;
};

#define NEEDS_ROOT() \
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] needs root to give files away"

TEST_F(Trust, ADirectoryThatOthersCanWriteIsRefused) {
  for (mode_t mode : {0777, 0770, 0702, 01777}) {
    Mode(Cache(), mode);
    ExpectRefused(Cache(), Cache(), "chmod go-w");
  }
  Mode(Cache(), 0755);
  EXPECT_TRUE(Open(Cache()).has_value());
}

TEST_F(Trust, APartOfThePathThatOthersCanWriteIsRefused) {
  Mode(directory_ / "above", 0777);
  ExpectRefused(Cache(), directory_ / "above", "chmod go-w");
  Mode(directory_ / "above", 0755);
  EXPECT_TRUE(Open(Cache()).has_value());
}

TEST_F(Trust, SomebodyElsesDirectoryIsRefused) {
  NEEDS_ROOT();
  Mode(Cache(), 0777);
  GiveAway(Cache());
  ExpectRefused(Cache(), Cache(), "belongs to uid 12345");
  Mode(Cache(), 0700);
  ExpectRefused(Cache(), Cache(), "chown");
}

TEST_F(Trust, SomebodyElsesParentIsRefused) {
  NEEDS_ROOT();
  GiveAway(directory_ / "above");
  ExpectRefused(Cache(), directory_ / "above", "belongs to uid 12345");
}

TEST_F(Trust, LinksAreNotFollowed) {
  fs::create_directory_symlink(Cache(), directory_ / "link");
  ExpectRefused(directory_ / "link", directory_ / "link", "is a link");
  fs::create_directory_symlink(directory_ / "above", directory_ / "over");
  ExpectRefused(directory_ / "over/cache", directory_ / "over", "is a link");
  fs::rename(Cache() + "/db", directory_ / "elsewhere");
  fs::create_directory_symlink(directory_ / "elsewhere", Cache() + "/db");
  ExpectRefused(Cache(), Cache() + "/db", "is a link");
}

TEST_F(Trust, WhatALockPointsAtStaysAsItIs) {
  const std::string precious = directory_ / "precious";
  for (bool hard : {false, true}) {
    ASSERT_TRUE(WriteFileAtomically(precious, "all that I have"));
    fs::remove(Cache() + "/LOCK");
    if (hard)
      fs::create_hard_link(precious, Cache() + "/LOCK");
    else
      fs::create_symlink(precious, Cache() + "/LOCK");
    ExpectRefused(Cache(), Cache() + "/LOCK", "remove it");
    EXPECT_EQ(*ReadFile(precious, 100), "all that I have");
  }
}

TEST_F(Trust, PlantedFilesAreRefused) {
  NEEDS_ROOT();
  const std::string planted = Cache() + "/db/000099.sst";
  ASSERT_TRUE(WriteFileAtomically(planted, "not ours"));
  GiveAway(planted);
  ExpectRefused(Cache(), planted, "belongs to uid 12345");
  fs::remove(planted);
  GiveAway(Cache() + "/FORMAT");
  ExpectRefused(Cache(), Cache() + "/FORMAT", "belongs to uid 12345");
}

TEST_F(Trust, FilesThatOthersCanWriteMatterWhereOthersGetIn) {
  Mode(Cache() + "/db/CURRENT", 0666);
  EXPECT_TRUE(Open(Cache()).has_value());  // 0700 above it
  Mode(Cache() + "/db/CURRENT", 0666);
  Mode(Cache() + "/db", 0755);
  Mode(Cache(), 0755);
  ExpectRefused(Cache(), Cache() + "/db/CURRENT", "chmod go-w");
}

TEST_F(Trust, AFreshDirectoryUnderASharedFolderWorks) {
  std::string fresh = (fs::temp_directory_path() / "hone-trust-XXXXXX").string();
  ASSERT_NE(mkdtemp(fresh.data()), nullptr);
  EXPECT_TRUE(Open(fresh + "/cache").has_value());
  EXPECT_TRUE(Open(fresh).has_value());
  fs::remove_all(fresh);
}

TEST_F(Trust, RelativePathsWork) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_ / "above");
  EXPECT_TRUE(Open("cache").has_value());
  EXPECT_TRUE(Open("./new/../cache").has_value());
  fs::current_path(before);
}

TEST_F(Trust, AnUntrustedSystemLayerIsLeftOutAndSaid) {
  CacheOptions options;
  options.directory = directory_ / "own";
  options.system_directory = Cache();
  {
    std::unique_ptr<ScheduleCache> cache = *ScheduleCache::Open(options);
    EXPECT_TRUE(cache->Lookup(SampleKey(1))->has_value());
    EXPECT_EQ(cache->Stats().problem, "");
  }
  Mode(Cache(), 0777);
  std::unique_ptr<ScheduleCache> cache = *ScheduleCache::Open(options);
  EXPECT_FALSE(cache->Lookup(SampleKey(1))->has_value());
  EXPECT_THAT(cache->Stats().problem, HasSubstr("system layer"));
  EXPECT_THAT(cache->Stats().problem, HasSubstr("chmod go-w"));
}

}  // namespace
}  // namespace hone
