#include "backends/runner/known_kernel.h"

#include <cstdio>
#include <utility>

#include "backends/runner/runner_check.h"

namespace hone {
namespace {

constexpr int kRunsBetween = 16;  // checks and timings: eight candidates

}  // namespace

void KnownKernel::Forget() {
  artifact_.reset();
  runs_ = 0;
}

void KnownKernel::Learn(const SealedMemfd& artifact, const CheckOptions& options) {
  if (artifact_ || !launcher_->IsResident()) return;
  Result<SealedMemfd> copy = artifact.Duplicate();
  if (!copy) return;
  artifact_ = *std::move(copy);
  options_ = options;
  options_.timed_runs = 0;
}

Result<bool> KnownKernel::IsDoubtful(Workload& workload, Arena& arena, bool came_out_wrong) {
  if (!launcher_->IsResident()) return false;
  if (!came_out_wrong && (!artifact_ || ++runs_ < kRunsBetween)) return false;
  runs_ = 0;
  if (artifact_ && HONE_TRY(IsRight(workload, arena))) return false;
  HONE_TRY(launcher_->Renew());
  if (!artifact_) return true;
  std::fprintf(stderr, "a kernel that came out right came out wrong later: the device's process was ended\n");
  if (HONE_TRY(IsRight(workload, arena))) return true;
  return Error{ErrorKind::kInternal,
               "the device computes wrongly: a kernel that came out right comes out wrong now, in a new process, too",
               ""};
}

// Whatever else befalls it (no time, no memory) says nothing about what it computes.
Result<bool> KnownKernel::IsRight(Workload& workload, Arena& arena) const {
  const CheckReport report = HONE_TRY(CheckCandidate(workload, arena, *launcher_, *artifact_, options_));
  return !report.failure || report.failure->kind != ErrorKind::kWrongResult;
}

}  // namespace hone
