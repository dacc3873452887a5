// What `hone report` shows, as plain values: gathered over the daemon's socket, laid out by
// client/cli/report/report_page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/roofline_bound.h"
#include "client/protocol/protocol.h"

namespace hone::cli {

struct ReportKernel {
  RecordRow row;
  int number = 0;           // from 1, the largest calls × time first: what plots and tables call it
  bool is_removed = false;  // since the report was begun
  std::string problem;      // why honed could tell no more than the row; "" if all is well
  uint32_t threads = 0;     // 0: not known
  double time_us = 0;       // of a call, now; 0: not known
  double default_us = 0;    // of the default schedule; 0: not measured
  double won = 1;           // the time before the first search over the time now, measured in turns; 1: nothing won
  double idle_won = 1;      // the part of it that was found in idle time
  Roofline roofline;
  std::optional<Bound> bound;  // nullopt: no roof is known
  uint64_t trials = 0;
  std::vector<Stat> verdicts;
  std::vector<HistoryPoint> history;
  Estimate estimate;       // of the cost model for what is served; expected_us 0: none was asked for
  double measured_us = 0;  // beside the estimate; 0: not measured

  double calls() const { return static_cast<double>(row.requests); }
  double total_us() const { return calls() * time_us; }  // of all calls, as fast as they are now
  double saved_us() const { return total_us() * (won - 1); }
  double reached() const { return bound ? bound->share : 0; }  // of the roofline's bound; 0: not known
};

// The order in which gains are shown.
bool SavedMore(const ReportKernel* a, const ReportKernel* b);

struct ReportData {
  int64_t written_s = 0;  // Unix time
  std::string hone_version;
  StatusReply status;
  TopReply activity;
  std::vector<ReportKernel> kernels;
  std::string model_problem;  // why there are no estimates; "" if there are
};

// Takes over what honed explained of a kernel. REQUIRES: `reply` is of the same record.
void AddExplanation(ReportKernel& kernel, ExplainReply reply);

// Sorts by calls × time, the largest first, and numbers them; removed ones are last.
void RankKernels(std::vector<ReportKernel>& kernels);

struct Totals {
  size_t kernels = 0;  // that are in the cache
  size_t tuned = 0, pinned = 0;
  double now_us = 0;           // sum of calls × time
  double before_us = 0;        // as it would be had no search found anything …
  double without_idle_us = 0;  // … or none in idle time
  uint64_t trials = 0;
  std::vector<Stat> verdicts;  // the most frequent first
  double median_reached = 0;   // of the kernels with a known bound; 0: there are none
};
Totals SumOf(const std::vector<const ReportKernel*>& kernels);

// Kernels of one class, in the order of their numbers.
struct ReportClass {
  std::string name;
  std::vector<const ReportKernel*> kernels;
  Totals totals;
};
// The largest sum of calls × time first.
std::vector<ReportClass> ClassesOf(const std::vector<ReportKernel>& kernels);

// How well the cost model's estimates agree with what was measured.
struct ModelQuality {
  size_t kernels = 0;           // that have both
  size_t within = 0;            // of them measured within the estimate's range
  double typical_factor = 1;    // median of max(estimate/measured, measured/estimate)
  double rank_correlation = 0;  // Spearman's; 0 with fewer than three kernels
};
ModelQuality QualityOf(const std::vector<ReportKernel>& kernels);

// "tuned, pinned"; "removed" …
std::string StateText(const ReportKernel& kernel);

}  // namespace hone::cli
