#include "daemon/edge/edge_service.h"

#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/signal_set.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "backends/registry.h"
#include "base/paths.h"
#include "base/start_thread.h"
#include "cache/bundle/bundle_files.h"
#include "cache/bundle_cache.h"
#include "daemon/edge/edge_path.h"
#include "daemon/edge/suits.h"
#include "daemon/free_memory.h"
#include "daemon/inspect/admin.h"
#include "daemon/router.h"
#include "daemon/routes.h"
#include "daemon/serve/listen.h"
#include "daemon/serve/misses.h"
#include "daemon/serve/server.h"
#include "daemon/watchdog.h"

namespace hone {
namespace {

// Devices have little memory: what a burst needs is read from the bundles again.
constexpr HotLimits kHot{uint64_t{16} << 20, 1024, 4096};
constexpr uint32_t kConnections = 256;
constexpr std::chrono::milliseconds kCountUsesEvery{1000};
constexpr std::chrono::milliseconds kDrain{5000};

// This machine's CPU. There is no compiler whose name could tell one artifact from another.
Result<Devices> ThisDevice() {
  const Backend& backend = *Backends().front();
  std::vector<Device> found = HONE_TRY(backend.Probe());
  if (found.empty() || !found.front().target.cpu())
    return Error{ErrorKind::kUnsupported, "there is no device to serve", ""};
  return Devices::OfCpu(*found.front().target.cpu(), "none");
}

class EdgeService {
 public:
  explicit EdgeService(const EdgeOptions& options) : options_(options) {}

  Result<void> Run(const std::function<void()>& on_ready) {
    if (Result<void> opened = Open(); !opened) {
      StopListening(listening_);
      return opened;
    }
    loop_.Post([&] {
      NotifyServiceManager("READY=1");
      on_ready();
      LogInfo("ready", {{"socket", listening_.path},
                        {"bundles", cache_->bundles()},
                        {"kernels", cache_->records()},
                        {"pid", getpid()}});
    });
    CountUses();
    WatchSignals();
    loop_.Run();
    Close();
    return {};
  }

 private:
  Result<void> Open() {
    const Devices devices = HONE_TRY(ThisDevice());
    if (std::optional<ListeningSocket> inherited = HONE_TRY(InheritedSocket()))
      listening_ = *std::move(inherited);
    else
      listening_ = HONE_TRY(BindSocket(options_.socket.empty() ? HONE_TRY(DefaultSocketPath()) : options_.socket));
    HONE_TRY(OpenBundles(devices));
    pools_ = MakeLazyWorkerPools([runner = options_.runner] {
      WorkerPoolsOptions pools;
      pools.builders.builders = 0;
      pools.runners.runners = 1;
      pools.runners.executable = runner;
      return Backends().front()->StartPools(pools);
    });
    hot_ = std::make_unique<HotSet>(kHot);
    path_ = std::make_unique<EdgePath>(*cache_, *pools_, metrics_, devices, missing_,
                                       [this](const Fingerprint& of_class) { return cache_->RangesOf(of_class); });
    misses_ = std::make_unique<Misses>(loop_, *path_, *hot_, metrics_, 1, MissLimits{});
    notifier_ = std::make_unique<Notifier>(*hot_, *cache_, metrics_, NotifyLimitsOf());
    admin_.reset(new Admin{.loop = loop_,
                           .cache = *cache_,
                           .serving = *pools_,
                           .own = *pools_,
                           .path = *path_,
                           .metrics = metrics_,
                           .facts = {listening_.path, Directories(), 0, false},
                           .forget = [](const Fingerprint&) {},
                           .missing = &missing_});
    router_ = std::make_unique<Router>(
        loop_, Services{*hot_, misses_.get(), nullptr, notifier_.get(), *admin_, metrics_}, ServingRoutes());
    ServerLimits limits;
    limits.connections = kConnections;
    limits.any_user = options_.any_user;
    server_ = std::make_unique<Server>(loop_, *router_, metrics_, limits);
    OpenToOthers(listening_, options_.any_user);
    HONE_TRY(StartListening(listening_));
    server_->Accept(UniqueFd(listening_.socket.Release()));
    if (std::optional<std::chrono::microseconds> limit = WatchdogLimit())
      watchdog_.emplace(
          loop_, *limit,
          [this](std::function<void(bool)> answered) { router_->RunQuickly([] {}, std::move(answered)); },
          [] { NotifyServiceManager("WATCHDOG=1"); });
    return {};
  }

  NotifyLimits NotifyLimitsOf() const {
    NotifyLimits limits;
    limits.connections = kConnections / 2;  // the others are left for those who only ask
    limits.several_users = options_.any_user;
    return limits;
  }

  Result<void> OpenBundles(const Devices& devices) {
    BundleCacheOptions cache;
    cache.directories = options_.bundles;
    cache.keys =
        HONE_TRY(TrustedKeys::Read(options_.keys.empty() ? TrustedKeys::StandardDirectories() : options_.keys));
    cache.target = devices.host().target_text;
    cache.suits = [devices](const std::string& target) { return HowWellItSuits(target, devices); };
    cache_ = HONE_TRY(BundleCache::Open(std::move(cache)));
    for (const std::string& why : cache_->left_out()) LogError("bundle_left_out", {{"why", why}});
    return {};
  }

  std::string Directories() const {
    std::string all;
    for (const std::string& directory : options_.bundles) all += (all.empty() ? "" : ":") + directory;
    return all;
  }

  void CountUses() {
    hot_->TakeUses(
        [&](const HotCode& code, uint64_t uses) { cache_->NoteUse(code.fingerprint, code.class_fingerprint, uses); });
    metrics_.hot_bytes = hot_->bytes();
    metrics_.hot_entries = hot_->entries();
    loop_.After(kCountUsesEvery, [this] { CountUses(); });
  }

  void WatchSignals() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (error) return;
      if (signal == SIGHUP) {
        LogWarn("not_reloaded", {{"why", "bundles are read at the start: restart honed-edge for others"}});
      } else {
        if (stopping_) return loop_.Stop();  // asked twice: at once
        Stop(signal);
      }
      WatchSignals();
    });
  }

  void Stop(int signal) {
    stopping_ = true;
    LogInfo("stopping", {{"why", fmt::format("signal {}", signal)}});
    NotifyServiceManager("STOPPING=1");
    StopListening(listening_);
    server_->StopAccepting();
    misses_->Stop();
    server_->Drain(kDrain, [this] { loop_.Stop(); });
  }

  void Close() {
    pools_->Shutdown();
    misses_->Close();
    watchdog_.reset();
    router_->Close();
    server_.reset();
    LogInfo("stopped");
  }

  const EdgeOptions options_;
  bool stopping_ = false;
  // In the order of construction; destroyed the other way round.
  EventLoop loop_;
  boost::asio::signal_set signals_{loop_.context(), SIGTERM, SIGINT, SIGHUP};
  Metrics metrics_;
  ListeningSocket listening_;
  FreeMemoryReturner free_memory_;
  MissingKernels missing_;
  std::unique_ptr<BundleCache> cache_;
  std::unique_ptr<WorkerPools> pools_;
  std::unique_ptr<HotSet> hot_;
  std::unique_ptr<EdgePath> path_;
  std::unique_ptr<Misses> misses_;
  std::unique_ptr<Notifier> notifier_;
  std::unique_ptr<Admin> admin_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<Server> server_;
  std::optional<Watchdog> watchdog_;
};

}  // namespace

Result<void> RunEdge(const EdgeOptions& options, const std::function<void()>& on_ready) {
  signal(SIGPIPE, SIG_IGN);
  SetLogLevel(options.log);
  LogToJournal();
  ReturnLargeBlocksAtOnce();
  mallopt(M_ARENA_MAX, 1);  // a few threads that seldom work at once
  EdgeOptions all = options;
  if (all.bundles.empty()) all.bundles = {kBundleDirectory};
  return OrNoThread([&] {
    EdgeService service(all);
    return service.Run(on_ready);
  });
}

Result<std::string> DescribeDevice() { return HONE_TRY(ThisDevice()).host().target_text; }

}  // namespace hone
