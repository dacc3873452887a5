// Schedules: ordered steps that turn a kernel into a loop program. A schedule is data: it names stages by their tensor
// and loops by stage and axis path, stores inner factors only, and so means the same on another shape. It has a text
// form, one step a line, that round-trips:
//
//   rewrite fuse_axes y h w                          view adjacent dimensions as one, in every tensor that has them
//   rewrite cache_write y t                          the reduction becomes stage t, which y copies
//   rewrite im2col acc xp cols c r s h w             what acc reads of xp, over acc's axes
//   rewrite max_ignore_nan top                       a maximum may overlook NaN
//   rewrite online_reduction total blocks 4096       total and the maximum it needs, block by block of a row
//   rewrite trim_padding acc xp whole r s            terms of acc that xp's padding along r and s makes are left out
//   rewrite winograd t v 4 14                        a 3×3 convolution by F(4×4, 3×3), 14 tiles in a row
//   inline xp                                        substitute an element-wise stage into its readers
//   cache_read w -> wp for t const [o/32, c, o%32]   stage t reads operand w through a packed copy
//   rfactor t k 16 -> tr                             reduce k in 16 independent lanes first
//   rfactor t k 16 of 4 -> tr                        … which take four elements side by side at a step
//   split y.n 4 32                                   y.n.0 (derived), y.n.1 (4), y.n.2 (32)
//   fuse y.n.0 y.m.0                                 y.n.0+m.0
//   reorder y.n.0+m.0 y.m.1 y.n.1                    all loops of y, outermost first
//   parallel y.n.0 grain=2      vectorize y.n.2      unroll y.m.1
//   bind y.m.0 block.x                               a GPU: the loop's trips are blocks, or threads of each block
//   compute_at t y.n.1                               compute what y needs of t inside that loop
//   compute_at e t.n.0 keep y.m                      … and keep it, for what comes after t inside that loop of y
//   store t registers                                registers, block, per_worker, workspace; with a layout
//   register_tile t.m.0                              inside that loop the tile of t lives in registers
//   tail y.m shift                                   pad (default), shift, guard or peel
//   prefetch x for t 4096                            vectors that t loads of x ask for what lies 4096 bytes further on
//   prefetch x for t panel                           evenly over all passes over a panel of x they ask for the next
//   tensorize vpdpbusd_512 t.k.1 t.n.1               an instruction does these loops (codegen/instructions.h)
//   pipeline as 2                                    what blocks share of as is computed a trip ahead, in two buffers
//
// Texts that were written with other words are read, too: ir/steps/old_words.h.
//
// A kernel with a size that is a range may have several, each for some of the sizes: ir/schedule/schedule_cases.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace hone {

// Where a stage's values live.
enum class Scope : uint8_t {
  kDefault = 1,    // an output operand, or: the workspace at the root, per worker (on a GPU: per block) below
  kWorkspace = 2,  // one copy in the workspace
  kPerWorker = 3,  // one copy per worker
  kRegisters = 4,  // SSA values; every index must be constant once unrolled and vectorised loops are expanded
  kConst = 5,      // computed once from a constant operand, by hone_pack
  kBlock = 6,      // a GPU: one copy per block, which its threads share
  // Registers that nothing but an instruction touches, such as AMX's tiles: the register tile of a sum that one does.
  // Memory of a worker's where the processor has no such instruction.
  kFragments = 7,
  kOutput = 8,  // in the output that is computed from them, each in the place of the element that is
};

// What happens at the end of an axis whose extent the unrolled and vectorised inner loops do not divide. (Serial loops
// never overrun: their last trip is shorter.)
enum class Tail : uint8_t {
  kPad = 1,    // run over; accesses outside an operand are masked, intermediates have room for it
  kGuard = 2,  // skip the statement where it is outside
  kShift = 3,  // the last tile starts early and recomputes what overlaps
  kPeel = 4,   // a second, shorter copy of the loop nest
};

// What the trips of a bound loop are on a GPU: blocks of a launch, or threads of a block, along one of three axes; or
// threads along x as runs of some that lie in one sub-group: lanes of a run, and runs.
enum class LaunchAxis : uint8_t { kBlockX = 1, kBlockY, kBlockZ, kThreadX, kThreadY, kThreadZ, kLaneX, kSubGroupX };
constexpr bool IsBlockAxis(LaunchAxis axis) { return axis <= LaunchAxis::kBlockZ; }
constexpr bool IsThreadAxis(LaunchAxis axis) { return !IsBlockAxis(axis) && axis <= LaunchAxis::kThreadZ; }
constexpr bool IsOfSubGroup(LaunchAxis axis) { return axis >= LaunchAxis::kLaneX; }
// 0, 1, 2 for x, y, z.
constexpr size_t DimensionOf(LaunchAxis axis) { return IsOfSubGroup(axis) ? 0 : (static_cast<size_t>(axis) - 1) % 3; }

// One dimension of a storage layout: the whole of a stage's axis, its quotient or its remainder.
struct LayoutDim {
  enum class Part : uint8_t { kWhole = 1, kQuotient = 2, kRemainder = 3 };
  std::string axis;
  Part part = Part::kWhole;
  int64_t factor = 1;
  int64_t extra = 0;         // elements never used, against conflicts of rows in caches and banks
  bool is_swizzled = false;  // of the last dimension: ir/steps/layouts.h
  bool operator==(const LayoutDim&) const = default;
};

// The steps. `stage`: what a step applies to, named by the tensor it writes. Loops are paths without the stage's name.

// A rewrite of the graph that ir/rewrites/registry.h knows by this name, and what it takes.
struct RewriteStep {
  std::string rewrite;
  std::string stage;
  std::vector<std::string> names = {};  // stages, tensors, axes
  std::vector<int64_t> numbers = {};
  bool operator==(const RewriteStep&) const = default;
};

struct InlineStep {
  std::string stage;
  bool operator==(const InlineStep&) const = default;
};

struct CacheReadStep {
  std::string tensor;  // that is read
  std::string result;  // the new stage
  std::string stage;   // the reader
  Scope scope = Scope::kDefault;
  std::vector<LayoutDim> layout = {};  // empty: the tensor's own order
  bool operator==(const CacheReadStep&) const = default;
};

struct RfactorStep {
  std::string stage;
  std::string axis;  // reduced
  int64_t lanes = 1;
  std::string result;  // the new stage
  int64_t width = 1;   // elements side by side that a lane takes at a step
  bool operator==(const RfactorStep&) const = default;
};

struct SplitStep {
  std::string stage;
  std::string loop;
  std::vector<int64_t> factors;  // of the inner loops, outermost first; at least one
  bool operator==(const SplitStep&) const = default;
};

struct FuseStep {
  std::string stage;
  std::vector<std::string> loops;  // at least two
  bool operator==(const FuseStep&) const = default;
};

struct ReorderStep {
  std::string stage;
  std::vector<std::string> loops;  // all of the stage, outermost first
  bool operator==(const ReorderStep&) const = default;
};

struct ParallelStep {
  std::string stage;
  std::string loop;
  int64_t grain = 1;  // smallest range worth a worker
  bool operator==(const ParallelStep&) const = default;
};

struct VectorizeStep {
  std::string stage;
  std::vector<std::string> loops;
  bool operator==(const VectorizeStep&) const = default;
};

struct UnrollStep {
  std::string stage;
  std::vector<std::string> loops;
  bool operator==(const UnrollStep&) const = default;
};

struct BindStep {
  std::string stage;
  std::string loop;
  LaunchAxis axis = LaunchAxis::kBlockX;
  bool operator==(const BindStep&) const = default;
};

struct ComputeAtStep {
  std::string stage;
  std::string consumer;  // a later stage
  std::string loop;      // of the consumer
  // Kept until this trip of a loop around the consumer ends, for readers that come after it; empty: for none.
  std::string keep_stage = {}, keep_loop = {};
  bool operator==(const ComputeAtStep&) const = default;
};

struct StoreStep {
  std::string stage;
  Scope scope = Scope::kDefault;
  std::vector<LayoutDim> layout = {};  // empty: the tensor's own order
  bool operator==(const StoreStep&) const = default;
};

struct RegisterTileStep {
  std::string stage;
  std::string loop;
  bool operator==(const RegisterTileStep&) const = default;
};

struct TailStep {
  std::string stage;
  std::string axis;
  Tail tail = Tail::kPad;
  bool operator==(const TailStep&) const = default;
};

inline constexpr int64_t kNextPanel = 0;

struct PrefetchStep {
  std::string tensor;  // that is read
  std::string stage;   // the reader
  int64_t bytes = 1;   // ahead, or kNextPanel
  bool operator==(const PrefetchStep&) const = default;
};

struct TensorizeStep {
  std::string instruction;
  std::string stage;
  std::vector<std::string> loops;  // the innermost ones, outermost first
  bool operator==(const TensorizeStep&) const = default;
};

struct PipelineStep {
  std::string stage;
  int64_t buffers = 2;
  bool operator==(const PipelineStep&) const = default;
};

// How each is read, printed, applied and fitted to another kernel: ir/steps/step_type.h.
using Step = std::variant<RewriteStep, InlineStep, CacheReadStep, RfactorStep, SplitStep, FuseStep, ReorderStep,
                          ParallelStep, VectorizeStep, UnrollStep, ComputeAtStep, StoreStep, RegisterTileStep, TailStep,
                          PrefetchStep, BindStep, TensorizeStep, PipelineStep>;

using Schedule = std::vector<Step>;

std::string PrintStep(const Step& step);
std::string PrintSchedule(const Schedule& schedule);  // a line per step

// A schedule's text with its steps as PrintSchedule writes them. Comments, headers of cases and what is no step stay as
// they are. Two texts that differ here alone mean the same.
std::string InWordsOfToday(std::string_view text);
// Whether two texts, of any age, mean the same schedule.
bool IsSameSchedule(std::string_view a, std::string_view b);

// kInvalid with where = "schedule:LINE:COLUMN"; `first_line`: the number of the text's first line.
Result<Schedule> ParseSchedule(std::string_view text, int first_line = 1);

}  // namespace hone
