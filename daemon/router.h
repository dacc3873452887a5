// Hands each request to what answers it (daemon/routes.h). Hits end here, in the loop's thread.
#pragma once

#include <span>

#include "daemon/routes.h"
#include "daemon/serve/answers.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/peer.h"

namespace hone {

// Used by the event loop's thread alone.
class Router : public FrameHandler {
 public:
  Router(EventLoop& loop, Services services, std::span<const Route> routes)
      : services_(services), routes_(routes), answers_(loop, services.metrics) {}
  ~Router() override { Close(); }

  void OnRequest(const PeerPtr& peer, const FrameHeader& header, std::span<const std::byte> body) override;
  void OnTaken(const Peer& peer) override { answers_.GoOn(peer); }
  void OnGone(const Peer& peer) override;

  // Does what no client asked for the way that quick questions go: Answers::Run.
  void RunQuickly(std::function<void()> work, std::function<void(bool)> done) {
    answers_.Run(Lane::kQuick, std::move(work), std::move(done));
  }

  // Ends what the lanes are at, drops what waits for them, and shuts the admin's own pools down.
  void Close();

 private:
  bool AnswerFromMemory(const Asked& asked, std::span<const std::byte> body);

  Services services_;
  const std::span<const Route> routes_;
  Answers answers_;  // last: its threads end before what they use goes
};

}  // namespace hone
