// Schedules of a kernel with a size that is a range: a few of them cover it, each the sizes it is good at, and the code
// chooses by the size it is called with (Zheng et al., DietCode, MLSys 2022). Text form: a header before each one's
// steps, with the sizes it is for; all of the range, each size once:
//
//   case M=1
//   split y.n 4 16
//   case M=2..3
//   …
//   case M=14..28 43..512
//   …
//
// A case for a single size is applied to the kernel at that size. Any other is applied to the kernel with the range
// from its smallest to its largest size: what the code finds out at run time is only where in between it is. A text
// without headers is one schedule for whatever the sizes are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/schedule/schedule.h"

namespace hone {

inline constexpr size_t kMostCases = 64;

struct SizeRange {
  int64_t lo = 0;
  int64_t hi = 0;  // inclusive
  bool operator==(const SizeRange&) const = default;
};

struct ScheduleCase {
  std::vector<SizeRange> ranges;  // ascending, apart from each other; empty: whatever the size
  Schedule steps;
  std::string choices = {};  // that led to it (codegen/rules/choices.h), kept as a comment; "" if it is the rules' own
  bool operator==(const ScheduleCase&) const = default;

  // From the smallest to the largest size. REQUIRES: ranges.
  SizeRange Hull() const { return {ranges.front().lo, ranges.back().hi}; }
};

struct ScheduleCases {
  std::string size;                 // that the cases are told apart by; "": one case, without ranges
  std::vector<ScheduleCase> cases;  // at least one
  bool operator==(const ScheduleCases&) const = default;
};

// Whether a schedule's text has cases, or is one schedule.
bool HasCases(std::string_view text);

std::string PrintScheduleCases(const ScheduleCases& cases);

// Reads either form. kInvalid with where = "schedule:LINE:COLUMN"; kLimit.
Result<ScheduleCases> ParseScheduleCases(std::string_view text);

// Which of the kernel's sizes tells the cases apart: an index into Kernel::sizes; -1 if there is one schedule for all.
// kInvalid: the kernel has no such size, it is no range, or the cases do not cover it, with the first size left out.
Result<int> FindCaseSize(const Kernel& kernel, const ScheduleCases& cases);

// The kernel with only those operands constant whose shape is known when they are packed: hone_pack gets no sizes.
Kernel KeepPackable(Kernel kernel);

// The kernel that a case's steps are applied to: KeepPackable, its constant sizes folded. REQUIRES: `size` is
// FindCaseSize's answer.
Kernel KernelOfCase(const Kernel& kernel, int size, const ScheduleCase& scheduled);

// The kernel with its dynamic sizes, in their order, at these values. kInvalid: too few, too many, or out of range.
Result<Kernel> AtSizes(Kernel kernel, const std::vector<int64_t>& values);

// Values of the dynamic sizes at which code by this schedule is to be compared with the reference before it is served:
// of every case the smallest, the largest and one in between, and the ends of its ranges; a few dozen at most. Of
// several sizes also the smallest of one with the largest of another, each way round for any two. One empty list for a
// kernel without ranges. Errors as ParseScheduleCases and FindCaseSize.
Result<std::vector<std::vector<int64_t>>> SizesToCheck(const Kernel& kernel, std::string_view schedule);

}  // namespace hone
