// Schedules: ordered steps that turn a kernel into a loop program. A schedule is data: it names stages by their tensor
// and loops by stage and axis path, stores inner factors only, and so means the same on another shape. It has a text
// form, one step a line, that round-trips:
//
//   rewrite collapse y h w                           view adjacent dimensions as one, in every tensor that has them
//   rewrite separate y t                             the reduction becomes stage t, which y copies
//   rewrite expand acc xp cols c r s h w             what acc reads of xp, over acc's axes: im2col
//   rewrite numbers top                              a maximum may overlook NaN
//   rewrite online total blocks 4096                 total and the maximum it needs, block by block of a row
//   rewrite trim acc xp whole r s                    terms of acc that xp's padding along r and s makes are left out
//   rewrite winograd t v 4 14                        a 3×3 convolution by F(4×4, 3×3), 14 tiles in a row
//   inline xp                                        substitute an element-wise stage into its readers
//   cache_read w -> wp for t const [o/32, c, o%32]   stage t reads operand w through a packed copy
//   rfactor t k 16 -> tr                             reduce k in 16 independent lanes first
//   split y.n 4 32                                   y.n.0 (derived), y.n.1 (4), y.n.2 (32)
//   fuse y.n.0 y.m.0                                 y.n.0+m.0
//   reorder y.n.0+m.0 y.m.1 y.n.1                    all loops of y, outermost first
//   parallel y.n.0 grain=2      vectorize y.n.2      unroll y.m.1
//   compute_at t y.n.1                               compute what y needs of t inside that loop
//   store t registers                                registers, private (per worker), shared; with an optional layout
//   cache_write t at t.m.0                           inside that loop the tile of t lives in registers
//   tail y.m shift                                   pad (default), shift, guard or peel
//   prefetch x for t 4096                            vectors that t loads of x ask for what lies 4096 bytes further on
//
// A kernel with a size that is a range may have several, each for some of the sizes: ir/schedule_cases.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

// Stored and sent: never reuse a number.
enum class StepKind : uint8_t {
  kRewrite = 1,
  kInline = 2,
  kCacheRead = 3,
  kRfactor = 4,
  kSplit = 5,
  kFuse = 6,
  kReorder = 7,
  kParallel = 8,
  kVectorize = 9,
  kUnroll = 10,
  kComputeAt = 11,
  kStore = 12,
  kCacheWrite = 13,
  kTail = 14,
  kPrefetch = 15,
};

// Where a stage's values live.
enum class Scope : uint8_t {
  kDefault = 1,    // an output operand, or: shared at the root, private below
  kShared = 2,     // one copy in the workspace
  kPrivate = 3,    // one copy per worker
  kRegisters = 4,  // SSA values; every index must be constant once unrolled and vectorised loops are expanded
  kConst = 5,      // computed once from a constant operand, by hone_pack
};

// What happens at the end of an axis whose extent the unrolled and vectorised inner loops do not divide. (Serial loops
// never overrun: their last trip is shorter.)
enum class Tail : uint8_t {
  kPad = 1,    // run over; accesses outside an operand are masked, intermediates have room for it
  kGuard = 2,  // skip the statement where it is outside
  kShift = 3,  // the last tile starts early and recomputes what overlaps
  kPeel = 4,   // a second, shorter copy of the loop nest
};

// One dimension of a storage layout: the whole of a stage's axis, its quotient or its remainder.
struct LayoutDim {
  enum class Part : uint8_t { kWhole = 1, kQuotient = 2, kRemainder = 3 };
  std::string axis;
  Part part = Part::kWhole;
  int64_t factor = 1;
  int64_t extra = 0;  // elements added to the dimension and never used: keeps rows out of each other's cache sets
  bool operator==(const LayoutDim&) const = default;
};

struct Step {
  StepKind kind = StepKind::kInline;
  std::string stage;               // the stage it applies to: named by its tensor
  std::vector<std::string> names;  // loops (without the stage's name), axes of a rewrite
  std::vector<int64_t>
      factors;  // split: inner factors, outermost first; rfactor: lanes; parallel: grain; prefetch: bytes; of a rewrite
  std::string
      other;  // rewrite: its name; cache_read, prefetch: the tensor read; compute_at: the consumer; rfactor: axis
  std::string result;             // cache_read, rfactor: the new stage
  Scope scope = Scope::kDefault;  // cache_read, store
  std::vector<LayoutDim> layout;  // cache_read, store; empty: the tensor's own order
  Tail tail = Tail::kPad;
  bool operator==(const Step&) const = default;
};

using Schedule = std::vector<Step>;

std::string PrintStep(const Step& step);
std::string PrintSchedule(const Schedule& schedule);  // a line per step

// kInvalid with where = "schedule:LINE:COLUMN"; `first_line`: the number of the text's first line.
Result<Schedule> ParseSchedule(std::string_view text, int first_line = 1);

}  // namespace hone
