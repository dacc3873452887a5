// What honed and the hone-runner of another machine say to each other, over any stream that somebody set up (ssh). To
// honed the device is a stranger: what it sends is decoded like anything from outside, and believed only as far as it
// can be true. Frames are those of child_channel.h, without descriptors; questions and answers those of a runner here,
// but for:
//
//   hello    ::= "hone-runner" version:u16 abi:u32 program:string target:string     from the device, first, with id 0
//   alive    ::=                        from the device with id 0, about once a second while it is at work
//   artifact ::= bytes                  to the device, which keeps the last eight that were sent or named; no answer
//   ask      ::= digest{32} options     kCheck, kTime: of an artifact that it keeps
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/processes/runner_pool.h"
#include "base/hash.h"
#include "base/result.h"
#include "ir/target.h"

namespace hone {

inline constexpr uint16_t kRemoteVersion = 1;  // of everything above, and of a runner's questions and answers
inline constexpr size_t kRemoteArtifactBytes = size_t{32} << 20;

struct RemoteHello {
  std::string program;  // "hone-runner 0.1.0"
  Target target;
};
std::string EncodeHello(const RemoteHello& hello);
// kUnsupported: another version of the channel or of code's interface; kInvalid: no target that there is; kCorrupt.
Result<RemoteHello> DecodeHello(std::string_view body);

// An artifact's digest, and what is asked of it.
std::string EncodeAsk(const Digest256& artifact, std::string_view options);
Result<std::pair<Digest256, std::string_view>> DecodeAsk(std::string_view body);

// What a device says of itself or of code, for people: one line, and not a long one.
std::string Printable(std::string_view text);
Error Printable(Error error);

// Why an answer cannot be true. `elapsed_us`: from the question to the answer, as we saw it; `flops`: of one call, 0:
// not known.
Result<void> CheckPlausible(const CheckReport& report, const CheckOptions& asked, double elapsed_us);
Result<void> CheckPlausible(const RunTiming& timing, const TimeOptions& asked, double flops, double elapsed_us);

// The artifacts that a device keeps. Both sides hold the same ones, by the same rule: the last that were sent or named.
template <typename Value>
class KeptArtifacts {
 public:
  Value* Find(const Digest256& digest) {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& each) { return each.first == digest; });
    if (found == kept_.end()) return nullptr;
    std::rotate(kept_.begin(), found, found + 1);
    return &kept_.front().second;
  }
  void Put(const Digest256& digest, Value value) {
    if (Value* there = Find(digest); there != nullptr) {
      *there = std::move(value);
      return;
    }
    kept_.emplace(kept_.begin(), digest, std::move(value));
    if (kept_.size() > kMost) kept_.pop_back();
  }

 private:
  static constexpr size_t kMost = 8;
  std::vector<std::pair<Digest256, Value>> kept_;
};

}  // namespace hone
