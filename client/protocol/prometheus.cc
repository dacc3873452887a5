#include "client/protocol/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

namespace hone {
namespace {

// What rises and falls; everything else only rises.
constexpr std::string_view kGauges[] = {"connections",
                                        "connections_lingering",
                                        "watchers",
                                        "watches",
                                        "lookups_queued",
                                        "builds_queued",
                                        "builds_running",
                                        "imports_waiting",
                                        "hot_entries",
                                        "hot_bytes",
                                        "cache_disk_bytes",
                                        "cache_memory_bytes",
                                        "cache_pending_records",
                                        "cache_size_cap"};

struct Quantile {
  std::string_view suffix, value;
};
constexpr Quantile kQuantiles[] = {{"_p50_us", "0.5"}, {"_p95_us", "0.95"}, {"_p99_us", "0.99"}};

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

class Writer {
 public:
  void Add(const Stat& stat) {
    const std::string_view name = stat.name;
    for (const Quantile& quantile : kQuantiles) {
      if (!name.ends_with(quantile.suffix)) continue;
      Type(Cut(name, quantile.suffix) + "_seconds", "summary");
      return Line(type_, fmt::format("{{quantile=\"{}\"}}", quantile.value), stat.value / 1e6);
    }
    if (name.ends_with("_count")) {
      Type(Cut(name, "_count") + "_seconds", "summary");
      return Line(type_ + "_count", "", stat.value);
    }
    for (std::string_view unit : {"_entries", "_bytes"}) {
      if (!name.starts_with("family_") || !name.ends_with(unit)) continue;
      Type("family" + std::string(unit), "gauge");
      const std::string family = Cut(name.substr(std::string_view("family_").size()), unit);
      return Line(type_, fmt::format("{{family=\"{}\"}}", family), stat.value);
    }
    if (std::find(std::begin(kGauges), std::end(kGauges), name) != std::end(kGauges)) {
      Type(std::string(name), "gauge");
      return Line(type_, "", stat.value);
    }
    const bool is_time = name.ends_with("_us");
    Type(is_time ? Cut(name, "_us") + "_seconds_total" : std::string(name) + "_total", "counter");
    Line(type_, "", is_time ? stat.value / 1e6 : stat.value);
  }

  std::string Take() { return std::move(text_); }

 private:
  static std::string Cut(std::string_view name, std::string_view suffix) {
    return std::string(name.substr(0, name.size() - suffix.size()));
  }
  // Samples of one name follow each other.
  void Type(const std::string& name, std::string_view type) {
    if (name == type_) return;
    type_ = name;
    fmt::format_to(std::back_inserter(text_), "# TYPE hone_{} {}\n", name, type);
  }
  void Line(std::string_view name, std::string_view labels, double value) {
    fmt::format_to(std::back_inserter(text_), "hone_{}{} {}\n", name, labels, Number(value));
  }

  std::string type_, text_;
};

}  // namespace

std::string PrometheusText(std::span<const Stat> stats) {
  Writer writer;
  // Entries and bytes of the families alternate, and a metric's samples must not.
  std::vector<Stat> sorted(stats.begin(), stats.end());
  std::stable_partition(sorted.begin(), sorted.end(), [](const Stat& stat) {
    return !stat.name.starts_with("family_") || stat.name.ends_with("_entries");
  });
  for (const Stat& stat : sorted) writer.Add(stat);
  return writer.Take();
}

}  // namespace hone
