// The journal's own protocol: a datagram an entry, with the event and its values as fields of their own, so that
// `journalctl HONE_EVENT=ready -o json` finds them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace hone {

// Whether the journal reads what this descriptor is written to (JOURNAL_STREAM names its device and inode).
bool JournalReads(int fd);

// NAME=value; values with line ends in the longer form. Names that the journal would refuse are mended: "trial.us" is
// HONE_TRIAL_US.
using JournalField = std::pair<std::string_view, std::string_view>;
std::string JournalEntry(std::string_view program, int priority, std::string_view message, std::string_view event,
                         std::span<const JournalField> fields);

}  // namespace hone
