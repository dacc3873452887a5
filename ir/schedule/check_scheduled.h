// What only shows once all steps of a schedule are applied.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "ir/schedule/apply.h"

namespace hone {

// The tensor that a stage computes, by which steps name the stage.
const std::string& StageName(const ScheduledKernel& scheduled, StageId stage);

// The position of a stage's loop. kInvalid names the loops that there are.
Result<size_t> FindLoop(const ScheduledKernel& scheduled, StageId stage, const std::string& path);

// Whether the stages' places, workers and storage go together. kInvalid says which do not.
Result<void> CheckScheduled(const ScheduledKernel& scheduled);

}  // namespace hone
