#include "daemon/service.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <optional>
#include <set>

#include "backends/cpu/emulator.h"
#include "backends/gpu/find_nvrtc.h"
#include "backends/processes/worker_pools.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/idle_group.h"
#include "base/paths.h"
#include "base/start_thread.h"
#include "base/subprocess.h"
#include "cache/schedule_cache.h"
#include "client/protocol/prometheus.h"
#include "daemon/config.h"
#include "daemon/free_memory.h"
#include "daemon/idle_exit.h"
#include "daemon/inspect/admin.h"
#include "daemon/inspect/dropped_bundles.h"
#include "daemon/inspect/insight.h"
#include "daemon/metrics_port.h"
#include "daemon/refine/idle_loop.h"
#include "daemon/refine/tuning.h"
#include "daemon/router.h"
#include "daemon/routes.h"
#include "daemon/serve/attached_devices.h"
#include "daemon/serve/devices.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/get_ready.h"
#include "daemon/serve/hot_set.h"
#include "daemon/serve/listen.h"
#include "daemon/serve/misses.h"
#include "daemon/serve/server.h"
#include "daemon/serve/transfers.h"
#include "daemon/watchdog.h"

namespace hone {
namespace {

constexpr std::chrono::milliseconds kReportUsesEvery{1000};
constexpr std::chrono::milliseconds kDrain{5000};

// Descriptors are what connections and code in memory are made of: as many as we may have.
uint32_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<uint32_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

Result<Config> ReadConfig(const ServiceOptions& options) {
  std::string path = options.config.empty() ? FindConfig() : options.config;
  Config config;
  if (!path.empty()) config = HONE_TRY(LoadConfig(path));
  if (!options.socket.empty()) config.socket = options.socket;
  if (!options.cache.empty()) config.cache = options.cache;
  if (options.log) config.log = *options.log;
  return config;
}

ServerLimits ServerLimitsOf(const Config& config, uint32_t descriptors) {
  ServerLimits limits;
  limits.connections = std::min(config.connections, std::max(4u, descriptors / 2));
  limits.descriptors = std::clamp(descriptors / 4, 4u, 256u);  // far from what the kernel allows a user
  limits.requests = config.requests;
  limits.frame_time = config.frame_time;
  limits.stall_time = config.stall_time;
  limits.users = config.users;
  limits.any_user = config.any_user;
  return limits;
}

// Half of the connections are left for those who only ask.
NotifyLimits NotifyLimitsOf(const Config& config, uint32_t descriptors) {
  NotifyLimits limits;
  const ServerLimits server = ServerLimitsOf(config, descriptors);
  limits.connections = std::max(1u, server.connections / 2);
  limits.several_users = server.several_users();
  return limits;
}

HotLimits HotLimitsOf(const Config& config, uint32_t descriptors) {
  return {config.hot_bytes, std::min(config.hot_entries, std::max(1u, descriptors / 4)), config.memo_entries};
}

MissLimits MissLimitsOf(const Config& config) { return {config.queue, {config.build_limit, config.check_limit}}; }

WorkerPoolsOptions WorkerPoolsOptionsOf(const Config& config, const ServiceOptions& options, int cores) {
  WorkerPoolsOptions pools;
  pools.builders.executable = options.builder;
  pools.builders.builders = config.builders > 0 ? config.builders : std::clamp(cores, 1, 4);
  pools.builders.deadline = config.build_limit;
  pools.runners.executable = options.runner;
  pools.runners.runners = config.runners > 0 ? config.runners : pools.builders.builders;
  return pools;
}

// For what people ask, one at a time: serving's processes are not taken from misses for it.
WorkerPoolsOptions AdminWorkerPoolsOptionsOf(WorkerPoolsOptions options) {
  options.builders.builders = options.runners.runners = 1;
  return options;
}

IdleLimits IdleLimitsOf(const Config& config) {
  IdleLimits limits;
  limits.busy_cores = config.idle_busy;
  limits.quiet = config.idle_quiet;
  limits.stalled = config.idle_stalled;
  limits.on_battery = config.idle_on_battery;
  limits.hours = config.idle_hours;
  return limits;
}

// Below everything else on the machine.
WorkerPoolsOptions IdleWorkerPoolsOptionsOf(WorkerPoolsOptions options, int cores,
                                            const std::optional<IdleGroup>& group) {
  options.builders.builders = std::clamp(cores, 1, 8);
  options.builders.nice = options.runners.nice = 19;
  options.builders.idle = options.runners.idle = true;
  if (group) {
    options.builders.idle_group = options.runners.idle_group = group->entrance();
    options.idle_group = &*group;
  }
  options.runners.runners = 1;
  return options;
}

class Service {
 public:
  Service(const ServiceOptions& options, Config config) : options_(options), config_(std::move(config)) {}

  Result<void> Run(const std::function<void()>& on_ready) {
    descriptors_ = RaiseDescriptorLimit();
    if (Result<void> opened = Open(); !opened) {
      StopListening(listening_);
      return opened;
    }
    loop_.Post([&] {
      NotifyServiceManager("READY=1");
      on_ready();
      LogInfo("ready", {{"socket", listening_.path}, {"cache", config_.cache}, {"pid", getpid()}});
    });
    ReportUses();
    WatchSignals();
    loop_.Run();
    Close();
    return {};
  }

 private:
  bool inspects() const { return options_.inspect >= 0; }
  bool refines() const { return !inspects() && options_.idle && config_.idle; }

  Result<void> Open() {
    ConfigureNvrtc(config_.nvrtc);
    ConfigureForeignRunners(config_.foreign_runners);
    Devices devices = HONE_TRY(Devices::Probe(options_.builder));
    const int cores = devices.host().target.cores();
    if (config_.cache.empty()) config_.cache = HONE_TRY(DefaultCacheDir());
    if (!inspects()) {
      std::optional<ListeningSocket> inherited = HONE_TRY(InheritedSocket());
      if (inherited) {
        listening_ = *std::move(inherited);
      } else {
        if (config_.socket.empty()) config_.socket = HONE_TRY(DefaultSocketPath());
        listening_ = HONE_TRY(BindSocket(config_.socket));
      }
    }
    CacheOptions cache;
    cache.directory = config_.cache;
    cache.system_directory = config_.system_cache;
    cache.inspect = inspects();
    cache.size_cap = config_.cache_bytes;
    cache.memory_bytes = config_.store_memory;
    cache_ = HONE_TRY(ScheduleCache::Open(cache));
    if (refines()) MakeIdleGroup();
    WorkerPoolsOptions pools = WorkerPoolsOptionsOf(config_, options_, cores);
    if (inspects()) {
      pools_ = MakeLazyWorkerPools([pools] { return StartPools(pools, false); });
    } else {
      pools_ = HONE_TRY(StartPools(pools, true));
    }
    admin_pools_ =
        MakeLazyWorkerPools([options = AdminWorkerPoolsOptionsOf(pools)] { return StartPools(options, false); });
    hot_ = std::make_unique<HotSet>(HotLimitsOf(config_, descriptors_));
    path_ = std::make_unique<RequestPath>(*cache_, *pools_, metrics_, devices);
    model_ = std::make_unique<SharedModel>(*cache_, devices);
    if (!inspects()) {
      transfers_ = std::make_unique<Transfers>(*cache_, pools.builders.builders);
      path_->SetTransfers(transfers_.get());
      misses_ =
          std::make_unique<Misses>(loop_, *path_, *hot_, metrics_, pools.builders.builders, MissLimitsOf(config_));
    }
    AdminFacts facts{listening_.path, config_.cache, pools.builders.builders, inspects()};
    admin_.reset(new Admin{.loop = loop_,
                           .cache = *cache_,
                           .serving = *pools_,
                           .own = *admin_pools_,
                           .path = *path_,
                           .metrics = metrics_,
                           .facts = facts,
                           .forget = [this](const Fingerprint& fingerprint) {
                             hot_->Forget(fingerprint);
                             if (transfers_) transfers_->ReadAgain(fingerprint);
                           }});
    TakeRevokedKeys();
    if (!inspects()) {
      dropped_.emplace(*admin_);
      get_ready_ = std::make_unique<GetReady>(loop_, *cache_, *misses_, metrics_);
      admin_->get_ready = [this](const std::vector<Imported>& kernels) { get_ready_->Add(kernels); };
      tuning_ = std::make_unique<Tuning>(
          loop_, *cache_, [pools] { return StartPools(pools, false); }, *path_, *model_, metrics_,
          [this](const Record& record) {
            hot_->Forget(record.key.fingerprint);
            transfers_->ReadAgain(record.key.fingerprint);
            notifier_->Announce(NoticeOf(record));
          });
      admin_->end_search = [this](const Fingerprint& fingerprint) { tuning_->EndSearchOf(fingerprint); };
      tuning_->SetTransfers(transfers_.get());
      tuning_->SetBuilders(pools.builders.builders);
      attached_ = std::make_unique<AttachedDevices>(loop_, *pools_, devices);
      misses_->SetSearcher(tuning_.get());
      transfers_->SetModel([this](std::string_view kind) { return model_->ToAsk(kind); });
      notifier_ = std::make_unique<Notifier>(*hot_, *cache_, metrics_, NotifyLimitsOf(config_, descriptors_));
    }
    if (refines()) {
      idle_ = std::make_unique<IdleLoop>(
          *cache_, *path_, *tuning_, metrics_, IdleLimitsOf(config_), config_.idle_share,
          [options = IdleWorkerPoolsOptionsOf(pools, cores, idle_group_)] { return StartPools(options, false); },
          idle_group_ ? &*idle_group_ : nullptr);
      misses_->SetOnWork([this] { idle_->Interrupt(); });
      tuning_->SetOnWork([this] { idle_->Interrupt(); });
      admin_->idle_facts = [this] { return std::pair(idle_->state(), idle_->task()); };
    }
    insight_ = std::make_unique<Insight>(*cache_, path_->devices());
    insight_->SetModel([this](std::string_view kind) { return model_->ToAsk(kind); });
    admin_->insight = insight_.get();
    if (!inspects()) admin_->top = [this] { return Top(); };
    router_ = std::make_unique<Router>(
        loop_, Services{*hot_, misses_.get(), tuning_.get(), notifier_.get(), *admin_, metrics_, attached_.get()},
        AllRoutes());
    server_ = std::make_unique<Server>(loop_, *router_, metrics_, ServerLimitsOf(config_, descriptors_));
    if (inspects()) {
      server_->Adopt(UniqueFd(options_.inspect));
      StopWhenAlone();
    } else {
      HONE_TRY(OpenMetricsPort());
      OpenToOthers(listening_, ServerLimitsOf(config_, descriptors_).several_users());
      HONE_TRY(StartListening(listening_));
      server_->Accept(UniqueFd(listening_.socket.Release()));
      Guard();
      LookForBundles();
    }
    return {};
  }

  // Code that came with such a key is no longer served, whenever it came; with no key at all, while nobody can say
  // which these are.
  void TakeRevokedKeys() {
    Result<std::set<PublicKey>> revoked = TrustedKeys::ReadRevoked(admin_->key_directories);
    if (!revoked)
      LogError("revoked_not_read", {{"why", revoked.error().Text()}, {"now", "code of bundles is compiled here"}});
    cache_->Distrust(revoked ? std::optional(*std::move(revoked)) : std::nullopt);
  }

  Result<void> OpenMetricsPort() {
    const std::optional<LoopbackPort> where = ParseLoopbackPort(config_.metrics_listen);
    if (!where) return {};
    metrics_port_ = HONE_TRY(MetricsPort::Open(loop_, *where, [this](std::function<void(MetricsPort::Text)> made) {
      auto text = std::make_shared<std::string>();
      router_->RunQuickly(
          [this, text] {
            if (Result<StatsReply> reply = AnswerStats(*admin_, {})) *text = PrometheusText(reply->stats);
          },
          [text, made = std::move(made)](bool was_made) {
            made(was_made ? MetricsPort::Text(std::move(*text)) : std::nullopt);
          });
    }));
    LogInfo("metrics", {{"address", where->address}, {"port", metrics_port_->port()}});
    return {};
  }

  // What the service manager is told and expects: a sign of life, and an end when nobody wants anything.
  void Guard() {
    if (std::optional<std::chrono::microseconds> limit = WatchdogLimit())
      watchdog_.emplace(
          loop_, *limit,
          [this](std::function<void(bool)> answered) { router_->RunQuickly([] {}, std::move(answered)); },
          [] { NotifyServiceManager("WATCHDOG=1"); });
    if (!listening_.inherited || config_.idle_exit.count() == 0) return;
    idle_exit_.emplace(
        loop_, config_.idle_exit, [this] { return IsBusy(); },
        [this] {
          server_->StopAcceptingIfAlone([this](bool is_alone) {
            if (is_alone) Stop("nobody wanted anything");
          });
        });
  }

  bool IsBusy() const {
    return server_->connections() > 0 || attached_->count() > 0 || metrics_.builds_queued > 0 ||
           metrics_.builds_running > 0 || !tuning_->now().kernel.empty() || (idle_ && !idle_->task().empty());
  }

  void MakeIdleGroup() {
    Result<IdleGroup> group = IdleGroup::Create();
    if (group)
      idle_group_.emplace(*std::move(group));
    else
      LogInfo("no_idle_group", {{"why", group.error().Text()}});
  }

  void Close() {
    pools_->Shutdown();
    if (attached_) attached_->Close();
    if (idle_) idle_->Close();
    if (transfers_) transfers_->Close();
    if (misses_) misses_->Close();
    if (tuning_) tuning_->Close();
    metrics_port_.reset();
    watchdog_.reset();
    idle_exit_.reset();
    router_->Close();
    dropped_.reset();
    server_.reset();
    HandUsesOver();
    if (Result<void> flushed = cache_->Flush(); !flushed && !inspects()) {
      LogError("flush_failed", {{"why", flushed.error().Text()}});
    }
    cache_.reset();
    LogInfo("stopped");
  }

  // Everything but the counters.
  TopReply Top() const {
    TopReply reply;
    Tuning::Now now = tuning_->now();
    reply.kernel = now.kernel;
    reply.by_request = now.by_request;
    reply.trials = static_cast<uint32_t>(now.progress.trials);
    reply.valid = static_cast<uint32_t>(now.progress.valid);
    reply.wanted = static_cast<uint32_t>(now.wanted);
    reply.elapsed_s = now.progress.elapsed_s;
    reply.start_us = now.progress.start_us;
    reply.best_us = now.progress.best_us;
    reply.idle_state = idle_ ? idle_->state() : "off";
    if (!idle_) return reply;
    IdleLoop::Plan plan = idle_->plan();
    reply.refinable = plan.refinable;
    reply.waiting = plan.waiting;
    reply.tasks = std::move(plan.tasks);
    return reply;
  }

  // It was removed, pinned or unpinned.
  void HandUsesOver() {
    hot_->TakeUses(
        [&](const HotCode& code, uint64_t uses) { cache_->NoteUse(code.fingerprint, code.class_fingerprint, uses); });
  }

  // Hits are counted where they happen; the cache hears of them once a second.
  void ReportUses() {
    if (!inspects()) HandUsesOver();
    metrics_.hot_bytes = hot_->bytes();
    metrics_.hot_entries = hot_->entries();
    loop_.After(kReportUsesEvery, [this] { ReportUses(); });
  }

  void StopWhenAlone() {
    if (server_->connections() == 0) return loop_.Stop();
    loop_.After(std::chrono::milliseconds(5), [this] { StopWhenAlone(); });
  }

  void WatchSignals() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (error) return;
      if (signal == SIGHUP) {
        Reload();
      } else {
        if (stopping_) return loop_.Stop();  // asked twice: at once
        Stop(fmt::format("signal {}", signal));
      }
      WatchSignals();
    });
  }

  void LookForBundles() {
    if (!config_.bundles.empty()) dropped_->Look({config_.bundles});
  }

  void Reload() {
    TakeRevokedKeys();
    HandUsesOver();
    hot_->ForgetAll();  // what was revoked since may be among it
    Result<Config> next = ReadConfig(options_);
    if (!next) {
      LogError("reload_failed", {{"why", next.error().Text()}, {"now", "the old configuration stays"}});
      return;
    }
    if (next->socket.empty()) next->socket = config_.socket;
    if (next->cache.empty()) next->cache = config_.cache;
    SetLogLevel(next->log);
    for (const std::string& key : NeedRestart(config_, *next)) { LogWarn("reload_needs_restart", {{"key", key}}); }
    config_ = *std::move(next);
    LookForBundles();
    hot_->SetLimits(HotLimitsOf(config_, descriptors_));
    server_->SetLimits(ServerLimitsOf(config_, descriptors_));
    OpenToOthers(listening_, ServerLimitsOf(config_, descriptors_).several_users());
    if (notifier_) notifier_->SetLimits(NotifyLimitsOf(config_, descriptors_));
    if (misses_) misses_->SetLimits(MissLimitsOf(config_));
    if (idle_) idle_->SetLimits(IdleLimitsOf(config_), config_.idle_share);
    ++metrics_.reloads;
    LogInfo("reloaded");
  }

  void Stop(const std::string& why) {
    if (std::exchange(stopping_, true)) return;
    LogInfo("stopping", {{"why", why}});
    NotifyServiceManager("STOPPING=1");
    // The file goes first: who looks for a daemon now starts another one, which waits for the lock that we hold.
    StopListening(listening_);
    server_->StopAccepting();
    if (misses_) misses_->Stop();
    server_->Drain(kDrain, [this] { loop_.Stop(); });
  }

  const ServiceOptions options_;
  Config config_;
  uint32_t descriptors_ = 1024;
  bool stopping_ = false;
  // In the order of construction; destroyed the other way round.
  EventLoop loop_;
  boost::asio::signal_set signals_{loop_.context(), SIGTERM, SIGINT, SIGHUP};
  Metrics metrics_;
  ListeningSocket listening_;
  FreeMemoryReturner free_memory_;
  std::optional<IdleGroup> idle_group_;  // for what refines; nullopt where there can be none
  std::unique_ptr<ScheduleCache> cache_;
  std::unique_ptr<WorkerPools> pools_;
  std::unique_ptr<WorkerPools> admin_pools_;
  std::unique_ptr<HotSet> hot_;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<RequestPath> path_;
  std::unique_ptr<SharedModel> model_;
  std::unique_ptr<AttachedDevices> attached_;
  std::unique_ptr<Misses> misses_;
  std::unique_ptr<GetReady> get_ready_;
  std::unique_ptr<Admin> admin_;
  std::optional<DroppedBundles> dropped_;
  std::unique_ptr<Insight> insight_;
  std::unique_ptr<Tuning> tuning_;
  std::unique_ptr<IdleLoop> idle_;
  std::unique_ptr<Notifier> notifier_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<MetricsPort> metrics_port_;
  std::optional<Watchdog> watchdog_;
  std::optional<IdleExit> idle_exit_;
};

}  // namespace

Result<void> RunService(const ServiceOptions& options, const std::function<void()>& on_ready) {
  signal(SIGPIPE, SIG_IGN);
  Config config = HONE_TRY(ReadConfig(options));
  SetLogLevel(config.log);
  LogToJournal();
  ReturnLargeBlocksAtOnce();
  return OrNoThread([&] {
    Service service(options, std::move(config));
    return service.Run(on_ready);
  });
}

}  // namespace hone
