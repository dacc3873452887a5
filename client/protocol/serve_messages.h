// What programs ask for: code, word of better code, and how often they called it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/protocol/message_traits.h"

namespace hone {

// Asks for code. What decides which code comes first: requests for the same code have equal bytes up to the last
// kGetTailBytes, so that a hit is found without decoding.
struct GetRequest {
  std::string kernel{};      // anything ParseKernel reads
  std::string target{};      // ParseTarget's text; "" is the daemon's machine
  uint32_t threads = 0;      // overrides the kernel's own `threads` if that is 0
  uint64_t budget_us = 0;    // how long the client would wait for better code; 0: as long as one build takes
  bool no_compile = false;   // a miss is kNotFound
  bool no_artifact = false;  // the facts alone, no descriptor
  HONE_FIELDS(kernel, target, threads, budget_us, no_compile, no_artifact)
};
inline constexpr size_t kGetTailBytes = 10;  // budget_us, no_compile, no_artifact
struct StepTime {
  std::string step;
  double us = 0;
  HONE_FIELDS(step, us)
};
struct GetReply {
  std::string fingerprint;  // 32 hex digits
  std::string class_name;   // "conv2d+bias+relu"
  std::string target;       // PrintTarget
  bool hit = false;
  bool pinned = false;
  std::string origin;           // tuned, transferred, default, imported
  double expected_us = 0;       // of one call; 0: not measured yet
  std::string digest;           // of the artifact: 32 bytes, BLAKE2b-256
  uint64_t size = 0;            // of the artifact, bytes
  std::string manifest;         // EncodeManifest
  std::vector<StepTime> steps;  // where a miss' time went; empty on a hit
  double confidence = 0;        // 0 … 1: how sure it is that little is left to win; 1 once tuned
  HONE_FIELDS(fingerprint, class_name, target, hit, pinned, origin, expected_us, digest, size, manifest, steps,
              confidence)
};

// Says that code is held, so that honed tells when it has better code: by a NewerNotice with this request's id each
// time, until the connection closes or a request with the same id and `watch` false. The code itself is asked for as
// any other.
struct WatchRequest {
  bool watch = true;
  std::string fingerprint;  // 32 hex digits; this and the next as in the GetReply
  std::string target;
  std::string digest;  // of the code that is held
  HONE_FIELDS(watch, fingerprint, target, digest)
};
struct WatchReply {
  bool is_current = false;  // what is held is what would be served now; false: it is not, or honed cannot tell at once
  HONE_FIELDS(is_current)
};
struct NewerNotice {
  std::string fingerprint;
  std::string target;
  std::string digest;  // of the better code
  HONE_FIELDS(fingerprint, target, digest)
};

// How often kernels were called since this was said last, so that honed refines first what is used most.
struct CallCount {
  uint64_t watch = 0;  // id of the WatchRequest, on this connection
  uint64_t calls = 0;
  HONE_FIELDS(watch, calls)
};
struct CallsRequest {
  std::vector<CallCount> counts;
  HONE_FIELDS(counts)
};
struct CallsReply {
  HONE_FIELDS()
};

}  // namespace hone
