// Permission for AMX's tiles, and whether they are in use, where there are any.
#include "base/tiles.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/cpu_features.h"

namespace hone {
namespace {

TEST(Tiles, AreThereOnlyWhereTheProcessorHasThem) {
  EXPECT_TRUE(CpuHasFeature("amx-tile") || !MayUseTiles());
  EXPECT_EQ(MayUseTiles(), MayUseTiles());
  EXPECT_FALSE(HasTilesInUse());
}

TEST(Tiles, CodeThatNeedsThemIsRefusedWithoutThem) {
#if defined(__x86_64__)
  const std::string features[] = {"amx-int8"};
  if (CpuHasFeature("avx512f")) { EXPECT_EQ(CheckProcessor("avx512", features).has_value(), MayUseTiles()); }
#endif
}

TEST(Tiles, AreSeenInUseUntilTheyAreReleased) {
  if (!MayUseTiles()) GTEST_SKIP() << "[SKIP] no AMX, or no permission";
#if defined(__x86_64__)
  alignas(64) uint8_t config[64] = {1};
  config[16] = 64, config[48] = 16;
  __asm__ volatile("ldtilecfg %0\n\ttilezero %%tmm0" ::"m"(config));
  EXPECT_TRUE(HasTilesInUse());
  __asm__ volatile("tilerelease");
  EXPECT_FALSE(HasTilesInUse());
#endif
}

}  // namespace
}  // namespace hone
