#include "daemon/serve/hot_set.h"

#include <algorithm>
#include <new>

namespace hone {
namespace {

// A request text longer than this is parsed every time: a few of them would fill the memory that the memo may take.
constexpr size_t kLongestMemo = 64 << 10;
constexpr size_t kMemoBytes = 32 << 20;

constexpr size_t kMostForgotten = 1024;

}  // namespace

std::string RequestName(const GetRequest& request) {
  std::string name = EncodeBody(request);
  name.resize(name.size() - kGetTailBytes);
  return name;
}

HotCodePtr HotSet::Find(std::string_view request) {
  auto found = by_request_.find(request);
  if (found == by_request_.end()) return nullptr;
  memo_.splice(memo_.begin(), memo_, found->second);
  Entry& entry = *found->second->entry;
  if (entry.code != nullptr) codes_.splice(codes_.begin(), codes_, entry.position);
  return entry.code;
}

HotCodePtr HotSet::FindCode(std::string_view key) {
  auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  codes_.splice(codes_.begin(), codes_, found->second->position);
  return found->second->code;
}

std::shared_ptr<HotSet::Entry> HotSet::Hold(HotCodePtr code) {
  auto known = by_key_.find(code->key);
  std::shared_ptr<Entry> entry;
  if (known != by_key_.end() && known->second->code == code) {
    codes_.splice(codes_.begin(), codes_, known->second->position);
    entry = codes_.front();
  } else {
    if (known != by_key_.end()) Drop(*known->second);
    entry = std::make_shared<Entry>();
    entry->code = std::move(code);
    codes_.push_front(entry);
    entry->position = codes_.begin();
    try {
      by_key_.emplace(entry->code->key, entry.get());
    } catch (const std::bad_alloc&) {
      codes_.pop_front();
      throw;
    }
    bytes_ += entry->code->artifact.size();
  }
  return entry;
}

void HotSet::Insert(HotCodePtr code) {
  Hold(std::move(code));
  Trim();
}

void HotSet::Insert(std::string_view request, HotCodePtr code) {
  const std::shared_ptr<Entry> entry = Hold(std::move(code));
  if (auto old = by_request_.find(request); old != by_request_.end()) {
    old->second->entry = entry;
    memo_.splice(memo_.begin(), memo_, old->second);
  } else if (request.size() <= kLongestMemo) {
    memo_.push_front({std::string(request), entry});
    memo_bytes_ += request.size();
    by_request_.emplace(memo_.front().request, memo_.begin());
  }
  Trim();
}

void HotSet::Forget(const Fingerprint& fingerprint) {
  ++forgets_;
  forgotten_.push_back(fingerprint);
  if (forgotten_.size() > kMostForgotten) forgotten_.pop_front();
  for (auto position = codes_.begin(); position != codes_.end();) {
    std::shared_ptr<Entry> entry = *position++;
    if (entry->code->fingerprint == fingerprint) Drop(*entry);
  }
}

void HotSet::ForgetAll() {
  forgets_ += kMostForgotten + 1;
  while (!codes_.empty()) Drop(*codes_.back());
}

bool HotSet::ForgotSince(uint64_t since, const Fingerprint& fingerprint) const {
  const uint64_t count = forgets_ - since;
  if (count > forgotten_.size()) return true;
  return std::find(forgotten_.end() - static_cast<ptrdiff_t>(count), forgotten_.end(), fingerprint) != forgotten_.end();
}

void HotSet::SetLimits(const HotLimits& limits) {
  limits_ = limits;
  Trim();
}

void HotSet::Drop(Entry& entry) {
  bytes_ -= entry.code->artifact.size();
  by_key_.erase(entry.code->key);
  entry.code = nullptr;
  codes_.erase(entry.position);  // the last: it may be what keeps the entry
}

void HotSet::Trim() {
  // The newest stays even if it alone is over the limit: it is about to be handed out.
  while (codes_.size() > 1 && (bytes_ > limits_.bytes || codes_.size() > limits_.entries)) Drop(*codes_.back());
  while (!memo_.empty() && (memo_.size() > limits_.memo_entries || memo_bytes_ > kMemoBytes)) {
    memo_bytes_ -= memo_.back().request.size();
    by_request_.erase(memo_.back().request);
    memo_.pop_back();
  }
}

}  // namespace hone
