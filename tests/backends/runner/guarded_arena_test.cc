#include "backends/runner/guarded_arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace hone {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A small machine, whose memory is what two memfds do not hold.
constexpr uint64_t kMachine = 400 * kMiB;
int files[2] = {-1, -1};
uint64_t Left() {
  uint64_t used = 0;
  for (int file : files) {
    struct stat info{};
    if (file >= 0 && ::fstat(file, &info) == 0) used += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return kMachine - std::min(used, kMachine);
}

// Each takes 264 MiB, less than three quarters of the machine, at the same time: one of them gets it.
TEST(Arena, SharesAreOfWhatAllLeave) {
  const int turns = ::memfd_create("turns", MFD_CLOEXEC);
  for (int round = 0; round < 5; ++round) {
    Result<Arena> first = Arena::Create({turns, Left}), second = Arena::Create({turns, Left});
    ASSERT_TRUE(first && second);
    files[0] = first->fd(), files[1] = second->fd();
    int start[2], done[2];
    ASSERT_TRUE(::pipe(start) == 0 && ::pipe(done) == 0);
    pid_t children[2];
    for (int i = 0; i < 2; ++i)
      if ((children[i] = ::fork()) == 0) {
        char byte;
        ::close(start[1]), ::close(done[1]);
        [[maybe_unused]] ssize_t count = ::read(start[0], &byte, 1);
        Result<void> reset = (i == 0 ? *first : *second).Reset(264 * kMiB);
        ::_exit(reset ? 0 : reset.error().kind == ErrorKind::kLimit ? 1 : 2);
      }
    ::close(start[1]);  // both at once
    int refused = 0;
    for (pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2) << status;
      refused += WEXITSTATUS(status);
    }
    EXPECT_EQ(refused, 1);
    for (int end : {start[0], done[0], done[1]}) ::close(end);
  }
  ::close(turns);
  files[0] = files[1] = -1;
}

TEST(Arena, TakesAndGivesBack) {
  Result<Arena> arena = Arena::Create();
  ASSERT_TRUE(arena);
  auto held = [&] {
    struct stat info{};
    EXPECT_EQ(::fstat(arena->fd(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  };
  ASSERT_TRUE(arena->Reset(1));
  EXPECT_EQ(held(), 0u);  // nothing until it is touched
  ASSERT_TRUE(arena->Reset(Arena::kKeptBytes + 32 * kMiB));
  EXPECT_EQ(held(), 32 * kMiB);
  EXPECT_EQ(arena->bytes().size(), Arena::kKeptBytes + 32 * kMiB);
  ASSERT_TRUE(arena->Reset(1));
  EXPECT_EQ(held(), 0u);
  Result<void> huge = arena->Reset(uint64_t{1} << 50);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().kind, ErrorKind::kLimit);
  ASSERT_TRUE(arena->Reset(1));
}

}  // namespace
}  // namespace hone
