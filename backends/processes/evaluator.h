// Where the candidates of one kernel are built and run: on a device's builders and runners, or from recorded trials
// (tuner/replay.h).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/processes/builder_pool.h"
#include "backends/processes/runner_pool.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "base/result.h"

namespace hone {

// Of one kernel. Builds may be asked for from several threads at once; checks and times come from one.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  virtual int builders() const = 0;
  // As ForEachIndex, on the builders' processors, which rest meanwhile. Each call waits while the machine is somebody
  // else's. For work that takes locks only to hand over what it made: where it holds one it may lose the processor.
  virtual void RunInParallel(size_t count, const std::function<void(size_t index)>& work) {
    ForEachIndex(count, builders(), work);
  }
  virtual const Clock& clock() const { return Clock::Real(); }  // by which what was measured ages
  virtual Result<BuiltArtifact> Build(const std::string& schedule) = 0;
  // Has a device whose driver compiles what it runs do that, side by side, and run each once, so that what is checked
  // and timed after that, one by one, is compiled. Why each has failed there, as a report's failure; nullopt: to be
  // checked, which decides; kTimeout: others ran beside it. Elsewhere nothing is done.
  virtual std::vector<std::optional<Error>> Rehearse(std::span<const SealedMemfd* const> artifacts,
                                                     const CheckOptions&) {
    return std::vector<std::optional<Error>>(artifacts.size());
  }
  virtual Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options) = 0;
  virtual Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options) = 0;
};

}  // namespace hone
