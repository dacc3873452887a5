// Everything that people ask about the daemon and its cache, away from serving, and from serving's processes.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "cache/schedule_cache.h"
#include "client/protocol.h"
#include "daemon/answers.h"
#include "daemon/event_loop.h"
#include "daemon/insight.h"
#include "daemon/metrics.h"
#include "daemon/peer.h"
#include "daemon/request_path.h"
#include "daemon/workshop.h"

namespace hone {

struct AdminFacts {
  std::string socket;
  std::string cache;
  int builders = 0;
  bool inspects = false;  // nothing may be changed
};

// Who serves, of which there is to be told, and who builds and runs what is asked for here.
struct AdminWorkshops {
  Workshop& serving;
  Workshop& own;
};

// What is asked for is answered in three lanes that never wait for one another: quick answers, lists, and work.
class Admin {
 public:
  // `forget` drops a kernel's code from memory; called in the loop's thread before the change is acknowledged.
  Admin(EventLoop& loop, ScheduleCache& cache, AdminWorkshops workshops, RequestPath& path, Metrics& metrics,
        AdminFacts facts, std::function<void(const Fingerprint&)> forget);
  ~Admin();

  // What idle time is used for: the gate's words, and the kernel that is refined now. Before anything is asked.
  void SetIdleFacts(std::function<std::pair<std::string, std::string>()> facts) { idle_facts_ = std::move(facts); }

  // What is refined, and why; a daemon that refines nothing has none. Before anything is asked.
  void SetTop(std::function<TopReply()> top) { top_ = std::move(top); }

  // The newest cost model. Before anything is asked.
  void SetModel(Insight::ModelSource model) { insight_.SetModel(std::move(model)); }

  // These three from the loop's thread, as FrameHandler's. kBusy when too much is asked at once.
  void Handle(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body);
  void OnTaken(const Peer& peer) { answers_.GoOn(peer); }
  void OnGone(const Peer& peer) { answers_.Forget(peer); }

  // Ends what runs; drops what waits.
  void Close();

 private:
  // Where a walk through the records is. It holds nothing of the cache while its client reads.
  struct ListWalk {
    ListRequest request;
    std::string place;
  };
  struct VerifyWalk {
    VerifyRequest request;
    bool has_looked = false;  // at the store as a whole
    uint64_t records = 0, without_artifact = 0;
    std::string place;
  };

  template <typename Request, typename Reply>
  void Once(Lane lane, const PeerPtr& peer, uint64_t id, std::span<const std::byte> body,
            Result<Reply> (Admin::*answer)(const Request&));
  template <typename Request, typename Reply, typename Walk>
  void InParts(Lane lane, const PeerPtr& peer, uint64_t id, std::span<const std::byte> body,
               Result<Reply> (Admin::*next)(Walk&, const std::stop_token&));
  template <typename Request>
  std::optional<Request> Read(const PeerPtr& peer, uint64_t id, std::span<const std::byte> body);

  Result<StatusReply> Status(const StatusRequest& request);
  Result<HealthReply> Health(const HealthRequest& request);
  Result<StatsReply> Stats(const StatsRequest& request);
  Result<ListReply> List(ListWalk& walk, const std::stop_token& stop);
  Result<ShowReply> Show(const ShowRequest& request);
  Result<EditReply> Edit(const EditRequest& request);
  Result<VerifyReply> Verify(VerifyWalk& walk, const std::stop_token& stop);
  Result<TextReply> Schedule(const TextRequest& request);
  Result<TextReply> Code(const TextRequest& request);
  Result<PredictReply> Predict(const PredictRequest& request);
  Result<TopReply> Top(const TopRequest& request);
  Result<ExplainReply> Explain(const ExplainRequest& request);

  Result<Record> FindRecord(const std::string& fingerprint_digits);
  Result<Record> FindRecordOf(const KernelName& name);
  std::vector<Fact> Reasons(const Record& record) const;
  VerifyRow VerifyRecord(const Record& record, bool run);

  EventLoop& loop_;
  ScheduleCache& cache_;
  const AdminWorkshops workshops_;
  RequestPath& path_;
  Metrics& metrics_;
  const AdminFacts facts_;
  const std::function<void(const Fingerprint&)> forget_;
  std::function<std::pair<std::string, std::string>()> idle_facts_;
  std::function<TopReply()> top_;
  Insight insight_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  clockid_t loop_cpu_clock_ = 0;  // processor time of the thread that serves
  Answers answers_;               // last: its threads end before what they use goes
};

}  // namespace hone
