// Refining kernels: searches, one at a time, away from serving; what they find replaces what is served.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>

#include "cache/schedule_cache.h"
#include "client/protocol.h"
#include "daemon/event_loop.h"
#include "daemon/job.h"
#include "daemon/metrics.h"
#include "daemon/request_path.h"
#include "daemon/work_queue.h"
#include "daemon/workshop.h"
#include "tuner/cost_model.h"
#include "tuner/search.h"

namespace hone {

class Tuning {
 public:
  // `forget` drops a kernel's code from memory; called in the loop's thread once better code is stored.
  Tuning(EventLoop& loop, ScheduleCache& cache, Workshop& workshop, RequestPath& path, Metrics& metrics,
         std::function<void(const Fingerprint&)> forget);
  ~Tuning();

  // From the loop's thread: a TuneRequest. Answers with a TuneReply a round. kBusy when too many wait.
  void Handle(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body);

  // Stops what runs, keeps what it found; drops what waits. Shut the workshop down first.
  void Close();

 private:
  // What a search found, against what is served.
  struct Verdict {
    double served_us = 0, ratio = 0;
    Origin origin = Origin::kDefault;
  };

  Result<TuneReply> Tune(const TuneRequest& request, const Job& job);
  Result<Verdict> Promote(const Found& found, Record record, Rig& rig, const Trial& best);

  EventLoop& loop_;
  ScheduleCache& cache_;
  Workshop& workshop_;
  RequestPath& path_;
  Metrics& metrics_;
  const std::function<void(const Fingerprint&)> forget_;
  std::unique_ptr<CostModel> model_;
  uint64_t searches_ = 0;
  std::stop_source stop_;
  WorkQueue queue_;
};

}  // namespace hone
