#include "daemon/config.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

Error Refusal(const std::string& text) {
  Result<Config> config = ParseConfig(text, "honed.toml");
  EXPECT_FALSE(config) << text;
  return config ? Error{} : config.error();
}

TEST(Config, AnEmptyFileChangesNothing) {
  Result<Config> config = ParseConfig("", "honed.toml");
  ASSERT_TRUE(config);
  EXPECT_TRUE(NeedRestart(Config{}, *config).empty());
}

TEST(Config, TheDescriptionIsAFileThatChangesNothing) {
  Result<Config> config = ParseConfig(DescribeConfig(), "honed.toml");
  ASSERT_TRUE(config) << config.error().Text();
  Config standard;
  EXPECT_EQ(config->queue, standard.queue);
  EXPECT_EQ(config->cache_bytes, standard.cache_bytes);
  EXPECT_EQ(config->hot_bytes, standard.hot_bytes);
  EXPECT_EQ(config->hot_entries, standard.hot_entries);
  EXPECT_EQ(config->memo_entries, standard.memo_entries);
  EXPECT_EQ(config->store_memory, standard.store_memory);
  EXPECT_EQ(config->connections, standard.connections);
  EXPECT_EQ(config->requests, standard.requests);
  EXPECT_EQ(config->build_limit, standard.build_limit);
  EXPECT_EQ(config->check_limit, standard.check_limit);
  EXPECT_EQ(config->frame_time, standard.frame_time);
  EXPECT_EQ(config->stall_time, standard.stall_time);
  EXPECT_EQ(config->log, standard.log);
  EXPECT_TRUE(NeedRestart(standard, *config).empty());
}

TEST(Config, ReadsEveryKindOfValue) {
  Result<Config> config = ParseConfig(R"(
log = "debug"
[server]
users = [1000, 1001]
queue = 7
stall_time = "1500ms"
[cache]
directory = "/somewhere"
size = "2GiB"
[memory]
code = "16 MiB"
store = "8MiB"
[service]
idle_exit = "15min"
[metrics]
listen = "[::1]:9464"
)",
                                      "honed.toml");
  ASSERT_TRUE(config) << config.error().Text();
  EXPECT_EQ(config->log, LogLevel::kDebug);
  EXPECT_EQ(config->users, (std::vector<uid_t>{1000, 1001}));
  EXPECT_EQ(config->queue, 7u);
  EXPECT_EQ(config->stall_time, std::chrono::milliseconds(1500));
  EXPECT_EQ(config->cache, "/somewhere");
  EXPECT_EQ(config->cache_bytes, uint64_t{2} << 30);
  EXPECT_EQ(config->hot_bytes, uint64_t{16} << 20);
  EXPECT_EQ(config->store_memory, uint64_t{8} << 20);
  EXPECT_EQ(config->idle_exit, std::chrono::minutes(15));
  EXPECT_EQ(config->metrics_listen, "[::1]:9464");
  EXPECT_EQ(ParseConfig("service.idle_exit = \"\"", "x")->idle_exit, std::chrono::milliseconds(0));
  EXPECT_TRUE(ParseConfig("server.users = \"any\"", "x")->any_user);
}

TEST(Config, ErrorsSayPlaceSeenAndWanted) {
  Error unknown = Refusal("log = \"info\"\n[server]\nqueu = 7\n");
  EXPECT_EQ(unknown.where, "honed.toml:3:1");
  EXPECT_NE(unknown.message.find("server.queu"), std::string::npos);
  EXPECT_NE(unknown.message.find("queue"), std::string::npos);
  Error range = Refusal("[server]\nqueue = 0\n");
  EXPECT_EQ(range.where, "honed.toml:2:9");
  EXPECT_NE(range.message.find("0 is not within 1"), std::string::npos);
  EXPECT_EQ(Refusal("[server]\nqueue = \"many\"\n").where, "honed.toml:2:9");
  EXPECT_EQ(Refusal("log = \"loud\"").where, "honed.toml:1:7");
  EXPECT_EQ(Refusal("log = ").kind, ErrorKind::kInvalid);
  EXPECT_NE(Refusal("[serve]\nqueue = 1").message.find("[server]"), std::string::npos);
  EXPECT_NE(Refusal("server = 3").message.find("section"), std::string::npos);
  EXPECT_NE(Refusal("[cache]\nsize = \"12 elephants\"").message.find("4GiB"), std::string::npos);
  EXPECT_NE(Refusal("[cache]\nsize = \"99999999 TiB\"").message.find("out of range"), std::string::npos);
  EXPECT_NE(Refusal("[cache]\ndirectory = \"relative\"").message.find("absolute"), std::string::npos);
  Refusal("[server]\nusers = [-1]");
  Refusal("[server]\nusers = \"everybody\"");
  Refusal("[build]\nbuild_limit = \"0ms\"");
  Refusal("[build]\nbuild_limit = 30");
  EXPECT_NE(Refusal("[metrics]\nlisten = \"0.0.0.0:9464\"").message.find("loopback"), std::string::npos);
  Refusal("[metrics]\nlisten = 9464");
  Refusal("[service]\nidle_exit = \"soon\"");
}

TEST(Config, KnowsWhatNeedsARestart) {
  Config now, next;
  next.queue = 1;
  next.log = LogLevel::kDebug;
  EXPECT_TRUE(NeedRestart(now, next).empty());
  next.socket = "/x";
  next.builders = 9;
  EXPECT_EQ(NeedRestart(now, next), (std::vector<std::string>{"server.socket", "build.builders"}));
}

TEST(Config, AFileThatOthersCanChangeIsRefused) {
  TemporaryDirectory directory;
  const std::string folder = directory / "etc", path = folder + "/honed.toml";
  ASSERT_TRUE(CreateDirectories(folder, 0755));
  ASSERT_TRUE(WriteFileAtomically(path, "log = \"debug\"\n", 0644));
  EXPECT_TRUE(LoadConfig(path));
  auto refusal = [&](const std::string& name) {
    Result<Config> config = LoadConfig(name);
    return config ? Error{} : config.error();
  };
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(refusal(path).where, path);
  EXPECT_NE(refusal(path).message.find("chmod go-w"), std::string::npos);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  EXPECT_EQ(refusal(path).where, folder);
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  std::filesystem::create_symlink(path, directory / "link.toml");
  EXPECT_NE(refusal(directory / "link.toml").message.find("is a link"), std::string::npos);
  EXPECT_EQ(refusal(directory / "none.toml").kind, ErrorKind::kNotFound);
  EXPECT_TRUE(LoadConfig(path));
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] the rest needs root to give a file away";
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  EXPECT_NE(refusal(path).message.find("belongs to uid 12345"), std::string::npos);
}

}  // namespace
}  // namespace hone
