#include "client/api/client.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/paths.h"
#include "client/protocol/start_daemon.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "ir/native_artifact.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Between requests to a daemon that hangs up: doubled each time; the first follows at once.
constexpr milliseconds kShortestRetry{1}, kLongestRetry{50};

// The daemon is not there, or not as it should be; what it answers is another matter.
bool IsSilence(const Error& error) {
  return error.kind == ErrorKind::kUnavailable || error.kind == ErrorKind::kTimeout || error.kind == ErrorKind::kIo;
}

// Closed by the daemon, too.
bool IsReadableNow(int fd) {
  pollfd poll{fd, POLLIN, 0};
  return ::poll(&poll, 1, 0) != 0;
}

bool WaitReadable(int fd, Deadline deadline) {
  for (;;) {
    auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - steady_clock::now()).count();
    if (left <= 0) return false;
    timespec limit{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    pollfd poll{fd, POLLIN, 0};
    const int ready = ppoll(&poll, 1, &limit, nullptr);
    if (ready >= 0 || errno != EINTR) return ready != 0;
  }
}

std::shared_ptr<const DiskCache> OpenDisk(const ClientOptions& options) {
  if (!options.use_disk_cache) return nullptr;
  std::string directory = options.disk_cache, key_of;
  if (directory.empty()) {
    Result<std::string> cache = DefaultCacheDir();
    if (!cache) return nullptr;
    directory = *cache + "/client";
    key_of = *cache + "-client";  // not in the daemon's cache, which may be somebody's who shipped it
  }
  // The process may go elsewhere, and its cache is to stay.
  std::error_code failed;
  const std::filesystem::path absolute = std::filesystem::absolute(directory, failed);
  if (failed) return nullptr;
  directory = absolute.lexically_normal();
  return std::make_shared<DiskCache>(DiskCacheOptions{.directory = std::move(directory), .key_of = std::move(key_of)});
}

}  // namespace

Client::Client(ClientOptions options)
    : options_(std::move(options)),
      pool_(options_.application.parallel_for ? nullptr : std::make_shared<ThreadPool>(options_.threads)),
      disk_(OpenDisk(options_)),
      updates_(std::make_shared<Updates>([this] {
        UpdatesOptions updates = options_.updates;
        updates.socket = options_.socket;
        updates.disk = disk_;
        return updates;
      }())) {}

Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  if (options.socket.empty()) options.socket = HONE_TRY(ChooseSocketPath());
  const Result<void> path = CheckSocketPath(options.socket);
  if (!path && path.error().kind == ErrorKind::kInvalid) return path.error();
  return std::unique_ptr<Client>(new Client(std::move(options)));
}

Result<Channel> Client::Connect(Deadline deadline) {
  for (bool again = false;; again = true) {
    Result<Channel> channel = Channel::Connect(options_.socket, deadline);
    const bool is_there = channel || channel.error().kind != ErrorKind::kUnavailable;
    if (is_there || !options_.start_daemon || (again && steady_clock::now() >= deadline)) return channel;
    HONE_TRY(StartDaemon(options_.socket, options_.daemon_cache, deadline));
  }
}

Result<Channel> Client::TakeChannel(Deadline deadline) {
  ReapLateStarts();
  if (mutex_.TryLock()) {
    if (pid_t self = getpid(); owner_ != self) {  // the parent's: what it receives is not for us
      idle_.clear();
      owner_ = self;
    }
    std::optional<Channel> channel;
    if (!idle_.empty()) {
      channel = std::move(idle_.back());
      idle_.pop_back();
    }
    mutex_.Unlock();
    // Readable without having been asked: closed by the daemon, or out of step.
    if (channel && !IsReadableNow(channel->fd())) return *std::move(channel);
  }
  return Connect(deadline);
}

void Client::GiveBack(Channel channel) {
  constexpr size_t kMostIdle = 16;
  if (!channel.clean() || !mutex_.TryLock()) return;
  if (owner_ == getpid() && idle_.size() < kMostIdle) idle_.push_back(std::move(channel));
  mutex_.Unlock();
}

Client::Local Client::Understand(const GetRequest& request) {
  Result<Kernel> kernel = ParseKernel(request.kernel);
  if (!kernel) return {};
  if (kernel->options.threads == 0) kernel->options.threads = static_cast<int>(request.threads);
  Local local{Canonicalize(*kernel).text, kernel->options.threads, {}};
  for (TensorId operand : kernel->operands) local.operands.push_back(kernel->tensors[operand].name);
  return local;
}

std::optional<Served> Client::FromDisk(const GetRequest& request) const {
  if (!disk_ || !request.target.empty()) return std::nullopt;
  Result<std::optional<StoredCode>> stored = disk_->Load(request.kernel, request.threads);
  if (!stored || !*stored) return std::nullopt;
  StoredCode& code = **stored;
  code.reply.hit = true;
  return Served{std::move(code.reply), std::move(code.canonical), std::move(code.artifact), "disk"};
}

Result<Served> Client::AskOn(Channel& channel, const GetRequest& request, Deadline deadline, Local* local,
                             uint32_t* retry_after_ms) {
  uint64_t id = HONE_TRY(channel.Ask(request, deadline));
  // While the daemon looks it up, not before: this side's own idea of the kernel is needed only to check the answer.
  if (local->canonical.empty()) *local = Understand(request);
  if (!WaitReadable(channel.fd(), std::min(deadline, steady_clock::now() + options_.patience))) {
    if (std::optional<Served> copy = FromDisk(request)) return *std::move(copy);
  }
  UniqueFd descriptor;
  GetReply reply = HONE_TRY(channel.Await<GetReply>(id, deadline, &descriptor, retry_after_ms));
  if (!descriptor) return Error{ErrorKind::kCorrupt, "an answer without code", "honed"};
  Served served{std::move(reply), local->canonical, {}, "daemon"};
  served.artifact = HONE_TRY(SealedMemfd::Adopt(std::move(descriptor)));
  return served;
}

Result<Served> Client::Ask(const GetRequest& request, Deadline deadline, Local* local, uint32_t* retry_after_ms) {
  // One that went away may have been started again, and may be reached as it goes for a while. Who does not start it is
  // not to wait long: a user who may not connect is sent away without a word.
  const Deadline retry_until =
      options_.start_daemon ? deadline : std::min(deadline, steady_clock::now() + options_.patience);
  for (milliseconds pause{0};; pause = std::clamp(2 * pause, kShortestRetry, kLongestRetry)) {
    Result<Channel> channel = TakeChannel(std::min(deadline, steady_clock::now() + options_.patience));
    if (!channel && channel.error().kind == ErrorKind::kTimeout) {
      if (std::optional<Served> copy = FromDisk(request)) return *std::move(copy);
      channel = TakeChannel(deadline);
    }
    if (!channel) return std::move(channel).error();
    Result<Served> served = AskOn(*channel, request, deadline, local, retry_after_ms);
    bool lost = !served && served.error().kind == ErrorKind::kUnavailable && !channel->clean();
    GiveBack(*std::move(channel));
    if (!lost) return served;
    if (pause > milliseconds(0))
      if (std::optional<Served> copy = FromDisk(request)) return *std::move(copy);
    if (steady_clock::now() + pause >= retry_until) return served;
    std::this_thread::sleep_for(pause);
  }
}

Result<Served> Client::FetchKnowing(const GetRequest& request, Deadline deadline, Local* local,
                                    uint32_t* retry_after_ms) {
  uint32_t retry_ms = 0;
  Result<Served> served = Ask(request, deadline, local, &retry_ms);
  while (!served && served.error().kind == ErrorKind::kBusy &&
         steady_clock::now() + milliseconds(std::max(1u, retry_ms)) < deadline) {
    std::this_thread::sleep_for(milliseconds(std::max(1u, retry_ms)));
    served = Ask(request, deadline, local, &retry_ms);
  }
  if (retry_after_ms != nullptr) *retry_after_ms = retry_ms;
  if (served || (!IsSilence(served.error()) && served.error().kind != ErrorKind::kBusy)) return served;
  if (std::optional<Served> copy = FromDisk(request)) return *std::move(copy);
  return served;
}

GetRequest Client::RequestFor(std::string_view kernel, const GetOptions& options) {
  GetRequest request;
  request.kernel = kernel;
  request.target = options.target;
  request.threads = static_cast<uint32_t>(std::max(0, options.threads));
  request.budget_us = static_cast<uint64_t>(std::max<int64_t>(0, options.budget.count()));
  request.no_compile = options.no_compile;
  return request;
}

Result<Served> Client::Fetch(std::string_view kernel, const GetOptions& options, uint32_t* retry_after_ms) {
  Local local;
  Served served = HONE_TRY(
      FetchKnowing(RequestFor(kernel, options), steady_clock::now() + options.deadline, &local, retry_after_ms));
  served.operands = std::move(local.operands);
  return served;
}

void Client::KeepUpToDate(Updatable& handle, std::string_view kernel, const GetOptions& options,
                          std::string canonical) {
  Updates::Watch(updates_, handle, RequestFor(kernel, options), std::move(canonical));
}

Workers Client::WorkersFor(int asked) const {
  Workers workers = options_.application;
  if (pool_) {
    workers.pool = pool_;
    workers.count = pool_->threads();
  }
  if (asked > 0) workers.count = std::min(workers.count, asked);
  return workers;
}

Result<OpenedKernel> Client::Open(std::string_view kernel, const GetOptions& options, uint32_t* retry_after_ms) {
  Stopwatch stopwatch;
  GetRequest request = RequestFor(kernel, options);
  Local local;
  Deadline deadline = steady_clock::now() + options.deadline;
  Served served = HONE_TRY(FetchKnowing(request, deadline, &local, retry_after_ms));
  if (const Result<Target> target = ParseTarget(served.reply.target); target && request.target.empty())
    if (const std::optional<Target> other = WithoutRefusedTiles(*target)) {
      request.target = PrintTarget(*other);
      served = HONE_TRY(FetchKnowing(request, deadline, &local, retry_after_ms));
    }
  if (local.canonical.empty()) local = Understand(request);
  ServedFacts facts{std::move(served.reply), std::move(served.source), 0, std::move(local.operands)};
  std::shared_ptr<const LoadedArtifact> code = HONE_TRY(
      LoadedArtifact::Load(std::move(served.artifact), facts.reply.size, facts.reply.digest, served.canonical));
  facts.served_us = stopwatch.Microseconds();
  if (disk_ && facts.source == "daemon" && options.target.empty()) {
    // A copy that cannot be kept is no reason to fail.
    (void)disk_->Store(request.kernel, request.threads, served.canonical, facts.reply, code->file());
  }
  return OpenedKernel{std::move(code), std::move(facts), std::move(served.canonical), std::move(request),
                      options.threads > 0 ? options.threads : local.threads};
}

Result<std::unique_ptr<KernelHandle>> Client::Hold(const OpenedKernel& kernel, const GetOptions& options) {
  using Change = KernelHandle::Change;
  std::unique_ptr<KernelHandle> handle =
      HONE_TRY(KernelHandle::Create(kernel.code, kernel.facts, WorkersFor(kernel.threads),
                                    options.frozen ? Change::kFrozen : Change::kLive, packed_));
  if (!options.frozen) Updates::Watch(updates_, *handle, kernel.request, kernel.canonical);
  return handle;
}

Result<std::unique_ptr<KernelHandle>> Client::Get(std::string_view kernel, const GetOptions& options,
                                                  uint32_t* retry_after_ms) {
  return Hold(HONE_TRY(Open(kernel, options, retry_after_ms)), options);
}

}  // namespace hone
