// Memory that a runner shares with its candidates: a memfd, mapped here once and for all, so that its pages are there
// already when the next kernel comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hone {

// One thread.
class Arena {
 public:
  static Result<Arena> Create();
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) = delete;
  ~Arena();

  // Makes the file `bytes` long and forgets what was in it; pages beyond kKeptBytes are given back to the system first.
  // kLimit if that is more memory than the machine can spare. Invalidates what bytes() returned.
  Result<void> Reset(uint64_t bytes);

  std::span<std::byte> bytes() const { return {data_, size_}; }
  int fd() const { return fd_.get(); }

 private:
  static constexpr uint64_t kKeptBytes = uint64_t{64} << 20;
  explicit Arena(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Memory that could be used without pushing anybody else's out (MemAvailable); a large number if the kernel does not
// say.
uint64_t AvailableMemory();

}  // namespace hone
