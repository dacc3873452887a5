// hone status: is the daemon there, and how is it doing.
#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/report/kernel_markup.h"
#include "client/cli/served_targets.h"

namespace hone::cli {
namespace {

std::string UptimeText(double seconds) {
  auto s = static_cast<int64_t>(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min", s / 60);
  if (s < 48 * 3600) return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
  return fmt::format("{} days", s / (24 * 3600));
}

// A daemon that does not know the question has nothing to say of it.
Result<HealthReply> AskHealth(Channel& channel) {
  Result<HealthReply> health = channel.Call(HealthRequest{}, Context::Patience());
  if (!health && health.error().kind == ErrorKind::kUnsupported) return HealthReply{};
  return health;
}

std::vector<Json> SandboxJson(const HealthReply& health) {
  std::vector<Json> children;
  for (const ChildHold& child : health.children) {
    Json json;
    json.Set("child", child.child).Set("holds", child.holds).Set("complete", child.complete);
    children.push_back(std::move(json));
  }
  return children;
}

int RunStatus(Context& context, const Arguments&) {
  Result<Channel> channel = context.Ask();
  if (!channel) return context.Fail(channel.error());
  Result<StatusReply> status = channel->Call(StatusRequest{}, Context::Patience());
  if (!status) return context.Fail(status.error());
  Result<HealthReply> health = AskHealth(*channel);
  if (!health) return context.Fail(health.error());
  if (context.json()) {
    Json json;
    json.Set("version", status->version)
        .Set("pid", status->pid)
        .Set("uptime_s", status->uptime_s)
        .Set("socket", status->socket)
        .Set("cache", status->cache)
        .Set("targets", status->targets)
        .Set("cache_bytes", status->cache_bytes)
        .Set("cache_problem", status->cache_problem)
        .Set("records", status->records)
        .Set("hits", status->hits)
        .Set("misses", status->misses)
        .Set("idle", status->idle_state)
        .Set("tuning", status->tuning)
        .Set("builders", status->builders)
        .Set("connections", status->connections)
        .Set("queued", status->queued)
        .Set("losses", health->losses)
        .Set("quarantined", health->quarantined)
        .Set("sandbox", SandboxJson(*health));
    Print(json.Dump() + "\n");
    return kDone;
  }
  std::vector<std::pair<std::string, std::string>> facts = {
      {"version", status->version},
      {"process", fmt::format("{}, up {}", status->pid, UptimeText(status->uptime_s))},
      {"socket", status->socket},
      {"cache", fmt::format("{}, {}, {}", status->cache, BytesText(static_cast<double>(status->cache_bytes)),
                            Plural(status->records, "record"))},
      {"target", status->targets.empty() ? "-" : status->targets[0]}};
  // Other devices than the CPU, under the names that --target takes.
  std::string unchecked;
  for (const ServedTarget& served : ServedTargets(*status) | std::views::drop(1)) {
    if (!served.is_here)
      unchecked += (unchecked.empty() ? "" : ", ") + served.name;
    else
      facts.emplace_back(served.name, served.facts());
  }
  if (!unchecked.empty()) facts.emplace_back("unverified", unchecked + ": code is built for them, and run nowhere");
  facts.insert(facts.end(), {{"requests", fmt::format("{} hits, {} misses", status->hits, status->misses)},
                             {"builders", fmt::format("{}, {} builds waiting", status->builders, status->queued)},
                             {"clients", std::to_string(status->connections)},
                             {"idle", status->tuning.empty() ? status->idle_state : "tuning " + status->tuning}});
  for (const ChildHold& child : health->children)
    facts.emplace_back("sandbox", (child.complete ? "" : "incomplete: ") + child.holds);
  if (health->losses > 0 || health->quarantined > 0)
    facts.emplace_back("damage", fmt::format("{} losses, {} damaged values set aside, since the cache was made",
                                             health->losses, health->quarantined));
  if (!status->cache_problem.empty()) facts.emplace_back("problem", status->cache_problem);
  Print(FactsText(facts));
  return kDone;
}

}  // namespace

Command StatusCommand() {
  return {.name = "status",
          .summary = "show the daemon's version, cache, counters, current work, sandboxes and problems",
          .details = "Example: hone status --json",
          .positionals = {},
          .options = {},
          .run = RunStatus};
}

}  // namespace hone::cli
