// What Prometheus fetches: `GET /metrics` over HTTP on a port of the loopback, for those who cannot ask over the
// socket. Whoever is on the machine may read it: counters and times, nothing of what is computed for whom.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/serve/event_loop.h"

namespace hone {

struct LoopbackPort {
  std::string address;  // "127.0.0.1", "::1"
  uint16_t port = 0;    // 0: any that is free
};

// "127.0.0.1:9464", "[::1]:9464"; nullopt for what is none, or is not the loopback's. Names are not resolved.
std::optional<LoopbackPort> ParseLoopbackPort(std::string_view text);

struct MetricsPortLimits {
  size_t connections = 8;                 // one more closes the oldest
  size_t request_bytes = 8 << 10;         // up to the empty line
  std::chrono::milliseconds time{5'000};  // from its beginning to its end, for a connection
};

// Used by the event loop's thread alone.
class MetricsPort {
 public:
  // Makes the text away from the loop; then calls `made` in the loop's thread, with nullopt if there was no room for
  // it.
  using Text = std::optional<std::string>;
  using Make = std::function<void(std::function<void(Text)> made)>;

  // kIo: the port is taken, or must not be.
  static Result<std::unique_ptr<MetricsPort>> Open(EventLoop& loop, const LoopbackPort& where, Make make,
                                                   const MetricsPortLimits& limits = {});
  ~MetricsPort();  // closes what is open

  uint16_t port() const;
  size_t connections() const;

 private:
  struct Impl;
  explicit MetricsPort(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace hone
