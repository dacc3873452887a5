// A process that is copied while its threads are at work within the library: the child finds every lock free.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include "base/subprocess.h"
#include "client/api/packed_constants.h"
#include "client/api/updates.h"
#include "tests/support/versions.h"

namespace hone::fork_test {
namespace {

using testing::Layout;
using testing::LoadBytes;
using testing::VersionBytes;

// Forks many times while threads do `work`, which each child does once, too. Stops at the first that does not come
// back.
void ForkDuring(const std::function<bool()>& work, int forks) {
  if (kShadowMemory) GTEST_SKIP() << "[SKIP] a sanitizer's own locks are not free in the child";
  const Updates updates({});  // as every client has
  ASSERT_TRUE(work());        // what is made once is there
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!stop) EXPECT_TRUE(work());
    });
  int status = 0;
  for (int i = 0; i < forks && status == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(100 + 37 * i));
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);
      _exit(work() ? 0 : 1);
    }
    ASSERT_EQ(waitpid(child, &status, 0), child);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(WIFSIGNALED(status)) << "the child hung until signal " << WTERMSIG(status);
  EXPECT_EQ(status, 0);
}

TEST(Fork, CodeIsMappedInAChildOfAProcessThatWasMappingSome) {
  const std::vector<std::byte> code = VersionBytes(Layout::kPlain, 0);
  ForkDuring([&] { return LoadBytes(code).has_value(); }, 100);
}

TEST(Fork, ConstantsArePackedInAChildOfAProcessThatWasPackingSome) {
  PackedConstants constants;
  const float data[4] = {};
  ManifestOperand operand;
  operand.packed_bytes = 64;
  const auto packed = std::make_shared<const int>(0);
  ForkDuring(
      [&] { return constants.Take(data, operand, true, [&] { return PackedConstants::Copy(packed); }).has_value(); },
      300);
}

TEST(Fork, PagesAreSharedInAChildOfAProcessThatWasSharingSome) {
  LargePages pages;
  ForkDuring([&] { return pages.Take(int64_t{1} << 20) != nullptr; }, 300);
}

TEST(Fork, AKernelIsGivenBackInAChildOfAProcessThatWasReleasingItsOldVersion) {
  static std::atomic<bool> inside{false}, go_on{false};
  inside = go_on = false;
  const Updates updates({});
  std::shared_ptr<const LoadedArtifact> old((*LoadBytes(VersionBytes(Layout::kPlain, 0))).release(),
                                            [](const LoadedArtifact* code) {
                                              inside = true;
                                              while (!go_on) std::this_thread::yield();
                                              delete code;
                                            });
  auto handle = *KernelHandle::Create(std::move(old), {}, Workers{}, KernelHandle::Change::kLive);
  std::thread swapper([&] { handle->Publish(*handle->Prepare(*LoadBytes(VersionBytes(Layout::kPlain, 1)), {})); });
  while (!inside) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    go_on = true;
    const bool is_given_up = !handle->HasRetired();  // else it would be released here, too
    handle.reset();
    _exit(is_given_up ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  go_on = true;
  swapper.join();
  EXPECT_FALSE(WIFSIGNALED(status)) << "the child ended by signal " << WTERMSIG(status);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hone::fork_test
