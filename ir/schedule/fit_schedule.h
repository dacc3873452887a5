// Transfer: the schedule of one kernel on another of its class, which has other sizes. Schedules store inner factors
// only and so often mean the same on another shape; where they do not, this fits them: tiles that are larger than
// what is there are cut, register tiles that would run over by much become evenly smaller, layouts follow the tiles
// that they were made for, grains follow the work of an iteration. Every step that was changed or dropped is told.
//
// A fit cannot compute anything else (ir/schedule/schedule.h): it applies, or it is refused with the reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/schedule/schedule.h"

namespace hone {

enum class FitMode : uint8_t {
  kFitted,
  kStrict,  // as transfer-tuning was published: every step as it is, and refused where a factor leaves a remainder
};

struct FitNote {
  enum class Fate : uint8_t { kKept, kChanged, kDropped };
  Fate fate = Fate::kKept;
  std::string step;  // the donor's
  std::string now;   // what became of it; "" if it was dropped
  std::string why;   // of a change
  bool operator==(const FitNote&) const = default;
};

struct Fit {
  Schedule schedule;
  std::vector<FitNote> notes;  // one per step of the donor, in order
  bool IsExact() const;        // every step as it is
};

// `schedule` is legal for `donor`; stages and axes are found by name, which are the same throughout a class in
// canonical form. Both kernels static, or with ranges, of which the upper end counts. `workers`: threads that the
// kernel may use. kInvalid: what refuses it.
Result<Fit> FitToShape(const Kernel& donor, const Schedule& schedule, const Kernel& kernel, FitMode mode, int workers);

}  // namespace hone
