// Kernels and schedules as texts, lowered.
#pragma once

#include <string>

#include "codegen/lower/lower.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"

namespace hone::lowered {

inline Result<LoopProgram> Lowered(const std::string& kernel, const std::string& schedule) {
  const Kernel parsed = Specialize(HONE_TRY(ParseKernel(kernel)));
  return Lower(HONE_TRY(ApplySchedule(parsed, HONE_TRY(ParseSchedule(schedule)))));
}

// "accepted" where there is none.
inline std::string RefusalOf(const std::string& kernel, const std::string& schedule) {
  Result<LoopProgram> lowered = Lowered(kernel, schedule);
  return lowered ? "accepted" : lowered.error().message;
}

}  // namespace hone::lowered
