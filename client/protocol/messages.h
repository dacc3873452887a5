// The messages between honed and its clients: the list of what may be asked, and the fields of every request and reply
// in the order in which they travel. docs/protocol.md is the same for readers who write a client of their own.
//
// A new message is a row of HONE_REQUESTS and two structs: the codec, the fuzzer and the tests take it from here. Other
// fields in a message that there is are a new version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/protocol/message_traits.h"

namespace hone {

inline constexpr uint16_t kProtocolMin = 1;  // oldest version that this build speaks
inline constexpr uint16_t kProtocolMax = 1;  // newest

// X(name, number, replies): a nameRequest has the number, its nameReply the next one; replies as in Replies. Whoever
// may connect may ask all of it. Numbers are sent: never use one again, nor those of kError and kNewer.
#define HONE_REQUESTS(X) \
  X(Hello, 2, kOne)      \
  X(Get, 4, kOne)        \
  X(Status, 6, kOne)     \
  X(Stats, 8, kOne)      \
  X(List, 10, kMany)     \
  X(Show, 12, kOne)      \
  X(Edit, 14, kOne)      \
  X(Verify, 16, kMany)   \
  X(Text, 18, kOne)      \
  X(Tune, 20, kMany)     \
  X(Watch, 22, kOne)     \
  X(Calls, 24, kOne)     \
  X(Predict, 28, kOne)   \
  X(Top, 30, kOne)       \
  X(Explain, 32, kOne)   \
  X(Health, 34, kOne)    \
  X(Export, 36, kMany)   \
  X(Upload, 38, kOne)    \
  X(Import, 40, kMany)   \
  X(TargetText, 42, kOne)

enum class MessageType : uint16_t {
  kError = 1,   // ErrorReply, in place of any reply
  kNewer = 26,  // NewerNotice, of honed's own accord, to a WatchRequest
#define HONE_NUMBERS(name, number, replies) k##name = number, k##name##Reply = number + 1,
  HONE_REQUESTS(HONE_NUMBERS)
#undef HONE_NUMBERS
};

HONE_REQUESTS(HONE_REQUEST_TRAITS)
HONE_MESSAGE_TRAITS(ErrorReply, kError)
HONE_MESSAGE_TRAITS(NewerNotice, kNewer)

#define HONE_PAIR(name, number, replies) , name##Request, name##Reply
using AllMessages = MessageList<ErrorReply, NewerNotice HONE_REQUESTS(HONE_PAIR)>;
#undef HONE_PAIR

// Any request may be answered with it. Its grammar is the same in every version.
struct ErrorReply {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
  std::string where;
  uint32_t retry_after_ms = 0;  // kBusy: when to ask again
  HONE_FIELDS(kind, message, where, retry_after_ms)
};

// Optional first message. The reply names the version to use from then on: the highest that both sides speak.
struct HelloRequest {
  uint16_t min_version = kProtocolMin;
  uint16_t max_version = kProtocolMax;
  std::string client;  // who asks, for the log: "hone 0.1.0"
  HONE_FIELDS(min_version, max_version, client)
};
struct HelloReply {
  uint16_t version = kProtocolMax;
  std::string server;  // "honed 0.1.0"
  HONE_FIELDS(version, server)
};

// Asks for code. What decides which code comes first: requests for the same code have equal bytes up to the last
// kGetTailBytes, so that a hit is found without decoding.
struct GetRequest {
  std::string kernel{};      // anything ParseKernel reads
  std::string target{};      // ParseTarget's text; "" is the daemon's machine
  uint32_t threads = 0;      // overrides the kernel's own `threads` if that is 0
  uint64_t budget_us = 0;    // how long the client would wait for better code; 0: as long as one build takes
  bool no_compile = false;   // a miss is kNotFound
  bool no_artifact = false;  // the facts alone, no descriptor
  HONE_FIELDS(kernel, target, threads, budget_us, no_compile, no_artifact)
};
inline constexpr size_t kGetTailBytes = 10;  // budget_us, no_compile, no_artifact
struct StepTime {
  std::string step;
  double us = 0;
  HONE_FIELDS(step, us)
};
struct GetReply {
  std::string fingerprint;  // 32 hex digits
  std::string class_name;   // "conv2d+bias+relu"
  std::string target;       // PrintTarget
  bool hit = false;
  bool pinned = false;
  std::string origin;           // tuned, transferred, default, imported
  double expected_us = 0;       // of one call; 0: not measured yet
  std::string digest;           // of the artifact: 32 bytes, BLAKE2b-256
  uint64_t size = 0;            // of the artifact, bytes
  std::string manifest;         // EncodeManifest
  std::vector<StepTime> steps;  // where a miss' time went; empty on a hit
  double confidence = 0;        // 0 … 1: how sure it is that little is left to win; 1 once tuned
  HONE_FIELDS(fingerprint, class_name, target, hit, pinned, origin, expected_us, digest, size, manifest, steps,
              confidence)
};

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

// Refines a kernel now. Answered in several replies, one a round; `more` in all but the last.
struct TuneRequest {
  std::string kernel{};
  uint32_t threads = 0;  // overrides the kernel's own `threads` if that is 0
  uint32_t trials = 0;   // 0: as many as pay
  uint64_t time_us = 0;  // 0: unlimited
  uint64_t seed = 0;     // 0: one of the daemon's
  std::string target{};  // as GetRequest's
  HONE_FIELDS(kernel, threads, trials, time_us, seed, target)
};
struct TuneReply {
  uint32_t trials = 0;  // distinct candidates that were built, checked and timed, or failed with a reason
  uint32_t valid = 0;   // of them timed
  uint32_t wanted = 0;  // trials at most
  double elapsed_s = 0;
  double start_us = 0;  // the default's time; 0: not measured
  double best_us = 0;   // the best so far; 0: none
  bool more = false;
  // In the last reply.
  std::string fingerprint;
  std::string origin;    // of what is served from now on
  std::string stopped;   // why the search ended
  double served_us = 0;  // time of what was served before, measured beside the best: both in turns
  double ratio = 0;      // of served_us to the new one's, median of the turns; 0: nothing better was found
  HONE_FIELDS(trials, valid, wanted, elapsed_s, start_us, best_us, more, fingerprint, origin, stopped, served_us, ratio)
};

// Says that code is held, so that honed tells when it has better code: by a NewerNotice with this request's id each
// time, until the connection closes or a request with the same id and `watch` false. The code itself is asked for as
// any other.
struct WatchRequest {
  bool watch = true;
  std::string fingerprint;  // 32 hex digits; this and the next as in the GetReply
  std::string target;
  std::string digest;  // of the code that is held
  HONE_FIELDS(watch, fingerprint, target, digest)
};
struct WatchReply {
  bool is_current = false;  // what is held is what would be served now; false: it is not, or honed cannot tell at once
  HONE_FIELDS(is_current)
};
struct NewerNotice {
  std::string fingerprint;
  std::string target;
  std::string digest;  // of the better code
  HONE_FIELDS(fingerprint, target, digest)
};

// How often kernels were called since this was said last, so that honed refines first what is used most.
struct CallCount {
  uint64_t watch = 0;  // id of the WatchRequest, on this connection
  uint64_t calls = 0;
  HONE_FIELDS(watch, calls)
};
struct CallsRequest {
  std::vector<CallCount> counts;
  HONE_FIELDS(counts)
};
struct CallsReply {
  HONE_FIELDS()
};

// How long the cost model believes that a kernel takes, without compiling it.
struct PredictRequest {
  std::string kernel;
  uint32_t threads = 0;  // if the kernel names none
  HONE_FIELDS(kernel, threads)
};
struct Estimate {          // about 80 % of kernels that the model had not seen lay within low … high
  double expected_us = 0;  // 0: there is none
  double low_us = 0;
  double high_us = 0;
  HONE_FIELDS(expected_us, low_us, high_us)
};
struct PredictReply {
  std::string fingerprint;
  std::string class_name;
  Estimate by_default;     // with the schedule that a first request gets
  Estimate served;         // with the schedule in the cache, if there is one
  std::string origin;      // of that; "" if there is none
  double measured_us = 0;  // of that, 0 if it was not measured
  double flops = 0;
  std::string why_none;  // why there is no estimate; "" if there is one
  HONE_FIELDS(fingerprint, class_name, by_default, served, origin, measured_us, flops, why_none)
};

// What is refined, and what will be.
struct TopRequest {
  HONE_FIELDS()
};
struct TopTask {
  std::string kernel;
  double calls = 0;
  double time_us = 0;      // of a call, as served; 0: not measured
  double expected_us = 0;  // calls × time × what is likely to be won: the order of the list
  uint64_t trials = 0;
  double won = 1;  // times faster since it was first refined
  bool is_refined = false;
  HONE_FIELDS(kernel, calls, time_us, expected_us, trials, won, is_refined)
};
struct TopReply {
  std::string idle_state;   // what the gate says; "off"
  std::string kernel;       // searched now; "" if none
  bool by_request = false;  // `hone tune` wants it, not idle time
  uint32_t trials = 0;      // of this search
  uint32_t valid = 0;
  uint32_t wanted = 0;
  double elapsed_s = 0;
  double start_us = 0;
  double best_us = 0;
  uint64_t all_trials = 0;  // since honed was started
  uint64_t failed_trials = 0;
  uint64_t refined = 0;
  uint64_t interrupts = 0;
  uint64_t refinable = 0;      // kernels of this machine
  uint64_t waiting = 0;        // of them not refined yet
  std::vector<TopTask> tasks;  // the most promising ones
  HONE_FIELDS(idle_state, kernel, by_request, trials, valid, wanted, elapsed_s, start_us, best_us, all_trials,
              failed_trials, refined, interrupts, refinable, waiting, tasks)
};

// How fast a kernel is, how fast it could be, and how the search came there.
struct ExplainRequest {
  KernelName name;
  HONE_FIELDS(name)
};
// The roofs over the kernel: FMAs from registers and sequential reads from where its operands fit, as measured on this
// machine with as many threads. 0: not known, as for another machine's records.
struct Roofline {
  double flops = 0;
  double operand_bytes = 0;  // each operand once
  double time_us = 0;        // of a call; 0: not known
  std::string time_from;     // "measured", "first call", "best trial"
  double peak_gflops = 0;
  double read_gb_s = 0;
  std::string level;  // where the operands fit: "L1", "L2", "L3", "memory"
  HONE_FIELDS(flops, operand_bytes, time_us, time_from, peak_gflops, read_gb_s, level)
};
struct HistoryPoint {
  uint64_t trial = 0;  // counted from 1
  double best_us = 0;  // from this trial on
  int64_t at_s = 0;    // Unix time
  HONE_FIELDS(trial, best_us, at_s)
};
// A decision of the schedule. Ratios are the time otherwise over the time as it is, so more than 1 is a gain;
// otherwise: as the rules prefer, or, where it is as they prefer, the best of the other options. 0: not known.
struct ChoiceRow {
  std::string site;
  std::string meaning;
  bool is_flag = false;  // the options mean no and yes
  int64_t value = 0;
  int64_t preferred = 0;  // what the rules take
  std::vector<int64_t> options;
  double measured_ratio = 0;    // of trials that differ in nothing else
  double trials_ratio = 0;      // of the best trial otherwise to the best as it is: others may differ, too
  uint64_t trials_with = 0;     // timed trials that decided as it is …
  uint64_t trials_without = 0;  // … and the others
  double model_ratio = 0;       // as the cost model estimates both
  HONE_FIELDS(site, meaning, is_flag, value, preferred, options, measured_ratio, trials_ratio, trials_with,
              trials_without, model_ratio)
};
struct RuleRow {
  std::string rule;
  std::string stage;
  bool applied = false;
  std::string why;
  HONE_FIELDS(rule, stage, applied, why)
};
// A schedule that was considered for a kernel that nobody had tuned: its default, or a fit of a neighbour's.
struct TransferGuess {
  std::string way;     // default, steps, decisions, deviations
  std::string donor;   // fingerprint; "" for the default
  std::string kernel;  // the donor's request
  bool same_class = false;
  double distance = 0;     // in doublings of its sizes, about
  double gain = 1;         // expected of it: how many times as fast as the default
  double measured_us = 0;  // 0: not measured
  bool chosen = false;
  uint32_t changed = 0;  // steps or decisions that could not be kept
  std::string refused;   // why it was no candidate
  HONE_FIELDS(way, donor, kernel, same_class, distance, gain, measured_us, chosen, changed, refused)
};
// What became of a step, or a decision, of the chosen donor's.
struct TransferNote {
  std::string fate;  // kept, changed, dropped
  std::string step;  // the donor's
  std::string now;
  std::string why;
  HONE_FIELDS(fate, step, now, why)
};
struct TransferProvenance {
  double confidence = 0;  // 0 … 1
  std::vector<TransferGuess> guesses;
  std::vector<TransferNote> notes;
  HONE_FIELDS(confidence, guesses, notes)
};
struct ExplainReply {
  RecordRow row;
  uint32_t threads = 0;
  std::vector<Fact> reasons;
  Roofline roofline;
  double default_us = 0;  // of the default schedule's trial; 0: none
  double won_ratio = 0;   // of the time before the first search to the time now, measured in turns; 0: nothing won
  double idle_ratio = 0;  // the part of it that was found in idle time
  uint64_t trials = 0;
  std::vector<Stat> verdicts;  // of the trials, by name
  std::vector<HistoryPoint> history;
  double space_size = 0;  // lists of choices, counted along the default's decisions
  std::vector<ChoiceRow> choices;
  std::vector<RuleRow> rules;
  TransferProvenance transfer;          // no guesses: none was made
  std::vector<std::string> recipients;  // kernels that are served with a fit of this one's schedule
  HONE_FIELDS(row, threads, reasons, roofline, default_us, won_ratio, idle_ratio, trials, verdicts, history, space_size,
              choices, rules, transfer, recipients)
};

// Records for a bundle, which the client writes and signs: honed never sees a secret key. By class, then kernel, in
// several replies.
struct ExportRequest {
  std::vector<std::string> selection;  // beginnings of class names or of fingerprints; none: all
  std::vector<std::string> targets;    // whole texts, or their first words; none: all
  bool with_artifacts = false;         // also the code that was checked here
  HONE_FIELDS(selection, targets, with_artifacts)
};
struct ExportRow {
  std::string record;  // EncodeRecord, version 1: docs/bundle_format.md
  std::string class_text;
  uint64_t calls = 0;
  std::string artifact;  // "": none
  HONE_FIELDS(record, class_text, calls, artifact)
};
struct ExportReply {
  std::vector<ExportRow> rows;
  bool more = false;
  HONE_FIELDS(rows, more)
};

// A bundle on its way to honed, in pieces. Only for honed's own user and root.
struct UploadRequest {
  uint64_t upload = 0;  // 0 in the first; else the number that its reply gave
  uint64_t total = 0;   // bytes of all pieces
  uint64_t offset = 0;  // of this one: where the last one ended
  std::string bytes;
  HONE_FIELDS(upload, total, offset, bytes)
};
struct UploadReply {
  uint64_t upload = 0;
  uint64_t received = 0;  // bytes so far
  HONE_FIELDS(upload, received)
};

// Takes up a bundle that was uploaded. In several replies; nothing is changed before the first.
struct ImportRequest {
  uint64_t upload = 0;
  std::string trust;  // a public key file's text: trusted for this import as if it lay among the trusted keys
  HONE_FIELDS(upload, trust)
};
struct ImportRow {
  std::string fingerprint;
  std::string class_name;
  std::string target;
  std::string fate;  // added, replaced, kept (what was there), refused
  std::string why;
  HONE_FIELDS(fingerprint, class_name, target, fate, why)
};
struct ImportReply {
  std::vector<ImportRow> rows;
  std::string bundle;
  uint64_t version = 0;
  std::string vouched;          // unsigned, unknown, known
  std::string key;              // the trusted key's name
  uint64_t total = 0;           // records of the bundle
  uint64_t artifacts = 0;       // taken so far, to be checked before they are served
  uint64_t artifacts_left = 0;  // left out so far, and …
  std::string why_left;         // … why
  bool more = false;
  HONE_FIELDS(rows, bundle, version, vouched, key, total, artifacts, artifacts_left, why_left, more)
};

}  // namespace hone
