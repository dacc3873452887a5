// Runner processes, seen from the daemon: they compute a kernel's reference values while its code is being built, then
// run the code in a sandboxed child of theirs and compare. Nothing is served before it passed here.
//
//   Prepared prepared = pool.Prepare(kernel, deadline);      // returns at once; the runner starts on the reference
//   BuiltArtifact built = builders.Build(request, deadline);  // meanwhile, on another core
//   CheckReport report = pool.Check(prepared, built.object, options, deadline);
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/sandbox/sandbox.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/sealed_memfd.h"

namespace hone {

struct RunnerPoolOptions {
  std::string executable = {};              // hone-runner; "": FindOwnProgram
  std::vector<std::string> arguments = {};  // for tests
  int runners = 1;                          // so many kernels are prepared or checked at once
  int nice = 0;
  bool idle = false;  // as SubprocessLimits
  std::string idle_group = {};
  int64_t address_space = 0;  // of a runner; 0: unlimited (what a kernel takes is compared with free memory)
  std::vector<std::string> environment = {};  // NAME=value; nothing is inherited
  int open_files = 64;
  bool rehearses = false;  // the device's driver compiles what it runs, at some cost
};

struct CheckOptions {
  int workers = 0;                              // 0: the kernel's own `threads`, else this machine's cores
  std::chrono::milliseconds run_limit{10'000};  // of packing and one call; timed calls add their own
  int timed_runs = 0;                           // further calls after the checked one; their best time is time_us
  bool full = false;                            // compare every element, whatever it costs
  std::vector<int64_t> sizes = {};              // of a dynamic kernel, in order; empty: the largest
};

struct CheckReport {
  // Why the artifact must not be used; nullopt: it is verified. kWrongResult (which element, what was wanted),
  // kRunFailed (crash, forbidden system call, stray access with the operand it was next to), kTimeout (endless loop),
  // kCorrupt, kInvalid, kUnsupported (refused by CheckArtifact, or its manifest is not this kernel's).
  std::optional<Error> failure;
  double max_rel_err = 0;   // max |y − r| / A over the compared elements
  int64_t samples = 0;      // elements compared, over all outputs
  bool full = false;        // all of them
  double first_run_us = 0;  // of the checked call: cold code, cold buffers
  double time_us = 0;       // best of timed_runs; 0 if none
  double pack_us = 0;       // of packing all constants
  double check_us = 0;      // of the whole check in the runner, kernel included
  double prepare_us = 0;    // inputs and reference values
  bool verified() const { return !failure; }
};

// How to measure. Warm cache: same buffers every call, after `warmup` of calls.
struct TimeOptions {
  int workers = 1;
  std::chrono::microseconds warmup{2'000};
  int samples = 25;                           // wanted after throwing away the disturbed ones
  int max_samples = 100;                      // give up after so many, disturbed ones included
  std::chrono::microseconds min_sample{200};  // a sample repeats the call until it is this long
  std::chrono::milliseconds limit{10'000};    // of everything
  double give_up_us = 0;                      // > 0: stop after a first warm call that takes longer, a lost candidate
  // The fewest samples that make a median (five) are enough of code whose shortest is longer than contender_us, if that
  // is > 0, and where all lie within `narrow` of each other, a share: the median's interval is no wider (94 %, by order
  // statistics).
  double contender_us = 0, narrow = 0;
  std::vector<int64_t> sizes = {};  // as CheckOptions
};

struct RunTiming {
  double median_us = 0;  // per call
  double min_us = 0;
  double spread_us = 0;  // median absolute deviation × 1.4826: σ if the noise were normal
  int samples = 0;       // kept
  int disturbed = 0;     // thrown away: preempted, or wall time ahead of processor time
  int calls_per_sample = 0;
  int workers = 0;
  std::string protocol;  // "warm workers=1 samples=25 calls=12 median", for the record
};

struct RunnerPoolStats {
  uint64_t prepared = 0, checked = 0, refused = 0, restarts = 0;
  int busy = 0;

  RunnerPoolStats& operator+=(const RunnerPoolStats& more) {
    prepared += more.prepared, checked += more.checked, refused += more.refused, restarts += more.restarts;
    busy += more.busy;
    return *this;
  }
};

// Thread-safe.
class RunnerPool {
 public:
  // A kernel that a runner works on. Holds that runner until destroyed, which kills one that is still computing what
  // nobody wants any more. May be checked and timed several times, with different artifacts. Used by one thread at a
  // time; must not outlive its pool.
  class Prepared {
   public:
    Prepared(Prepared&&) noexcept;
    Prepared& operator=(Prepared&&) noexcept;
    ~Prepared();

    // Its runner died or was given up, and the kernel with it: prepare it again.
    bool lost() const;
    MonotonicTime killed_at() const;   // when somebody else ended the runner; MonotonicTime(): nobody did
    bool has_failed_to_start() const;  // that is why it is lost: nothing of the kernel's or an artifact's

   private:
    friend class RunnerPool;
    struct Lease;
    explicit Prepared(std::unique_ptr<Lease> lease);
    std::unique_ptr<Lease> lease_;
  };

  static Result<std::unique_ptr<RunnerPool>> Start(const RunnerPoolOptions& options);
  ~RunnerPool();

  // Sends the kernel (anything ParseKernel reads) to a free runner, waiting for one until `deadline` (then kBusy), and
  // returns without waiting for the inputs and reference values. What is wrong with the kernel comes out of Check.
  // A request to stop ends at once what is asked of the kernel, now and later: kUnavailable, and the runner is
  // replaced. `born_after`: as ChildPool::Acquire.
  Result<Prepared> Prepare(const std::string& kernel, MonotonicTime deadline, const std::stop_token& stop = {},
                           MonotonicTime born_after = {});

  // Runs and compares. The report tells of the artifact; errors are about the attempt: kInvalid, kUnsupported, kLimit
  // (the kernel cannot be checked), kTimeout (no answer until `deadline`; the runner is replaced), kUnavailable, kBusy
  // (it was run twice, and both times killed from outside, or there was no process, thread or memory to start it).
  Result<CheckReport> Check(Prepared& prepared, const SealedMemfd& artifact, const CheckOptions& options,
                            MonotonicTime deadline);

  // Has up to kMostRehearsed artifacts compiled by the device's driver and run once, `at_once` side by side in
  // processes of their own, so that Check and Time find them compiled. Why each must not be used, as a report's
  // failure; nullopt: that is for Check to say, and so it may be of kTimeout, since others ran beside it. Errors as
  // Check's. REQUIRES: rehearses().
  Result<std::vector<std::optional<Error>>> Rehearse(Prepared& prepared, std::span<const SealedMemfd* const> artifacts,
                                                     const CheckOptions& options, int at_once, MonotonicTime deadline);
  bool rehearses() const;

  // Measures, without comparing: for artifacts that passed Check. kRunFailed, kTimeout, kBusy (the machine was never
  // quiet enough for even five samples), besides Check's.
  Result<RunTiming> Time(Prepared& prepared, const SealedMemfd& artifact, const TimeOptions& options,
                         MonotonicTime deadline);

  RunnerPoolStats Stats() const;
  std::vector<Confinement> Confinements() const;  // as ChildPool's
  void Pause();                                   // as ChildPool's
  void Resume();
  void Shutdown();  // kills the processes; calls under way and later ones return kUnavailable

 private:
  struct Impl;
  explicit RunnerPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
