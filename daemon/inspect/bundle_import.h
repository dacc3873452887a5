// Takes a bundle up: looks at all of it first, then stores its records, some at a time. A schedule is data, taken from
// anybody, and compiled and checked here. Code is taken only from a trusted key, and checked here before it is served.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/sealed_memfd.h"
#include "cache/bundle/bundle.h"
#include "cache/bundle/trusted_keys.h"
#include "cache/schedule_cache.h"
#include "client/protocol/messages.h"
#include "daemon/serve/devices.h"
#include "daemon/serve/get_ready.h"

namespace hone {

// Not thread-safe. The cache outlives it.
class BundleImport {
 public:
  // Everything is checked, and nothing changed: the signature, whose it is, that it follows what was imported of that
  // key and name before, every part of it. `devices` outlive it: code that something else than their backends built is
  // compiled again from its schedule. Errors: those of Bundle, TrustedKeys::Judge and CheckFollows.
  static Result<BundleImport> Open(ReadOnlyMapping bytes, const TrustedKeys& keys, ScheduleCache& cache,
                                   const Devices& devices, WallTime now);

  // Stores the next records, synced, and says what became of them. kLimit, kIo: what the message says has been stored,
  // and another import of the same bundle goes on from there.
  Result<ImportReply> Next();

  // The records that were changed so far.
  const std::vector<Imported>& changed() const { return changed_; }

 private:
  // What can be taken; of what cannot, which may be large, only what is said of it.
  using Planned = std::variant<BundleEntry, ImportRow>;
  BundleImport(ReadOnlyMapping bytes, ScheduleCache& cache, const Devices& devices)
      : bytes_(std::move(bytes)), cache_(&cache), devices_(&devices) {}

  std::string PredecessorName() const;
  Result<void> FollowsLast() const;  // CheckFollows, of the last one of its key and name
  Result<void> Read();
  // What becomes of a record, and why; it is stored if that is "added" or "replaced".
  Result<ImportRow> Take(const BundleEntry& entry, Durability durability);

  ReadOnlyMapping bytes_;
  ScheduleCache* cache_;
  const Devices* devices_;
  std::optional<Bundle> bundle_;
  Judgement judgement_;
  std::vector<Planned> planned_;
  size_t next_ = 0;
  uint64_t artifacts_ = 0, artifacts_left_ = 0;
  std::string why_left_;
  std::vector<Imported> changed_;
};

}  // namespace hone
