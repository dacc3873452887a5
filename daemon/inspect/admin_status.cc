// What there is to tell of the daemon itself: its state, its processes, its counters, and what it refines.
#include <time.h>
#include <unistd.h>

#include <utility>

#include "daemon/inspect/record_facts.h"
#include "daemon/routes.h"

namespace hone {

Result<StatusReply> AnswerStatus(Admin& admin, const StatusRequest&) {
  CacheStats cache = admin.cache.Stats();
  StatusReply reply;
  reply.version = HONE_VERSION;
  reply.pid = getpid();
  reply.uptime_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - admin.started).count();
  reply.socket = admin.facts.socket;
  reply.cache = admin.facts.cache;
  for (const ServedDevice& device : admin.path.devices().all()) reply.targets.push_back(device.target_text);
  reply.cache_bytes = cache.disk_bytes;
  reply.cache_problem = cache.not_persisting.empty() ? cache.problem : "nothing is kept: " + cache.not_persisting;
  for (const CacheStats::Family& family : cache.families) {
    if (family.name == "records") reply.records = family.entries;
  }
  reply.hits = admin.metrics.hits_memory + admin.metrics.hits_disk;
  reply.misses = admin.metrics.misses;
  reply.idle_state = "off";
  if (admin.idle_facts) std::tie(reply.idle_state, reply.tuning) = admin.idle_facts();
  reply.tuning = ShownText(reply.tuning);
  reply.builders = static_cast<uint32_t>(admin.facts.builders);
  reply.connections = admin.metrics.connections;
  reply.queued = admin.metrics.builds_queued;
  return reply;
}

Result<StatusReply> AnswerForOthers(Admin& admin, const StatusRequest& request) {
  StatusReply reply = HONE_TRY(AnswerStatus(admin, request));
  reply.tuning.clear();
  return reply;
}

Result<HealthReply> AnswerHealth(Admin& admin, const HealthRequest&) {
  HealthReply reply;
  const CacheStats cache = admin.cache.Stats();
  reply.losses = cache.losses;
  reply.quarantined = cache.quarantined;
  for (const Confinement& confinement : admin.serving.Confinements())
    reply.children.push_back({confinement.child, confinement.Text(), confinement.complete()});
  return reply;
}

Result<MissingReply> AnswerMissing(Admin& admin, const MissingRequest&) {
  if (admin.missing == nullptr)
    return Error{ErrorKind::kNotFound,
                 "nothing is missing for long: this honed compiles what it is asked for; honed-edge keeps a list, on "
                 "devices without a compiler",
                 "honed"};
  return admin.missing->List(admin.path.devices().host().target_text);
}

Result<TopReply> AnswerTop(Admin& admin, const TopRequest&) {
  TopReply reply;
  reply.idle_state = "off";
  if (admin.top) reply = admin.top();
  reply.kernel = ShownText(reply.kernel);
  for (TopTask& task : reply.tasks) task.kernel = ShownText(task.kernel);
  reply.all_trials = admin.metrics.trials;
  reply.failed_trials = admin.metrics.trials_failed;
  reply.refined = admin.metrics.refined;
  reply.interrupts = admin.metrics.idle_interrupts;
  return reply;
}

Result<StatsReply> AnswerStats(Admin& admin, const StatsRequest&) {
  StatsReply reply{admin.metrics.Snapshot()};
  auto add = [&](std::string name, double value) { reply.stats.push_back({std::move(name), value}); };
  timespec cpu{};
  clock_gettime(admin.loop_cpu_clock, &cpu);
  add("serving_cpu_us", static_cast<double>(cpu.tv_sec) * 1e6 + static_cast<double>(cpu.tv_nsec) / 1e3);
  BuilderPoolStats builders = admin.serving.BuilderStats();
  add("builder_builds", static_cast<double>(builders.builds));
  add("builder_failed", static_cast<double>(builders.failed));
  add("builder_crashed", static_cast<double>(builders.crashed));
  add("builder_timed_out", static_cast<double>(builders.timed_out));
  add("builder_restarts", static_cast<double>(builders.restarts));
  RunnerPoolStats runners = admin.serving.RunnerStats();
  add("runner_checked", static_cast<double>(runners.checked));
  add("runner_refused", static_cast<double>(runners.refused));
  add("runner_restarts", static_cast<double>(runners.restarts));
  CacheStats cache = admin.cache.Stats();
  add("cache_hits", static_cast<double>(cache.hits));
  add("cache_misses", static_cast<double>(cache.misses));
  add("cache_collisions", static_cast<double>(cache.collisions));
  add("cache_quarantined", static_cast<double>(cache.quarantined));
  add("cache_losses", static_cast<double>(cache.losses));
  add("cache_evicted_artifacts", static_cast<double>(cache.evicted_artifacts));
  add("cache_evicted_records", static_cast<double>(cache.evicted_records));
  add("cache_disk_bytes", static_cast<double>(cache.disk_bytes));
  add("cache_memory_bytes", static_cast<double>(cache.memory_bytes));
  add("cache_pending_records", static_cast<double>(cache.pending_records));
  add("cache_size_cap", static_cast<double>(cache.size_cap));
  for (const CacheStats::Family& family : cache.families) {
    add("family_" + family.name + "_entries", static_cast<double>(family.entries));
    add("family_" + family.name + "_bytes", static_cast<double>(family.bytes));
  }
  return reply;
}

}  // namespace hone
