// Memory that executors write in turns.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>

#include "client/api/kernel_version.h"

namespace hone {

// Not thread-safe.
class SharedArena {
 public:
  using Memory = std::shared_ptr<std::byte>;

  // At least so many bytes, aligned to 64: those that others have where they suffice, else new ones, zeros. Sizes are
  // powers of two, so that executors that want ever more have few arenas between them. nullptr: no memory.
  Memory Take(int64_t bytes) {
    if (memory_ == nullptr || bytes_ < bytes) {
      bytes_ = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(bytes, 64))));
      AlignedBytes fresh = AllocateAligned(bytes_);
      if (fresh) std::memset(fresh.get(), 0, static_cast<size_t>(bytes_));
      memory_ = Memory(static_cast<std::byte*>(fresh.release()), FreeAligned());
    }
    return memory_;
  }

 private:
  Memory memory_;
  int64_t bytes_ = 0;
};

}  // namespace hone
