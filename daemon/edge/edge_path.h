// A request's way where there is no compiler: what a bundle holds is checked once and served, be it for a range of
// sizes that the kernel is in, and what none holds is noted, so that a machine with a compiler can make it.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "daemon/serve/lookup_path.h"
#include "daemon/serve/missing_kernels.h"

namespace hone {

// Thread-safe.
class EdgePath : public LookupPath {
 public:
  // The records of ranges of sizes that hold kernels of a class.
  using RangesOfClass = std::function<Result<std::vector<Record>>(const Fingerprint& class_fingerprint)>;

  EdgePath(ScheduleCache& cache, WorkerPools& pools, Metrics& metrics, Devices devices, MissingKernels& missing,
           RangesOfClass ranges = {})
      : LookupPath(cache, pools, metrics, std::move(devices)), missing_(missing), ranges_(std::move(ranges)) {}

  // Of a kernel that no bundle has code for, that of the narrowest range of sizes that it is in: the identity is that
  // one's, and who asked calls it with his sizes (client/api/loader). kNotFound besides: there is none.
  Result<LookUpResult> LookUp(const KernelRequest& ask, Counting counting = Counting::kAsUse) override;
  // Checks it. Whatever fails the check is not served: there is nothing to serve instead.
  Result<Compiled> Compile(const LookUpResult& found, const CompileRequest& options) override;

 private:
  Result<std::optional<LookUpResult>> LookUpRange(const ResolvedKernel& identity, const KernelRequest& ask,
                                                  Counting counting);

  MissingKernels& missing_;
  const RangesOfClass ranges_;
};

}  // namespace hone
