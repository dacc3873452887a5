#include "backends/gpu/device_host.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "backends/gpu/device_child.h"
#include "backends/gpu/device_process.h"
#include "backends/gpu/driver_files.h"
#include "backends/processes/child_channel.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/unique_fd.h"
#include "ir/device_artifact.h"

namespace hone {
namespace {

// What a driver writes (compiled code, temporary files) stays in a directory of this user's. Whoever finds nobody else
// in it, empties it first.
class DriverDirectory {
 public:
  static Result<DriverDirectory> Open() {
    const char* base = ::getenv("XDG_RUNTIME_DIR");
    std::string path =
        (base != nullptr && *base == '/' ? std::string(base) : "/tmp") + "/hone-device-" + std::to_string(::geteuid());
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoError(errno, path);
    UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!directory) return ErrnoError(errno, path);
    struct stat is{};
    if (::fstat(directory.get(), &is) != 0 || is.st_uid != ::geteuid() || (is.st_mode & 077) != 0)
      return Error{ErrorKind::kIo, "it belongs to somebody else, or others may write to it; remove it", path};
    if (::flock(directory.get(), LOCK_EX | LOCK_NB) == 0) {
      std::error_code ignored;
      for (const auto& entry : std::filesystem::directory_iterator(path, ignored))
        std::filesystem::remove_all(entry.path(), ignored);
    }
    ::flock(directory.get(), LOCK_SH);
    return DriverDirectory(std::move(path), std::move(directory));
  }

  const std::string& path() const { return path_; }

  // Where drivers look for a place to write.
  void Announce() const {
    for (const char* name : {"HOME", "TMPDIR", "XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH"})
      ::setenv(name, path_.c_str(), 1);
  }

 private:
  DriverDirectory(std::string path, UniqueFd directory) : path_(std::move(path)), directory_(std::move(directory)) {}
  std::string path_;
  UniqueFd directory_;  // locked, by us and by what we fork
};

// What is rehearsed, in the artifacts' order.
struct RehearsalPlan {
  int at_once = 1;
  std::vector<CandidateSpec> specs;
};

// plan ::= at_once:varint count:varint spec:string*
std::string EncodeRehearsalPlan(const RehearsalPlan& plan) {
  ByteWriter writer;
  writer.Varint(static_cast<uint64_t>(plan.at_once));
  writer.Varint(plan.specs.size());
  for (const CandidateSpec& spec : plan.specs) writer.String(EncodeCandidateSpec(spec));
  return writer.Take();
}

Result<RehearsalPlan> DecodeRehearsalPlan(std::string_view body) {
  constexpr size_t kMostSpec = 1 << 20;
  ByteReader reader(body);
  RehearsalPlan plan;
  plan.at_once = static_cast<int>(std::clamp<uint64_t>(HONE_TRY(reader.Varint()), 1, kMostRehearsed));
  plan.specs.resize(HONE_TRY(reader.Count(kMostRehearsed)));
  for (CandidateSpec& spec : plan.specs) spec = HONE_TRY(DecodeCandidateSpec(HONE_TRY(reader.String(kMostSpec))));
  HONE_TRY(reader.Finish());
  return plan;
}

// What a rehearsal says of itself, in memory that it shares with this process alone.
class SharedStatus {
 public:
  static Result<std::unique_ptr<SharedStatus>> Create() {
    UniqueFd file(::memfd_create("hone-rehearsal", MFD_CLOEXEC));
    if (!file || ::ftruncate(file.get(), kStatusBytes) != 0) return ErrnoError(errno, "memory for a rehearsal");
    BufferPlan plan;
    plan.bytes = kStatusBytes;
    plan.writable = true;
    const MappedBuffer mapped = HONE_TRY(MapBuffer(plan, file.get(), true));
    ::madvise(mapped.base, mapped.size, MADV_DONTFORK);
    return std::unique_ptr<SharedStatus>(new SharedStatus(std::move(file), mapped));
  }
  ~SharedStatus() { ::munmap(mapped_.base, mapped_.size); }

  const CandidateStatus& Renew() {
    std::memset(mapped_.data, 0, kStatusBytes);
    return *new (mapped_.data) CandidateStatus{};
  }
  const CandidateStatus& operator*() const { return *reinterpret_cast<const CandidateStatus*>(mapped_.data); }
  int fd() const { return file_.get(); }

 private:
  SharedStatus(UniqueFd file, const MappedBuffer& mapped) : file_(std::move(file)), mapped_(mapped) {}
  const UniqueFd file_;
  const MappedBuffer mapped_;
};

class DeviceHost {
 public:
  // `own`: the directory that drivers may write to.
  DeviceHost(ChildChannel runner, std::string own) : runner_(std::move(runner)), own_(std::move(own)) {
    stages_.push_back(std::make_unique<Stage>());
  }

  [[noreturn]] void Serve() {
    while (true) {
      AwaitQuestion();
      Result<ChildFrame> frame = runner_.Receive(MonotonicTime::max());
      if (!frame) Quit();
      if (frame->type == ChildMessage::kRenew) {
        stages_.resize(1);
        stages_[0]->child.End(std::chrono::milliseconds(0));
        Answer(frame->id, ChildMessage::kRenewed, std::string());
      } else if (frame->type == ChildMessage::kRehearse) {
        const Result<Rehearsals> rehearsals = Rehearse(*frame);
        Answer(frame->id, ChildMessage::kRehearsed,
               rehearsals ? Result<std::string>(EncodeRehearsals(*rehearsals)) : rehearsals.error());
      } else {
        if (frame->type != ChildMessage::kLaunch || frame->fds.size() != 2) Quit();
        const Result<LaunchOutcome> outcome = Launch(*frame);
        Answer(frame->id, ChildMessage::kLaunched,
               outcome ? Result<std::string>(EncodeOutcome(*outcome)) : outcome.error());
      }
    }
  }

 private:
  // Where candidates run: a device process, and what those say that it rehearses.
  struct Stage {
    DeviceChild child;
    std::unique_ptr<SharedStatus> status;
  };

  // Processes for rehearsals besides the one that measures end when nobody rehearses: a driver takes some 200 MB.
  static constexpr int kIdleMs = 20'000;
  static constexpr std::chrono::seconds kRehearsal{15};  // of all candidates together
  static constexpr size_t kMostStages = 8;

  void AwaitQuestion() {
    if (stages_.size() == 1) return;
    pollfd waited{runner_.fd(), POLLIN, 0};
    if (::poll(&waited, 1, kIdleMs) == 0) stages_.resize(1);
  }

  void Answer(uint64_t id, ChildMessage type, const Result<std::string>& body) {
    const Result<void> sent =
        body ? runner_.Send(type, id, *body, {}, MonotonicTime::max())
             : runner_.Send(ChildMessage::kError, id, EncodeError(body.error()), {}, MonotonicTime::max());
    if (!sent) Quit();
  }

  Result<LaunchOutcome> Launch(ChildFrame& frame) {
    const Result<CandidateSpec> spec = DecodeCandidateSpec(frame.body);
    if (!spec) Quit();
    BufferPlan plan;
    plan.bytes = kStatusBytes;
    const MappedBuffer shared = HONE_TRY(MapBuffer(plan, frame.fds[1].get(), false));
    const auto& status = *reinterpret_cast<const CandidateStatus*>(shared.data);
    const std::vector<int> fds{frame.fds[0].get(), frame.fds[1].get()};
    WatchedRun run(stages_[0]->child, frame.id, std::chrono::nanoseconds(spec->limit_ns), status);
    Result<LaunchOutcome> outcome = Watch(run, frame.body, fds);
    // A device that was lost, or a process that ended, since the last candidate: this one did not run and is not to
    // blame, unless it befalls a second process, too.
    if (outcome && run.WasLostBeforeItRan(*outcome)) outcome = Watch(run, frame.body, fds);
    ::munmap(shared.base, shared.size);
    return outcome;
  }

  Result<LaunchOutcome> Watch(WatchedRun& run, std::string_view spec, const std::vector<int>& fds) {
    HONE_TRY(EnsureAlive(run.child()));
    WatchedRun* const runs[] = {&run};
    if (run.Begin(spec, fds)) AwaitOne(runs, runner_.fd());
    return run.Finish();
  }

  Result<void> EnsureAlive(DeviceChild& child) {
    if (child.IsAlive()) return {};
    std::vector<int> others{runner_.fd()};
    for (const std::unique_ptr<Stage>& stage : stages_) {
      if (stage->child.IsAlive()) others.push_back(stage->child.fd());
      if (stage->status) others.push_back(stage->status->fd());
    }
    return child.Start(own_, others);
  }

  // One candidate of a rehearsal, on a stage.
  struct Act {
    Stage* stage;
    size_t place;
    bool is_again;
    WatchedRun run;
  };

  // What is under way when the time is over is ended, and nothing is known of it.
  Result<Rehearsals> Rehearse(ChildFrame& frame) {
    const Result<RehearsalPlan> plan = DecodeRehearsalPlan(frame.body);
    if (!plan || frame.fds.size() != plan->specs.size() + 1) Quit();
    const size_t count = plan->specs.size();
    while (stages_.size() < std::min({kMostStages, count, static_cast<size_t>(plan->at_once)}))
      stages_.push_back(std::make_unique<Stage>());
    for (const std::unique_ptr<Stage>& stage : stages_)
      if (!stage->status) stage->status = HONE_TRY(SharedStatus::Create());

    const MonotonicTime until = std::chrono::steady_clock::now() + kRehearsal;
    Rehearsals rehearsals(count);
    std::vector<std::unique_ptr<Act>> acts;
    // Where there is no process for it, nothing is known of it.
    const auto begin = [&](Stage& stage, size_t place, bool is_again) {
      if (!EnsureAlive(stage.child)) return;
      const std::chrono::nanoseconds limit(plan->specs[place].limit_ns);
      acts.push_back(std::make_unique<Act>(&stage, place, is_again,
                                           WatchedRun(stage.child, frame.id, limit, stage.status->Renew())));
      acts.back()->run.Begin(EncodeCandidateSpec(plan->specs[place]),
                             {frame.fds[place].get(), frame.fds[count].get(), stage.status->fd()});
    };
    size_t next = 0;
    for (const std::unique_ptr<Stage>& stage : stages_)
      if (next < count) begin(*stage, next++, false);
    while (!acts.empty()) {
      std::vector<WatchedRun*> runs;
      for (const std::unique_ptr<Act>& act : acts) runs.push_back(&act->run);
      const size_t over = AwaitOne(runs, runner_.fd(), until);
      if (over == runs.size()) break;
      const std::unique_ptr<Act> act = std::move(acts[over]);
      acts.erase(acts.begin() + static_cast<ptrdiff_t>(over));
      const Result<LaunchOutcome> outcome = act->run.Finish();
      if (outcome && act->run.WasLostBeforeItRan(*outcome) && !act->is_again) {
        begin(*act->stage, act->place, true);
        continue;
      }
      const CandidateStatus& status = **act->stage->status;
      if (outcome) {
        const std::string error(status.setup_error, ::strnlen(status.setup_error, sizeof status.setup_error));
        rehearsals[act->place] = {*outcome, std::min(status.stage.load(), RunStage::kDone), error};
      }
      if (next < count) begin(*act->stage, next++, false);
    }
    for (const std::unique_ptr<Act>& act : acts) act->stage->child.End(std::chrono::milliseconds(0));
    return rehearsals;
  }

  [[noreturn]] void Quit() {
    stages_.clear();
    ::_exit(0);
  }

  ChildChannel runner_;
  const std::string own_;
  std::vector<std::unique_ptr<Stage>> stages_;  // what is measured is measured on the first
};

class DeviceLauncher : public Launcher {
 public:
  DeviceLauncher(ChildChannel channel, Confinement confinement)
      : channel_(std::move(channel)), confinement_(std::move(confinement)) {}

  Result<Manifest> Admit(const SealedMemfd& artifact) const override {
    ReadOnlyMapping mapping = HONE_TRY(artifact.Map());
    return HONE_TRY(DecodeDeviceArtifact(mapping.bytes())).manifest;
  }

  Result<LaunchOutcome> Run(const CandidateSpec& spec, const SealedMemfd& artifact, int arena_fd) override {
    const uint64_t id = next_id_++;
    HONE_TRY(channel_.Send(ChildMessage::kLaunch, id, EncodeCandidateSpec(spec), {artifact.fd(), arena_fd},
                           MonotonicTime::max()));
    return DecodeOutcome(HONE_TRY(Receive(id, ChildMessage::kLaunched)));
  }

  Result<Rehearsals> Rehearse(std::span<const CandidateSpec> specs, std::span<const SealedMemfd> artifacts,
                              int arena_fd, int at_once) override {
    const uint64_t id = next_id_++;
    std::vector<int> fds;
    for (const SealedMemfd& artifact : artifacts) fds.push_back(artifact.fd());
    fds.push_back(arena_fd);
    HONE_TRY(channel_.Send(ChildMessage::kRehearse, id,
                           EncodeRehearsalPlan({at_once, std::vector<CandidateSpec>(specs.begin(), specs.end())}), fds,
                           MonotonicTime::max()));
    Rehearsals rehearsals = HONE_TRY(DecodeRehearsals(HONE_TRY(Receive(id, ChildMessage::kRehearsed))));
    if (rehearsals.size() != artifacts.size()) return Error{ErrorKind::kInternal, kAnotherQuestion, ""};
    return rehearsals;
  }

  bool IsResident() const override { return true; }

  Result<void> Renew() override {
    const uint64_t id = next_id_++;
    HONE_TRY(channel_.Send(ChildMessage::kRenew, id, {}, {}, MonotonicTime::max()));
    HONE_TRY(Receive(id, ChildMessage::kRenewed));
    return {};
  }

  const Confinement& confinement() const override { return confinement_; }

 private:
  static constexpr char kAnotherQuestion[] = "the device's host answered another question";

  Result<std::string> Receive(uint64_t id, ChildMessage answer) {
    ChildFrame frame = HONE_TRY(channel_.Receive(MonotonicTime::max()));
    if (frame.type == ChildMessage::kError) return DecodeError(frame.body);
    if (frame.type != answer || frame.id != id) return Error{ErrorKind::kInternal, kAnotherQuestion, ""};
    return std::move(frame.body);
  }

  ChildChannel channel_;
  const Confinement confinement_;
  uint64_t next_id_ = 1;
};

// `own` gets the directory that drivers may write to.
Result<Confinement> LockIn(std::string& own) {
  static const DriverDirectory directory = HONE_TRY(DriverDirectory::Open());
  directory.Announce();
  PointLoaderToDriverFiles(directory.path());
  own = directory.path();
  return EnterDeviceSandbox(own);
}

[[noreturn]] void ServeRunner(ChildChannel channel) {
  std::string own;
  const Result<Confinement> locked = LockIn(own);
  const Result<void> told =
      locked ? channel.Send(ChildMessage::kConfined, 0, EncodeConfinements({*locked}), {}, MonotonicTime::max())
             : channel.Send(ChildMessage::kError, 0, EncodeError(locked.error()), {}, MonotonicTime::max());
  if (!locked || !told) ::_exit(1);
  DeviceHost(std::move(channel), std::move(own)).Serve();
}

[[noreturn]] void AnswerLockedIn(ChildChannel channel, void (*answer)(ChildChannel, const char*), const char* about) {
  const auto locked = []() -> Result<void> {
    std::string own;
    HONE_TRY(LockIn(own));
    return NarrowDeviceSandbox(own);
  }();
  if (locked) answer(std::move(channel), about);
  (void)channel.Send(ChildMessage::kError, 0, EncodeError(locked.error()), {}, MonotonicTime::max());
  ::_exit(1);
}

}  // namespace

Result<std::unique_ptr<Launcher>> StartDeviceHost() {
  auto [ours, theirs] = HONE_TRY(ChildChannel::Pair());
  const pid_t child = ::fork();
  if (child < 0) return ErrnoError(errno, "fork");
  if (child == 0) {
    // Nothing of the runner's but this channel, and where its errors go.
    const int kept = theirs.get();
    if (kept > 3) ::close_range(3, static_cast<unsigned>(kept) - 1, 0);
    ::close_range(static_cast<unsigned>(kept) + 1, ~0u, 0);
    ServeRunner(ChildChannel(std::move(theirs)));
  }
  theirs.Reset();
  ChildFrame first = HONE_TRY(ours.Receive(MonotonicTime::max()));
  if (first.type == ChildMessage::kError) return DecodeError(first.body).Context("a device's host has no sandbox");
  std::vector<Confinement> confined = HONE_TRY(DecodeConfinements(first.body));
  if (first.type != ChildMessage::kConfined || confined.size() != 1)
    return Error{ErrorKind::kInternal, "a device's host did not say what holds it", ""};
  return std::unique_ptr<Launcher>(std::make_unique<DeviceLauncher>(std::move(ours), std::move(confined[0])));
}

void ListDevicesLockedIn(ChildChannel channel, const char* kind) {
  AnswerLockedIn(std::move(channel), ListDevices, kind);
}

void MeasureCopiesLockedIn(ChildChannel channel, const char* target) {
  AnswerLockedIn(std::move(channel), MeasureCopies, target);
}

}  // namespace hone
