// Memory between two pages that nobody may touch, so that one element read or written outside ends the process.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace hone {

class GuardedBuffer {
 public:
  enum class Against { kStart, kEnd };  // which end of the memory lies at an untouchable page

  // `bytes` bytes, all `fill`. What is left between them and the other page is watched by Intact().
  GuardedBuffer(int64_t bytes, int64_t alignment, Against against, uint8_t fill) : bytes_(bytes) {
    size_t inner = (static_cast<size_t>(bytes) + kPage - 1) / kPage * kPage;
    mapped_ = inner + 2 * kPage;
    memory_ = static_cast<uint8_t*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    HONE_CHECK(memory_ != MAP_FAILED);
    if (inner > 0) HONE_CHECK(mprotect(memory_ + kPage, inner, PROT_READ | PROT_WRITE) == 0);
    std::memset(memory_ + kPage, kPattern, inner);
    size_t taken = (static_cast<size_t>(bytes) + static_cast<size_t>(alignment) - 1) / static_cast<size_t>(alignment) *
                   static_cast<size_t>(alignment);
    data_ = memory_ + kPage + (against == Against::kStart ? 0 : inner - taken);
    std::memset(data_, fill, static_cast<size_t>(bytes));
  }
  GuardedBuffer(GuardedBuffer&& other) noexcept
      : bytes_(other.bytes_),
        mapped_(other.mapped_),
        memory_(std::exchange(other.memory_, nullptr)),
        data_(other.data_) {}
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;
  ~GuardedBuffer() {
    if (memory_) munmap(memory_, mapped_);
  }

  void* data() { return data_; }
  const void* data() const { return data_; }
  int64_t size() const { return bytes_; }

  void MakeReadOnly() {
    if (mapped_ > 2 * kPage) HONE_CHECK(mprotect(memory_ + kPage, mapped_ - 2 * kPage, PROT_READ) == 0);
  }

  // Whether everything around the bytes is as it was.
  bool Intact() const {
    auto untouched = [](const uint8_t* begin, const uint8_t* end) {
      return std::all_of(begin, end, [](uint8_t byte) { return byte == kPattern; });
    };
    return untouched(memory_ + kPage, data_) && untouched(data_ + bytes_, memory_ + mapped_ - kPage);
  }

 private:
  static constexpr size_t kPage = 4096;
  static constexpr uint8_t kPattern = 0xa5;

  int64_t bytes_;
  size_t mapped_ = 0;
  uint8_t* memory_ = nullptr;
  uint8_t* data_ = nullptr;
};

}  // namespace hone
