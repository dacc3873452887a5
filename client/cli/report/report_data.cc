#include "client/cli/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

namespace hone::cli {
namespace {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// The place of each value in their order, equal ones sharing the mean of theirs.
std::vector<double> Ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
    begin = end;
  }
  return ranks;
}

double Correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double count = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / count;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / count;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

}  // namespace

void AddExplanation(ReportKernel& kernel, ExplainReply reply) {
  kernel.row = std::move(reply.row);
  kernel.threads = reply.threads;
  kernel.time_us = reply.roofline.time_us > 0 ? reply.roofline.time_us : kernel.row.expected_us;
  kernel.default_us = reply.default_us;
  kernel.won = reply.won_ratio > 0 ? reply.won_ratio : 1;
  kernel.idle_won = reply.idle_ratio > 0 ? reply.idle_ratio : 1;
  kernel.bound = BoundOf(reply.roofline);
  kernel.roofline = std::move(reply.roofline);
  kernel.trials = reply.trials;
  kernel.verdicts = std::move(reply.verdicts);
  kernel.history = std::move(reply.history);
}

bool SavedMore(const ReportKernel* a, const ReportKernel* b) {
  if (a->saved_us() != b->saved_us()) return a->saved_us() > b->saved_us();
  return a->number < b->number;
}

void RankKernels(std::vector<ReportKernel>& kernels) {
  std::sort(kernels.begin(), kernels.end(), [](const ReportKernel& a, const ReportKernel& b) {
    if (a.is_removed != b.is_removed) return b.is_removed;
    if (a.total_us() != b.total_us()) return a.total_us() > b.total_us();
    if (a.row.requests != b.row.requests) return a.row.requests > b.row.requests;
    return std::tie(a.row.fingerprint, a.row.target) < std::tie(b.row.fingerprint, b.row.target);
  });
  for (size_t i = 0; i < kernels.size(); ++i) kernels[i].number = static_cast<int>(i) + 1;
}

Totals SumOf(const std::vector<const ReportKernel*>& kernels) {
  Totals totals;
  std::map<std::string, double> verdicts;
  std::vector<double> reached;
  for (const ReportKernel* kernel : kernels) {
    if (kernel->is_removed) continue;
    ++totals.kernels;
    totals.tuned += kernel->row.origin == "tuned";
    totals.pinned += kernel->row.pinned;
    totals.now_us += kernel->total_us();
    totals.before_us += kernel->total_us() * kernel->won;
    totals.without_idle_us += kernel->total_us() * kernel->idle_won;
    totals.trials += kernel->trials;
    for (const Stat& verdict : kernel->verdicts) verdicts[verdict.name] += verdict.value;
    if (kernel->reached() > 0) reached.push_back(kernel->reached());
  }
  for (const auto& [name, count] : verdicts) totals.verdicts.push_back({name, count});
  std::sort(totals.verdicts.begin(), totals.verdicts.end(),
            [](const Stat& a, const Stat& b) { return std::tie(b.value, a.name) < std::tie(a.value, b.name); });
  totals.median_reached = Median(std::move(reached));
  return totals;
}

std::vector<ReportClass> ClassesOf(const std::vector<ReportKernel>& kernels) {
  std::map<std::string, std::vector<const ReportKernel*>> by_name;
  for (const ReportKernel& kernel : kernels) by_name[kernel.row.class_name].push_back(&kernel);
  std::vector<ReportClass> classes;
  for (auto& [name, members] : by_name) {
    Totals totals = SumOf(members);
    classes.push_back({name, std::move(members), std::move(totals)});
  }
  std::sort(classes.begin(), classes.end(), [](const ReportClass& a, const ReportClass& b) {
    return std::tie(b.totals.now_us, a.name) < std::tie(a.totals.now_us, b.name);
  });
  return classes;
}

ModelQuality QualityOf(const std::vector<ReportKernel>& kernels) {
  ModelQuality quality;
  std::vector<double> estimated, measured, factors;
  for (const ReportKernel& kernel : kernels) {
    const Estimate& estimate = kernel.estimate;
    if (estimate.expected_us <= 0 || kernel.measured_us <= 0) continue;
    estimated.push_back(estimate.expected_us);
    measured.push_back(kernel.measured_us);
    factors.push_back(std::exp(std::abs(std::log(estimate.expected_us / kernel.measured_us))));
    quality.within += estimate.low_us <= kernel.measured_us && kernel.measured_us <= estimate.high_us;
  }
  quality.kernels = estimated.size();
  if (quality.kernels > 0) quality.typical_factor = Median(std::move(factors));
  if (quality.kernels >= 3) quality.rank_correlation = Correlation(Ranks(estimated), Ranks(measured));
  return quality;
}

std::string StateText(const ReportKernel& kernel) {
  if (kernel.is_removed) return "removed";
  std::string text = kernel.row.origin.empty() ? "unknown" : kernel.row.origin;
  if (kernel.row.pinned) text += ", pinned";
  if (kernel.row.artifact_bytes == 0) text += ", code evicted";
  return text;
}

}  // namespace hone::cli
