// What of a row is read more than once: computed in passing by the first reduction that reads it, and kept where the
// row's results will be.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "codegen/rules/schedule_planner.h"

namespace hone {

// The stage of a row that a reduction along it computes in passing: it reads it element by element, and of the others
// the output alone does.
struct Passed {
  std::string name;        // "": there is none
  bool is_costly = false;  // an element takes longer than to add it up
};

Passed ComputedInPassing(SchedulePlanner& planner, const Stage& reduction, size_t fixed, const std::string& out);

// Its loops, inside `part_loop` of the stage that reads it first; it is kept inside out's `loop`.
void ScheduleInPassing(SchedulePlanner& planner, const std::string& name, const std::vector<std::string>& rows,
                       int64_t width, const std::string& part, const std::string& part_loop, const std::string& out,
                       const std::string& loop);

// Of the stages of a row one that `out` computes its elements from, place by place: it lies in the output where
// functions are computed for it and a row is more than half of the first-level cache. REQUIRES: all of them are
// scheduled, inside one loop of out's.
void StoreInOutput(SchedulePlanner& planner, const std::string& out, std::span<const std::string> group);

}  // namespace hone
