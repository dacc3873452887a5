// What a record says to people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/record.h"
#include "client/protocol/protocol.h"

namespace hone {

// How it was measured and checked, where it came from.
std::vector<Fact> FactsOf(const Record& record);

// What decides whether a record's artifact is served as it is.
struct ArtifactState {
  bool is_ours = false;      // of this machine
  bool is_current = false;   // made by this compiler
  bool is_checked = false;   // ScheduleCache::IsCheckedHere
  bool is_to_check = false;  // it came in a bundle of a trusted key, and is checked when it is wanted
};
// Why this code is what a request gets: one fact per decision.
std::vector<Fact> ReasonsOf(const Record& record, const ArtifactState& artifact);

RecordRow RowOf(const Record& record, const KernelUse& use);
// What users see whose honed it is not: the kernel in its canonical form, which names nobody, and where it is served.
RecordRow RowForOthers(const Record& record);

// A kernel's text where many are shown: without comments, its first 4 KiB, and an ellipsis if that is not all.
std::string ShownText(std::string_view kernel);

}  // namespace hone
