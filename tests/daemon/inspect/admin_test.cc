#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "daemon/inspect/record_facts.h"
#include "tests/daemon/test_server.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using testing::Soon;
using testing::TestServer;
using testing::TestServerOptions;

template <typename Request>
Result<ReplyTo<Request>> Call(TestServer& server, const Request& request) {
  Channel channel = server.Connect();
  return channel.Call(request, Soon());
}

std::vector<RecordRow> List(TestServer& server, const std::string& prefix = "") {
  Channel channel = server.Connect();
  uint64_t id = *channel.Ask(ListRequest{prefix}, Soon());
  std::vector<RecordRow> rows;
  for (;;) {
    Result<ListReply> part = channel.Await<ListReply>(id, Soon());
    EXPECT_TRUE(part) << part.error().Text();
    if (!part) return rows;
    std::move(part->rows.begin(), part->rows.end(), std::back_inserter(rows));
    if (!part->more) return rows;
  }
}

TEST(Admin, StatusCounts) {
  TestServer server;
  ASSERT_TRUE(server.Get("add(M=1,N=1)"));
  ASSERT_TRUE(server.Get("add(M=1,N=1)"));
  Result<StatusReply> status = Call(server, StatusRequest{});
  ASSERT_TRUE(status);
  EXPECT_EQ(status->version, HONE_VERSION);
  EXPECT_EQ(status->hits, 1u);
  EXPECT_EQ(status->misses, 1u);
  EXPECT_EQ(status->pid, getpid());
  ASSERT_FALSE(status->targets.empty());  // this program has a device of another kind, too
  EXPECT_TRUE(status->targets.front().starts_with("cpu ")) << status->targets.front();
}

TEST(Admin, HealthSaysWhatHoldsTheProcessesThatServe) {
  TestServer server;
  Confinement builder, runner;
  builder.child = "builder";
  builder.landlock = 3;
  runner.child = "runner";
  runner.no_landlock = "a filter keeps it away";
  server.pools.confinements = {builder, runner};
  Result<HealthReply> health = Call(server, HealthRequest{});
  ASSERT_TRUE(health) << health.error().Text();
  EXPECT_EQ(health->losses, 0u);
  ASSERT_EQ(health->children.size(), 2u);
  EXPECT_EQ(health->children[0].child, "builder");
  EXPECT_TRUE(health->children[0].complete);
  EXPECT_FALSE(health->children[1].complete);
  EXPECT_NE(health->children[1].holds.find("a filter keeps it away"), std::string::npos);
}

TEST(Admin, StatusSaysWhatWasLostUntilVerifyHasTold) {
  namespace fs = std::filesystem;
  TemporaryDirectory directory;
  TestServerOptions live, damaged;
  live.cache = directory / "live";
  damaged.cache = directory / "damaged";
  {
    TestServer server(live);
    for (int n = 1; n <= 12; ++n) {
      Result<GetReply> reply = server.Get("add(M=1,N=" + std::to_string(n) + ")");
      ASSERT_TRUE(reply);
      ASSERT_TRUE(Call(server, EditRequest{EditAction::kPin, reply->fingerprint}));
    }
    fs::copy(live.cache, damaged.cache, fs::copy_options::recursive);  // as a killed process leaves it
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(damaged.cache + "/db")) {
    if (entry.path().extension() != ".log") continue;
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(fs::file_size(entry.path()) / 3));
    file << "sixteen bytes of";
  }
  TestServer server(damaged);
  EXPECT_NE(Call(server, StatusRequest{})->cache_problem.find("hone verify"), std::string::npos);
  EXPECT_EQ(Call(server, HealthRequest{})->losses, 1u);
  Channel channel = server.Connect();
  uint64_t id = *channel.Ask(VerifyRequest{}, Soon());
  size_t told = 0;
  for (bool more = true; more;) {
    Result<VerifyReply> part = channel.Await<VerifyReply>(id, Soon());
    ASSERT_TRUE(part) << part.error().Text();
    for (const VerifyRow& row : part->rows) told += row.fingerprint.empty();
    more = part->more;
  }
  EXPECT_GE(told, 1u);
  EXPECT_EQ(Call(server, StatusRequest{})->cache_problem, "");
  EXPECT_EQ(Call(server, HealthRequest{})->losses, 1u);
}

TEST(Admin, AnArtifactThatWasNotCheckedHereIsNotSaidToBeServed) {
  Record record;
  record.artifact_digest.emplace();
  auto words_of = [&](const ArtifactState& state) {
    for (const Fact& reason : ReasonsOf(record, state))
      if (reason.name == "artifact") return reason.value;
    return std::string();
  };
  EXPECT_EQ(words_of({.is_ours = true, .is_current = true, .is_checked = true}), "kept; a request compiles nothing");
  for (ArtifactState state :
       {ArtifactState{.is_ours = true, .is_current = true}, ArtifactState{.is_ours = true, .is_checked = true}})
    EXPECT_NE(words_of(state).find("the next request compiles the schedule again"), std::string::npos);
}

TEST(Admin, WhatHasRunElsewhereAloneIsNotSaidToBeVerified) {
  Record record;
  record.key.target = "cpu avx2 cpu=generic features= l1=32768 l2=524288 l3=4194304 cores=1";
  record.check = {1e-7, 300, true};
  record.source = RecordSource{"pool", 1, std::nullopt, Origin::kTuned, true};
  auto fact = [&](const std::string& name) {
    for (const Fact& fact : FactsOf(record))
      if (fact.name == name) return fact.value;
    return std::string();
  };
  EXPECT_EQ(fact("verified"), "no");
  EXPECT_EQ(fact("checked"), "every element, on another machine");
  record.source->times_elsewhere = false;
  EXPECT_EQ(fact("verified"), "yes");
  EXPECT_EQ(fact("checked"), "every element");
}

TEST(Admin, StatsHaveTheHitsTime) {
  TestServer server;
  ASSERT_TRUE(server.Get("add(M=1,N=1)"));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(server.Get("add(M=1,N=1)"));
  Result<StatsReply> stats = Call(server, StatsRequest{});
  ASSERT_TRUE(stats);
  std::map<std::string, double> values;
  for (const Stat& stat : stats->stats) values[stat.name] = stat.value;
  EXPECT_EQ(values["hits_memory"], 5);
  EXPECT_EQ(values["hit_count"], 5);
  EXPECT_GT(values["hit_p50_us"], 0);
  EXPECT_GT(values["serving_cpu_us"], 0);
}

TEST(Admin, ExplainsAKernelByFingerprintAndByName) {
  TestServer server;
  const std::string kernel = "add(M=3,N=5)";
  Result<ExplainReply> none = Call(server, ExplainRequest{{kernel, false}});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kNotFound);
  Result<GetReply> served = server.Get(kernel);
  ASSERT_TRUE(served);
  for (bool by_fingerprint : {false, true}) {
    Result<ExplainReply> reply =
        Call(server, ExplainRequest{{by_fingerprint ? served->fingerprint.substr(0, 8) : kernel, by_fingerprint}});
    ASSERT_TRUE(reply) << reply.error().Text();
    EXPECT_EQ(reply->row.fingerprint, served->fingerprint);
    EXPECT_EQ(reply->row.kernel, kernel);
    ASSERT_FALSE(reply->reasons.empty());
    EXPECT_EQ(reply->reasons[0].name, "schedule");
    EXPECT_EQ(reply->trials, 0u);
    EXPECT_FALSE(reply->rules.empty());
    EXPECT_GE(reply->space_size, 1);
  }
  Result<ExplainReply> unknown = Call(server, ExplainRequest{{"ffffffff", true}});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().kind, ErrorKind::kNotFound);
  EXPECT_NE(unknown.error().message.find("hone ls"), std::string::npos) << unknown.error().Text();
  Result<ExplainReply> wrong = Call(server, ExplainRequest{{"add(M=3", false}});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::kInvalid);
}

TEST(Admin, AKernelForAnotherNumberOfThreadsIsAnother) {
  TestServer server;
  const std::string kernel = "add(M=3,N=5)";
  for (int threads : {1, 2}) {
    Result<GetReply> served = Call(server, GetRequest{.kernel = kernel, .threads = static_cast<uint32_t>(threads)});
    ASSERT_TRUE(served) << served.error().Text();
    Result<ExplainReply> reply = Call(server, ExplainRequest{{kernel, false, static_cast<uint32_t>(threads)}});
    ASSERT_TRUE(reply) << reply.error().Text();
    EXPECT_EQ(reply->row.fingerprint, served->fingerprint);
    EXPECT_EQ(reply->threads, static_cast<uint32_t>(threads));
  }
  EXPECT_EQ(Call(server, TextRequest{TextKind::kSchedule, {kernel, false, 3}}).error().kind, ErrorKind::kNotFound);
}

TEST(Admin, ListsByClassInSeveralParts) {
  TestServer server;
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(server.Get("add(M=1,N=" + std::to_string(n) + ")"));
  ASSERT_TRUE(server.Get("mul(M=1,N=1)"));
  EXPECT_EQ(List(server).size(), 4u);
  std::vector<RecordRow> adds = List(server, "add");
  ASSERT_EQ(adds.size(), 3u);
  for (const RecordRow& row : adds) {
    EXPECT_EQ(row.class_name, "add");
    EXPECT_EQ(row.origin, "default");
    EXPECT_GT(row.artifact_bytes, 0u);
  }
  EXPECT_TRUE(List(server, "conv").empty());
}

TEST(Admin, ALongListComesWholeThroughAClientThatReadsSlowly) {
  TestServer server;
  Record record;
  record.label = "many";
  record.schedule = "s";
  for (int i = 0; i < 3000; ++i) {
    record.key.fingerprint.bytes[0] = static_cast<uint8_t>(i);
    record.key.fingerprint.bytes[1] = static_cast<uint8_t>(i >> 8);
    record.key.canonical = "k" + std::to_string(i);
    record.key.target = "t";
    record.request = std::string(2000, 'x');
    ASSERT_TRUE(server.cache->Put({record, "class", std::nullopt}, Durability::kSoon));
  }
  Channel channel = server.Connect();
  uint64_t id = *channel.Ask(ListRequest{}, Soon());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // 6 MB do not fit the socket
  size_t rows = 0;
  for (bool more = true; more;) {
    Result<ListReply> part = channel.Await<ListReply>(id, Soon());
    ASSERT_TRUE(part) << part.error().Text();
    rows += part->rows.size();
    more = part->more;
  }
  EXPECT_EQ(rows, 3000u);
}

TEST(Admin, ShowsARecordByAnyUnambiguousPrefix) {
  TestServer server;
  Result<GetReply> reply = server.Get("matmul(M=4,N=4,K=4)");
  ASSERT_TRUE(reply);
  for (size_t digits : {4, 8, 32}) {
    Result<ShowReply> shown = Call(server, ShowRequest{reply->fingerprint.substr(0, digits)});
    ASSERT_TRUE(shown) << shown.error().Text();
    EXPECT_EQ(shown->row.fingerprint, reply->fingerprint);
    EXPECT_EQ(shown->row.kernel, "matmul(M=4,N=4,K=4)");
    EXPECT_EQ(shown->schedule, "the default");
    EXPECT_FALSE(shown->facts.empty());
    EXPECT_FALSE(shown->reasons.empty());
  }
  EXPECT_EQ(Call(server, ShowRequest{"0123456789abcdef"}).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(Call(server, ShowRequest{"xyz"}).error().kind, ErrorKind::kInvalid);
}

TEST(Admin, RemovingForgetsMemoryToo) {
  TestServer server;
  Result<GetReply> reply = server.Get("add(M=1,N=1)");
  ASSERT_TRUE(reply);
  ASSERT_TRUE(Call(server, EditRequest{EditAction::kRemove, reply->fingerprint}));
  EXPECT_EQ(server.Get("add(M=1,N=1)", {.no_compile = true}).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(Call(server, EditRequest{EditAction::kRemove, reply->fingerprint}).error().kind, ErrorKind::kNotFound);
}

TEST(Admin, PinningShowsInTheNextHit) {
  TestServer server;
  Result<GetReply> reply = server.Get("add(M=1,N=1)");
  ASSERT_TRUE(reply);
  EXPECT_FALSE(reply->pinned);
  ASSERT_TRUE(Call(server, EditRequest{EditAction::kPin, reply->fingerprint.substr(0, 10)}));
  EXPECT_TRUE(server.Get("add(M=1,N=1)", {.no_compile = true})->pinned);
  ASSERT_TRUE(Call(server, EditRequest{EditAction::kUnpin, reply->fingerprint}));
  EXPECT_FALSE(server.Get("add(M=1,N=1)", {.no_compile = true})->pinned);
  EXPECT_EQ(server.pools.builds, 1);
}

TEST(Admin, GivesScheduleAndCodeByFingerprintOrKernel) {
  TestServer server;
  Result<GetReply> reply = server.Get("add(M=1,N=1)");
  ASSERT_TRUE(reply);
  Result<TextReply> text = Call(server, TextRequest{TextKind::kSchedule, {reply->fingerprint, true}});
  ASSERT_TRUE(text);
  EXPECT_EQ(text->text, "the default");
  text = Call(server, TextRequest{TextKind::kCode, {"add(N=1,M=1)", false}});
  ASSERT_TRUE(text) << text.error().Text();
  EXPECT_TRUE(text->text.starts_with("code of "));
  EXPECT_EQ(server.pools.explains, 0);  // serving's builders are left alone
  EXPECT_EQ(server.admin_pools.explains, 1);
  EXPECT_EQ(Call(server, TextRequest{TextKind::kCode, {"add(N=2,M=1)", false}}).error().kind, ErrorKind::kNotFound);
}

TEST(Admin, VerifyNamesWhatIsWrong) {
  TestServer server;
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(server.Get("add(M=1,N=" + std::to_string(n) + ")"));
  for (bool run : {false, true}) {
    if (run) server.admin_pools.check_failure = Error{ErrorKind::kWrongResult, "off by one", ""};
    Channel channel = server.Connect();
    uint64_t id = *channel.Ask(VerifyRequest{run}, Soon());
    size_t bad = 0, all = 0;
    for (bool more = true; more;) {
      Result<VerifyReply> part = channel.Await<VerifyReply>(id, Soon());
      ASSERT_TRUE(part) << part.error().Text();
      for (const VerifyRow& row : part->rows) {
        ++all;
        bad += !row.ok;
        EXPECT_EQ(row.ran, run);
        if (!row.ok) { EXPECT_NE(row.problem.find("off by one"), std::string::npos); }
      }
      more = part->more;
    }
    EXPECT_EQ(all, 3u);
    EXPECT_EQ(bad, run ? 3u : 0u);
  }
}

TEST(Tuning, ASearchThatCannotMeasureIsAnErrorAndTheKernelIsServed) {
  TestServer server;
  Result<TuneReply> reply = Call(server, TuneRequest{.kernel = "add(M=1,N=1)"});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(reply.error().message.find("no searches here"), std::string::npos);
  EXPECT_TRUE(server.Get("add(M=1,N=1)"));
}

TEST(Tuning, RefusesWhatIsNoKernel) {
  TestServer server;
  Result<TuneReply> reply = Call(server, TuneRequest{.kernel = "add(M=1"});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, ErrorKind::kInvalid);
}

TEST(Admin, AClientThatLeavesDuringALongAnswerStopsIt) {
  TestServer server;
  Record record;
  record.schedule = "s";
  record.key.target = "t";
  record.request = std::string(4000, 'x');
  for (int i = 0; i < 2000; ++i) {
    record.key.fingerprint.bytes[0] = static_cast<uint8_t>(i);
    record.key.fingerprint.bytes[1] = static_cast<uint8_t>(i >> 8);
    record.key.canonical = "k" + std::to_string(i);
    ASSERT_TRUE(server.cache->Put({record, "class", std::nullopt}, Durability::kSoon));
  }
  {
    Channel channel = server.Connect();
    ASSERT_TRUE(channel.Ask(ListRequest{}, Soon()));
    ASSERT_TRUE(channel.Receive(Soon()));
  }
  // Others are answered, and nothing is made for it any more.
  EXPECT_TRUE(Call(server, StatusRequest{}));
}

}  // namespace
}  // namespace hone
