#include "cache/tuning_gain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace hone {
namespace {

constexpr std::string_view kNote = "won";
constexpr double kMostGain = 2;  // what is more says something about the default

}  // namespace

TuningGain After(TuningGain won, double ratio, bool in_idle_time) {
  won.ratio *= ratio;
  if (in_idle_time) won.idle_ratio *= ratio;
  ++won.steps;
  return won;
}

std::string PrintTuningGain(const TuningGain& won) {
  return fmt::format("{} {} {}", won.ratio, won.idle_ratio, won.steps);
}

Result<TuningGain> ParseTuningGain(std::string_view text) {
  TuningGain won;
  int used = 0;
  const std::string copy(text);
  auto sound = [](double ratio) { return std::isfinite(ratio) && ratio > 0; };
  if (std::sscanf(copy.c_str(), "%lf %lf %d%n", &won.ratio, &won.idle_ratio, &won.steps, &used) != 3 ||
      used != static_cast<int>(copy.size()) || !sound(won.ratio) || !sound(won.idle_ratio) || won.steps < 0)
    return Error{ErrorKind::kCorrupt, "not what refining has won", ""};
  return won;
}

TuningGain TuningGainOf(ScheduleCache& cache, const Record& record) {
  if (record.origin != Origin::kTuned) return {};
  Result<std::optional<std::string>> text = cache.GetNote(record.key, kNote);
  if (!text || !*text) return {};
  return ParseTuningGain(**text).value_or(TuningGain{});
}

void NoteTuningGain(ScheduleCache& cache, const Record& record, bool was_tuned, double ratio, bool in_idle_time) {
  const TuningGain before = was_tuned ? TuningGainOf(cache, record) : TuningGain{};
  std::optional<WallTime> created;  // a record that was never stored has none
  if (record.created != WallTime()) created = record.created;
  // What cannot be written is missing from a table, no more.
  (void)cache.PutNote(record.key, kNote, PrintTuningGain(After(before, ratio, in_idle_time)), Durability::kSoon,
                      created);
}

double GainOf(ScheduleCache& cache, const Record& record) {
  if (const TuningGain won = TuningGainOf(cache, record); won.steps > 0)
    return std::clamp(std::log2(won.ratio), 0.0, kMostGain);
  if (record.origin != Origin::kTuned || !record.measured || record.measured->time.count() <= 0) return 0;
  double gain = 0;
  (void)cache.ForEachTrial(record.key, [&](const TrialRecord& trial) {
    const bool is_default = trial.choices.empty() && trial.time.count() > 0;
    if (is_default)
      gain = std::log2(static_cast<double>(trial.time.count()) / static_cast<double>(record.measured->time.count()));
    return !is_default;
  });
  return std::clamp(gain, 0.0, kMostGain);
}

}  // namespace hone
