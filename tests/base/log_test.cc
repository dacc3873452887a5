// The log: one line per event whatever the values hold, levels, threads that do not mix.
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <limits>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::string_literals;

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

// `fd`: where the log went before.
void LogToAJournal(int fd, const std::function<std::string()>& text) {
  TemporaryDirectory directory;
  const std::string path = directory / "journal";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd journal(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(journal.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  struct stat info;
  ASSERT_EQ(fstat(fd, &info), 0);

  unsetenv("JOURNAL_STREAM");
  EXPECT_FALSE(LogToJournal(path));
  setenv("JOURNAL_STREAM", "1:2", 1);  // standard error of somebody else
  EXPECT_FALSE(LogToJournal(path));
  setenv("JOURNAL_STREAM", (std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino)).c_str(), 1);
  EXPECT_FALSE(LogToJournal(directory / "none"));
  LogInfo("before");
  ASSERT_TRUE(LogToJournal(path));
  LogWarn("trial", {{"key", "9f3c"}, {"worst.us", 41.25}, {"text", "two\nlines"}});
  char entry[4096];
  const ssize_t size = recv(journal.get(), entry, sizeof entry, MSG_DONTWAIT);
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string(entry, static_cast<size_t>(size)),
            "MESSAGE=trial key=9f3c worst.us=41.25 text=\"two\\nlines\"\n"
            "PRIORITY=4\nSYSLOG_IDENTIFIER=base_tests\nHONE_EVENT=trial\nHONE_KEY=9f3c\nHONE_WORST_US=41.25\n"
            "HONE_TEXT\n\x09\0\0\0\0\0\0\0two\nlines\n"s);
  // What the journal does not take is a line.
  const std::string huge(1 << 20, 'x');
  LogError("huge", {{"text", huge}});
  EXPECT_EQ(recv(journal.get(), entry, sizeof entry, MSG_DONTWAIT), -1);
  EXPECT_THAT(text(), HasSubstr("info before\n"));
  EXPECT_THAT(text(), HasSubstr("error huge text=xxx"));
  EXPECT_THAT(text(), Not(HasSubstr("trial")));
  // One that does not read keeps nobody waiting.
  for (int i = 0; i < 5000; ++i) LogInfo("flood", {{"i", i}});
  journal.Reset();
  LogInfo("gone");
  EXPECT_THAT(text(), HasSubstr("info gone\n"));
}

// In a process of its own: what goes to the journal goes there for good.
TEST_F(LogTest, GoesToTheJournalAsFieldsWhereThatReadsIt) {
  const auto in_child = [this] {
    LogToAJournal(fd_.get(), [this] { return Text(); });
    _exit(HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(in_child(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hone
