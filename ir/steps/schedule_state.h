// A kernel while steps are applied to it one by one, and what they ask of it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/schedule/apply.h"
#include "ir/schedule/schedule.h"

namespace hone {

class ScheduleState {
 public:
  explicit ScheduleState(const Kernel& kernel);

  const Kernel& kernel() const { return result_.kernel; }
  const Stage& stage(StageId stage) const { return result_.kernel.stages[stage]; }
  StageSchedule& schedule(StageId stage) { return result_.stages[stage]; }
  const StageSchedule& schedule(StageId stage) const { return result_.stages[stage]; }
  const ScheduledKernel& scheduled() const { return result_; }
  ScheduledKernel Take() && { return std::move(result_); }

  // By name and path. kInvalid names those that there are.
  Result<StageId> FindStage(const std::string& name) const;
  Result<size_t> FindLoop(StageId stage, const std::string& path) const;
  Result<TensorId> FindTensor(const std::string& name) const;

  // Replaces the kernel after a rewrite; loops of stages that it changed start afresh. kInvalid: those had steps.
  Result<void> Rewritten(Kernel kernel);

  // Whether a loop comes from a reduction axis (also in part, by fusion).
  bool IsReduction(StageId stage, const std::string& path) const;
  // Whether a loop is an inner part of its axis: running it too far comes to elements that its next trip visits too.
  bool IsInnerPart(StageId stage, const std::string& path) const;
  // Trips of an inner part. 0: of a fused loop, whose trips depend on the part of the axes that is computed.
  int64_t TripsOfInnerPart(StageId stage, const std::string& path) const;

 private:
  ScheduledKernel result_;
};

}  // namespace hone
