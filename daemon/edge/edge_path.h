// A request's way where there is no compiler: what a bundle holds is checked once and served, and what none holds is
// noted, so that a machine with a compiler can make it.
#pragma once

#include "daemon/serve/lookup_path.h"
#include "daemon/serve/missing_kernels.h"

namespace hone {

// Thread-safe.
class EdgePath : public LookupPath {
 public:
  EdgePath(ScheduleCache& cache, WorkerPools& pools, Metrics& metrics, Devices devices, MissingKernels& missing)
      : LookupPath(cache, pools, metrics, std::move(devices)), missing_(missing) {}

  // kNotFound besides: no bundle has code for it.
  Result<LookUpResult> LookUp(const KernelRequest& ask, Counting counting = Counting::kAsUse) override;
  // Checks it. Whatever fails the check is not served: there is nothing to serve instead.
  Result<Compiled> Compile(const LookUpResult& found, const CompileRequest& options) override;

 private:
  MissingKernels& missing_;
};

}  // namespace hone
