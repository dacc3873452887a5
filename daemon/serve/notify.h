// Clients that hold code, and telling them when there is better code. What they say of their calls comes in here, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "cache/schedule_cache.h"
#include "client/protocol/protocol.h"
#include "daemon/metrics.h"
#include "daemon/serve/hot_set.h"
#include "daemon/serve/peer.h"
#include "daemon/serve/shares.h"

namespace hone {

// A connection that watches is not closed to make room for others, so there must not be too many of them. Of
// connections and watches one client has its share (daemon/serve/shares.h).
struct NotifyLimits {
  size_t connections = 1'024;
  size_t watches = 65'536;        // of all connections
  size_t watches_of_one = 4'096;  // a large model has some hundred kernels
  bool several_users = false;     // that are welcome
};

// Used by the event loop's thread alone.
class Notifier {
 public:
  Notifier(HotSet& hot, ScheduleCache& cache, Metrics& metrics, const NotifyLimits& limits)
      : hot_(hot), cache_(cache), metrics_(metrics) {
    SetLimits(limits);
  }

  // A WatchRequest, a CallsRequest. Calls count as far as they fit into the time since the watch began: what is called
  // much is refined first and kept longest, and nobody may have others wait for what he says he calls.
  void OnWatch(const PeerPtr& peer, uint64_t request_id, WatchRequest request);
  void OnCalls(const PeerPtr& peer, uint64_t request_id, const CallsRequest& request);
  void OnGone(const Peer& peer);
  void SetLimits(const NotifyLimits& limits);

  // There is better code: everyone who holds other code of the same kernel on the same target is told.
  void Announce(const NewerNotice& notice);

 private:
  struct Watch {
    std::string code;  // kernel and target, HotCode::key
    std::string digest;
    Fingerprint fingerprint;
    MonotonicTime begun{};
    uint64_t counted = 0;                            // calls since then
    std::optional<Fingerprint> class_fingerprint{};  // once it was seen: calls cannot be counted without it
    double call_us = 0;                              // what one is expected to take, as of then; 0: nobody knows

    void See(const HotCodePtr& code);
  };
  struct Listener {
    PeerPtr peer;
    std::map<uint64_t, Watch> watches;  // by their request's id
    Shares::Part connection, held;      // of connections_, watches_
  };

  Result<WatchReply> Add(const PeerPtr& peer, uint64_t id, WatchRequest request);
  void Remove(const Peer& peer, uint64_t id);
  void Count();

  HotSet& hot_;
  ScheduleCache& cache_;
  Metrics& metrics_;
  NotifyLimits limits_;
  Shares connections_{0}, watches_{0};
  std::unordered_map<const Peer*, Listener> listeners_;
  std::unordered_map<std::string, std::set<std::pair<const Peer*, uint64_t>>> by_code_;
};

}  // namespace hone
