// Applies a schedule to a kernel: graph rewrites first (they keep the function), then loops, places and storage. A step
// either applies or is refused with its reason; nothing here can change what the kernel computes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/schedule/schedule.h"

namespace hone {

// Stored nowhere; the numbers are for readers of dumps.
enum class LoopKind : uint8_t { kSerial = 1, kParallel, kVectorized, kUnrolled, kBound };

struct LoopDim {
  std::string path;  // "n.0", "n.0+m.0"
  LoopKind kind = LoopKind::kSerial;
  int64_t grain = 1;                      // parallel: smallest range worth a worker
  LaunchAxis axis = LaunchAxis::kBlockX;  // bound: to which axis of the launch
  bool is_instruction = false;            // one of those that StageSchedule::instruction does
};

// How a loop came about. Split: parent = Σ child·stride, factors of all children but the first (derived). Fuse: two
// parents, one child.
struct LoopRelation {
  std::vector<std::string> parents;
  std::vector<std::string> children;
  std::vector<int64_t> factors;  // split: of children[1…]
};

struct StageSchedule {
  std::vector<LoopDim> loops;           // outermost first
  std::vector<LoopRelation> relations;  // in the order they were made
  StageId attach_stage;                 // none: at the root
  std::string attach_loop;              // path in that stage
  StageId keep_stage;                   // none: what is computed is for the trip of attach_loop alone
  std::string keep_loop;                // path in that stage
  Scope scope = Scope::kDefault;
  std::vector<LayoutDim> layout;
  std::string promote_loop;                   // register_tile: inside this loop the tile lives in registers
  std::map<std::string, Tail> tails;          // by axis name; absent: kPad
  std::map<std::string, int64_t> prefetches;  // tensor that is read → bytes ahead, or kNextPanel
  std::string instruction;                    // tensorize: what does the innermost loops, …
  size_t instruction_loops = 0;               // … so many of them
  int64_t buffers = 1;                        // pipeline: it is computed this many trips less one ahead
  bool is_rewritten = false;                  // has loops changed: graph rewrites are over for this stage
};

struct ScheduledKernel {
  Kernel kernel;                            // after the rewrites
  IdVector<StageId, StageSchedule> stages;  // of kernel.stages
};

// Whether a schedule is for a GPU: it binds loops, or stores something per block.
bool IsForGpu(const ScheduledKernel& scheduled);
// Where a stage's values live, with what the default comes to at its place.
Scope EffectiveScope(const ScheduledKernel& scheduled, StageId stage);

// kInvalid: "step 3 (split y.q 4): y has no loop q; it has n, h, w". REQUIRES: the kernel passed VerifyKernel.
Result<ScheduledKernel> ApplySchedule(const Kernel& kernel, const Schedule& schedule);

// A schedule made step by step, for whoever decides about the next step by what came of those before it.
class ScheduleBuilder {
 public:
  explicit ScheduleBuilder(const Kernel& kernel);
  ~ScheduleBuilder();
  ScheduleBuilder(const ScheduleBuilder&) = delete;
  ScheduleBuilder& operator=(const ScheduleBuilder&) = delete;

  // Refused, with the reason alone: as if it had not been tried.
  Result<void> Add(const Step& step);
  const Schedule& schedule() const { return schedule_; }
  // What the steps came to one by one; whether they make sense together is left open …
  const ScheduledKernel& so_far() const;
  // … until now: as ApplySchedule. No more steps after this.
  Result<ScheduledKernel> Finish();

 private:
  const Kernel kernel_;
  Schedule schedule_;
  std::unique_ptr<class ScheduleState> state_;
};

// How often a loop runs at most, from the extents and the factors: 64 for k.0 of an axis k of 1,000 that was split by
// 16. nullopt: there is no such loop, nor was there.
std::optional<int64_t> LoopTrips(const Kernel& kernel, const Stage& stage, const StageSchedule& schedule,
                                 const std::string& path);

}  // namespace hone
