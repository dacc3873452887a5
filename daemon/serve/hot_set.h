// What hits are answered from: code in sealed descriptors, and which kernel each request text stands for. Both bounded,
// least recently used out first. Everything a hit needs is found with one hash of the request's text.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/sealed_memfd.h"
#include "client/protocol/protocol.h"
#include "ir/language/fingerprint.h"

namespace hone {

// Code ready to be handed out. Immutable but for `uses`, which belongs to the I/O thread.
struct HotCode {
  std::string key;  // names the kernel and the target: one entry each
  Fingerprint fingerprint;
  Fingerprint class_fingerprint;
  GetReply reply;        // as a hit
  std::string hit_body;  // the same, encoded
  SealedMemfd artifact;
  mutable uint64_t uses = 0;  // since they were last reported to the cache
};
using HotCodePtr = std::shared_ptr<const HotCode>;

struct HotLimits {
  uint64_t bytes = 0;
  size_t entries = 0;
  size_t memo_entries = 0;
};

// Used by the I/O thread alone.
class HotSet {
 public:
  explicit HotSet(const HotLimits& limits) : limits_(limits) {}

  // By the request's name (RequestName) or by HotCode::key; nullptr if it is not here. Becomes the most recently used.
  HotCodePtr Find(std::string_view request);
  HotCodePtr FindCode(std::string_view key);

  // Adds or replaces code, and remembers that the request stands for it.
  void Insert(std::string_view request, HotCodePtr code);
  // The same of code that no request is to stand for.
  void Insert(HotCodePtr code);
  // Every target's code of a kernel.
  void Forget(const Fingerprint& fingerprint);
  void ForgetAll();
  uint64_t forgets() const { return forgets_; }  // how often
  // What was looked up of that kernel when forgets() was `since` is out of date: it was forgotten meanwhile, or so many
  // were that nobody knows.
  bool ForgotSince(uint64_t since, const Fingerprint& fingerprint) const;
  void SetLimits(const HotLimits& limits);

  // Calls visit(code, uses) for what was used since the last call.
  template <typename Visit>
  void TakeUses(const Visit& visit) {
    for (const std::shared_ptr<Entry>& entry : codes_) {
      if (uint64_t uses = std::exchange(entry->code->uses, 0)) visit(*entry->code, uses);
    }
  }

  uint64_t bytes() const { return bytes_; }
  size_t entries() const { return codes_.size(); }

 private:
  struct Entry {
    HotCodePtr code;  // nullptr once it was dropped: requests that stood for it stay known for a while
    std::list<std::shared_ptr<Entry>>::iterator position;
  };
  using CodeList = std::list<std::shared_ptr<Entry>>;  // most recently used first
  struct Memo {
    std::string request;
    std::shared_ptr<Entry> entry;
  };
  using MemoList = std::list<Memo>;

  std::shared_ptr<Entry> Hold(HotCodePtr code);
  void Drop(Entry& entry);
  void Trim();

  HotLimits limits_;
  uint64_t bytes_ = 0;
  uint64_t forgets_ = 0;
  std::deque<Fingerprint> forgotten_;  // the last ones
  CodeList codes_;
  MemoList memo_;
  size_t memo_bytes_ = 0;
  std::unordered_map<std::string_view, Entry*> by_key_;                  // views into HotCode::key
  std::unordered_map<std::string_view, MemoList::iterator> by_request_;  // views into Memo::request
};

// What decides which code a request gets, as one string: its encoded body without the tail.
std::string RequestName(const GetRequest& request);

}  // namespace hone
