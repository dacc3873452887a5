// What is there: the daemon, its records, their texts; and what people change of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/protocol/message_traits.h"

namespace hone {

struct StatusRequest {
  HONE_FIELDS()
};
struct StatusReply {
  std::string version;
  int64_t pid = 0;
  double uptime_s = 0;
  std::string socket;
  std::string cache;
  std::vector<std::string> targets;
  uint64_t cache_bytes = 0;
  std::string cache_problem;  // why nothing can be written at the moment, else what was lost or is left out; "" if all
                              // is well
  uint64_t records = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  std::string idle_state;  // "off": nothing is refined in idle time
  std::string tuning;      // the kernel that is refined now; ""
  uint32_t builders = 0;
  uint32_t connections = 0;
  uint32_t queued = 0;
  HONE_FIELDS(version, pid, uptime_s, socket, cache, targets, cache_bytes, cache_problem, records, hits, misses,
              idle_state, tuning, builders, connections, queued)
};

// What was lost, and what holds the processes that build and run.
struct HealthRequest {
  HONE_FIELDS()
};
struct ChildHold {
  std::string child;      // "builder", "runner", "launcher"
  std::string holds;      // for people
  bool complete = false;  // nothing is missing that this hone wants
  HONE_FIELDS(child, holds, complete)
};
struct HealthReply {
  uint64_t losses = 0;              // times that damage took more than a value, since the cache was made
  uint64_t quarantined = 0;         // damaged values that were set aside since then
  std::vector<ChildHold> children;  // one of each kind that has said so yet
  HONE_FIELDS(losses, quarantined, children)
};

// How fast operands get from the host's memory to that of a device, and back.
struct CopySpeedRequest {
  std::string target;  // as in GetRequest
  HONE_FIELDS(target)
};
struct CopySpeedReply {
  double to_gb_s =
      0;  // of large copies, 10⁹ bytes a second; 0, as the others are then: it computes on the host's memory
  double from_gb_s = 0;
  double to_us = 0;  // what each copy costs besides
  double from_us = 0;
  HONE_FIELDS(to_gb_s, from_gb_s, to_us, from_us)
};

// Counters and histogram quantiles, in a stable order; names end in their unit where they have one.
struct StatsRequest {
  HONE_FIELDS()
};
struct Stat {
  std::string name;
  double value = 0;
  HONE_FIELDS(name, value)
};
struct StatsReply {
  std::vector<Stat> stats;
  HONE_FIELDS(stats)
};

// Every record, by class, then kernel. The answer comes in several replies with the request's id, `more` in all but the
// last.
struct ListRequest {
  std::string class_prefix;  // of the class' name: "conv2d"; "": all
  HONE_FIELDS(class_prefix)
};
struct RecordRow {
  std::string fingerprint;
  std::string class_name;
  std::string kernel;  // as it was first asked for
  std::string target;
  std::string origin;
  bool pinned = false;
  double expected_us = 0;
  uint64_t artifact_bytes = 0;  // 0: none on disk
  uint64_t requests = 0;
  int64_t last_used_s = 0;  // Unix time
  HONE_FIELDS(fingerprint, class_name, kernel, target, origin, pinned, expected_us, artifact_bytes, requests,
              last_used_s)
};
struct ListReply {
  std::vector<RecordRow> rows;
  bool more = false;
  HONE_FIELDS(rows, more)
};

// Everything known of one record. `fingerprint` may be any unambiguous prefix.
struct ShowRequest {
  std::string fingerprint;
  HONE_FIELDS(fingerprint)
};
struct Fact {
  std::string name;
  std::string value;
  HONE_FIELDS(name, value)
};
struct ShowReply {
  RecordRow row;
  std::string canonical;
  std::string schedule;
  std::vector<Fact> facts;    // how it was measured and checked, where it came from
  std::vector<Fact> reasons;  // why this code: one per decision, for `explain`
  HONE_FIELDS(row, canonical, schedule, facts, reasons)
};

// Stored numbers of Edit: never reuse one.
enum class EditAction : uint8_t { kRemove = 1, kPin = 2, kUnpin = 3 };
struct EditRequest {
  EditAction action = EditAction::kRemove;
  std::string fingerprint;
  HONE_FIELDS(action, fingerprint)
};
struct EditReply {
  std::string fingerprint;  // in full
  HONE_FIELDS(fingerprint)
};

// Re-checks every value's checksum and every artifact; with `run`, outputs against the reference. Answered in several
// replies, as ListRequest.
struct VerifyRequest {
  bool run = false;
  HONE_FIELDS(run)
};
struct VerifyRow {
  std::string fingerprint;  // "" for a value that cannot be read: it was set aside
  std::string class_name;
  std::string target;
  bool ok = false;
  bool ran = false;
  double max_rel_err = 0;
  std::string problem;  // "" if ok
  HONE_FIELDS(fingerprint, class_name, target, ok, ran, max_rel_err, problem)
};
struct VerifyReply {
  std::vector<VerifyRow> rows;
  uint64_t total = 0;             // records there are, for a progress bar
  uint64_t without_artifact = 0;  // sound, but only the schedule is there; in the last reply
  bool more = false;
  HONE_FIELDS(rows, total, without_artifact, more)
};

// How people name a kernel that has a record.
struct KernelName {
  std::string kernel;  // a fingerprint's first digits, or anything ParseKernel reads
  bool is_fingerprint = false;
  uint32_t threads = 0;  // if the kernel names none; fingerprints have theirs
  HONE_FIELDS(kernel, is_fingerprint, threads)
};

// The schedule, or the generated code, as text.
enum class TextKind : uint8_t { kSchedule = 1, kCode = 2 };
struct TextRequest {
  TextKind what = TextKind::kSchedule;
  KernelName name;
  HONE_FIELDS(what, name)
};
struct TextReply {
  std::string fingerprint;
  std::string text;
  HONE_FIELDS(fingerprint, text)
};

// The same for a device: of its record, or, of code, as it would be built now; compiles and keeps nothing.
struct TargetTextRequest {
  TextKind what = TextKind::kSchedule;
  KernelName name;
  std::string target;  // as GetRequest's
  HONE_FIELDS(what, name, target)
};
struct TargetTextReply {
  std::string fingerprint;
  std::string text;
  HONE_FIELDS(fingerprint, text)
};

// What clients asked a honed without a compiler for, and no bundle of its answered: most wanted first.
struct MissingRequest {
  HONE_FIELDS()
};
struct MissingRow {
  std::string kernel;     // on one line
  uint64_t requests = 0;  // how often
  HONE_FIELDS(kernel, requests)
};
struct MissingReply {
  std::string target;  // of the device, in full: what `hone warm --target` takes
  std::vector<MissingRow> rows;
  uint64_t forgotten = 0;  // kernels that there was no room for
  HONE_FIELDS(target, rows, forgotten)
};

}  // namespace hone
