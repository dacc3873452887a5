// What memory has to do for the accesses of a warp at one instruction.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "codegen/gpu/simt_run.h"

namespace hone::simt {

// Bytes of a buffer, from … to, that a thread of a warp touches at an instruction.
using Bytes = std::pair<int64_t, int64_t>;
// Sectors of global memory (32 bytes) that they lie in.
int64_t SectorsOf(std::span<const Bytes> touched);
// How often block storage is passed over for them: 32 banks of 4 bytes, one word of each at a time. As many threads at
// a time, in their order, as could touch 128 bytes.
int64_t PassesOf(std::span<const Bytes> touched);
// The same if no two of its words lay in one bank.
int64_t LeastPassesOf(std::span<const Bytes> touched);

class AccessCounts {
 public:
  // A warp, an instruction of it, how often it came there before, and whether it is of block storage.
  using Key = std::tuple<int64_t, size_t, int64_t, bool>;
  void Add(const Key& key, int64_t begin, int64_t end) { touched_[key].emplace_back(begin, end); }
  // Sectors of global memory and passes over banks; then forgets it all.
  void AddTo(SimtReport& report);

 private:
  std::map<Key, std::vector<Bytes>> touched_;
};

}  // namespace hone::simt
