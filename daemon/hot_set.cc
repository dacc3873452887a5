#include "daemon/hot_set.h"

namespace hone {
namespace {

// A request text longer than this is parsed every time: a few of them would fill the memory that the memo may take.
constexpr size_t kLongestMemo = 64 << 10;
constexpr size_t kMemoBytes = 32 << 20;

}  // namespace

std::string RequestName(const GetRequest& request) {
  // Sizes first, so that no two requests have one name, whatever bytes they hold.
  uint32_t head[2] = {request.threads, static_cast<uint32_t>(request.target.size())};
  std::string name;
  name.reserve(sizeof head + request.target.size() + request.kernel.size());
  name.append(reinterpret_cast<const char*>(head), sizeof head);
  name += request.target;
  name += request.kernel;
  return name;
}

HotCodePtr HotSet::Find(std::string_view request) {
  auto found = by_request_.find(request);
  if (found == by_request_.end()) return nullptr;
  memo_.splice(memo_.begin(), memo_, found->second);
  return FindCode(found->second->key);
}

HotCodePtr HotSet::FindCode(std::string_view key) {
  auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  codes_.splice(codes_.begin(), codes_, found->second);
  return *found->second;
}

void HotSet::Insert(std::string_view request, HotCodePtr code) {
  if (auto old = by_key_.find(code->key); old != by_key_.end()) Drop(old->second);
  codes_.push_front(std::move(code));
  by_key_.emplace(codes_.front()->key, codes_.begin());
  bytes_ += codes_.front()->artifact.size();
  if (auto old = by_request_.find(request); old != by_request_.end()) {
    old->second->key = codes_.front()->key;
    memo_.splice(memo_.begin(), memo_, old->second);
  } else if (request.size() <= kLongestMemo) {
    memo_.push_front({std::string(request), codes_.front()->key});
    memo_bytes_ += request.size();
    by_request_.emplace(memo_.front().request, memo_.begin());
  }
  Trim();
}

void HotSet::Forget(const Fingerprint& fingerprint) {
  for (auto code = codes_.begin(); code != codes_.end();) {
    auto next = std::next(code);
    if ((*code)->fingerprint == fingerprint) Drop(code);
    code = next;
  }
}

void HotSet::SetLimits(const HotLimits& limits) {
  limits_ = limits;
  Trim();
}

void HotSet::Drop(CodeList::iterator code) {
  bytes_ -= (*code)->artifact.size();
  by_key_.erase((*code)->key);
  codes_.erase(code);
}

void HotSet::Trim() {
  // The newest stays even if it alone is over the limit: it is about to be handed out.
  while (codes_.size() > 1 && (bytes_ > limits_.bytes || codes_.size() > limits_.entries)) {
    Drop(std::prev(codes_.end()));
  }
  while (!memo_.empty() && (memo_.size() > limits_.memo_entries || memo_bytes_ > kMemoBytes)) {
    memo_bytes_ -= memo_.back().request.size();
    by_request_.erase(memo_.back().request);
    memo_.pop_back();
  }
}

}  // namespace hone
