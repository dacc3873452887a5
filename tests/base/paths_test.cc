// Paths follow XDG; relative values are ignored.
#include "base/paths.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <map>
#include <string>

#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

class PathsTest : public ::testing::Test {
 protected:
  static constexpr const char* kVariables[] = {"HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "HONE_SOCKET"};
  void SetUp() override {
    for (const char* name : kVariables) {
      if (const char* value = getenv(name)) before_[name] = value;
      unsetenv(name);
    }
    setenv("HOME", "/home/u", 1);
  }
  void TearDown() override {
    for (const char* name : kVariables) {
      if (before_.contains(name))
        setenv(name, before_[name].c_str(), 1);
      else
        unsetenv(name);
    }
  }
  std::map<std::string, std::string> before_;
};

TEST_F(PathsTest, DefaultsLieUnderHome) {
  EXPECT_EQ(*DefaultCacheDir(), "/home/u/.cache/hone");
  EXPECT_EQ(*DefaultRuntimeDir(), "/home/u/.cache/hone/run");
  EXPECT_EQ(*DefaultSocketPath(), "/home/u/.cache/hone/run/honed.sock");
}

TEST_F(PathsTest, XdgVariablesWin) {
  setenv("XDG_CACHE_HOME", "/c", 1);
  EXPECT_EQ(*DefaultCacheDir(), "/c/hone");
  EXPECT_EQ(*DefaultRuntimeDir(), "/c/hone/run");
  setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
  EXPECT_EQ(*DefaultRuntimeDir(), "/run/user/1000/hone");
  EXPECT_EQ(*DefaultSocketPath(), "/run/user/1000/hone/honed.sock");
  setenv("HONE_SOCKET", "/elsewhere/s", 1);
  EXPECT_EQ(*DefaultSocketPath(), "/elsewhere/s");
}

TEST_F(PathsTest, RelativeAndEmptyValuesAreIgnored) {
  setenv("XDG_CACHE_HOME", "relative", 1);
  setenv("XDG_RUNTIME_DIR", "", 1);
  setenv("HONE_SOCKET", "", 1);
  EXPECT_EQ(*DefaultSocketPath(), "/home/u/.cache/hone/run/honed.sock");
  EXPECT_FALSE(Environment("HONE_SOCKET").has_value());
}

TEST_F(PathsTest, WithoutHomeTheUserDatabaseIsAsked) {
  unsetenv("HOME");
  Result<std::string> cache = DefaultCacheDir();
  if (!cache)
    EXPECT_EQ(cache.error().kind, ErrorKind::kNotFound);
  else
    EXPECT_EQ(cache->front(), '/');
}

TEST_F(PathsTest, PrivateDirectoriesAreMadeAndChecked) {
  TemporaryDirectory directory;
  ASSERT_TRUE(EnsurePrivateDirectory(directory / "run/hone").has_value());
  struct stat info;
  ASSERT_EQ(stat((directory / "run/hone").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  ASSERT_EQ(chmod((directory / "run/hone").c_str(), 0777), 0);
  EXPECT_EQ(EnsurePrivateDirectory(directory / "run/hone").error().kind, ErrorKind::kInvalid);
}

}  // namespace
}  // namespace hone
