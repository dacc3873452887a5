#include "backends/runner/runner_check.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <utility>

#include "ir/target.h"

namespace hone {
namespace {

constexpr int kMaxWorkers = 256;
constexpr uint64_t kDriverBytes = uint64_t{256}
                                  << 20;  // of a process with a driver and its compiler, as PoCL takes them
constexpr double kLongestNs = 3'600e9;    // an hour

#if defined(__x86_64__)
constexpr const char* kVectorControl = "MXCSR";
#else
constexpr const char* kVectorControl = "FPCR";
#endif

Error RunFailed(std::string message) { return Error{ErrorKind::kRunFailed, std::move(message), ""}; }

int Workers(int wanted, const Kernel& kernel) {
  if (wanted <= 0) wanted = kernel.options.threads;
  if (wanted <= 0) {
    cpu_set_t set;
    wanted = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  }
  return std::clamp(wanted, 1, kMaxWorkers);
}

// The manifest of an artifact that may be run here, and that is this kernel's.
Result<Manifest> Admit(const Workload& workload, const Launcher& launcher, const SealedMemfd& artifact) {
  Manifest manifest = HONE_TRY(launcher.Admit(artifact));
  HONE_TRY(workload.CheckManifest(manifest));
  return manifest;
}

// What a candidate maps for itself alone.
uint64_t PrivateBytes(const CandidateSpec& spec) {
  return std::accumulate(spec.packed.begin(), spec.packed.end(), spec.workspace);
}

// Runs it. One that takes much memory of its own holds the turn while it has it.
Result<LaunchOutcome> Launch(const CandidateSpec& spec, Arena& arena, Launcher& launcher, const SealedMemfd& artifact) {
  std::optional<MemoryTurn> turn;
  if (const uint64_t bytes = PrivateBytes(spec); bytes > Arena::kKeptBytes) {
    turn.emplace(arena.memory().turns);
    if (const uint64_t available = arena.memory().available(); bytes > available / 4 * 3)
      return Error{ErrorKind::kLimit,
                   fmt::format("packed operands and workspace take {} MiB of memory, {} MiB are free", bytes >> 20,
                               available >> 20),
                   ""};
  }
  return launcher.Run(spec, artifact, arena.fd());
}

Result<CandidateSpec> MakeSpec(const Workload& workload, const Manifest& manifest, int workers) {
  CandidateSpec spec;
  spec.workers = Workers(workers, workload.kernel());
  spec.operands = workload.plans();
  spec.sizes = workload.sizes();
  for (const ManifestOperand& operand : manifest.operands)
    spec.packed.push_back(static_cast<uint64_t>(operand.packed_bytes));
  int64_t workspace = 0;
  if (__builtin_mul_overflow(manifest.workspace_per_worker, int64_t{spec.workers}, &workspace) ||
      __builtin_add_overflow(workspace, manifest.workspace_common, &workspace) ||
      static_cast<uint64_t>(workspace) > AvailableMemory() / 4 * 3)
    return Error{ErrorKind::kLimit, "the workspace does not fit into this machine's memory", ""};
  spec.workspace = static_cast<uint64_t>(workspace);
  return spec;
}

// What the artifact was doing, for messages.
std::string Doing(const CandidateStatus& status, const Workload& workload) {
  switch (status.stage.load()) {
    case RunStage::kSetup: return "before the first call";
    case RunStage::kPack: {
      size_t operand = static_cast<size_t>(status.operand);
      const Kernel& kernel = workload.kernel();
      if (operand >= kernel.operands.size()) return "in hone_pack";
      return fmt::format("in hone_pack of {}", kernel.tensors[kernel.operands[operand]].name);
    }
    case RunStage::kRepeat: return "in a repeated call of hone_entry";
    default: return "in hone_entry";
  }
}

// Names the buffer that an address belongs to, or is next to.
std::string DescribeAddress(uint64_t address, const CandidateStatus& status, const Workload& workload) {
  constexpr uint64_t kNear = 1 << 20;
  std::string best = fmt::format("address {:#x}, near no buffer", address);
  uint64_t best_distance = kNear;
  auto consider = [&](const CandidateStatus::Range& range, const std::string& name) {
    if (range.end <= range.begin) return;
    if (address >= range.begin && address < range.end) {
      best = fmt::format("{} at byte {}", name, address - range.begin), best_distance = 0;
    } else if (address >= range.end && address - range.end < best_distance) {
      best_distance = address - range.end, best = fmt::format("{} bytes past the end of {}", best_distance, name);
    } else if (address < range.begin && range.begin - address < best_distance) {
      best_distance = range.begin - address, best = fmt::format("{} bytes before the start of {}", best_distance, name);
    }
  };
  const Kernel& kernel = workload.kernel();
  for (size_t i = 0; i < kernel.operands.size(); ++i) {
    const std::string& name = kernel.tensors[kernel.operands[i]].name;
    consider(status.operands[i], name);
    consider(status.packed[i], "packed " + name);
  }
  consider(status.workspace, "the workspace");
  return best;
}

std::string DescribeFault(const CandidateStatus& status, const Workload& workload) {
  int signal = static_cast<int>(status.fault_signal.load());
  std::string doing = Doing(status, workload);
  if (signal == SIGILL) return "an instruction that this CPU does not have, " + doing;
  if (signal == SIGFPE) return "an arithmetic trap (a division by zero), " + doing;
  uint64_t address = status.fault_address, stack = status.fault_stack;
  if (address >= stack - (64 << 10) && address < stack + (64 << 10)) return "the stack overflowed, " + doing;
  return fmt::format("a stray {} {}, {}", status.fault_is_write != 0 ? "write" : "access",
                     DescribeAddress(address, status, workload), doing);
}

std::string Describe(const ModeChange& mode) {
  if (mode.direction != 0) return "it left the direction flag set";
  if (mode.x87_stack != 0) return "it left values on the x87 stack";
  if (mode.tiles != 0) return "it left AMX's tiles in use, which every switch to another thread saves";
  if (mode.x87_control != 0)
    return fmt::format("it left floating-point mode bits changed: x87 control word {:#x}", mode.x87_control);
  return fmt::format("it left floating-point mode bits changed: {} {:#x}", kVectorControl, mode.vector_control);
}

std::string SetupError(const CandidateStatus& status) {
  return std::string(status.setup_error, ::strnlen(status.setup_error, sizeof status.setup_error));
}

// How it was ended, or kept from starting, by what is not its doing; nullopt if it was not.
std::optional<Error> Misfortune(const LaunchOutcome& outcome, const CandidateStatus& status, const Workload& workload) {
  if (outcome.timed_out) return std::nullopt;
  if (outcome.status.signal == SIGKILL)
    return Error{ErrorKind::kBusy,
                 "killed from outside, most likely for want of memory, " + Doing(status, workload) + "; try again", ""};
  if (outcome.status.signal == 0 && outcome.status.code == kExitSetup && status.stage.load() == RunStage::kSetup)
    return Error{ErrorKind::kBusy, "it could not be started: " + SetupError(status) + "; try again", ""};
  return std::nullopt;
}

// Why the run does not count; nullopt if it went through. Everything in `status` may have been scribbled on.
std::optional<Error> Verdict(const LaunchOutcome& outcome, const CandidateStatus& status, const Workload& workload,
                             int64_t limit_ns) {
  std::string doing = Doing(status, workload);
  if (outcome.timed_out)
    return Error{ErrorKind::kTimeout, fmt::format("still running after {} ms, {}", limit_ns / 1'000'000, doing), ""};
  if (outcome.status.signal == SIGXCPU)
    return Error{ErrorKind::kTimeout,
                 fmt::format("more processor time than a run of {} ms takes, {}", limit_ns / 1'000'000, doing), ""};
  if (outcome.status.signal == SIGSYS)
    return RunFailed("it made a system call, which generated code may not, " + doing);
  if (outcome.status.signal != 0) return RunFailed(fmt::format("{}, {}", outcome.status.Text(), doing));
  if (outcome.status.code == kExitFault) return RunFailed(DescribeFault(status, workload));
  const std::string why = SetupError(status);
  if (outcome.status.code == kExitRefused || outcome.status.code == kExitDriver)
    return RunFailed("it could not be started: " + why);
  if (outcome.status.code == kExitLimit) return Error{ErrorKind::kLimit, "it could not be started: " + why, ""};
  if (outcome.status.code == kExitMisdeed) return RunFailed(why);
  if (status.return_code != 0) return RunFailed(fmt::format("returned {}, {}", status.return_code, doing));
  if (outcome.status.code != kExitDone || status.stage.load() != RunStage::kDone)
    return RunFailed(fmt::format("it ended the process ({}), {}", outcome.status.Text(), doing));
  if (const ModeChange mode = status.mode; mode.any()) return RunFailed(Describe(mode));
  return std::nullopt;
}

CandidateStatus& FreshStatus(Arena& arena) {
  std::memset(arena.bytes().data(), 0, kStatusBytes);
  return *new (arena.bytes().data()) CandidateStatus{};
}

// How one run ended.
struct Ended {
  const CandidateStatus* status = nullptr;
  std::optional<Error> failure = {};  // why it does not count
};

// kBusy: a misfortune.
Result<Ended> RunOnce(Workload& workload, Arena& arena, Launcher& launcher, const SealedMemfd& artifact,
                      const CandidateSpec& spec) {
  workload.BeforeRun();
  const CandidateStatus& status = FreshStatus(arena);
  const LaunchOutcome outcome = HONE_TRY(Launch(spec, arena, launcher, artifact));
  if (std::optional<Error> misfortune = Misfortune(outcome, status, workload)) return *std::move(misfortune);
  return Ended{&status, Verdict(outcome, status, workload, spec.limit_ns)};
}

// A misfortune is not to decide about the code: it is run once more. If that is lost, too, nothing is known of it.
Result<Ended> Run(Workload& workload, Arena& arena, Launcher& launcher, const SealedMemfd& artifact,
                  const CandidateSpec& spec) {
  Result<Ended> ended = RunOnce(workload, arena, launcher, artifact, spec);
  if (ended || ended.error().kind != ErrorKind::kBusy) return ended;
  return RunOnce(workload, arena, launcher, artifact, spec);
}

// Of what a candidate says itself.
double Microseconds(int64_t ns) { return std::clamp(static_cast<double>(ns), 0.0, kLongestNs) / 1000; }

double MedianOf(std::vector<double> values) {
  size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(middle), values.end());
  double upper = values[middle];
  if (values.size() % 2 == 1) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(middle))) / 2;
}

Result<RunTiming> Summarize(const CandidateStatus& status, const CandidateSpec& spec) {
  std::vector<double> us;
  for (int i = 0; i < std::clamp(status.samples, 0, static_cast<int>(kMaxTimeSamples)); ++i)
    if (double ns = status.sample_ns[i]; ns > 0 && ns <= kLongestNs) us.push_back(ns / 1000);
  int kept = static_cast<int>(us.size());
  const int64_t disturbed = std::max(status.disturbed, 0);
  bool gave_up = spec.give_up_ns > 0 && kept == 1 && us[0] * 1000 > spec.give_up_ns;
  if (kept < std::min(kFewestTimeSamples, spec.samples) && !gave_up)
    return Error{ErrorKind::kBusy,
                 fmt::format("the machine is not quiet enough to measure: {} of {} samples were disturbed", disturbed,
                             disturbed + kept),
                 ""};
  RunTiming timing;
  timing.median_us = MedianOf(us);
  timing.min_us = *std::min_element(us.begin(), us.end());
  std::vector<double> deviations;
  for (double sample : us) deviations.push_back(std::abs(sample - timing.median_us));
  timing.spread_us = 1.4826 * MedianOf(deviations);
  timing.samples = kept;
  timing.disturbed = static_cast<int>(disturbed);
  timing.calls_per_sample = status.calls_per_sample;
  timing.workers = spec.workers;
  timing.protocol = fmt::format("warm workers={} samples={} calls={} median", timing.workers, timing.samples,
                                timing.calls_per_sample);
  return timing;
}

}  // namespace

Result<CheckReport> CheckCandidate(Workload& workload, Arena& arena, Launcher& launcher, const SealedMemfd& artifact,
                                   const CheckOptions& options) {
  CheckReport report;
  Result<Manifest> manifest = Admit(workload, launcher, artifact);
  if (!manifest) {
    report.failure = std::move(manifest).error();
    return report;
  }
  CandidateSpec spec = HONE_TRY(MakeSpec(workload, *manifest, options.workers));
  spec.mode = RunMode::kCheck;
  spec.timed_runs = options.timed_runs;
  spec.limit_ns = std::chrono::nanoseconds(options.run_limit).count() * (1 + options.timed_runs);
  Ended ended = HONE_TRY(Run(workload, arena, launcher, artifact, spec));
  report.failure = std::move(ended.failure);
  if (!report.failure) report.failure = workload.CheckEdges();
  if (report.failure) return report;
  Comparison comparison = workload.Compare();
  report.failure = std::move(comparison.failure);
  report.max_rel_err = comparison.max_rel_err;
  report.samples = comparison.samples;
  report.full = comparison.full;
  report.pack_us = Microseconds(ended.status->pack_ns);
  report.first_run_us = Microseconds(ended.status->first_ns);
  report.time_us = options.timed_runs > 0 ? Microseconds(ended.status->best_ns) : 0;
  return report;
}

Result<std::vector<std::optional<Error>>> RehearseCandidates(Workload& workload, Arena& arena, Launcher& launcher,
                                                             std::vector<SealedMemfd> artifacts,
                                                             const CheckOptions& options, int at_once) {
  std::vector<std::optional<Error>> failures(artifacts.size());
  std::vector<size_t> places;
  std::vector<CandidateSpec> specs;
  std::vector<SealedMemfd> admitted;
  uint64_t bytes = kDriverBytes;
  for (const BufferPlan& plan : workload.plans()) bytes += plan.bytes;
  at_once = static_cast<int>(std::min(static_cast<uint64_t>(at_once), arena.memory().available() / 4 / bytes));
  if (at_once < 2) return failures;  // then it wins nothing
  for (size_t i = 0; i < artifacts.size(); ++i) {
    const Result<Manifest> manifest = Admit(workload, launcher, artifacts[i]);
    if (!manifest) {
      failures[i] = manifest.error();
      continue;
    }
    Result<CandidateSpec> spec = MakeSpec(workload, *manifest, options.workers);
    if (!spec) continue;
    spec->mode = RunMode::kRehearse;
    spec->limit_ns = std::chrono::nanoseconds(options.run_limit).count();
    places.push_back(i);
    specs.push_back(*std::move(spec));
    admitted.push_back(std::move(artifacts[i]));
  }
  workload.BeforeRun();
  const Rehearsals rehearsals = HONE_TRY(launcher.Rehearse(specs, admitted, arena.fd(), at_once));
  for (size_t i = 0; i < std::min(rehearsals.size(), places.size()); ++i) {
    if (!rehearsals[i]) continue;
    const auto status = std::make_unique<CandidateStatus>();
    status->stage = rehearsals[i]->stage;
    std::snprintf(status->setup_error, sizeof status->setup_error, "%s", rehearsals[i]->error.c_str());
    if (!Misfortune(rehearsals[i]->outcome, *status, workload))
      failures[places[i]] = Verdict(rehearsals[i]->outcome, *status, workload, specs[i].limit_ns);
  }
  return failures;
}

Result<RunTiming> TimeCandidate(Workload& workload, Arena& arena, Launcher& launcher, const SealedMemfd& artifact,
                                const TimeOptions& options) {
  Manifest manifest = HONE_TRY(Admit(workload, launcher, artifact));
  CandidateSpec spec = HONE_TRY(MakeSpec(workload, manifest, options.workers));
  spec.mode = RunMode::kMeasure;
  spec.limit_ns = std::chrono::nanoseconds(options.limit).count();
  spec.warmup_ns = std::chrono::nanoseconds(options.warmup).count();
  spec.min_sample_ns = std::chrono::nanoseconds(options.min_sample).count();
  spec.max_samples = std::clamp(options.max_samples, 1, static_cast<int>(kMaxTimeSamples));
  spec.samples = std::clamp(options.samples, 1, spec.max_samples);
  spec.give_up_ns = options.give_up_us * 1000;
  spec.contender_ns = options.contender_us * 1000;
  spec.narrow = options.narrow;
  Ended ended = HONE_TRY(Run(workload, arena, launcher, artifact, spec));
  if (ended.failure) return *std::move(ended.failure);
  return Summarize(*ended.status, spec);
}

}  // namespace hone
