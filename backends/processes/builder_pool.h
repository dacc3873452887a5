// Builder processes, seen from the daemon: kernel text in, checked artifact out. A builder that aborts, hangs, eats
// memory or answers garbage costs the one request it was working on.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/processes/build_request.h"
#include "backends/sandbox/sandbox.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/sealed_memfd.h"
#include "ir/native_artifact.h"

namespace hone {

struct BuilderPoolOptions {
  std::string executable = {};                 // hone-builder; "": FindOwnProgram
  std::vector<std::string> arguments = {};     // for tests
  int builders = 1;                            // processes, started beforehand; so many builds run at once
  std::chrono::milliseconds deadline{20'000};  // of one build, whatever the caller would wait
  int cpu_seconds = 20;                        // of one build
  int64_t address_space = int64_t{4} << 30;    // of a builder, LLVM included
  int64_t object_bytes = int64_t{32} << 20;    // of one artifact
  // Its gate: the manifest of what a builder made, for whatever machine, or why it is refused (kCorrupt: it is no such
  // artifact at all).
  std::function<Result<Manifest>(std::span<const std::byte> artifact)> open = [](std::span<const std::byte> artifact) {
    return OpenNativeArtifact(artifact, {.other_machine = true});
  };
  int nice = 10;      // below the serving threads
  bool idle = false;  // as SubprocessLimits
  std::string idle_group = {};
};

struct BuiltArtifact {
  std::string schedule;  // text form, also when it was the default
  Manifest manifest;     // decoded from the object itself
  SealedMemfd object;    // passed the pool's gate, for any machine: request.target may be another one
  std::string digest;    // BLAKE2b-256 of the object, 32 raw bytes
  BuildTimes times;
};

struct BuilderPoolStats {
  uint64_t builds = 0, failed = 0, crashed = 0, timed_out = 0, restarts = 0;
  int busy = 0;

  BuilderPoolStats& operator+=(const BuilderPoolStats& more) {
    builds += more.builds, failed += more.failed, crashed += more.crashed, timed_out += more.timed_out;
    restarts += more.restarts, busy += more.busy;
    return *this;
  }
};

// Thread-safe. Calls block; as many run at once as there are builders, the others wait for a free one.
class BuilderPool {
 public:
  // Starts the processes and returns without waiting for their initialisation. kNotFound, kIo.
  static Result<std::unique_ptr<BuilderPool>> Start(const BuilderPoolOptions& options);
  ~BuilderPool();  // = Shutdown

  // Errors of the builder (kInvalid, kUnsupported, kLimit, kBuildFailed) as they are; kBuildFailed also when it crashed
  // (the message says how, with the end of its standard error; one that was killed by somebody else does not count, and
  // another one builds); kTimeout when `deadline` or the pool's own limit passed
  // during the build; kBusy when no builder was free until `deadline`; kUnavailable after Shutdown, when builders
  // cannot be started, or when `stop` is requested, which ends the build at once.
  Result<BuiltArtifact> Build(const BuildRequest& request, MonotonicTime deadline, const std::stop_token& stop = {});

  // LLVM IR and assembly as text, for people. Errors as Build.
  Result<std::string> Explain(const BuildRequest& request, MonotonicTime deadline, const std::stop_token& stop = {});

  BuilderPoolStats Stats() const;
  std::vector<Confinement> Confinements() const;  // as ChildPool's

  // As ChildPool's.
  void Pause();
  void Resume();
  void AwaitResume(const std::stop_token& stop = {});

  // Kills the processes; calls under way and later ones return kUnavailable.
  void Shutdown();

 private:
  struct Impl;
  explicit BuilderPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
