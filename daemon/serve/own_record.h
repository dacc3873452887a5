// What was served here before a bundle's record took its place. It comes back if the bundle's turns out to be slower
// here, whatever time the bundle said.
#pragma once

#include <optional>

#include "cache/schedule_cache.h"

namespace hone {

// It has run here, so its time is this machine's.
bool HasRunHere(const Record& record);
// Beside the record of the same key, which has taken its place. What cannot be kept does not come back.
void KeepOwnRecord(ScheduleCache& cache, Record own);
// Once; without code. nullopt: there is none.
std::optional<Record> TakeOwnRecord(ScheduleCache& cache, const CacheKey& key);
// Whether `us` a call, as it was measured at a first run here, is so much more than its own time that it is not chance.
bool IsSlowerThanOwn(double us, const Record& own);

}  // namespace hone
