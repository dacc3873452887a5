// What refining has won, kernel by kernel, kept in the cache beside the record: the time before the first search over
// the time now, each step measured in turns.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cache/schedule_cache.h"

namespace hone {

struct TuningGain {
  double ratio = 1;
  double idle_ratio = 1;  // the part of it that was found in idle time
  int steps = 0;          // how often better code was found
  bool operator==(const TuningGain&) const = default;
};

// One step more.
TuningGain After(TuningGain won, double ratio, bool in_idle_time);

std::string PrintTuningGain(const TuningGain& won);
Result<TuningGain> ParseTuningGain(std::string_view text);  // kCorrupt

// Nothing (steps == 0) for a record that is not tuned: its schedule may have been lost, and the default served, since.
TuningGain TuningGainOf(ScheduleCache& cache, const Record& record);
// `was_tuned`: so was the record before this one. If not, what was won before it is forgotten.
void NoteTuningGain(ScheduleCache& cache, const Record& record, bool was_tuned, double ratio, bool in_idle_time);

// What a tuned record's schedule gained over the default, as log2, 0 to 2; 0 where that is not known: head to head, or,
// where that was not noted, as of imported records, by the log, whose trial of the default may be of a slower hour.
double GainOf(ScheduleCache& cache, const Record& record);

}  // namespace hone
