// How a request becomes code. Two halves: LookUp takes microseconds and ends most requests; Compile takes tens of
// milliseconds and runs at most once at a time for each kernel. What comes before them, answering from memory, is
// daemon/hot_set.h; who runs them, and for whom, is daemon/misses.h.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "cache/schedule_cache.h"
#include "client/protocol.h"
#include "daemon/hot_set.h"
#include "daemon/metrics.h"
#include "daemon/transfers.h"
#include "daemon/workshop.h"
#include "ir/kernel.h"
#include "ir/target.h"

namespace hone {

// What decides which code is served.
struct Ask {
  std::string kernel;
  std::string target;  // "": this machine
  int threads = 0;     // overrides the kernel's own if that is 0
};

// A kernel that was understood: what it is called everywhere.
struct Identity {
  CacheKey key;
  std::string name;  // HotCode::key: kernel (its text says for how many threads, or for all) and target
  std::string class_text;
  std::vector<int64_t> shape;
  std::string label;    // "conv2d+bias+relu"
  std::string request;  // as the user wrote it
  Target target;
  bool is_dynamic = false;  // has sizes that are ranges
  double flops = 0;         // at the largest sizes
  int64_t operand_bytes = 0;
};

struct Found {
  Identity identity;
  HotCodePtr code;              // nullptr: it has to be compiled …
  std::optional<Record> known;  // … with this record's schedule, if there is one
  std::vector<StepTime> steps;
};

struct Compiled {
  HotCodePtr code;
  std::vector<StepTime> steps;
};

struct PathLimits {
  std::chrono::milliseconds build{20'000};
  std::chrono::milliseconds check{30'000};
};

// How a kernel is compiled.
struct CompileOptions {
  PathLimits limits = {};
  // What somebody would wait for better code: where there is time for it, transferred schedules are measured and the
  // fastest is taken.
  std::chrono::microseconds budget{0};
  std::stop_token stop = {};     // ends it at once
  Workshop* workshop = nullptr;  // that does it; nullptr: the one that serves
};

// Thread-safe.
class RequestPath {
 public:
  // `compiler` names what builds, as precisely as is needed to tell whether an artifact is still what it would build.
  RequestPath(ScheduleCache& cache, Workshop& workshop, Metrics& metrics, Target host, std::string compiler);

  // Where schedules for kernels that nobody has tuned come from; without it they get their defaults. Before anything is
  // asked.
  void SetTransfers(Transfers* transfers) { transfers_ = transfers; }

  // kInvalid, kLimit, kUnsupported: the request's own fault.
  Result<Found> LookUp(const Ask& ask, Counting counting = Counting::kAsUse);
  // Besides: kBuildFailed, kRunFailed, kWrongResult, kTimeout, kBusy, kUnavailable (also when it was stopped).
  Result<Compiled> Compile(const Found& found, const CompileOptions& options);

  // The kernel's names, without a look into the cache.
  Result<Identity> Identify(const Ask& ask) const;
  const Target& host() const { return host_; }
  const std::string& compiler() const { return compiler_; }

 private:
  Result<Target> ChooseTarget(const std::string& text) const;
  // As a neighbour's schedule or the default is the best guess; the story is kept.
  Result<Compiled> CompileTransferred(const Found& found, const CompileOptions& options);
  Result<Compiled> CompileWith(const Found& found, const std::string& schedule, const CompileOptions& options);
  Workshop& WorkshopOf(const CompileOptions& options) { return options.workshop ? *options.workshop : workshop_; }
  HotCodePtr MakeCode(const Identity& identity, const Record& record, SealedMemfd artifact, std::string manifest);

  ScheduleCache& cache_;
  Workshop& workshop_;
  Metrics& metrics_;
  const Target host_;
  const std::string compiler_;
  Transfers* transfers_ = nullptr;
};

// The facts that a record gives for a reply, the manifest and times aside.
GetReply ReplyFrom(const Record& record);
NewerNotice NoticeOf(const Record& record);

}  // namespace hone
