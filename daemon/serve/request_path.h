// How a request becomes code. Two halves: LookUp takes microseconds and ends most requests; Compile takes tens of
// milliseconds and runs at most once at a time for each kernel. What comes before them, answering from memory, is
// daemon/serve/hot_set.h; who runs them, and for whom, is daemon/serve/misses.h.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/processes/worker_pools.h"
#include "cache/schedule_cache.h"
#include "client/protocol/protocol.h"
#include "daemon/metrics.h"
#include "daemon/serve/devices.h"
#include "daemon/serve/hot_set.h"
#include "daemon/serve/transfers.h"
#include "ir/graph/kernel.h"
#include "ir/target.h"

namespace hone {

// What decides which code is served.
struct KernelRequest {
  std::string kernel;
  std::string target;  // "": this machine's CPU; Devices::Choose
  int threads = 0;     // overrides the kernel's own if that is 0
};

// A kernel that was understood: what it is called everywhere.
struct ResolvedKernel {
  CacheKey key;
  std::string name;  // HotCode::key: kernel (its text says for how many threads, or for all) and target
  std::string class_text;
  std::vector<int64_t> shape;
  std::string label;    // "conv2d+bias+relu"
  std::string request;  // as the user wrote it, without comments
  Target target;
  const ServedDevice* device = nullptr;  // that it is for, or one of its kind
  bool is_dynamic = false;               // has sizes that are ranges
  double flops = 0;                      // at the largest sizes
  int64_t operand_bytes = 0;
};

struct LookUpResult {
  ResolvedKernel identity;
  HotCodePtr code;              // nullptr: it has to be compiled …
  std::optional<Record> known;  // … with this record's schedule, if there is one
  bool is_to_check = false;     // … or its code, which came in a bundle of a trusted key, only checked
  std::vector<StepTime> steps;
};

struct Compiled {
  HotCodePtr code;
  std::vector<StepTime> steps;  // empty if nothing was compiled:
  bool was_here = false;        // code from a bundle, that has been checked now
};

struct PathLimits {
  std::chrono::milliseconds build{20'000};
  std::chrono::milliseconds check{30'000};
};

// How a kernel is compiled.
struct CompileRequest {
  PathLimits limits = {};
  // What somebody would wait for better code: where there is time for it, transferred schedules are measured and the
  // fastest is taken.
  std::chrono::microseconds budget{0};
  std::stop_token stop = {};     // ends it at once
  WorkerPools* pools = nullptr;  // that does it; nullptr: the one that serves
};

// Thread-safe.
class RequestPath {
 public:
  // `pools`: of all kinds of devices that are served.
  RequestPath(ScheduleCache& cache, WorkerPools& pools, Metrics& metrics, Devices devices);

  // Where schedules for kernels that nobody has tuned come from; without it they get their defaults. Before anything is
  // asked.
  void SetTransfers(Transfers* transfers) { transfers_ = transfers; }

  // kInvalid, kLimit, kUnsupported: the request's own fault.
  Result<LookUpResult> LookUp(const KernelRequest& ask, Counting counting = Counting::kAsUse);
  // Besides: kBuildFailed, kRunFailed, kWrongResult, kTimeout, kBusy, kUnavailable (also when it was stopped).
  Result<Compiled> Compile(const LookUpResult& found, const CompileRequest& options);

  // The kernel's names, without a look into the cache.
  Result<ResolvedKernel> Identify(const KernelRequest& ask) const;
  const Devices& devices() const { return devices_; }

 private:
  // As a neighbour's schedule or the default is the best guess; the provenance is kept.
  Result<Compiled> CompileTransferred(const LookUpResult& found, const CompileRequest& options);
  // Code that came in a bundle of a trusted key, checked as if it had been built here.
  Result<Compiled> CheckImported(const LookUpResult& found, const CompileRequest& options);
  Result<Compiled> CompileWith(const LookUpResult& found, const std::string& schedule, const CompileRequest& options);
  WorkerPools& WorkerPoolsOf(const CompileRequest& options) { return options.pools ? *options.pools : pools_; }
  HotCodePtr MakeCode(const ResolvedKernel& identity, const Record& record, SealedMemfd artifact, std::string manifest);

  ScheduleCache& cache_;
  WorkerPools& pools_;
  Metrics& metrics_;
  const Devices devices_;
  Transfers* transfers_ = nullptr;
};

// The facts that a record gives for a reply, the manifest and times aside.
GetReply ReplyFrom(const Record& record);
NewerNotice NoticeOf(const Record& record);

}  // namespace hone
