#include "client/api/disk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/bytes.h"
#include "base/hash.h"
#include "tests/support/c_artifact.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCacheTest() : directory_(scratch_.path() + "/client"), cache_({.directory = directory_}) {}

  SealedMemfd Code(const std::string& text) { return *SealedMemfd::Create(AsBytes(text)); }
  GetReply Reply(const std::string& text) {
    GetReply reply;
    Digest256 digest = Hash256(text);
    reply.digest.assign(reinterpret_cast<const char*>(digest.data()), digest.size());
    reply.size = text.size();
    reply.fingerprint = "f";
    return reply;
  }
  Result<void> Store(const std::string& kernel, const std::string& code, uint32_t threads = 0) {
    return cache_.Store(kernel, threads, "canonical", Reply(code), Code(code));
  }
  std::string OnlyFile() {
    std::string found;
    for (const auto& entry : fs::directory_iterator(directory_)) found = entry.path();
    return found;
  }
  std::string BytesOf(const SealedMemfd& file) { return std::string(AsText(file.Map()->bytes())); }

  testing::ScratchFolder scratch_;
  const std::string directory_;
  DiskCache cache_;
};

TEST_F(DiskCacheTest, GivesBackWhatItWasGiven) {
  ASSERT_TRUE(Store("kernel", "code"));
  Result<std::optional<StoredCode>> stored = cache_.Load("kernel", 0);
  ASSERT_TRUE(stored) << stored.error().Text();
  ASSERT_TRUE(*stored);
  EXPECT_EQ((*stored)->canonical, "canonical");
  EXPECT_EQ((*stored)->reply.fingerprint, "f");
  EXPECT_EQ(BytesOf((*stored)->artifact), "code");
}

TEST_F(DiskCacheTest, OtherKernelsAndThreadsAreAbsent) {
  EXPECT_FALSE(cache_.Load("kernel", 0)->has_value());  // not even the directory
  ASSERT_TRUE(Store("kernel", "code", 2));
  EXPECT_FALSE(cache_.Load("kernel", 1)->has_value());
  EXPECT_FALSE(cache_.Load("kerne", 2)->has_value());
  EXPECT_TRUE(cache_.Load("kernel", 2)->has_value());
}

TEST_F(DiskCacheTest, NewCodeReplacesTheOld) {
  ASSERT_TRUE(Store("kernel", "old"));
  ASSERT_TRUE(Store("kernel", "new code"));
  EXPECT_EQ(BytesOf((*cache_.Load("kernel", 0))->artifact), "new code");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1);
}

TEST_F(DiskCacheTest, TheSameCodeIsNotWrittenAgain) {
  ASSERT_TRUE(Store("kernel", "code"));
  auto inode = [&] {
    struct stat status;
    stat(OnlyFile().c_str(), &status);
    return status.st_ino;
  };
  auto before = inode();
  ASSERT_TRUE(Store("kernel", "code"));
  EXPECT_EQ(inode(), before);
  ASSERT_TRUE(Store("kernel", "other"));
  EXPECT_NE(inode(), before);
}

TEST_F(DiskCacheTest, EveryDamagedByteIsNoticedAndTheFileGoes) {
  ASSERT_TRUE(Store("kernel", "code"));
  std::string path = OnlyFile(), good = testing::ReadFile(path);
  for (size_t at = 0; at < good.size(); at += 7) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    testing::WriteFile(path, bad);
    fs::permissions(path, fs::perms(0600));
    Result<std::optional<StoredCode>> stored = cache_.Load("kernel", 0);
    ASSERT_FALSE(stored) << at;
    EXPECT_EQ(stored.error().kind, ErrorKind::kCorrupt);
    EXPECT_FALSE(fs::exists(path));
  }
  for (size_t size = 0; size < good.size(); size += 11) {
    testing::WriteFile(path, good.substr(0, size));
    fs::permissions(path, fs::perms(0600));
    EXPECT_FALSE(cache_.Load("kernel", 0)) << size;
  }
}

TEST_F(DiskCacheTest, AFileUnderAnotherRequestsNameIsRefused) {
  ASSERT_TRUE(Store("one", "code"));
  std::string one = OnlyFile(), bytes = testing::ReadFile(one);
  fs::remove(one);
  ASSERT_TRUE(Store("two", "other"));
  testing::WriteFile(OnlyFile(), bytes);
  EXPECT_EQ(cache_.Load("two", 0).error().kind, ErrorKind::kCorrupt);
}

TEST_F(DiskCacheTest, WhatSomebodyShippedIsNotRun) {
  const std::string theirs = scratch_.path() + "/theirs/";
  const DiskCache other({.directory = theirs});
  ASSERT_TRUE(other.Store("kernel", 0, "canonical", Reply("planted"), Code("planted")));
  EXPECT_FALSE(fs::exists(theirs + ".state"));  // beside it, so that it is not shipped along
  ASSERT_TRUE(Store("own", "code"));
  for (const auto& entry : fs::directory_iterator(theirs)) fs::copy(entry.path(), directory_);
  EXPECT_EQ(cache_.Load("kernel", 0).error().kind, ErrorKind::kCorrupt);
  EXPECT_TRUE(cache_.Load("own", 0)->has_value());
  // Nor where this user has stored nothing yet.
  const std::string fresh = scratch_.path() + "/fresh";
  fs::copy(theirs, fresh);
  EXPECT_FALSE(DiskCache({.directory = fresh}).Load("kernel", 0)->has_value());
}

TEST_F(DiskCacheTest, NothingIsReadFromWhereOthersMayWrite) {
  ASSERT_TRUE(Store("kernel", "code"));
  fs::permissions(directory_, fs::perms(0777));
  EXPECT_EQ(cache_.Load("kernel", 0).error().kind, ErrorKind::kInvalid);
  EXPECT_FALSE(Store("kernel", "evil"));
  fs::permissions(directory_, fs::perms(0700));
  EXPECT_TRUE(cache_.Load("kernel", 0)->has_value());
  fs::permissions(OnlyFile(), fs::perms(0620));
  EXPECT_EQ(cache_.Load("kernel", 0).error().kind, ErrorKind::kInvalid);
  fs::permissions(OnlyFile(), fs::perms(0600));
  fs::permissions(scratch_.path(), fs::perms(0770));  // any part of the path
  EXPECT_EQ(cache_.Load("kernel", 0).error().kind, ErrorKind::kInvalid);
  fs::permissions(scratch_.path(), fs::perms(0700));
}

TEST_F(DiskCacheTest, LinksAreNotFollowed) {
  ASSERT_TRUE(Store("kernel", "code"));
  std::string path = OnlyFile(), elsewhere = scratch_.path() + "/elsewhere";
  fs::rename(path, elsewhere);
  fs::create_symlink(elsewhere, path);
  EXPECT_FALSE(cache_.Load("kernel", 0));
  DiskCache linked({.directory = scratch_.path() + "/link"});
  fs::create_directory_symlink(directory_, scratch_.path() + "/link");
  EXPECT_FALSE(linked.Load("kernel", 0));
}

TEST_F(DiskCacheTest, ForeignFilesAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] only root can make another user's file";
  ASSERT_TRUE(Store("kernel", "code"));
  ASSERT_EQ(chown(OnlyFile().c_str(), 4711, 4711), 0);
  EXPECT_EQ(cache_.Load("kernel", 0).error().kind, ErrorKind::kInvalid);
  ASSERT_EQ(chown(OnlyFile().c_str(), 0, 0), 0);
  ASSERT_EQ(chown(directory_.c_str(), 4711, 4711), 0);
  EXPECT_EQ(cache_.Load("kernel", 0).error().kind, ErrorKind::kInvalid);
}

TEST_F(DiskCacheTest, TheLeastRecentlyUsedGoWhenThereAreTooMany) {
  DiskCache small({.directory = directory_, .most_bytes = 1 << 20, .most_files = 10});
  for (int i = 0; i < 200; ++i) {
    std::string code = "code " + std::to_string(i);
    ASSERT_TRUE(small.Store("kernel " + std::to_string(i), 0, "c", Reply(code), Code(code)));
  }
  EXPECT_LE(std::distance(fs::directory_iterator(directory_), {}), 10 + 64);
}

}  // namespace
}  // namespace hone
