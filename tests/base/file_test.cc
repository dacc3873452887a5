// Files: limits, atomic replacement, and directories that others could tamper with.
#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/passing_processes.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(File, ReadsWithinTheLimit) {
  TemporaryDirectory directory;
  std::string path = directory / "file", contents(100'000, 'x');
  ASSERT_TRUE(WriteFileAtomically(path, contents).has_value());
  EXPECT_EQ(*ReadFile(path, 100'000), contents);
  EXPECT_EQ(ReadFile(path, 99'999).error().kind, ErrorKind::kLimit);
  Result<std::string> missing = ReadFile(directory / "none", 10);
  EXPECT_EQ(missing.error().kind, ErrorKind::kNotFound);
  EXPECT_THAT(missing.error().Text(), HasSubstr(directory / "none"));
  EXPECT_EQ(ReadFile("/dev/zero", 1000).error().kind, ErrorKind::kLimit);  // endless
}

TEST(File, AtomicWriteReplacesAndLeavesNothingBehind) {
  TemporaryDirectory directory;
  std::string path = directory / "file";
  ASSERT_TRUE(WriteFileAtomically(path, "old").has_value());
  ASSERT_TRUE(WriteFileAtomically(path, "new", 0640).has_value());
  EXPECT_EQ(*ReadFile(path, 10), "new");
  EXPECT_EQ(fs::status(path).permissions(), static_cast<fs::perms>(0640));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()), 1);
  EXPECT_FALSE(WriteFileAtomically(directory / "no/such/folder", "x").has_value());
  ASSERT_TRUE(CreateDirectories(directory / "folder/inside").has_value());
  EXPECT_FALSE(WriteFileAtomically(directory / "folder", "x").has_value());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()), 2);
}

TEST(File, CreatesMissingParents) {
  TemporaryDirectory directory;
  ASSERT_TRUE(CreateDirectories(directory / "a/b/c", 0700).has_value());
  EXPECT_TRUE(fs::is_directory(directory / "a/b/c"));
  EXPECT_EQ(fs::status(directory / "a").permissions(), static_cast<fs::perms>(0700));
  EXPECT_TRUE(CreateDirectories(directory / "a/b/c", 0700).has_value());
  ASSERT_TRUE(WriteFileAtomically(directory / "file", "").has_value());
  EXPECT_FALSE(CreateDirectories(directory / "file").has_value());
  EXPECT_FALSE(CreateDirectories(directory / "file/below").has_value());
}

TEST(File, ListsNamesInOrder) {
  TemporaryDirectory directory;
  for (const char* name : {"b", "a", ".c"}) ASSERT_TRUE(WriteFileAtomically(directory / name, ""));
  EXPECT_EQ(*ListDirectory(directory / ""), (std::vector<std::string>{".c", "a", "b"}));
  EXPECT_EQ(ListDirectory(directory / "d").error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(ListDirectory(directory / "a").error().kind, ErrorKind::kIo);
}

// Directories of /proc vanish under whoever reads them.
TEST(File, WhatGoesAwayMeanwhileIsAnError) {
  PassingProcesses passing;
  int gone = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (std::chrono::steady_clock::now() < end) {
    const std::string process = "/proc/" + std::to_string(passing.newest());
    gone += !ReadFile(process + "/stat", 4096) || !ListDirectory(process + "/task");
  }
  EXPECT_GT(gone, 0);
}

TEST(File, DiskUsageCountsFilesBelow) {
  TemporaryDirectory directory;
  ASSERT_TRUE(CreateDirectories(directory / "a/b").has_value());
  ASSERT_TRUE(WriteFileAtomically(directory / "a/one", std::string(10'000, 'x')).has_value());
  ASSERT_TRUE(WriteFileAtomically(directory / "a/b/two", std::string(50'000, 'x')).has_value());
  fs::create_symlink("/usr", directory / "a/link");
  EXPECT_GE(DiskUsage(directory.path()), 60'000u);
  EXPECT_LE(DiskUsage(directory.path()), 100'000u);
  EXPECT_EQ(DiskUsage(directory / "none"), 0u);
}

class PrivateDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(CreateDirectories(directory_ / "a/b", 0700).has_value());
    EXPECT_TRUE(Opens("a/b"));
  }
  bool Opens(const std::string& name) { return OpenPrivateDirectory(directory_ / name).has_value(); }
  Error Refusal(const std::string& name) {
    Result<UniqueFd> opened = OpenPrivateDirectory(directory_ / name);
    return opened ? Error{ErrorKind::kInternal, "was opened", ""} : opened.error();
  }
  void Mode(const std::string& name, mode_t mode) { ASSERT_EQ(chmod((directory_ / name).c_str(), mode), 0); }

  TemporaryDirectory directory_;
};

TEST_F(PrivateDirectory, IsOpenedThroughItsDescriptor) {
  Result<UniqueFd> opened = OpenPrivateDirectory(directory_ / "a//b/");
  ASSERT_TRUE(opened.has_value()) << opened.error().Text();
  EXPECT_GE(openat(opened->get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
}

TEST_F(PrivateDirectory, OthersMayWriteNeitherItNorWhatIsAbove) {
  Mode("a/b", 0770);
  EXPECT_EQ(Refusal("a/b").kind, ErrorKind::kInvalid);
  EXPECT_THAT(Refusal("a/b").Text(), HasSubstr("can be written by others"));
  Mode("a/b", 0702);
  EXPECT_FALSE(Opens("a/b"));
  Mode("a/b", 0755);  // readable is fine
  EXPECT_TRUE(Opens("a/b"));
  Mode("a", 0777);
  EXPECT_FALSE(Opens("a/b"));
  EXPECT_THAT(Refusal("a/b").where, ::testing::EndsWith("/a"));
}

TEST_F(PrivateDirectory, StickyFoldersOfRootMayLieOnTheWayOnly) {
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] needs root to make a folder of root's";
  Mode("a", 01777);
  EXPECT_TRUE(Opens("a/b"));
  EXPECT_FALSE(Opens("a"));
}

TEST_F(PrivateDirectory, LinksAreNotFollowed) {
  fs::create_directory_symlink(directory_ / "a", directory_ / "link");
  EXPECT_EQ(Refusal("link").kind, ErrorKind::kInvalid);
  EXPECT_EQ(Refusal("link/b").kind, ErrorKind::kInvalid);
  EXPECT_FALSE(Opens("a/../a/b"));
}

TEST_F(PrivateDirectory, SomebodyElsesIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] needs root to give a folder away";
  ASSERT_EQ(chown((directory_ / "a").c_str(), 12345, 12345), 0);
  EXPECT_THAT(Refusal("a/b").Text(), HasSubstr("belongs to uid 12345"));
}

TEST_F(PrivateDirectory, MissingAndRelativeAreTold) {
  EXPECT_EQ(Refusal("a/none").kind, ErrorKind::kNotFound);
  EXPECT_EQ(OpenPrivateDirectory("relative").error().kind, ErrorKind::kInvalid);
  ASSERT_TRUE(WriteFileAtomically(directory_ / "file", "").has_value());
  EXPECT_EQ(Refusal("file").kind, ErrorKind::kInvalid);
}

// As a user's service manager starts a unit with PrivateUsers=: this user is mapped, root and the others are nobody.
bool EnterNamespaceWithoutRoot(uid_t uid) {
  if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0) return false;
  if (unshare(CLONE_NEWUSER) != 0) return false;
  UniqueFd map(open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC));
  const std::string line = std::to_string(uid) + " " + std::to_string(uid) + " 1";
  return map && WriteAll(map.get(), line).has_value();
}

TEST_F(PrivateDirectory, OfRootIsKnownByItsPlaceWhereThereIsNoRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] only root makes directories of others";
  constexpr uid_t kUser = 12345, kOther = 12346;
  const std::string home = directory_ / "home", others = directory_ / "others";
  for (const std::string& path : {home, home + "/cache", others, others + "/cache"})
    ASSERT_TRUE(CreateDirectories(path, 0755));
  fs::permissions(directory_.path(), static_cast<fs::perms>(0755));
  for (const std::string& path : {home, home + "/cache", others + "/cache"})
    ASSERT_EQ(chown(path.c_str(), kUser, kUser), 0);
  ASSERT_EQ(chown(others.c_str(), kOther, kOther), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("HOME", (home + "/user").c_str(), 1);
    unsetenv("XDG_RUNTIME_DIR");
    if (!EnterNamespaceWithoutRoot(kUser)) _exit(77);
    if (!OpenPrivateDirectory(home + "/cache")) _exit(1);             // below directories of root
    if (OpenPrivateDirectory(others + "/cache")) _exit(2);            // below somebody else's
    if (!OpenPrivateDirectory("/etc", Owner::kSelfOrRoot)) _exit(3);  // root's
    if (OpenPrivateDirectory("/etc", Owner::kSelf)) _exit(4);         // and not this user's
    if (OpenPrivateDirectory(others, Owner::kSelfOrRoot)) _exit(5);   // somebody's
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "[SKIP] no namespaces of users here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace hone
