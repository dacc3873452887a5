// What the answers to people's questions about the daemon and its cache are made of (daemon/inspect/admin_*.cc), away
// from serving, and from serving's processes.
#pragma once

#include <time.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backends/processes/worker_pools.h"
#include "cache/bundle/trusted_keys.h"
#include "cache/schedule_cache.h"
#include "client/protocol/protocol.h"
#include "daemon/inspect/bundle_uploads.h"
#include "daemon/metrics.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/get_ready.h"
#include "daemon/serve/lookup_path.h"
#include "daemon/serve/missing_kernels.h"

namespace hone {

class Insight;

struct AdminFacts {
  std::string socket;
  std::string cache;
  int builders = 0;
  bool inspects = false;  // nothing may be changed
};

// The processor time of the thread that asks.
clockid_t CpuClockOfThisThread();

// Made by the thread that runs the loop. Answers are made in several threads at once: what has a default is set before
// anything is asked.
struct Admin {
  EventLoop& loop;
  ScheduleCache& cache;
  WorkerPools& serving;  // of which there is to be told
  WorkerPools& own;      // builds and runs what is asked for here
  LookupPath& path;
  Metrics& metrics;
  AdminFacts facts;
  // Drops a kernel's code from memory; called in the loop's thread before the change is acknowledged.
  std::function<void(const Fingerprint&)> forget;

  // The kernel is gone, or stays as it is: nothing better is to be searched. From any thread; empty: nothing ever is.
  std::function<void(const Fingerprint&)> end_search{};
  // Kernels that a bundle brought are stored; empty: nothing is done before somebody asks for them.
  std::function<void(const std::vector<Imported>&)> get_ready{};
  // What idle time is used for: the gate's words, and the kernel that is refined now. Empty: for nothing.
  std::function<std::pair<std::string, std::string>()> idle_facts{};
  // What is refined, and why; empty in a daemon that refines nothing.
  std::function<TopReply()> top{};
  const MissingKernels* missing = nullptr;  // nullptr in a daemon that compiles what is missing
  BundleUploads uploads{};
  std::vector<std::string> key_directories = TrustedKeys::StandardDirectories();  // whom bundles are believed
  Insight* insight = nullptr;  // nullptr in a daemon that does not know how schedules come about
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  clockid_t loop_cpu_clock = CpuClockOfThisThread();

  // Drops the code of kernels that were stored from memory; from any thread, and done before whatever is posted later.
  void ForgetSoon(std::vector<Imported> stored);

  // The record for this machine if the kernel has one, its CPU's first, else for another. kNotFound.
  Result<Record> FindRecord(const std::string& fingerprint_digits);
  Result<Record> FindRecordOf(const KernelName& name);
  // Why its code is what a request gets.
  std::vector<Fact> ReasonsFor(const Record& record) const;
};

}  // namespace hone
