#include "daemon/serve/shares.h"

#include "base/check.h"

namespace hone {
namespace {

// Of `whole`, of which others hold `others`: as much as that leaves free. Rounded up, so that one of one can be had.
uint64_t ShareOf(uint64_t whole, uint64_t others) { return whole > others ? (whole - others + 1) / 2 : 0; }

}  // namespace

Shares::Part& Shares::Part::operator=(Part&& other) noexcept {
  std::swap(shares_, other.shares_);
  std::swap(user_, other.user_);
  std::swap(process_, other.process_);
  std::swap(held_, other.held_);
  return *this;
}

Shares::Part::~Part() {
  if (shares_ == nullptr) return;
  Give(held_);
  if (--user_->second.parts == 0) shares_->users_.erase(user_);
  if (--process_->second.parts == 0) shares_->processes_.erase(process_);
}

bool Shares::Part::MayTake(uint64_t amount) const {
  const uint64_t all = shares_->held_, user = user_->second.held, process = process_->second.held;
  if (holds_nothing()) return all + amount <= shares_->whole_;
  uint64_t share = shares_->whole_ - shares_->whole_ / 4;
  if (shares_->several_users_) {
    share = ShareOf(share, all - user);
    return process + amount <= ShareOf(share, user - process);
  }
  return process + amount <= ShareOf(share, all - process);
}

void Shares::Part::Take(uint64_t amount) {
  held_ += amount;
  shares_->held_ += amount;
  user_->second.held += amount;
  process_->second.held += amount;
}

bool Shares::Part::TryTake(uint64_t amount) {
  if (!MayTake(amount)) return false;
  Take(amount);
  return true;
}

void Shares::Part::Give(uint64_t amount) {
  HONE_CHECK(amount <= held_);
  held_ -= amount;
  shares_->held_ -= amount;
  user_->second.held -= amount;
  process_->second.held -= amount;
}

void Shares::SetWhole(uint64_t whole, bool several_users) {
  whole_ = whole;
  several_users_ = several_users;
}

Shares::Part Shares::Of(const ClientId& client) {
  auto user = users_.try_emplace(client.uid).first;
  auto process = processes_.try_emplace(client).first;
  ++user->second.parts;
  ++process->second.parts;
  Part part;
  part.shares_ = this;
  part.user_ = user;
  part.process_ = process;
  return part;
}

}  // namespace hone
