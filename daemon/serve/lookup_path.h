// A request's way as far as the cache takes it: understood, looked up, and code that came in a bundle of a trusted key
// checked. What compiles the rest goes on from here (daemon/serve/request_path.h); a device without a compiler ends
// here (daemon/edge/edge_path.h).
#pragma once

#include <sys/types.h>

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
#include "daemon/serve/attached_devices.h"
#include "daemon/serve/devices.h"
#include "daemon/serve/hot_set.h"
#include "ir/graph/kernel.h"
#include "ir/target.h"

namespace hone {

// What decides which code is served.
struct KernelRequest {
  std::string kernel;
  std::string target;              // "": this machine's CPU; Devices::Choose
  int64_t threads = 0;             // overrides the kernel's own if that is 0
  AttachedDevicePtr on = nullptr;  // there, whatever `target` says
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
  AttachedDevicePtr on = nullptr;        // where it was asked for, if that is another machine
  bool is_dynamic = false;               // has sizes that are ranges
  double flops = 0;                      // at the largest sizes
  int64_t operand_bytes = 0;
};

struct LookUpResult {
  ResolvedKernel identity;
  HotCodePtr code;                   // nullptr: it has to be compiled …
  std::optional<Record> known;       // … with this record's schedule, if there is one
  bool is_to_check = false;          // … or its code, which came in a bundle of a trusted key, only checked
  std::optional<RecordState> there;  // the record, whatever becomes of `known`: what is compiled takes its place alone
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
  std::stop_token stop = {};       // ends it at once
  WorkerPools* pools = nullptr;    // that does it; nullptr: the one that serves, or the attached device's
  std::optional<uid_t> user = {};  // who asked for it first: BuildRequest::user
};

// Thread-safe.
class LookupPath {
 public:
  // `pools`: of all kinds of devices that are served.
  LookupPath(ScheduleCache& cache, WorkerPools& pools, Metrics& metrics, Devices devices);
  virtual ~LookupPath() = default;

  // kInvalid, kLimit, kUnsupported: the request's own fault.
  virtual Result<LookUpResult> LookUp(const KernelRequest& ask, Counting counting = Counting::kAsUse);
  // Code for what LookUp found and has none, or none that was checked. kBuildFailed, kRunFailed, kWrongResult,
  // kTimeout, kBusy, kUnavailable (also when it was stopped).
  virtual Result<Compiled> Compile(const LookUpResult& found, const CompileRequest& options) = 0;

  // The kernel's names, without a look into the cache.
  Result<ResolvedKernel> Identify(const KernelRequest& ask) const;
  const Devices& devices() const { return devices_; }

 protected:
  // Code that came in a bundle of a trusted key, checked as if it had been built here.
  Result<Compiled> CheckImported(const LookUpResult& found, const CompileRequest& options);
  // Runs the code and compares what it computes; a few more calls where they are cheap.
  static Result<CheckReport> Check(const ResolvedKernel& identity, const std::string& schedule,
                                   WorkerPools::Reference& reference, const SealedMemfd& object,
                                   const CompileRequest& options);
  // What the check's calls took, as a first idea of the kernel's speed. Tuning measures properly.
  static void NoteTime(const CheckReport& report, const ResolvedKernel& identity, Record& record);
  WorkerPools& WorkerPoolsOf(const ResolvedKernel& identity, const CompileRequest& options) {
    if (options.pools != nullptr) return *options.pools;
    return identity.on ? *identity.on->pools : pools_;
  }
  // Keeps what was compiled or checked, unless the record became another one meanwhile. What cannot be kept is served
  // all the same: it is logged.
  void Store(const LookUpResult& found, const Record& record, std::span<const std::byte> artifact);
  HotCodePtr MakeCode(const ResolvedKernel& identity, const Record& record, SealedMemfd artifact, std::string manifest);
  // How sure it is that a record's schedule suits its kernel: 0 … 1.
  virtual double ConfidenceIn(const Record& record) const { return record.origin == Origin::kTuned ? 1 : 0; }

  ScheduleCache& cache_;
  WorkerPools& pools_;
  Metrics& metrics_;
  const Devices devices_;
};

// The facts that a record gives for a reply, the manifest and times aside.
GetReply ReplyFrom(const Record& record);
NewerNotice NoticeOf(const Record& record);

}  // namespace hone
