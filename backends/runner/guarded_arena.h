// Memory that a runner shares with its candidates: a memfd, mapped here once and for all, so that its pages are there
// already when the next kernel comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hone {

// Runners take memory in turns: what is free is looked at and taken by one of them at a time, so that the shares are of
// what all of them leave. A lock of the process on a file that all runners have (kMemoryTurnFd); the kernel lets go of
// it when the runner dies. -1: there are no others. One thread; one turn at a time.
class MemoryTurn {
 public:
  explicit MemoryTurn(int file);
  ~MemoryTurn();
  MemoryTurn(const MemoryTurn&) = delete;
  MemoryTurn& operator=(const MemoryTurn&) = delete;

 private:
  int file_;
};
inline constexpr int kMemoryTurnFd = 4;  // in a runner

// Memory that could be used without pushing anybody else's out (MemAvailable); a large number if the kernel does not
// say. The first call opens a file that later ones read.
uint64_t AvailableMemory();

struct MemoryOptions {
  int turns = -1;                             // for MemoryTurn
  uint64_t (*available)() = AvailableMemory;  // for tests
};

// One thread.
class Arena {
 public:
  static Result<Arena> Create(const MemoryOptions& memory = {});
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) = delete;
  ~Arena();

  // Makes the file `bytes` long and forgets what was in it; pages beyond kKeptBytes are given back to the system first,
  // and those of the new length taken at once. kLimit if that is more than three quarters of the memory that all
  // runners leave; nothing is mapped then. Invalidates what bytes() returned.
  Result<void> Reset(uint64_t bytes);

  std::span<std::byte> bytes() const { return {data_, size_}; }
  int fd() const { return fd_.get(); }
  const MemoryOptions& memory() const { return memory_; }

  static constexpr uint64_t kKeptBytes = uint64_t{64} << 20;

 private:
  Arena(UniqueFd fd, const MemoryOptions& memory) : fd_(std::move(fd)), memory_(memory) {}
  UniqueFd fd_;
  MemoryOptions memory_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hone
