#include "daemon/serve/waiter.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace hone {

// What needs memory comes before it counts as answered: whoever finds none answers that.
void Waiter::Answer(const HotCodePtr& answer) {
  if (is_answered) return;
  if (steps.empty() && !no_artifact) {
    is_answered = true;
    return peer->ReplyHit(request_id, answer);
  }
  std::string body = answer->hit_body;
  if (!steps.empty()) {
    GetReply reply = answer->reply;
    reply.hit = false;
    reply.steps = steps;
    body = EncodeBody(reply);
  }
  is_answered = true;
  if (steps.empty()) return peer->Reply(request_id, MessageType::kGetReply, std::move(body));
  peer->ReplyWithCode(request_id, std::move(body), no_artifact ? nullptr : answer);
}

void Waiter::AnswerError(const Error& error, uint32_t retry_after_ms) {
  if (code) return Answer(code);
  if (is_answered) return;
  std::string body = EncodeBody(ToReply(error, retry_after_ms));
  is_answered = true;
  peer->Reply(request_id, kTypeOf<ErrorReply>, std::move(body));
}

std::chrono::microseconds Waiter::Left() const {
  if (budget.count() == 0) return budget;
  auto left = std::chrono::duration_cast<std::chrono::microseconds>(until - WaitClock::now());
  return std::max(left, std::chrono::microseconds(0));
}

void AddWaiter(Waiters& waiters, WaiterPtr waiter) {
  if (waiters.size() == waiters.capacity()) {
    Waiters kept;
    std::unordered_set<const Peer*> told;
    for (const WaiterPtr& other : waiters)
      if (!other->is_answered || told.insert(other->peer.get()).second) kept.push_back(other);
    kept.reserve(std::max<size_t>(16, 2 * kept.size()));
    waiters = std::move(kept);
  }
  waiters.push_back(std::move(waiter));
}

size_t EraseWaitersOf(const Peer& peer, Waiters& waiters) {
  size_t waited = 0;
  std::erase_if(waiters, [&](const WaiterPtr& waiter) {
    if (waiter->peer.get() != &peer) return false;
    waited += waiter->is_answered ? 0 : 1;
    waiter->is_answered = true;
    return true;
  });
  return waited;
}

Budgets::Budgets(EventLoop& loop, std::function<void(const WaiterPtr&)> on_end)
    : on_end_(std::move(on_end)), timer_(loop) {}

void Budgets::Add(const WaiterPtr& waiter) {
  if (waiter->budget.count() == 0) return;
  if (ends_.size() >= sweep_at_) {
    std::erase_if(ends_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max<size_t>(1024, 2 * ends_.size());
  }
  auto entry = ends_.emplace(waiter->until, waiter);
  if (entry == ends_.begin()) Arm();
}

void Budgets::Arm() {
  if (!ends_.empty()) timer_.Set(ends_.begin()->first, [this] { OnTimer(); });
}

void Budgets::OnTimer() {
  const WaitClock::time_point now = WaitClock::now();
  while (!ends_.empty() && ends_.begin()->first <= now) {
    WaiterPtr waiter = ends_.begin()->second.lock();
    ends_.erase(ends_.begin());
    if (waiter && !waiter->is_answered) on_end_(waiter);
  }
  Arm();
}

}  // namespace hone
