// A daemon in a thread of the test: everything but processes and the configuration.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <thread>

#include "backends/registry.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "client/protocol/channel.h"
#include "codegen/rules/choices.h"
#include "daemon/inspect/insight.h"
#include "daemon/refine/tuning.h"
#include "daemon/router.h"
#include "daemon/serve/misses.h"
#include "daemon/serve/notify.h"
#include "daemon/serve/server.h"
#include "tests/support/c_artifact.h"

namespace hone::testing {

inline Deadline Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

// Runs an event loop; `Do` runs work in it and waits.
class LoopThread {
 public:
  LoopThread() : thread_([this] { loop.Run(); }) {}
  ~LoopThread() { Stop(); }
  void Stop() {
    loop.Stop();
    if (thread_.joinable()) thread_.join();
  }
  void Do(const std::function<void()>& work) {
    std::atomic<bool> done{false};
    loop.Post([&] {
      work();
      done = true;
      done.notify_all();
    });
    done.wait(false);
  }
  EventLoop loop;

 private:
  std::thread thread_;
};

// Builds the same few lines of C for every kernel of a CPU's; what happens is scripted by the test. Other kinds of
// devices have their own pools.
class FakeWorkerPools : public WorkerPools {
 public:
  Result<std::unique_ptr<Reference>> Prepare(const std::string& kernel, const Target& target, Deadline deadline,
                                             const std::stop_token& stop) override {
    if (target.kind() != kCpuKind) return others_->Prepare(kernel, target, deadline, stop);
    return std::unique_ptr<Reference>(std::make_unique<FakeReference>(*this));
  }

  Result<std::unique_ptr<Evaluator>> MakeEvaluator(const std::string& kernel, const Target& target,
                                                   const std::stop_token& stop) override {
    if (target.kind() != kCpuKind) return others_->MakeEvaluator(kernel, target, stop);
    return Error{ErrorKind::kUnsupported, "no searches here", "test"};
  }

  Result<BuiltArtifact> Build(const BuildRequest& request, Deadline deadline, const std::stop_token& stop) override {
    if (request.target.kind() != kCpuKind) return others_->Build(request, deadline, stop);
    ++builds;
    {
      MutexLock lock(mutex_);
      while (IsHeld(request.kernel) && !stop.stop_requested()) changed_.WaitFor(mutex_, std::chrono::hours(1), stop);
      if (stop.stop_requested()) return Error{ErrorKind::kUnavailable, "given up", ""};
      last_schedule = request.schedule;
      last_user = request.user;
    }
    if (fail_schedule == request.schedule && !fail_schedule.empty()) {
      return Error{fail_kind, "this schedule is scripted to fail", "build"};
    }
    if (build_error) return *build_error;
    BuiltArtifact built;
    // As a builder does: the steps, without what was said about them.
    const std::string choices = ChoicesOf(request.schedule);
    built.schedule = request.schedule.empty() ? "the default" : request.schedule;
    if (!choices.empty()) built.schedule = built.schedule.substr(WithChoices("", choices).size());
    built.manifest.kernel = request.kernel;
    built.manifest.target = "avx2 cpu=generic features= l1=32768 l2=524288 l3=4194304 cores=1";
    ManifestOperand output;
    output.name = "y";
    output.shape = {{4, 4, -1}};
    output.is_output = true;
    built.manifest.operands = {output};
    std::vector<std::byte> bytes = make_code ? make_code(request.kernel)
                                             : CompileArtifact(CPrologue() +
                                                               "EXPORT int hone_entry(const hone_env *env, void *const "
                                                               "*buffers, const int64_t *sizes) { return 0; }\n" +
                                                               CManifest(EncodeManifest(built.manifest)));
    built.object = HONE_TRY(SealedMemfd::Create(bytes));
    Digest256 digest = Hash256(bytes);
    built.digest.assign(reinterpret_cast<const char*>(digest.data()), digest.size());
    return built;
  }

  Result<std::string> Explain(const BuildRequest& request, Deadline, const std::stop_token&) override {
    ++explains;
    return "code of " + request.kernel;
  }
  std::vector<Confinement> Confinements() const override { return confinements; }
  BuilderPoolStats BuilderStats() const override { return {}; }
  RunnerPoolStats RunnerStats() const override { return {}; }
  void Pause() override {}
  void Resume() override {}
  void Shutdown() override { Release(); }

  // Builds of kernels with that in their text wait until Release, or are given up.
  void Hold(const std::string& text = "") {
    MutexLock lock(mutex_);
    held_ = text;
  }
  void Release() {
    MutexLock lock(mutex_);
    held_.reset();
    changed_.NotifyAll();
  }

  std::atomic<int> builds{0}, explains{0};
  std::vector<Confinement> confinements;
  std::optional<Error> build_error;
  std::optional<Error> check_failure;
  std::optional<Error> check_error;  // of the attempt: nothing is known of the code
  std::string fail_schedule;
  ErrorKind fail_kind = ErrorKind::kInvalid;  // … and by which error
  std::string slow_schedule;                  // this one takes a hundred times as long
  std::string last_schedule;
  std::optional<uint32_t> last_user;                                           // as last_schedule
  std::function<std::vector<std::byte>(const std::string& kernel)> make_code;  // instead of a few lines that do nothing

 private:
  class FakeReference : public Reference {
   public:
    explicit FakeReference(FakeWorkerPools& shop) : shop_(shop) {}
    Result<CheckReport> Check(const SealedMemfd&, const CheckOptions& options, Deadline) override {
      if (shop_.check_error) return *shop_.check_error;
      CheckReport report;
      report.failure = shop_.check_failure;
      report.max_rel_err = 1e-7;
      report.samples = 16;
      report.first_run_us = 3;
      report.time_us = options.timed_runs == 0 ? 0 : shop_.IsSlow() ? 200 : 2;
      return report;
    }

   private:
    FakeWorkerPools& shop_;
  };

  bool IsSlow() {
    MutexLock lock(mutex_);
    return !slow_schedule.empty() && last_schedule == slow_schedule;
  }
  bool IsHeld(const std::string& kernel) const HONE_REQUIRES(mutex_) {
    return held_ && kernel.find(*held_) != std::string::npos;
  }

  // Other kinds of devices that this program has.
  static std::unique_ptr<WorkerPools> PoolsOfOthers() {
    std::map<std::string, StartWorkerPools, std::less<>> kinds;
    for (const Backend* backend : Backends())
      if (backend->kind().name != kCpuKind) kinds[backend->kind().name] = [backend] { return backend->StartPools({}); };
    return MakePoolsByKind(std::move(kinds));
  }

  const std::unique_ptr<WorkerPools> others_ = PoolsOfOthers();
  Mutex mutex_;
  CondVar changed_;
  std::optional<std::string> held_ HONE_GUARDED_BY(mutex_);
};

struct TestServerOptions {
  std::string cache;  // "": in memory
  std::string compiler = "cc 1";
  int builders = 1;
  int cores = 1;  // of the machine that it believes to be on
  MissLimits misses;
  ServerLimits server;
  NotifyLimits notify;
  HotLimits hot{64 << 20, 100, 1000};
};

// The daemon's inside, and connections to it.
class TestServer {
  LoopThread loop_;  // first: what is served with goes before it

 public:
  explicit TestServer(TestServerOptions options = {}) {
    CacheOptions cache_options;
    cache_options.directory = options.cache;
    Result<std::unique_ptr<ScheduleCache>> opened = ScheduleCache::Open(cache_options);
    EXPECT_TRUE(opened) << opened.error().Text();
    cache = *std::move(opened);
    CpuTarget host;
    host.cpu = "generic";
    host.cores = options.cores;
    Devices devices = Devices::OfCpu(host, options.compiler);
    for (const Backend* backend : Backends()) {
      // Kinds that tests register: what this machine has beside them is no matter of theirs.
      if (backend->kind().name == kCpuKind || !backend->kind().language.empty()) continue;
      Result<std::vector<Device>> found = backend->Probe();
      for (Device& device : *found) devices.Add(std::move(device), *backend, *backend->CompilerName(""));
    }
    path = std::make_unique<RequestPath>(*cache, pools, metrics, devices);
    loop_.Do([&] {
      hot = std::make_unique<HotSet>(options.hot);
      misses = std::make_unique<Misses>(loop_.loop, *path, *hot, metrics, options.builders, options.misses);
      admin_.reset(new Admin{.loop = loop_.loop,
                             .cache = *cache,
                             .serving = pools,
                             .own = admin_pools,
                             .path = *path,
                             .metrics = metrics,
                             .facts = {"socket", "cache", 1, false},
                             .forget = [this](const Fingerprint& fingerprint) { hot->Forget(fingerprint); }});
      insight_ = std::make_unique<Insight>(*cache, devices);
      admin_->insight = insight_.get();
      model_ = std::make_unique<SharedModel>(*cache, devices);
      tuning = std::make_unique<Tuning>(
          loop_.loop, *cache, [] { return Result<std::unique_ptr<WorkerPools>>(std::make_unique<FakeWorkerPools>()); },
          *path, *model_, metrics, [this](const Record& record) { OnBetter(record); });
      admin_->end_search = [this](const Fingerprint& fingerprint) { tuning->EndSearchOf(fingerprint); };
      misses->SetSearcher(tuning.get());
      attached = std::make_unique<AttachedDevices>(loop_.loop, pools, devices);
      notifier = std::make_unique<Notifier>(*hot, *cache, metrics, options.notify);
      router_ = std::make_unique<Router>(
          loop_.loop, Services{*hot, misses.get(), tuning.get(), notifier.get(), *admin_, metrics, attached.get()},
          AllRoutes());
      server = std::make_unique<Server>(loop_.loop, *router_, metrics, options.server);
    });
  }

  ~TestServer() {
    pools.Release();
    loop_.Do([&] {
      attached->Close();
      misses->Close();
      tuning->Close();
      router_->Close();
      server.reset();
    });
    loop_.Stop();
  }

  void Do(const std::function<void()>& work) { loop_.Do(work); }
  void Post(const std::function<void()>& work) { loop_.loop.Post(work); }
  EventLoop& loop() { return loop_.loop; }

  // A connected socket; of any process, as far as the daemon knows.
  UniqueFd Dial(const ClientId& client = {geteuid(), getpid()}) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    loop_.Do([&] { server->Adopt(UniqueFd(ends[1]), client); });
    return UniqueFd(ends[0]);
  }
  Channel Connect(const ClientId& client = {geteuid(), getpid()}) { return Channel(Dial(client)); }

  Result<GetReply> Get(const std::string& kernel, GetRequest request = {}) {
    Channel channel = Connect();
    request.kernel = kernel;
    return channel.Call(request, Soon());
  }

  // Clients connect to this path from now on.
  void Listen(const std::string& path) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ASSERT_LT(path.size(), sizeof address.sun_path);
    path.copy(address.sun_path, path.size());
    unlink(path.c_str());
    ASSERT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(listen(socket.get(), 128), 0);
    loop_.Do([&] { server->Accept(std::move(socket)); });
  }

  // What a search does with better code for a kernel that was served.
  void Promote(const std::string& kernel, const std::vector<std::byte>& code, Origin origin = Origin::kTuned) {
    ResolvedKernel identity = *path->Identify({kernel, "", 0});
    Result<std::optional<CacheHit>> known = cache->Lookup(identity.key);
    ASSERT_TRUE(known && *known);
    Record record = std::move((*known)->record);
    record.origin = origin;
    record.schedule = "promotion " + std::to_string(++promotions_);
    record.artifact_digest = Hash256(code);
    record.artifact_bytes = code.size();
    ASSERT_TRUE(cache->Put({.record = record, .class_text = identity.class_text, .artifact = code}, Durability::kSoon));
    loop_.Do([&] { OnBetter(record); });
  }

  // Waits until something is true; false after a long while.
  template <typename Condition>
  static bool Eventually(const Condition& condition) {
    constexpr double kPatienceUs = 60e6;
    for (const Stopwatch watch; watch.Microseconds() < kPatienceUs;) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  FakeWorkerPools pools;
  FakeWorkerPools admin_pools;
  Metrics metrics;
  std::unique_ptr<ScheduleCache> cache;
  std::unique_ptr<RequestPath> path;
  std::unique_ptr<HotSet> hot;
  std::unique_ptr<Misses> misses;
  std::unique_ptr<Tuning> tuning;
  std::unique_ptr<AttachedDevices> attached;
  std::unique_ptr<Notifier> notifier;
  std::unique_ptr<Server> server;

 private:
  void OnBetter(const Record& record) {
    hot->Forget(record.key.fingerprint);
    notifier->Announce(NoticeOf(record));
  }

  int promotions_ = 0;
  std::unique_ptr<Admin> admin_;
  std::unique_ptr<Insight> insight_;
  std::unique_ptr<SharedModel> model_;
  std::unique_ptr<Router> router_;
};

}  // namespace hone::testing
