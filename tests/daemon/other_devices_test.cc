// A daemon with a kind of device that is no CPU: served, tuned and refined in idle time by the same path, and never
// mixed up with the CPU, nor one device with another.
#include <gmock/gmock.h>

#include <optional>
#include <string>

#include "base/bytes.h"
#include "daemon/inspect/record_facts.h"
#include "daemon/refine/idle_loop.h"
#include "daemon/serve/get_ready.h"
#include "tests/daemon/test_server.h"
#include "tests/support/devices/scripted_device.h"

namespace hone::other_devices_test {
namespace {

using ::testing::ElementsAre;
using testing::FakeWorkerPools;
using ::testing::HasSubstr;
using testing::Soon;
using ::testing::StartsWith;
using testing::TestServer;

constexpr const char* kKernel = "matmul(M=24,N=40,K=16)";
const std::string kFirst = "scripted model=toy speed=1", kSecond = "scripted model=toy speed=4",
                  kNotHere = "scripted speed=1 unchecked=old";

class OtherDevices : public ::testing::Test {
 protected:
  Result<GetReply> Get(const std::string& target) { return server_.Get(kKernel, {.kernel = "", .target = target}); }

  Result<TuneReply> Tune(const std::string& target, uint32_t trials) {
    TuneRequest request;
    request.kernel = kKernel;
    request.target = target;
    request.trials = trials;
    request.seed = 7;
    Channel channel = server_.Connect();
    const uint64_t id = HONE_TRY(channel.Ask(request, Soon()));
    for (;;) {
      TuneReply reply = HONE_TRY(channel.Await<TuneReply>(id, Soon()));
      if (!reply.more) return reply;
    }
  }

  std::optional<Record> RecordOf(const std::string& target) {
    const Result<ResolvedKernel> identity = server_.path->Identify({kKernel, target, 0});
    if (Result<std::optional<CacheHit>> hit = server_.cache->Lookup(identity->key, Counting::kNot); hit && *hit)
      return std::move((*hit)->record);
    return std::nullopt;
  }

  // On a machine that is never too busy.
  std::unique_ptr<IdleLoop> StartIdleLoop() {
    IdleLimits limits;
    limits.busy_cores = 1000;
    limits.stalled = 1000;
    limits.quiet = std::chrono::milliseconds(10);
    limits.on_battery = true;
    return std::make_unique<IdleLoop>(*server_.cache, *server_.path, *server_.tuning, server_.metrics, limits, 1.0, [] {
      return Result<std::unique_ptr<WorkerPools>>(std::make_unique<FakeWorkerPools>());
    });
  }

  std::optional<GetReady> get_ready_;  // which the server's loop calls to its end
  TestServer server_;
};

TEST_F(OtherDevices, ThatAreNotThereAreAnsweredWithThoseThatAre) {
  const Result<GetReply> reply = Get("scripted:7");
  ASSERT_FALSE(reply);
  EXPECT_THAT(reply.error().Text(), HasSubstr("no device \"scripted:7\" is served here; there is: cpu, scripted:0"));
}

TEST_F(OtherDevices, AreServedByNameAndByTarget) {
  Result<GetReply> reply = Get("scripted:0");
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_FALSE(reply->hit);
  EXPECT_EQ(reply->target, kFirst);
  EXPECT_EQ(reply->origin, "default");
  EXPECT_EQ(reply->expected_us, testing::ScriptedUs("", true, 1));
  Result<Manifest> manifest = DecodeManifest(AsBytes(reply->manifest));
  ASSERT_TRUE(manifest) << manifest.error().Text();
  EXPECT_EQ(manifest->target, kFirst);
  EXPECT_TRUE(Get(kFirst)->hit);
  EXPECT_EQ(server_.pools.builds, 0);  // the CPU's builders had nothing to do

  Result<GetReply> second = Get("scripted:1");
  ASSERT_TRUE(second) << second.error().Text();
  EXPECT_FALSE(second->hit);  // what was built for one device is not another's
  EXPECT_EQ(second->target, kSecond);
  EXPECT_EQ(second->expected_us, testing::ScriptedUs("", true, 4));

  Result<GetReply> cpu = Get("");
  ASSERT_TRUE(cpu) << cpu.error().Text();
  EXPECT_FALSE(cpu->hit);
  EXPECT_THAT(cpu->target, StartsWith("cpu avx2 "));
  EXPECT_EQ(server_.pools.builds, 1);
  EXPECT_EQ(Get("cpu")->target, cpu->target);
  EXPECT_EQ(server_.cache->RecordsOf(*server_.cache->Resolve(cpu->fingerprint))->size(), 3u);
}

TEST_F(OtherDevices, CodeOnDiskIsOpenedByTheirBackend) {
  ASSERT_TRUE(Get("scripted:0"));
  server_.Do([&] { server_.hot->Forget(RecordOf("scripted:0")->key.fingerprint); });
  Result<LookUpResult> found = server_.path->LookUp({kKernel, "scripted:0", 0});
  ASSERT_TRUE(found) << found.error().Text();
  ASSERT_NE(found->code, nullptr);
  EXPECT_EQ(found->code->reply.target, kFirst);
  EXPECT_FALSE(found->identity.device->backend->OpenArtifact(AsBytes("\x7f"
                                                                     "ELF"),
                                                             0));
}

// A new driver is another target: its code is another's, and so are times, but not what is fast.
TEST_F(OtherDevices, SchedulesOutliveADriver) {
  const Result<TuneReply> tuned = Tune("scripted:0", 40);
  ASSERT_TRUE(tuned) << tuned.error().Text();
  Record record = *RecordOf("scripted:0");
  ASSERT_EQ(record.origin, Origin::kTuned);
  ASSERT_FALSE(record.schedule.empty());
  const double us = Get("scripted:0")->expected_us;
  ASSERT_LT(us, testing::ScriptedUs("", true, 1));
  auto only = [&](const std::string& target) {
    ASSERT_TRUE(server_.cache->Remove(record.key.fingerprint));
    server_.Do([&] { server_.hot->Forget(record.key.fingerprint); });
    record.key.target = target;
    record.measured = Timing{.time = std::chrono::nanoseconds(1), .repeats = 1};
    ASSERT_TRUE(server_.cache->Put({record, "", std::nullopt}, Durability::kSynced));
  };
  only("scripted driver=1 model=toy speed=4");  // another device's
  Result<GetReply> reply = Get("scripted:0");
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(reply->origin, "default");
  only("scripted driver=1 model=toy speed=1");
  reply = Get("scripted:0");
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(reply->origin, "tuned");
  EXPECT_FALSE(reply->hit);
  EXPECT_EQ(reply->target, kFirst);
  EXPECT_EQ(reply->expected_us, us);
  EXPECT_EQ(RecordOf("scripted:0")->schedule, record.schedule);
  EXPECT_TRUE(Get("scripted:0")->hit);
}

TEST_F(OtherDevices, AreListedAndWhatIsNoneIsRefused) {
  Channel channel = server_.Connect();
  Result<StatusReply> status = channel.Call(StatusRequest{}, Soon());
  ASSERT_TRUE(status) << status.error().Text();
  EXPECT_THAT(status->targets, ElementsAre(StartsWith("cpu avx2 "), kFirst, kSecond, kNotHere));
  EXPECT_THAT(
      Get("toaster").error().Text(),
      HasSubstr("no device of kind \"toaster\" is served here; there is: cpu, scripted:0, scripted:1, scripted:old"));
  EXPECT_THAT(Get("scripted model=toy speed=3").error().Text(), HasSubstr("no such toy"));
}

// Code for a device that is not here is built, never run, marked wherever it shows, and for who names that device
// alone.
TEST_F(OtherDevices, ThatAreNotHereHaveCodeThatNobodyChecked) {
  Result<GetReply> reply = Get("scripted:old");
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(reply->target, kNotHere);
  EXPECT_EQ(UncheckedName(reply->target), "old");
  EXPECT_EQ(reply->expected_us, 0);
  EXPECT_GT(reply->size, 0u);
  EXPECT_TRUE(Get("scripted:old")->hit);
  EXPECT_TRUE(Get(kNotHere)->hit);
  const std::optional<Record> record = RecordOf("scripted:old");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->check, CheckSummary{});
  EXPECT_FALSE(record->measured || record->expected);

  // From disk, too.
  server_.Do([&] { server_.hot->Forget(record->key.fingerprint); });
  EXPECT_NE(server_.path->LookUp({kKernel, "scripted:old", 0})->code, nullptr);
  // Whoever names another device, or the kind, gets that one's.
  Result<GetReply> here = Get("scripted:0");
  ASSERT_TRUE(here) << here.error().Text();
  EXPECT_FALSE(here->hit);
  EXPECT_EQ(RecordOf("scripted:0")->check.samples, 1);
  EXPECT_THAT(Get("scripted speed=1").error().Text(), HasSubstr("no such toy"));

  EXPECT_THAT(Tune("scripted:old", 8).error().Text(), HasSubstr("no such device here to measure on"));
  Channel channel = server_.Connect();
  const uint64_t id = *channel.Ask(ListRequest{""}, Soon());
  std::vector<std::string> unchecked;
  const Result<ListReply> list = channel.Await<ListReply>(id, Soon());
  for (const RecordRow& row : list->rows)
    if (!UncheckedName(row.target).empty()) unchecked.push_back(row.target);
  EXPECT_THAT(unchecked, ElementsAre(kNotHere));
  const auto verified = [](const Record& shown) {
    for (const Fact& fact : FactsOf(shown))
      if (fact.name == "verified") return fact.value;
    return std::string();
  };
  EXPECT_EQ(verified(*record), "no");
  EXPECT_EQ(verified(*RecordOf("scripted:0")), "yes");
}

// A bundle brings a kernel for the CPU and for another device.
TEST_F(OtherDevices, AllOfThemHaveReadyWhatABundleBrought) {
  std::vector<Imported> brought;
  for (const std::string target : {"", "scripted:0", "scripted:1"}) {
    ASSERT_TRUE(Get(target));
    Record record = *RecordOf(target);
    record.origin = Origin::kImported;
    record.schedule += " ";  // another one, without code
    record.key.code.clear();
    const ResolvedKernel identity = *server_.path->Identify({kKernel, target, 0});
    ASSERT_TRUE(
        server_.cache->Put({.record = record, .class_text = identity.class_text, .artifact = {}}, Durability::kSoon));
    ASSERT_FALSE(RecordOf(target)->artifact_digest);
    brought.push_back({record.key.fingerprint, record.key.target, 1});
  }
  server_.Do([&] {
    for (const Imported& kernel : brought) server_.hot->Forget(kernel.fingerprint);
    get_ready_.emplace(server_.loop(), *server_.cache, *server_.misses, server_.metrics).Add(brought);
  });
  for (const std::string target : {"", "scripted:0", "scripted:1"})
    EXPECT_TRUE(TestServer::Eventually([&] { return RecordOf(target)->artifact_digest.has_value(); })) << target;
}

TEST_F(OtherDevices, ThatAreNotHereAreNotRefinedInIdleTime) {
  ASSERT_TRUE(Get("scripted:old"));
  ASSERT_TRUE(Get("scripted:1"));
  const std::unique_ptr<IdleLoop> idle = StartIdleLoop();
  EXPECT_TRUE(TestServer::Eventually([&] { return RecordOf("scripted:1")->origin == Origin::kTuned; }));
  const IdleLoop::Plan plan = idle->plan();
  idle->Close();
  EXPECT_EQ(plan.refinable, 1u);
  EXPECT_EQ(RecordOf("scripted:old")->origin, Origin::kDefault);
}

TEST_F(OtherDevices, HaveTextsOfTheirOwn) {
  Channel channel = server_.Connect();
  const auto ask = [&](TextKind what, KernelName name, const std::string& target) {
    return channel.Call(TargetTextRequest{what, std::move(name), target}, Soon());
  };
  EXPECT_EQ(ask(TextKind::kSchedule, {kKernel, false, 0}, "scripted:0").error().kind, ErrorKind::kNotFound);
  const Result<TargetTextReply> code = ask(TextKind::kCode, {kKernel, false, 0}, "scripted:old");
  ASSERT_TRUE(code) << code.error().Text();
  EXPECT_FALSE(code->text.empty());
  EXPECT_FALSE(RecordOf("scripted:old"));  // nothing was kept
  Result<GetReply> reply = Get("scripted:0");
  ASSERT_TRUE(reply) << reply.error().Text();
  const Result<TargetTextReply> schedule = ask(TextKind::kSchedule, {reply->fingerprint, true, 0}, "scripted:0");
  ASSERT_TRUE(schedule) << schedule.error().Text();
  EXPECT_EQ(schedule->fingerprint, reply->fingerprint);
  EXPECT_EQ(schedule->text, RecordOf("scripted:0")->schedule);
  EXPECT_EQ(ask(TextKind::kSchedule, {reply->fingerprint, true, 0}, "scripted:1").error().kind, ErrorKind::kNotFound);
  EXPECT_THAT(ask(TextKind::kCode, {kKernel, false, 0}, "toaster:0").error().Text(), HasSubstr("there is: cpu"));
}

TEST_F(OtherDevices, AreTuned) {
  ASSERT_TRUE(Get(""));
  ASSERT_TRUE(Get("scripted:1"));
  const Record cpu = *RecordOf("");
  Result<TuneReply> reply = Tune("scripted:0", 48);
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_GT(reply->trials, 10u);
  EXPECT_GT(reply->ratio, 1);
  EXPECT_EQ(reply->origin, "tuned");
  const std::optional<Record> tuned = RecordOf("scripted:0");
  ASSERT_TRUE(tuned && tuned->measured);
  EXPECT_EQ(tuned->origin, Origin::kTuned);
  // The time is the best of the trials that were made on this device, and on no other.
  int64_t best = std::numeric_limits<int64_t>::max();
  ASSERT_TRUE(server_.cache->ForEachTrial(tuned->key, [&](const TrialRecord& trial) {
    best = std::min(best, trial.time.count());
    return true;
  }));
  EXPECT_EQ(tuned->measured->time.count(), best);
  EXPECT_LT(best, 100'000);
  for (const char* other : {"", "scripted:1"}) {
    EXPECT_EQ(RecordOf(other)->origin, Origin::kDefault) << other;
    ASSERT_TRUE(server_.cache->ForEachTrial(RecordOf(other)->key, [](const TrialRecord&) {
      ADD_FAILURE() << "a trial of another device";
      return true;
    }));
  }
  EXPECT_EQ(*RecordOf(""), cpu);
  Result<GetReply> served = Get("scripted:0");
  ASSERT_TRUE(served) << served.error().Text();
  EXPECT_EQ(served->origin, "tuned");
  EXPECT_EQ(served->expected_us, static_cast<double>(best) / 1e3);
}

// The processes of one search go when nothing follows for a while. Another that has begun meanwhile is not put off for
// that, which costs it those it works with.
TEST_F(OtherDevices, ASearchIsNotPutOffByWhatTheLastOneLeaves) {
  server_.Do([&] { server_.tuning->SetPoolsIdle(std::chrono::milliseconds(100)); });
  ASSERT_TRUE(Tune("scripted:0", 4));
  TuneRequest request;
  request.kernel = "softmax(M=512,N=512)";
  request.target = "scripted:0";
  request.trials = 100'000;
  request.time_us = 6'500'000;  // longer than a turn
  Channel channel = server_.Connect();
  const uint64_t id = *channel.Ask(request, Soon());
  Result<TuneReply> reply;
  do reply = channel.Await<TuneReply>(id, Soon());
  while (reply && reply->more);
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(server_.metrics.displaced, 0u);
}

TEST_F(OtherDevices, AreRefinedInIdleTime) {
  ASSERT_TRUE(Get("scripted:1"));
  const std::unique_ptr<IdleLoop> idle = StartIdleLoop();
  EXPECT_TRUE(TestServer::Eventually([&] { return RecordOf("scripted:1")->origin == Origin::kTuned; }));
  idle->Close();
  EXPECT_LT(RecordOf("scripted:1")->measured->time.count(), 25'000);
}

// Times of what is served there are the only sign of it.
TEST_F(OtherDevices, AreNotRefinedWhileOthersUseThem) {
  ASSERT_TRUE(Get("scripted:1"));
  testing::SlowScriptedDown(2);
  const std::unique_ptr<IdleLoop> idle = StartIdleLoop();
  EXPECT_TRUE(TestServer::Eventually([&] { return testing::ScriptedTimings() > 1; }));
  EXPECT_EQ(server_.metrics.trials, 0u);
  EXPECT_EQ(RecordOf("scripted:1")->origin, Origin::kDefault);
  testing::SlowScriptedDown(1);
  EXPECT_TRUE(TestServer::Eventually([&] { return RecordOf("scripted:1")->origin == Origin::kTuned; }));
  idle->Close();
}

TEST_F(OtherDevices, AreExplainedAgainstTheirOwnRoofs) {
  ASSERT_TRUE(Tune("scripted:1", 16));
  Insight insight(*server_.cache, server_.path->devices());
  Result<ExplainReply> reply = insight.Explain(*RecordOf("scripted:1"));
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(reply->roofline.peak_gflops, 4);
  EXPECT_FALSE(reply->choices.empty());
}

TEST_F(OtherDevices, CopiesToThemAreMeasuredOnceAndTheFastestIsKept) {
  const auto ask = [&](const std::string& target) { return server_.Connect().Call(CopySpeedRequest{target}, Soon()); };
  const int before = testing::ScriptedCopies();
  const Result<CopySpeedReply> first = ask("scripted:0");
  ASSERT_TRUE(first) << first.error().Text();
  const Result<CopySpeedReply> again = ask(kFirst);
  ASSERT_TRUE(again) << again.error().Text();
  EXPECT_EQ(testing::ScriptedCopies(), before + 1);
  EXPECT_EQ(again->to_gb_s, first->to_gb_s);
  EXPECT_EQ(again->from_gb_s, first->to_gb_s / 2);
  ASSERT_TRUE(ask("scripted:1"));  // another device
  EXPECT_EQ(testing::ScriptedCopies(), before + 2);
  // The next honed measures anew, under load: what was seen before stands.
  const Backend& backend = *FindBackend(testing::kScriptedKind);
  Devices devices = Devices::OfCpu(CpuTarget{}, "cc 1");
  devices.Add(backend.Probe().value().front(), backend, "script 1");
  Insight next(*server_.cache, devices);
  const Result<CopySpeed> kept = next.Copies(kFirst);
  ASSERT_TRUE(kept) << kept.error().Text();
  EXPECT_EQ(testing::ScriptedCopies(), before + 3);
  EXPECT_EQ(*kept, (CopySpeed{first->to_gb_s, first->from_gb_s, first->to_us, first->from_us}));
  // The host computes where its operands are; what is not here has no copies.
  const Result<CopySpeedReply> host = ask("cpu");
  ASSERT_TRUE(host) << host.error().Text();
  EXPECT_EQ(host->to_gb_s, 0);
  EXPECT_THAT(ask("scripted:old").error().message, HasSubstr("no device here is that"));
  EXPECT_THAT(ask("scripted:7").error().message, HasSubstr("scripted:0, scripted:1"));
}

TEST_F(OtherDevices, PoolsOfKindsAreStartedWhenWantedAndEndTogether) {
  const Devices& devices = server_.path->devices();
  Result<std::unique_ptr<WorkerPools>> pools = StartPools({}, false);  // starts no process yet
  ASSERT_TRUE(pools) << pools.error().Text();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const BuildRequest request{kKernel, "", devices.Choose("scripted:0")->target};
  EXPECT_TRUE((*pools)->Build(request, deadline));
  EXPECT_EQ((*pools)->Build({kKernel, "", DeviceTarget{"toaster", {}}}, deadline).error().kind,
            ErrorKind::kUnsupported);
  (*pools)->Shutdown();
  EXPECT_EQ((*pools)->Build(request, deadline).error().kind, ErrorKind::kUnavailable);
}

}  // namespace
}  // namespace hone::other_devices_test
