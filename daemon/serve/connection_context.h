// What connections share: limits, what their clients hold, and the turns of those that hold answers back.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "daemon/metrics.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/peer.h"
#include "daemon/serve/shares.h"
#include "daemon/serve/unread.h"

namespace hone {

struct ConnectionLimits {
  uint32_t requests = 64;  // unanswered; then nothing more is read
  std::chrono::milliseconds frame_time{30'000};
  std::chrono::milliseconds stall_time{10'000};
};

class Connection;

// Used by the event loop's thread alone.
class ConnectionContext : public std::enable_shared_from_this<ConnectionContext> {
 public:
  ConnectionContext(EventLoop& loop, FrameHandler& handler, Metrics& metrics)
      : handler(handler), metrics(metrics), loop_(loop) {}

  // It has just begun to hold answers back: it has its turn within milliseconds, and again until it has sent them all.
  void AddTurn(std::weak_ptr<Connection> connection);
  // Looks what was read of all that is on its way, but not more than once a millisecond, nor while turns are taken.
  // False: it was too soon.
  bool LookAround();
  // A closed connection whose client has not read its descriptors yet: they count until it has, or is gone.
  void Linger(UniqueFd socket, std::unique_ptr<Unread> unread, Shares::Part connection);
  void Sweep();  // what lingers, and turns that are not planned

  FrameHandler& handler;  // called until the connection is closed
  Metrics& metrics;
  ConnectionLimits limits;
  Shares connections{0};
  Shares frame_bytes{0};  // of requests, unfinished or without their answer
  Shares descriptors{0};  // on their way
  Unread::List unread;

 private:
  struct Lingering {
    UniqueFd socket;
    std::unique_ptr<Unread> unread;
    Shares::Part connection;
  };
  void PlanTurns(std::chrono::milliseconds delay);
  void TakeTurns();
  void LookAtAll();

  EventLoop& loop_;
  std::vector<Lingering> lingering_;
  std::vector<std::weak_ptr<Connection>> turns_;  // of connections that hold answers back, once each
  uint64_t plans_ = 0, plan_ = 0;                 // the turns' timers so far, and which of them counts; 0: none
  std::chrono::milliseconds delay_{};             // longer while nobody reads
  std::chrono::steady_clock::time_point looked_around_{};
  bool takes_turns_ = false;
};

}  // namespace hone
