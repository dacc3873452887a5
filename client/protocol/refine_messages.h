// Search: its rounds, its queue, what it believes and what it found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/protocol/inspect_messages.h"
#include "client/protocol/message_traits.h"

namespace hone {

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

// Ends a search that this connection asked for. What it found by then is compared with what is served, and its last
// reply comes as ever.
struct StopRequest {
  uint64_t request = 0;  // id of the TuneRequest
  HONE_FIELDS(request)
};
struct StopReply {
  bool was_searching = false;  // false: it had ended, or there was none
  HONE_FIELDS(was_searching)
};

// Lends honed a device on another machine. Once this is answered the connection carries no messages any more: it is the
// channel to the device's hone-runner (backends/processes/remote_messages.h), whose standard input and output it has to
// become. Nothing else may have been asked on it. Only for honed's own user and root.
struct AttachRequest {
  uint64_t silence_ms = 0;  // how long the device may be without a sign of life; 0: as usual
  HONE_FIELDS(silence_ms)
};
struct AttachReply {
  std::string device;  // its name in a TuneRequest's and a GetRequest's target: "on:1"
  HONE_FIELDS(device)
};

// What a device is that this user has attached: answered when it has said so.
struct DeviceRequest {
  std::string device;
  HONE_FIELDS(device)
};
struct DeviceReply {
  std::string target;  // under which its records are stored
  std::string runner;  // "hone-runner 0.1.0"
  HONE_FIELDS(target, runner)
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

}  // namespace hone
