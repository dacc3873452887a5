#include "tuner/head_to_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace hone {
namespace {

// Short turns, so that what disturbs one disturbs the next as well.
TimeOptions InTurns(int workers) {
  TimeOptions options;
  options.workers = workers;
  options.samples = 7;
  options.max_samples = 40;
  options.min_sample = std::chrono::microseconds(300);
  return options;
}

constexpr size_t kFewestRounds = 5;        // that all agree by chance once in 32 times
constexpr double kWorthMoreRounds = 1.02;  // a ratio that seems to be won, but is not beyond the noise yet

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// The median of the rounds' ratios and its interval.
HeadToHead Judge(std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  HeadToHead result;
  result.ratio = MedianOf(ratios);
  // Ranks around the median that hold it with 95 %: n/2 ± 0.98·√n (binomial, normal approximation).
  double n = static_cast<double>(ratios.size()), half = 0.98 * std::sqrt(n);
  auto rank = [&](double r) { return static_cast<size_t>(std::clamp(r, 0.0, n - 1)); };
  result.low = ratios[rank(std::floor(n / 2 - half - 0.5))];
  result.high = ratios[rank(std::ceil(n / 2 + half - 0.5))];
  return result;
}

}  // namespace

Result<size_t> Fastest(Evaluator& evaluator, const std::vector<const SealedMemfd*>& codes, int workers, int rounds,
                       std::stop_token stop) {
  std::vector<std::vector<double>> times(codes.size());
  const TimeOptions options = InTurns(workers);
  for (int round = 0; round < rounds && !stop.stop_requested(); ++round) {
    for (size_t i = 0; i < codes.size(); ++i) {
      size_t turn = (i + static_cast<size_t>(round)) % codes.size();
      times[turn].push_back(HONE_TRY(evaluator.Time(*codes[turn], options)).min_us);
    }
  }
  if (times.back().empty()) return Error{ErrorKind::kTimeout, "stopped before anything was compared", ""};
  size_t best = 0;
  for (std::vector<double>& some : times)
    std::nth_element(some.begin(), some.begin() + static_cast<int64_t>(some.size() / 2), some.end());
  for (size_t i = 1; i < times.size(); ++i)
    if (times[i][times[i].size() / 2] < times[best][times[best].size() / 2]) best = i;
  return best;
}

Result<HeadToHead> Compare(Evaluator& evaluator, const SealedMemfd& old_code, const SealedMemfd& new_code, int workers,
                           int rounds, std::stop_token stop) {
  std::vector<double> ratios, old_times, new_times;
  const TimeOptions options = InTurns(workers);
  auto take = [&](int until) -> Result<void> {
    for (int round = static_cast<int>(ratios.size()); round < until && !stop.stop_requested(); ++round) {
      // Who goes first changes from round to round.
      const bool old_first = round % 2 == 0;
      RunTiming first = HONE_TRY(evaluator.Time(old_first ? old_code : new_code, options));
      RunTiming second = HONE_TRY(evaluator.Time(old_first ? new_code : old_code, options));
      const RunTiming &old_one = old_first ? first : second, &new_one = old_first ? second : first;
      ratios.push_back(old_one.median_us / new_one.median_us);
      old_times.push_back(old_one.median_us);
      new_times.push_back(new_one.median_us);
    }
    return {};
  };
  HONE_TRY(take(rounds));
  if (ratios.size() < std::min(kFewestRounds, static_cast<size_t>(rounds)))
    return Error{ErrorKind::kTimeout, fmt::format("stopped after {} of {} rounds", ratios.size(), rounds), ""};
  HeadToHead result = Judge(ratios);
  for (int more : {2, 4}) {
    const bool is_open = result.low <= 1 && result.ratio > kWorthMoreRounds;
    if (!is_open || stop.stop_requested()) break;
    HONE_TRY(take(more * rounds));
    result = Judge(ratios);
  }
  result.old_us = MedianOf(old_times);
  result.new_us = MedianOf(new_times);
  return result;
}

}  // namespace hone
