// What a miss needs from outside the daemon: somebody who builds, and somebody who checks. Behind it stand the builder
// and runner processes of a kind of device (backends/backend.h); tests put scripts in their place.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/processes/builder_pool.h"
#include "backends/processes/evaluator.h"
#include "backends/processes/runner_pool.h"
#include "backends/sandbox/sandbox.h"
#include "base/idle_group.h"
#include "base/result.h"

namespace hone {

// Thread-safe. A request to stop ends at once what is at work for whoever passed the token, and fails as kUnavailable;
// a Reference and a Evaluator have the token that they were made with.
class WorkerPools {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // A kernel's inputs and reference values, which a runner computes from now on. Used by one thread at a time.
  class Reference {
   public:
    virtual ~Reference() = default;
    // As RunnerPool::Check, on another runner if the first is lost: most are for reasons of their own (killed, or
    // starved of memory). kRunFailed if that one is lost, too: the artifact is at fault. kUnavailable if it did not get
    // so far as to read it.
    virtual Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options, Deadline deadline) = 0;
  };

  virtual ~WorkerPools() = default;
  virtual Result<std::unique_ptr<Reference>> Prepare(const std::string& kernel, const Target& target, Deadline deadline,
                                                     const std::stop_token& stop = {}) = 0;
  // For a search: holds a runner until it is gone.
  virtual Result<std::unique_ptr<Evaluator>> MakeEvaluator(const std::string& kernel, const Target& target,
                                                           const std::stop_token& stop = {}) = 0;
  virtual Result<BuiltArtifact> Build(const BuildRequest& request, Deadline deadline,
                                      const std::stop_token& stop = {}) = 0;
  virtual Result<std::string> Explain(const BuildRequest& request, Deadline deadline,
                                      const std::stop_token& stop = {}) = 0;
  virtual BuilderPoolStats BuilderStats() const = 0;
  virtual RunnerPoolStats RunnerStats() const = 0;
  // What holds the processes, one of each kind; a kind that has not said so yet is missing. For people who ask.
  virtual std::vector<Confinement> Confinements() const { return {}; }
  // Stops the processes where they are, and lets them go on. What was asked for waits meanwhile.
  virtual void Pause() = 0;
  virtual void Resume() = 0;
  virtual void Shutdown() = 0;
};

// How many processes, below whom, where: any kind of device's. The executables are the CPU's; what is built for other
// kinds is built and run by their backends' own.
struct WorkerPoolsOptions {
  BuilderPoolOptions builders;
  RunnerPoolOptions runners;
  const IdleGroup* idle_group = nullptr;  // where searches think
};

// Builder (unless that is 0 of them: then nothing can be built) and runner processes; all are started now. Once they
// have locked themselves in, the log says what holds them; what should and does not is a warning, once for all pools of
// this process. kLimit if this process may not open as many descriptors as they take; the message says how many that
// are.
Result<std::unique_ptr<WorkerPools>> StartProcessPools(const WorkerPoolsOptions& options);

using StartWorkerPools = std::function<Result<std::unique_ptr<WorkerPools>>()>;

// Pools that are started when something is wanted of them and shut down when nothing was for a while. Nothing is
// searched there: MakeEvaluator gives kUnsupported.
std::unique_ptr<WorkerPools> MakeLazyWorkerPools(StartWorkerPools start,
                                                 std::chrono::milliseconds keep = std::chrono::seconds(30));

// The pools of several kinds of devices behind one face. Which is meant, the target says: each kind's are started when
// it is asked for first. kUnsupported for a kind that has none.
std::unique_ptr<WorkerPools> MakePoolsByKind(std::map<std::string, StartWorkerPools, std::less<>> kinds);

}  // namespace hone
