#include "backends/gpu/device_process.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <new>
#include <utility>

#include "backends/copy_speed.h"
#include "backends/drivers/gpu_context.h"
#include "backends/runner/candidate_spec.h"
#include "backends/runner/launcher.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/sealed_memfd.h"
#include "ir/reference/check_output.h"

namespace hone {
namespace {

constexpr double kLeastSampleNs = 1e6;  // events are not read for less: their clock's grain, and gaps between launches
// Checked and timed in turns: the candidate, and what it is held against, are kept, and as many more as do not take
// much memory, so that a batch that was rehearsed and those that are the best of a search are loaded once.
constexpr size_t kFewestKernels = 2, kMostKernels = 20;
constexpr int64_t kKeptBytes = int64_t{64} << 20;
constexpr int64_t kLongCallNs = 500'000'000;
constexpr int kMostCalls = 1 << 16;  // enqueued at once

constexpr size_t kLargeCopy = size_t{32} << 20;  // the memory of most caches, and little of any device's
constexpr size_t kSmallCopy = 64;
constexpr int kLargeCopies = 5, kSmallCopies = 50;

// One candidate's run. What it has to say of itself is in `status`.
class Candidate {
 public:
  Candidate(const CandidateSpec& spec, const DeviceArtifact& artifact, CandidateStatus& status, LoadedKernel& loaded)
      : spec_(spec), artifact_(artifact), status_(status), loaded_(loaded) {}
  ~Candidate() {
    for (const MappedBuffer& mapped : mapped_)
      if (mapped.base != nullptr) ::munmap(mapped.base, mapped.size);
  }

  // `is_first`: the kernel has not run yet.
  Result<void> Run(int arena_fd, bool is_first) {
    HONE_TRY(CopyIn(arena_fd));
    status_.is_first = is_first;
    status_.stage = RunStage::kPack;
    status_.pack_ns = HONE_TRY(loaded_.Pack());
    status_.stage = RunStage::kEntry;
    if (spec_.mode == RunMode::kMeasure) {
      HONE_TRY(Measure());
    } else if (spec_.mode == RunMode::kRehearse) {
      status_.first_ns = HONE_TRY(loaded_.Call(1));
    } else {
      status_.first_ns = HONE_TRY(loaded_.Call(1));
      HONE_TRY(CopyOut());
      status_.stage = RunStage::kRepeat;
      // The first call had what drivers do once in it; how long the next takes is worth no second of waiting.
      for (int32_t i = 0; i < spec_.timed_runs && status_.first_ns < kLongCallNs; ++i) {
        const int64_t ns = HONE_TRY(loaded_.Call(1));
        status_.best_ns = i == 0 ? ns : std::min(status_.best_ns, ns);
      }
    }
    if (const std::optional<size_t> overrun = HONE_TRY(loaded_.FindOverrun())) {
      const int32_t operand = artifact_.buffers[*overrun].operand;
      return Error{
          ErrorKind::kInvalid,
          "a stray write beside " + (operand < 0 ? std::string("a scratch buffer")
                                                 : artifact_.manifest.operands[static_cast<size_t>(operand)].name),
          ""};
    }
    status_.stage = RunStage::kDone;
    return {};
  }

 private:
  Result<void> CopyIn(int arena_fd) {
    for (const BufferPlan& plan : spec_.operands) mapped_.push_back(HONE_TRY(MapBuffer(plan, arena_fd, true)));
    std::vector<std::byte> scratch;
    for (size_t i = 0; i < artifact_.buffers.size(); ++i) {
      const DeviceBuffer& buffer = artifact_.buffers[i];
      if (buffer.operand >= 0) {
        HONE_TRY(loaded_.Write(i, BytesOf(buffer)));
      } else if (spec_.mode == RunMode::kCheck) {
        // An earlier run has left there what this one is to compute.
        scratch.resize(static_cast<size_t>(buffer.bytes));
        FillScratch(scratch);
        HONE_TRY(loaded_.Write(i, scratch));
      }
    }
    return {};
  }

  Result<void> CopyOut() {
    for (size_t i = 0; i < artifact_.buffers.size(); ++i)
      if (artifact_.buffers[i].operand >= 0 && artifact_.buffers[i].is_written)
        HONE_TRY(loaded_.Read(i, BytesOf(artifact_.buffers[i])));
    return {};
  }

  std::span<std::byte> BytesOf(const DeviceBuffer& buffer) {
    const auto operand = static_cast<size_t>(buffer.operand);
    return {mapped_[operand].data, static_cast<size_t>(spec_.operands[operand].bytes)};
  }

  // Warm: the same buffers every call, which stay in what caches the device has.
  Result<void> Measure() {
    const Stopwatch watch;
    const auto elapsed_ns = [&] { return watch.Microseconds() * 1000; };
    double call_ns = static_cast<double>(std::max<int64_t>(HONE_TRY(loaded_.Call(1)), 1));
    status_.stage = RunStage::kRepeat;
    if (spec_.give_up_ns > 0) {
      call_ns = static_cast<double>(std::max<int64_t>(HONE_TRY(loaded_.Call(1)), 1));
      if (call_ns > spec_.give_up_ns) {
        status_.sample_ns[0] = call_ns;
        status_.samples = status_.calls_per_sample = 1;
        return {};
      }
    }
    const double sample_ns = std::max(static_cast<double>(spec_.min_sample_ns), kLeastSampleNs);
    while (elapsed_ns() < static_cast<double>(spec_.warmup_ns)) {
      const int calls = CallsFor(sample_ns, call_ns);
      call_ns = std::max(1.0, static_cast<double>(HONE_TRY(loaded_.Call(calls))) / calls);
    }
    const int calls = CallsFor(sample_ns, call_ns);
    status_.calls_per_sample = calls;
    double least = 0, most = 0;
    while (status_.samples < spec_.samples) {
      const double ns = static_cast<double>(HONE_TRY(loaded_.Call(calls))) / calls;
      least = status_.samples == 0 ? ns : std::min(least, ns);
      most = std::max(most, ns);
      status_.sample_ns[status_.samples++] = ns;
      const bool is_beaten = spec_.contender_ns > 0 && least > spec_.contender_ns;
      const bool is_narrow = most - least < spec_.narrow * least;
      if (status_.samples >= kFewestTimeSamples &&
          (is_beaten || is_narrow || elapsed_ns() > static_cast<double>(spec_.limit_ns) / 2))
        break;
    }
    return {};
  }

  static int CallsFor(double sample_ns, double call_ns) {
    return static_cast<int>(std::clamp(sample_ns / call_ns + 1, 1.0, static_cast<double>(kMostCalls)));
  }

  const CandidateSpec& spec_;
  const DeviceArtifact& artifact_;
  CandidateStatus& status_;
  LoadedKernel& loaded_;
  std::vector<MappedBuffer> mapped_;
};

// The devices that were asked for so far, and what is loaded on them.
class DeviceProcess {
 public:
  // How the run ended, in the words of a process: its code. `status_fd`: whose first bytes are its status.
  int Run(const CandidateSpec& spec, const SealedMemfd& artifact, int arena_fd, int status_fd) {
    BufferPlan plan;
    plan.bytes = kStatusBytes;
    plan.writable = true;
    Result<MappedBuffer> shared = MapBuffer(plan, status_fd, true);
    if (!shared) return kExitSetup;
    auto& status = *reinterpret_cast<CandidateStatus*>(shared->data);
    const Result<void> ran = RunWith(spec, artifact, arena_fd, status);
    if (!ran) std::snprintf(status.setup_error, sizeof status.setup_error, "%s", ran.error().Text().c_str());
    const bool is_setup = status.stage == RunStage::kSetup;
    ::munmap(shared->base, shared->size);
    if (ran) return kExitDone;
    if (!is_setup) return kExitMisdeed;
    switch (ran.error().kind) {
      case ErrorKind::kRunFailed: return kExitDriver;
      case ErrorKind::kLimit: return kExitLimit;
      default: return kExitRefused;
    }
  }

 private:
  struct Loaded {
    Digest256 digest;
    DeviceArtifact artifact;
    std::unique_ptr<LoadedKernel> kernel;
    bool has_run = false;
  };

  Result<void> RunWith(const CandidateSpec& spec, const SealedMemfd& artifact, int arena_fd, CandidateStatus& status) {
    Loaded& loaded = *HONE_TRY(Load(artifact));
    if (spec.operands.size() != loaded.artifact.manifest.operands.size())
      return Error{ErrorKind::kInvalid, "the artifact has other operands", ""};
    for (const DeviceBuffer& buffer : loaded.artifact.buffers)
      if (buffer.operand >= 0 &&
          static_cast<uint64_t>(buffer.bytes) != spec.operands[static_cast<size_t>(buffer.operand)].bytes)
        return Error{ErrorKind::kInvalid, "an operand of another size", ""};
    return Candidate(spec, loaded.artifact, status, *loaded.kernel).Run(arena_fd, !std::exchange(loaded.has_run, true));
  }

  Result<Loaded*> Load(const SealedMemfd& bytes) {
    ReadOnlyMapping mapping = HONE_TRY(bytes.Map());
    const Digest256 digest = Hash256(mapping.bytes());
    const auto found = std::ranges::find(loaded_, digest, &Loaded::digest);
    if (found != loaded_.end()) {
      loaded_.splice(loaded_.begin(), loaded_, found);
      return &loaded_.front();
    }
    DeviceArtifact artifact = HONE_TRY(DecodeDeviceArtifact(mapping.bytes()));
    const Target target = HONE_TRY(ParseTarget(artifact.manifest.target));
    if (target.device() == nullptr) return Error{ErrorKind::kUnsupported, "an artifact for a CPU", "artifact"};
    MakeRoomFor(artifact);
    if (!context_ || *target.device() != open_for_) {
      loaded_.clear();
      context_.reset();
      context_ = HONE_TRY(OpenDevice(*target.device()));
      open_for_ = *target.device();
    }
    std::unique_ptr<LoadedKernel> kernel = HONE_TRY(context_->Load(artifact, Operands::kOwned));
    loaded_.push_front({digest, std::move(artifact), std::move(kernel)});
    return &loaded_.front();
  }

  static int64_t BytesOf(const DeviceArtifact& artifact) {
    int64_t bytes = 0;
    for (const DeviceBuffer& buffer : artifact.buffers) bytes += buffer.bytes;
    return bytes;
  }

  void MakeRoomFor(const DeviceArtifact& artifact) {
    int64_t bytes = BytesOf(artifact);
    for (const Loaded& loaded : loaded_) bytes += BytesOf(loaded.artifact);
    while (loaded_.size() >= kMostKernels || (loaded_.size() >= kFewestKernels && bytes > kKeptBytes)) {
      bytes -= BytesOf(loaded_.back().artifact);
      loaded_.pop_back();
    }
  }

  std::unique_ptr<GpuContext> context_;
  DeviceTarget open_for_;
  std::list<Loaded> loaded_;  // the one used last first
};

// The fastest of several: a device is woken by the first, and others may use it.
template <typename Copy>
Result<double> LeastUs(int times, const Copy& copy) {
  double least = 0;
  for (int i = 0; i <= times; ++i) {
    const Stopwatch watch;
    HONE_TRY(copy());
    const double us = watch.Microseconds();
    if (i > 0) least = i == 1 ? us : std::min(least, us);
  }
  return least;
}

Result<CopySpeed> CopiesOf(const char* text) {
  const Target target = HONE_TRY(ParseTarget(text));
  if (target.device() == nullptr) return CopySpeed{};
  const std::unique_ptr<GpuContext> context = HONE_TRY(OpenDevice(*target.device()));
  const std::unique_ptr<DeviceMemory> memory = HONE_TRY(context->Allocate(kLargeCopy));
  std::vector<std::byte> host(kLargeCopy, std::byte{1});  // there, not only promised
  const auto write = [&](size_t bytes) { return context->Write(*memory, 0, std::span(host).first(bytes)); };
  const auto read = [&](size_t bytes) { return context->Read(*memory, 0, std::span(host).first(bytes)); };
  CopySpeed speed;
  speed.to_us = HONE_TRY(LeastUs(kSmallCopies, [&] { return write(kSmallCopy); }));
  speed.from_us = HONE_TRY(LeastUs(kSmallCopies, [&] { return read(kSmallCopy); }));
  const auto gb_s = [](double us) { return static_cast<double>(kLargeCopy) / std::max(us, 0.1) / 1e3; };
  speed.to_gb_s = gb_s(HONE_TRY(LeastUs(kLargeCopies, [&] { return write(kLargeCopy); })));
  speed.from_gb_s = gb_s(HONE_TRY(LeastUs(kLargeCopies, [&] { return read(kLargeCopy); })));
  return speed;
}

// The answer to what this process was started for, and its end.
[[noreturn]] void Answer(ChildChannel channel, ChildMessage type, const Result<std::string>& answer) {
  const bool is_sent =
      answer ? channel.Send(type, 0, *answer, {}, MonotonicTime::max()).has_value()
             : channel.Send(ChildMessage::kError, 0, EncodeError(answer.error()), {}, MonotonicTime::max()).has_value();
  ::_exit(is_sent ? 0 : 1);
}

}  // namespace

void RunDeviceProcess(ChildChannel channel) {
  DeviceProcess process;
  while (true) {
    Result<ChildFrame> frame = channel.Receive(MonotonicTime::max());
    if (!frame || frame->type != ChildMessage::kLaunch || frame->fds.size() < 2 || frame->fds.size() > 3) break;
    const Result<CandidateSpec> spec = DecodeCandidateSpec(frame->body);
    Result<SealedMemfd> artifact = SealedMemfd::Adopt(std::move(frame->fds[0]));
    if (!spec || !artifact) break;
    LaunchOutcome outcome;
    outcome.status.code = process.Run(*spec, *artifact, frame->fds[1].get(), frame->fds.back().get());
    if (!channel.Send(ChildMessage::kLaunched, frame->id, EncodeOutcome(outcome), {}, MonotonicTime::max())) break;
  }
  ::_exit(0);  // a driver's own ends take their time, and may hang
}

void ListDevices(ChildChannel channel, const char* kind) {
  const auto lines = [&]() -> Result<std::string> {
    std::string text;
    for (const DeviceTarget& target : HONE_TRY(FindDevices(kind))) text += PrintTarget(target) + "\n";
    return text;
  };
  Answer(std::move(channel), ChildMessage::kListed, lines());
}

void MeasureCopies(ChildChannel channel, const char* target) {
  const auto speed = [&]() -> Result<std::string> { return PrintCopySpeed(HONE_TRY(CopiesOf(target))); };
  Answer(std::move(channel), ChildMessage::kCopied, speed());
}

}  // namespace hone
