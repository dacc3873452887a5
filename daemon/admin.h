// Everything that people ask about the daemon and its cache: one thread, away from serving.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "cache/schedule_cache.h"
#include "client/protocol.h"
#include "daemon/event_loop.h"
#include "daemon/insight.h"
#include "daemon/job.h"
#include "daemon/metrics.h"
#include "daemon/peer.h"
#include "daemon/request_path.h"
#include "daemon/work_queue.h"
#include "daemon/workshop.h"

namespace hone {

struct AdminFacts {
  std::string socket;
  std::string cache;
  int builders = 0;
  bool inspects = false;  // nothing may be changed
};

class Admin {
 public:
  // `forget` drops a kernel's code from memory; called in the loop's thread before the change is acknowledged.
  Admin(EventLoop& loop, ScheduleCache& cache, Workshop& workshop, RequestPath& path, Metrics& metrics,
        AdminFacts facts, std::function<void(const Fingerprint&)> forget);
  ~Admin();

  // What idle time is used for: the gate's words, and the kernel that is refined now. Before anything is asked.
  void SetIdleFacts(std::function<std::pair<std::string, std::string>()> facts) { idle_facts_ = std::move(facts); }

  // What is refined, and why; a daemon that refines nothing has none. Before anything is asked.
  void SetTop(std::function<TopReply()> top) { top_ = std::move(top); }

  // The newest cost model. Before anything is asked.
  void SetModel(Insight::ModelSource model) { insight_.SetModel(std::move(model)); }

  // From the loop's thread. kBusy when too much is asked at once.
  void Handle(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body);

  // Waits for what runs; drops what waits.
  void Close();

 private:
  template <typename Request, typename Reply>
  void Run(Job job, std::span<const std::byte> body, Result<Reply> (Admin::*answer)(const Request&));
  template <typename Request>
  void Stream(Job job, std::span<const std::byte> body, Result<void> (Admin::*answer)(const Request&, const Job&));

  Result<StatusReply> Status(const StatusRequest& request);
  Result<StatsReply> Stats(const StatsRequest& request);
  Result<void> List(const ListRequest& request, const Job& job);
  Result<ShowReply> Show(const ShowRequest& request);
  Result<EditReply> Edit(const EditRequest& request);
  Result<void> Verify(const VerifyRequest& request, const Job& job);
  Result<TextReply> Text(const TextRequest& request);
  Result<PredictReply> Predict(const PredictRequest& request);
  Result<TopReply> Top(const TopRequest& request);
  Result<ExplainReply> Explain(const ExplainRequest& request);

  Result<Record> FindRecord(const std::string& fingerprint_digits);
  Result<Record> FindRecordOf(const KernelName& name);
  Result<RecordRow> RowOf(const Record& record);
  VerifyRow VerifyRecord(const Record& record, bool run);

  EventLoop& loop_;
  ScheduleCache& cache_;
  Workshop& workshop_;
  RequestPath& path_;
  Metrics& metrics_;
  const AdminFacts facts_;
  const std::function<void(const Fingerprint&)> forget_;
  std::function<std::pair<std::string, std::string>()> idle_facts_;
  std::function<TopReply()> top_;
  Insight insight_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  clockid_t loop_cpu_clock_ = 0;  // processor time of the thread that serves
  std::stop_source stop_;
  WorkQueue queue_;
};

}  // namespace hone
