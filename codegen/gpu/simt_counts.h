// What memory has to do for the accesses of a warp at one instruction.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "codegen/gpu/simt_run.h"

namespace hone::simt {

class AccessCounts {
 public:
  // A warp, an instruction of it, how often it came there before, and whether it is of block storage.
  using Key = std::tuple<int64_t, size_t, int64_t, bool>;
  // Bytes of the buffer that a thread touches, from … to.
  void Add(const Key& key, int64_t begin, int64_t end) { touched_[key].emplace_back(begin, end); }
  // Sectors of global memory and passes over banks; then forgets it all.
  void AddTo(SimtReport& report);

 private:
  std::map<Key, std::vector<std::pair<int64_t, int64_t>>> touched_;
};

}  // namespace hone::simt
