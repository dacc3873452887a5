#include "codegen/default_schedule.h"

namespace hone {

Result<Schedule> DefaultSchedule(const Kernel&, const Target&) { return Schedule{}; }

}  // namespace hone
