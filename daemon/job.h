// One request that is answered away from the event loop: who asked, and how to answer from another thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "client/protocol.h"
#include "daemon/event_loop.h"
#include "daemon/peer.h"

namespace hone {

// Bytes that wait in one connection before the next part of a long answer is made.
constexpr size_t kMostUnsent = 1 << 20;

struct Job {
  EventLoop* loop;
  PeerPtr peer;
  uint64_t id;
  std::shared_ptr<std::atomic<int>> posted = std::make_shared<std::atomic<int>>(0);

  void Answer(MessageType type, std::string body) const {
    loop->Post(
        [peer = peer, id = id, type, body = std::move(body)]() mutable { peer->Reply(id, type, std::move(body)); });
  }
  void AnswerError(const Error& error) const { Answer(MessageType::kError, EncodeBody(ToReply(error))); }

  // One part of a longer answer; waits while the client is behind. False if nobody listens any more.
  template <typename Message>
  bool Part(const Message& message) const {
    ++*posted;
    loop->Post([peer = peer, id = id, posted = posted, body = EncodeBody(message)]() mutable {
      --*posted;
      peer->ReplyPart(id, Message::kType, std::move(body));
    });
    while (!peer->closed() && (*posted > 2 || peer->unsent() > kMostUnsent)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return !peer->closed();
  }
};

}  // namespace hone
