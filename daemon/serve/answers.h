// Answers that are made away from the event loop, part by part: a part is made when the client has taken what came
// before it, and in between the threads serve others.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "client/protocol/protocol.h"
#include "daemon/metrics.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/fair_queue.h"
#include "daemon/serve/peer.h"

namespace hone {

// What never waits for another: each has threads of its own.
enum class Lane : uint8_t {
  kQuick = 0,  // some milliseconds at most, some tens where a text has to be parsed
  kList = 1,   // walks through the cache
  kWork = 2,   // builds, runs, or thinks for long
};
inline constexpr size_t kLanes = 3;

struct AnswerPart {
  MessageType type = MessageType::kError;
  std::string body;
  bool more = false;  // another part follows

  template <typename Message>
  static AnswerPart Of(const Message& message, bool more = false) {
    return {kTypeOf<Message>, EncodeBody(message), more};
  }
  static AnswerPart Failed(const Error& error) { return Of(ToReply(error)); }
};

// Makes the next part, in a thread of its lane. `stop`: nobody wants it any more.
using MakePart = std::function<AnswerPart(const std::stop_token& stop)>;

// Used by the event loop's thread alone. In each lane the parts of all clients are made in the order that FairQueue
// gives them, those of one connection one at a time and in turns.
class Answers {
 public:
  Answers(EventLoop& loop, Metrics& metrics);
  ~Answers();  // = Close

  // Answers the request: at once with kBusy if too much is asked. `bytes`: what it holds while it waits.
  void Push(Lane lane, const PeerPtr& peer, uint64_t request_id, size_t bytes, MakePart make);
  // Runs `work` in a thread of the lane, as for a client's request; then calls `done` in the loop's thread, with false
  // if there was no room for it.
  void Run(Lane lane, std::function<void()> work, std::function<void(bool)> done);
  // The peer has taken all that was sent to it: its answers go on.
  void GoOn(const Peer& peer);
  // The peer is gone: nothing more is made for it.
  void Forget(const Peer& peer);
  // Waits for the parts that are being made, and drops them and what waits.
  void Close();

 private:
  using Key = std::pair<const Peer*, Lane>;
  struct Work {
    uint64_t number = 0;  // never that of another
    PeerPtr peer;
    uint64_t request_id = 0;
    size_t bytes = 0;
    std::shared_ptr<const MakePart> make;  // all of it that its lane's thread sees
  };
  // What one connection wants of one lane. The first has its turn: it is in the lane's queue, or waits for the client
  // to read.
  struct Talk {
    std::deque<Work> works;
    std::optional<FairQueue::Id> ticket;  // in the lane's queue
    bool is_unread = false;
  };

  FairQueue& QueueOf(const Key& key) { return *queues_[static_cast<size_t>(key.second)]; }
  Talk* TurnOf(const Key& key, uint64_t number);
  void Take(const Key& key, Work work);
  void Begin(const Key& key);
  FairQueue::Job JobOf(const Key& key, const Work& work);
  void OnMade(const Key& key, uint64_t number, AnswerPart part);
  void Refuse(const Key& key, uint64_t number, const ErrorReply& why);
  template <typename Step>
  void OrRefuse(const Key& key, uint64_t number, const Step& step);
  Work TakeFirst(const Key& key);

  EventLoop& loop_;
  Metrics& metrics_;
  std::map<Key, Talk> talks_;
  std::map<ClientId, size_t> bytes_of_;  // held by what waits
  size_t bytes_ = 0;
  uint64_t last_number_ = 0;
  std::array<std::unique_ptr<FairQueue>, kLanes> queues_;
};

}  // namespace hone
