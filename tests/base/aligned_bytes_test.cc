// Memory that kernels read: where pieces of it lie.
#include "base/aligned_bytes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

namespace hone {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;

int64_t PageOf(const std::shared_ptr<void>& piece) { return reinterpret_cast<intptr_t>(piece.get()) / (2 * kMiB); }

TEST(LargePages, PiecesAreApartWhateverTheirSizes) {
  LargePages pages;
  std::vector<std::pair<std::shared_ptr<void>, int64_t>> pieces;
  for (int64_t bytes : {64 * kKiB, 128 * kKiB, 300 * kKiB + 1, kMiB, 700 * kKiB, 3 * kMiB, kMiB + 1, 500 * kKiB + 63,
                        kMiB, int64_t{1}}) {
    const std::shared_ptr<void> piece = pages.Take(bytes);
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.get()) % 64, 0u);
    std::memset(piece.get(), static_cast<int>(pieces.size()), static_cast<size_t>(bytes));
    pieces.emplace_back(piece, bytes);
  }
  for (size_t i = 0; i < pieces.size(); ++i)
    EXPECT_EQ(std::vector<char>(static_cast<size_t>(pieces[i].second), static_cast<char>(i)),
              std::vector<char>(static_cast<char*>(pieces[i].first.get()),
                                static_cast<char*>(pieces[i].first.get()) + pieces[i].second))
        << i;
}

TEST(LargePages, AreSharedByPiecesThatFit) {
  LargePages pages;
  const std::shared_ptr<void> first = pages.Take(kMiB), second = pages.Take(kMiB), third = pages.Take(kMiB);
  EXPECT_EQ(PageOf(first), PageOf(second));
  EXPECT_NE(PageOf(first), PageOf(third));
  EXPECT_EQ(PageOf(third), PageOf(pages.Take(128 * kKiB)));
}

// Under the address sanitizer a page that went too early or never is an error.
TEST(LargePages, GoWithTheLastOfTheirPieces) {
  LargePages pages;
  std::shared_ptr<void> first = pages.Take(kMiB), second = pages.Take(512 * kKiB);
  first.reset();
  std::memset(second.get(), 1, 512 * kKiB);
  second.reset();
  const std::shared_ptr<void> fresh = pages.Take(kMiB);
  std::memset(fresh.get(), 1, kMiB);
  EXPECT_EQ(pages.Take(0), nullptr);
}

}  // namespace
}  // namespace hone
