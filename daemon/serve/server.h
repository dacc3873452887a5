// Accepts clients: checks who they are, keeps their number bounded, closes those that stall.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/metrics.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/peer.h"

namespace hone {

struct ServerLimits {
  uint32_t connections = 2'048;  // of all; one client: its share (daemon/serve/shares.h), as of the next two
  uint32_t descriptors = 256;    // sent and not read yet
  uint64_t frame_bytes = uint64_t{64} << 20;  // of requests, unfinished or without their answer
  uint32_t requests = 64;
  std::chrono::milliseconds frame_time{30'000};
  std::chrono::milliseconds stall_time{10'000};
  std::vector<uid_t> users;  // besides our own
  bool any_user = false;

  bool several_users() const { return any_user || !users.empty(); }
};

// Everything in the loop's thread.
class Server {
 public:
  Server(EventLoop& loop, FrameHandler& handler, Metrics& metrics, const ServerLimits& limits);
  ~Server();

  void Accept(UniqueFd listening_socket);  // from now on
  // One end of a pair; the other is trusted and counts as `client`'s.
  void Adopt(UniqueFd connected_socket, const ClientId& client = {geteuid(), getpid()});
  void SetLimits(const ServerLimits& limits);
  void StopAccepting();
  // Calls `done` with true, and accepts nobody from then on, if there is no connection, not even one that was accepted
  // this moment; else with false, and goes on.
  void StopAcceptingIfAlone(std::function<void(bool)> done);
  // Calls `done` when every answer that is owed was sent, or `limit` passed; then closes all connections.
  void Drain(std::chrono::milliseconds limit, std::function<void()> done);
  size_t connections() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hone
