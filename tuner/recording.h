// Recorded searches: what was tried of one kernel and what became of it, as a text that can be kept, sent and replayed
// (tuner/replay.h) where the kernel cannot be run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/schedule_cache.h"
#include "cache/trial.h"
#include "tuner/measure.h"

namespace hone {

struct Recording {
  std::string name;    // the kernel as somebody wrote it, for people
  std::string kernel;  // anything ParseKernel reads
  std::string target;  // PrintTarget of the machine that measured
  int threads = 1;
  std::vector<TrialRecord> trials;  // in the order in which they were made; a program may come more than once
  bool operator==(const Recording&) const = default;
};

// What the log of trials keeps of a trial.
TrialRecord RecordOf(const Trial& trial);

// The text form, which keeps everything but when trials were made and why they failed.
std::string PrintRecording(const Recording& recording);

// Any number of recordings, one after the other: files of them can be joined. `where`: for messages. kCorrupt with the
// line: cut short, changed by accident, or something else; kUnsupported: of a newer hone. One that is damaged is none.
Result<std::vector<Recording>> ParseRecordings(std::string_view text, const std::string& where);

// Of a file of them, or of a cache's directory, which a daemon may be using: every kernel with trials. Several of one
// kernel, target and number of threads are joined. Errors as ParseRecordings, ReadFile, ScheduleCache::Open; kNotFound:
// there is none in it.
Result<std::vector<Recording>> ReadRecordings(const std::string& path);

// Adds it to the end of the file, which is made if it is missing. kIo, kLimit.
Result<void> AppendRecording(const std::string& path, const Recording& recording);

}  // namespace hone
