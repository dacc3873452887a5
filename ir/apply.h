// Applies a schedule to a kernel: graph rewrites first (they keep the function), then loops, places and storage. A step
// either applies or is refused with its reason; nothing here can change what the kernel computes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/kernel.h"
#include "ir/schedule.h"

namespace hone {

// Stored nowhere; the numbers are for readers of dumps.
enum class LoopKind : uint8_t { kSerial = 1, kParallel, kVectorized, kUnrolled };

struct LoopDim {
  std::string path;  // "n.0", "n.0+m.0"
  LoopKind kind = LoopKind::kSerial;
  int64_t grain = 1;  // parallel: smallest range worth a worker
};

// How a loop came about. Split: parent = Σ child·stride, factors of all children but the first (derived). Fuse: two
// parents, one child.
struct LoopRelation {
  std::vector<std::string> parents;
  std::vector<std::string> children;
  std::vector<int64_t> factors;  // split: of children[1…]
};

struct StageSchedule {
  std::vector<LoopDim> loops;  // outermost first
  std::vector<LoopRelation> relations;  // in the order they were made
  int attach_stage = -1;       // index into stages; -1: at the root
  std::string attach_loop;     // path in that stage
  Scope scope = Scope::kDefault;
  std::vector<LayoutDim> layout;
  std::string promote_loop;    // cache_write: inside this loop the tile lives in registers
  std::map<std::string, Tail> tails;  // by axis name; absent: kPad
  bool is_rewritten = false;   // has loops changed: graph rewrites are over for this stage
};

struct ScheduledKernel {
  Kernel kernel;  // after the rewrites
  std::vector<StageSchedule> stages;  // parallel to kernel.stages
};

// kInvalid: "step 3 (split y.q 4): y has no loop q; it has n, h, w". REQUIRES: the kernel passed VerifyKernel.
Result<ScheduledKernel> ApplySchedule(const Kernel& kernel, const Schedule& schedule);

}  // namespace hone
