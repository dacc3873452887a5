// Records of the cache as bundles hold them, for what is written on this side: honed never sees a secret key.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "cache/bundle/bundle.h"
#include "client/cli/context.h"
#include "client/protocol/messages.h"

namespace hone::cli {

struct GatheredRecords {
  using Code = std::map<Digest256, std::vector<std::byte>>;
  std::vector<BundleEntry> entries;
  Code code;  // of those that have some
};

// What an ExportRequest selects; none is an empty list. kCorrupt: code that is not its record's.
Result<GatheredRecords> GatherRecords(Context& context, const ExportRequest& request);

}  // namespace hone::cli
