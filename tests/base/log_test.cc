// The log: one line per event whatever the values hold, levels, threads that do not mix.
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

namespace hone {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hone-log-XXXXXX";
    fd_ = UniqueFd(mkstemp(name));
    unlink(name);
    SetLogFd(fd_.get());
  }
  void TearDown() override {
    SetLogFd(STDERR_FILENO);
    SetLogLevel(LogLevel::kInfo);
  }
  std::string Text() {
    lseek(fd_.get(), 0, SEEK_SET);
    return ReadAll(fd_.get(), 64 << 20).value();
  }
  UniqueFd fd_;
};

TEST_F(LogTest, WritesTimeLevelEventAndFields) {
  LogInfo(
      "trial",
      {{"key", "9f3c"}, {"round", 7}, {"us", 41.25}, {"best", true}, {"left", uint64_t{1} << 63}, {"by", int8_t{-3}}});
  EXPECT_TRUE(std::regex_match(
      Text(), std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z info trial key=9f3c round=7 us=41.25 "
                         "best=true left=9223372036854775808 by=-3\n")))
      << Text();
}

TEST_F(LogTest, KeepsHostileTextOnOneLine) {
  LogWarn("request", {{"text", "two words\nerror fake=1 \"quoted\" \\ \x1b[31m"}, {"empty", ""}, {"equals", "a=b"}});
  std::string text = Text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, HasSubstr(R"(text="two words\nerror fake=1 \"quoted\" \\ \x1b[31m" empty="" equals="a=b")"));
}

TEST_F(LogTest, LevelsFilterAndCanBeSet) {
  LogDebug("quiet");
  SetLogLevel(LogLevel::kError);
  LogWarn("quiet");
  EXPECT_EQ(Text(), "");
  EXPECT_FALSE(LogEnabled(LogLevel::kWarn));
  SetLogLevel(LogLevel::kDebug);
  LogDebug("loud");
  EXPECT_THAT(Text(), EndsWith("debug loud\n"));
  for (LogLevel level : {LogLevel::kError, LogLevel::kWarn, LogLevel::kInfo, LogLevel::kDebug})
    EXPECT_EQ(ParseLogLevel(LogLevelName(level)), level);
  EXPECT_FALSE(ParseLogLevel("loud").has_value());
}

TEST_F(LogTest, ThreadsDoNotMixLines) {
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread)
      threads.emplace_back([] {
        for (int i = 0; i < 500; ++i) LogInfo("event", {{"text", std::string(200, 'x')}, {"end", "here"}});
      });
  }
  std::string text = Text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2000);
  std::regex line("[^ ]+ info event text=x{200} end=here");
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    ASSERT_TRUE(std::regex_match(text.substr(begin, end - begin), line));
    begin = end + 1;
  }
}

TEST_F(LogTest, LeavesErrnoAlone) {
  SetLogFd(-1);  // every write fails
  errno = ENOENT;
  LogError("event");
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace hone
