// Gives freed memory back to the system. malloc keeps what threads free, each arena for itself: after a burst of work
// on many threads several times what is in use stays resident.
#pragma once

#include <chrono>
#include <cstddef>
#include <thread>

namespace hone {

// Freed bytes that malloc may keep for the next burst.
inline constexpr size_t kKeptFreeBytes = size_t{8} << 20;

// Makes malloc give blocks of a mebibyte or more back as soon as they are freed. Call before there are threads.
void ReturnLargeBlocksAtOnce();

// While it lives, a thread looks now and then, and gives back what is free if that is more than kKeptFreeBytes.
class FreeMemoryReturner {
 public:
  explicit FreeMemoryReturner(std::chrono::milliseconds every = std::chrono::seconds(3));

 private:
  std::jthread thread_;
};

}  // namespace hone
