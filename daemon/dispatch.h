// What each message does. Hits end here, in the loop's thread; everything else is handed on.
#pragma once

#include <memory>

#include "daemon/admin.h"
#include "daemon/event_loop.h"
#include "daemon/hot_set.h"
#include "daemon/metrics.h"
#include "daemon/misses.h"
#include "daemon/notify.h"
#include "daemon/peer.h"
#include "daemon/tuning.h"

namespace hone {

// Used by the event loop's thread alone.
class Dispatch : public FrameHandler {
 public:
  // `misses`, `tuning` and `notifier` are nullptr in a daemon that only looks: then nothing is served and nothing
  // refined.
  Dispatch(HotSet& hot, Misses* misses, Tuning* tuning, Notifier* notifier, Admin& admin, Metrics& metrics);

  void OnRequest(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body) override;
  void OnTaken(const Peer& peer) override;
  void OnGone(const Peer& peer) override;

 private:
  void OnHello(const PeerPtr& peer, uint64_t request_id, std::span<const std::byte> body);
  void OnGet(const PeerPtr& peer, uint64_t request_id, std::span<const std::byte> body);

  HotSet& hot_;
  Misses* const misses_;
  Tuning* const tuning_;
  Notifier* const notifier_;
  Admin& admin_;
  Metrics& metrics_;
};

}  // namespace hone
