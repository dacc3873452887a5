#include "backends/processes/runner_pool.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>

#include "backends/processes/child_messages.h"
#include "backends/processes/child_pool.h"
#include "backends/runner/guarded_arena.h"
#include "base/file.h"
#include "base/mutex.h"

namespace hone {

struct RunnerPool::Impl {
  std::unique_ptr<ChildPool> children;
  bool rehearses = false;
  std::atomic<uint64_t> prepared{0}, checked{0}, refused{0};
};

struct RunnerPool::Prepared::Lease {
  Lease(ChildPool::Lease child, uint64_t prepare_id, std::stop_token stop)
      : child(std::move(child)), prepare_id(prepare_id), stop(std::move(stop)) {}
  ~Lease() {
    if (!answered) child.Abandon(prepare_id);
  }

  ChildPool::Lease child;
  const uint64_t prepare_id;
  const std::stop_token stop;
  // The runner's answer to kPrepare, once somebody waited for it.
  bool answered = false;
  std::optional<Error> refused;

  // Waits until the runner has the kernel ready.
  Result<void> Await(MonotonicTime deadline) {
    if (!answered) {
      ChildFrame frame = HONE_TRY(child.Receive(prepare_id, deadline, stop));
      answered = true;
      if (frame.type == ChildMessage::kError)
        refused = DecodeError(frame.body);
      else if (frame.type != ChildMessage::kPrepared)
        return child.Reject("the runner answered another question");
    }
    if (refused) return *refused;
    return {};
  }

  Result<std::string> Ask(ChildMessage question, ChildMessage answer, const std::string& body,
                          const std::vector<int>& artifacts, MonotonicTime deadline) {
    HONE_TRY(Await(deadline));
    child.StartRequest(0);  // the runner limits its candidates
    ChildFrame frame = HONE_TRY(child.Call(question, body, artifacts, deadline, stop));
    if (frame.type == ChildMessage::kError) return DecodeError(frame.body);
    if (frame.type != answer || !frame.fds.empty()) return child.Reject("the runner answered another question");
    return std::move(frame.body);
  }
};

RunnerPool::Prepared::Prepared(std::unique_ptr<Lease> lease) : lease_(std::move(lease)) {}
RunnerPool::Prepared::Prepared(Prepared&&) noexcept = default;
RunnerPool::Prepared& RunnerPool::Prepared::operator=(Prepared&&) noexcept = default;
RunnerPool::Prepared::~Prepared() = default;
bool RunnerPool::Prepared::lost() const { return !lease_->child.alive(); }
MonotonicTime RunnerPool::Prepared::killed_at() const { return lease_->child.killed_at(); }
bool RunnerPool::Prepared::has_failed_to_start() const { return lease_->child.has_failed_to_start(); }

namespace {

constexpr char kNoTime[] = "the runner answered with a time that is none";

// What all runners of this process lock in turn to take memory. Stays open for good.
Result<int> MemoryTurnFile() {
  static Mutex mutex;
  static int file = -1;
  MutexLock lock(mutex);
  if (file < 0) file = ::memfd_create("hone-memory-turns", MFD_CLOEXEC);
  if (file < 0) return ErrnoError(errno, "memfd_create");
  return file;
}

}  // namespace

RunnerPool::RunnerPool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunnerPool::~RunnerPool() = default;

Result<std::unique_ptr<RunnerPool>> RunnerPool::Start(const RunnerPoolOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->rehearses = options.rehearses;
  ChildPoolOptions pool;
  pool.name = "runner";
  pool.children = options.runners;
  pool.process.executable = options.executable.empty() ? HONE_TRY(FindOwnProgram("hone-runner")) : options.executable;
  pool.process.arguments = options.arguments;
  pool.process.environment = options.environment;
  pool.process.limits.address_space = options.address_space;
  pool.process.limits.open_files = options.open_files;
  pool.process.limits.nice = options.nice;
  pool.process.limits.idle = options.idle;
  pool.process.limits.idle_group = options.idle_group;
  pool.process.fds.emplace_back(HONE_TRY(MemoryTurnFile()), kMemoryTurnFd);
  impl->children = HONE_TRY(ChildPool::Start(std::move(pool)));
  return std::unique_ptr<RunnerPool>(new RunnerPool(std::move(impl)));
}

void RunnerPool::Pause() { impl_->children->Pause(); }
void RunnerPool::Resume() { impl_->children->Resume(); }
void RunnerPool::Shutdown() { impl_->children->Shutdown(); }

Result<RunnerPool::Prepared> RunnerPool::Prepare(const std::string& kernel, MonotonicTime deadline,
                                                 const std::stop_token& stop, MonotonicTime born_after) {
  ChildPool::Lease child = HONE_TRY(impl_->children->Acquire(deadline, stop, born_after));
  child.StartRequest(0);
  Result<uint64_t> id = child.Send(ChildMessage::kPrepare, kernel, {}, deadline, stop);
  if (!id && child.was_killed()) {
    const MonotonicTime killed_at = child.killed_at();
    { const ChildPool::Lease dead = std::move(child); }  // given back first: it may be the only one
    child = HONE_TRY(impl_->children->Acquire(deadline, stop, killed_at));
    child.StartRequest(0);
    id = child.Send(ChildMessage::kPrepare, kernel, {}, deadline, stop);
  }
  if (!id) return std::move(id).error();
  ++impl_->prepared;
  return Prepared(std::make_unique<Prepared::Lease>(std::move(child), *id, stop));
}

Result<CheckReport> RunnerPool::Check(Prepared& prepared, const SealedMemfd& artifact, const CheckOptions& options,
                                      MonotonicTime deadline) {
  std::string body = HONE_TRY(prepared.lease_->Ask(ChildMessage::kCheck, ChildMessage::kChecked,
                                                   EncodeCheckOptions(options), {artifact.fd()}, deadline));
  Result<CheckReport> report = DecodeCheckReport(body);
  if (!report) return prepared.lease_->child.Reject(report.error().message);
  if (!AreTimes(*report)) return prepared.lease_->child.Reject(kNoTime);
  ++(report->verified() ? impl_->checked : impl_->refused);
  return report;
}

bool RunnerPool::rehearses() const { return impl_->rehearses; }

Result<std::vector<std::optional<Error>>> RunnerPool::Rehearse(Prepared& prepared,
                                                               std::span<const SealedMemfd* const> artifacts,
                                                               const CheckOptions& options, int at_once,
                                                               MonotonicTime deadline) {
  std::vector<int> fds;
  for (const SealedMemfd* artifact : artifacts) fds.push_back(artifact->fd());
  std::string body = HONE_TRY(prepared.lease_->Ask(ChildMessage::kRehearse, ChildMessage::kRehearsed,
                                                   EncodeRehearsalQuestion({at_once, options}), fds, deadline));
  Result<std::vector<std::optional<Error>>> failures = DecodeRehearsed(body);
  if (!failures) return prepared.lease_->child.Reject(failures.error().message);
  if (failures->size() != artifacts.size()) return prepared.lease_->child.Reject("the runner rehearsed something else");
  return failures;
}

Result<RunTiming> RunnerPool::Time(Prepared& prepared, const SealedMemfd& artifact, const TimeOptions& options,
                                   MonotonicTime deadline) {
  std::string body = HONE_TRY(prepared.lease_->Ask(ChildMessage::kTime, ChildMessage::kTimed,
                                                   EncodeTimeOptions(options), {artifact.fd()}, deadline));
  Result<RunTiming> timing = DecodeTiming(body);
  if (!timing) return prepared.lease_->child.Reject(timing.error().message);
  if (!AreTimes(*timing)) return prepared.lease_->child.Reject(kNoTime);
  return timing;
}

std::vector<Confinement> RunnerPool::Confinements() const { return impl_->children->Confinements(); }

RunnerPoolStats RunnerPool::Stats() const {
  RunnerPoolStats stats;
  stats.prepared = impl_->prepared;
  stats.checked = impl_->checked;
  stats.refused = impl_->refused;
  stats.restarts = impl_->children->restarts();
  stats.busy = impl_->children->busy();
  return stats;
}

}  // namespace hone
