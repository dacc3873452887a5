// hone stats: counters and times.
#include <fmt/format.h>

#include <cmath>

#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/protocol/prometheus.h"

namespace hone::cli {
namespace {

std::string ValueText(const Stat& stat) {
  if (stat.name.ends_with("_us")) return TimeText(stat.value);
  if (stat.name.ends_with("_bytes") || stat.name == "cache_size_cap") return BytesText(stat.value);
  return fmt::format("{:.0f}", stat.value);
}

int RunStats(Context& context, const Arguments& arguments) {
  Result<StatsReply> reply = context.Call(StatsRequest{});
  if (!reply) return context.Fail(reply.error());
  if (arguments.Has("--prometheus")) {
    Print(PrometheusText(reply->stats));
    return kDone;
  }
  if (context.json()) {
    Json json;
    for (const Stat& stat : reply->stats) {
      bool is_whole = std::nearbyint(stat.value) == stat.value && std::abs(stat.value) < 9e15;
      if (is_whole) {
        json.Set(stat.name, static_cast<int64_t>(stat.value));
      } else {
        json.Set(stat.name, stat.value);
      }
    }
    Print(json.Dump() + "\n");
    return kDone;
  }
  Table table({{"", Table::Align::kLeft}, {"", Table::Align::kRight}});
  for (const Stat& stat : reply->stats) table.Add({stat.name, ValueText(stat)});
  std::string text = table.Text();
  Print(text.substr(text.find('\n') + 1));
  return kDone;
}

}  // namespace

Command StatsCommand() {
  return {
      .name = "stats",
      .summary = "show counters, and where time is spent",
      .details = R"(With --prometheus they are printed as Prometheus reads them: for a collector of text files, or for
whoever asks over the socket of honed. [metrics] listen in honed's configuration serves the same on a port.

Example: hone stats --json
Example: hone stats --prometheus)",
      .positionals = {},
      .options = {{"--prometheus", "", "in Prometheus' text format"}},
      .run = RunStats};
}

}  // namespace hone::cli
