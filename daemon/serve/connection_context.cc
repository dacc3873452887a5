#include "daemon/serve/connection_context.h"

#include <sys/socket.h>

#include <algorithm>
#include <new>
#include <utility>

#include "daemon/serve/connection.h"

namespace hone {
namespace {

constexpr std::chrono::milliseconds kFirstDelay{1}, kLongestDelay{8};

}  // namespace

void ConnectionContext::AddTurn(std::weak_ptr<Connection> connection) {
  turns_.push_back(std::move(connection));
  if (plan_ == 0 || delay_ > kFirstDelay) PlanTurns(kFirstDelay);
}

void ConnectionContext::PlanTurns(std::chrono::milliseconds delay) {
  loop_.After(delay, [self = shared_from_this(), plan = plans_ + 1] {
    if (plan == self->plan_) self->TakeTurns();
  });
  delay_ = delay;
  plan_ = ++plans_;
}

void ConnectionContext::TakeTurns() {
  plan_ = 0;
  bool any_sent = false;
  const size_t count = turns_.size();  // more may come behind them meanwhile
  auto for_each = [&](auto&& work) {   // its last handlers may hold one that is closed
    for (size_t i = 0; i < count; ++i)
      if (std::shared_ptr<Connection> connection = turns_[i].lock(); connection && !connection->closed())
        work(*connection);
  };
  // Who has read gets what that made room for, before others of its client do that have not.
  LookAtAll();
  {
    struct Reset {  // whatever is thrown
      bool& flag;
      ~Reset() { flag = false; }
    } reset{takes_turns_};
    takes_turns_ = true;
    for_each([&](Connection& connection) { any_sent |= connection.SendHeldBack(connection.TakeRead()); });
    for_each([&](Connection& connection) { any_sent |= connection.SendHeldBack(); });
  }
  std::erase_if(turns_, [](const std::weak_ptr<Connection>& turn) {
    const std::shared_ptr<Connection> connection = turn.lock();
    return !connection || !connection->KeepsTurn();
  });
  if (!turns_.empty() && plan_ == 0) PlanTurns(any_sent ? kFirstDelay : std::min(delay_ * 2, kLongestDelay));
}

bool ConnectionContext::LookAround() {
  if (takes_turns_ || std::chrono::steady_clock::now() - looked_around_ < kFirstDelay) return false;
  LookAtAll();
  return true;
}

void ConnectionContext::LookAtAll() {
  looked_around_ = std::chrono::steady_clock::now();
  for (auto next = unread.begin(); next != unread.end();) (next++)->Look();
}

void ConnectionContext::Linger(UniqueFd socket, std::unique_ptr<Unread> unread, Shares::Part connection) {
  shutdown(socket.get(), SHUT_RDWR);
  try {
    lingering_.push_back({std::move(socket), std::move(unread), std::move(connection)});
  } catch (const std::bad_alloc&) {  // closed, and not counted
  }
  metrics.connections_lingering = static_cast<uint32_t>(lingering_.size());
}

void ConnectionContext::Sweep() {
  if (!turns_.empty() && plan_ == 0) PlanTurns(kFirstDelay);  // there was no memory for it
  std::erase_if(lingering_, [](Lingering& lingering) {
    lingering.unread->Look();
    return lingering.unread->empty();
  });
  metrics.connections_lingering = static_cast<uint32_t>(lingering_.size());
}

}  // namespace hone
