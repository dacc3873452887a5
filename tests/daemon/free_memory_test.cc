// What bursts of work on other threads freed does not stay resident.
#include "daemon/free_memory.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace hone {
namespace {

constexpr size_t kBurstBytes = size_t{96} << 20;
constexpr size_t kBlockBytes = 16 << 10;

// Takes memory in blocks with small ones in between that stay, so that the heap's end cannot move; frees the large
// ones.
std::vector<void*> Burst() {
  std::vector<void*> large, small;
  for (size_t taken = 0; taken < kBurstBytes; taken += kBlockBytes) {
    large.push_back(std::memset(malloc(kBlockBytes), 1, kBlockBytes));
    small.push_back(malloc(32));
  }
  for (void* block : large) free(block);
  return small;
}

size_t FreeBytes() { return mallinfo2().fordblks; }

// Resident bytes of the whole process.
size_t ResidentBytes() {
  FILE* statm = std::fopen("/proc/self/statm", "r");
  size_t size = 0, resident = 0;
  if (statm == nullptr || std::fscanf(statm, "%zu %zu", &size, &resident) != 2) ADD_FAILURE() << "no /proc/self/statm";
  if (statm != nullptr) std::fclose(statm);
  return resident * 4096;
}

TEST(FreeMemory, OfABurstIsGivenBack) {
  const size_t before = ResidentBytes();
  std::vector<void*> kept;
  std::jthread([&] { kept = Burst(); }).join();
  if (FreeBytes() < kBurstBytes / 2) GTEST_SKIP() << "malloc is not glibc's here";
  EXPECT_GT(ResidentBytes(), before + kBurstBytes / 2);
  FreeMemoryReturner returner(std::chrono::milliseconds(10));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (ResidentBytes() > before + kBurstBytes / 4 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_LT(ResidentBytes(), before + kBurstBytes / 4);
  for (void* block : kept) free(block);
}

}  // namespace
}  // namespace hone
