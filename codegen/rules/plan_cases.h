// The default schedules of a kernel with dynamic sizes: which sizes have a schedule of their own, found without
// measuring. What matters is how many rows the register tile has: each size wants a number that nearly divides it, and
// that fits the registers well. A handful of numbers is chosen so that over the whole range, every size counted alike,
// the estimated loss against the best number for each is least.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/rules/choices.h"
#include "ir/graph/kernel.h"
#include "ir/schedule/schedule_cases.h"
#include "ir/target.h"

namespace hone {

inline constexpr size_t kMostDefaultCases = 8;

// One case before it is planned.
struct CaseOutline {
  std::vector<SizeRange> ranges;  // empty: whatever the sizes are
  int64_t rows = 0;               // of the register tile; 0: as the rules prefer
};

struct CasesOutline {
  int size = -1;  // index into Kernel::sizes that the cases are told apart by; -1: there is one case
  std::vector<CaseOutline> cases;
  // The same in all cases, so that they read one packed copy of a constant operand; -1, none: as the rules prefer.
  int64_t vectors = -1;
  AxisId vector_axis;
};

// What register tiles cost whose rows run along a dynamic size: of one row of tiles, by vectors and rows of the tile,
// in any unit.
struct RowCosts {
  int size = -1;  // index into Kernel::sizes
  AxisId vector_axis;
  std::map<std::pair<int64_t, int64_t>, double> cost;
};
// By the tile model; nullopt where no register tile has rows along a dynamic size.
std::optional<RowCosts> ModelRowCosts(const Kernel& kernel, const Target& target);

// The cases that lose least by these costs, `most` of them at most. REQUIRES: a cost for one row, or for no more than
// the least value of the size; `most` > 0.
CasesOutline OutlineBy(const Kernel& kernel, const RowCosts& costs, size_t most = kMostDefaultCases);

// By the tile model. Where no register tile has rows along a dynamic size: a case for each value of a size with no more
// than `most` of them, else one case, as for a static kernel. REQUIRES: the kernel passed VerifyKernel.
CasesOutline OutlineCases(const Kernel& kernel, const Target& target, size_t most = kMostDefaultCases);

// Takes what the outline says about register tiles, and asks `otherwise` about everything else.
Chooser ChooserForCase(const CasesOutline& outline, const CaseOutline& which, Chooser otherwise);

// The schedules of an outline's cases, with the choices that led to them. With `modest`, as ModestSchedule.
Result<ScheduleCases> SchedulesOf(const Kernel& kernel, const Target& target, const CasesOutline& outline, bool modest);

// The default schedules, the rules' own: without choices. With `modest`, as ModestSchedule. For a static kernel its
// default schedule as the only case.
Result<ScheduleCases> PlanCases(const Kernel& kernel, const Target& target, bool modest);

}  // namespace hone
