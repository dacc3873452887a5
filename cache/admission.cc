#include "cache/admission.h"

#include "ir/schedule/schedule.h"

namespace hone {

Admission IfStill(std::optional<RecordState> state) {
  return [state = std::move(state)](const Record* there) -> Result<void> {
    if (!state && there == nullptr) return {};
    if (!state) return Error{ErrorKind::kUnsupported, "another record was stored meanwhile", there->label};
    if (there == nullptr || there->created != state->created)
      return Error{ErrorKind::kNotFound, "the record was removed meanwhile", ""};
    if (there->pinned != state->pinned)
      return Error{ErrorKind::kUnsupported, there->pinned ? "it was pinned meanwhile" : "it was unpinned meanwhile",
                   there->label};
    if (!IsSameSchedule(there->schedule, state->schedule))
      return Error{ErrorKind::kUnsupported, "another schedule took its place meanwhile", there->label};
    return {};
  };
}

}  // namespace hone
