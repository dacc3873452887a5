// What may take the place of a record: decided in one step with the write, since others write meanwhile.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "cache/record.h"

namespace hone {

// Whether a new record may be written, given the one that is there (nullptr: none): asked in one step with the write.
// What it refuses is not written, and its error is Put's.
using Admission = std::function<Result<void>(const Record* there)>;

// What a record is when somebody begins to work on another one for its kernel.
struct RecordState {
  WallTime created{};
  std::string schedule;
  bool pinned = false;
};
inline RecordState StateOf(const Record& record) { return {record.created, record.schedule, record.pinned}; }

// Only while what is there is as it was; nullopt: there was none. kNotFound: it was removed meanwhile. kUnsupported:
// another took its place, or it was pinned or unpinned.
Admission IfStill(std::optional<RecordState> state);

}  // namespace hone
