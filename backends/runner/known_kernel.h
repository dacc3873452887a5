// Silent corruption: a process that stays, as one with a device's driver does, may compute wrongly after some candidate
// has damaged it, and every candidate after that would seem to be wrong. So a kernel that came out right is checked
// again after every few runs and after each wrong result; if it is wrong now, the process is ended and what ran last
// runs anew.
#pragma once

#include <optional>

#include "backends/processes/runner_pool.h"
#include "backends/runner/guarded_arena.h"
#include "backends/runner/launcher.h"
#include "backends/runner/workload.h"
#include "base/result.h"
#include "base/sealed_memfd.h"

namespace hone {

// Of the workload that is checked. One thread.
class KnownKernel {
 public:
  // Where each candidate has a process of its own there is nothing to know. It outlives this.
  explicit KnownKernel(Launcher& launcher) : launcher_(&launcher) {}

  // The workload is another one now.
  void Forget();
  // An artifact that came out right, if none is known yet.
  void Learn(const SealedMemfd& artifact, const CheckOptions& options);

  // After each run. True: whoever ran it is not to be trusted and was ended, so that it is to be repeated: the known
  // kernel comes out wrong, or none is known to tell. kInternal: it does in a new process, too. Errors as
  // CheckCandidate's.
  Result<bool> IsDoubtful(Workload& workload, Arena& arena, bool came_out_wrong);

 private:
  Result<bool> IsRight(Workload& workload, Arena& arena) const;

  Launcher* launcher_;
  std::optional<SealedMemfd> artifact_;
  CheckOptions options_;
  int runs_ = 0;  // since it was checked
};

}  // namespace hone
