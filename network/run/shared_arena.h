// Memory that executors write in turns.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hone {

// Not thread-safe.
class SharedArena {
 public:
  using Memory = std::shared_ptr<std::byte>;

  // At least so many bytes, aligned to a large page: those that others have where they suffice, else new ones, zeros
  // that take memory once they are touched. Sizes are powers of two, so that executors that want ever more have few
  // arenas between them. nullptr: no memory.
  Memory Take(int64_t bytes) {
    if (memory_ == nullptr || bytes_ < static_cast<size_t>(bytes)) {
      bytes_ = std::bit_ceil(static_cast<size_t>(std::max<int64_t>(bytes, 4096)));
      memory_ = Map(bytes_);
    }
    return memory_;
  }

 private:
  static constexpr size_t kLargePage = size_t{2} << 20;

  static Memory Map(size_t bytes) {
    const size_t mapped = bytes < kLargePage ? bytes : bytes + kLargePage;
    void* begin = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) return nullptr;
    auto* at = static_cast<std::byte*>(begin);
    if (mapped > bytes) {
      at += (kLargePage - reinterpret_cast<uintptr_t>(begin) % kLargePage) % kLargePage;
      (void)madvise(at, bytes, MADV_HUGEPAGE);  // advice; it may be refused
    }
    return Memory(at, [begin, mapped](std::byte*) { munmap(begin, mapped); });
  }

  Memory memory_;
  size_t bytes_ = 0;
};

}  // namespace hone
