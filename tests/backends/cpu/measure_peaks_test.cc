#include "backends/cpu/measure_peaks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/host_target.h"

namespace hone {
namespace {

TEST(MeasurePeaks, EveryRoofOfThisMachineIsMeasured) {
  Result<Target> host = HostTarget();
  ASSERT_TRUE(host) << host.error().Text();
  // More threads than cores are as many as cores.
  for (int threads : {1, 1'000}) {
    MachinePeaks peaks = MeasurePeaks(*host, threads);
    EXPECT_TRUE(std::isfinite(peaks.gflops));
    EXPECT_GT(peaks.gflops, 0) << threads;
    for (int level = 0; level < kMemoryLevels; ++level) {
      double rate = peaks.read_gb_s[static_cast<size_t>(level)];
      EXPECT_TRUE(std::isfinite(rate)) << MemoryLevelName(level);
      EXPECT_GT(rate, 0) << MemoryLevelName(level);
    }
  }
}

TEST(MeasurePeaks, AnInstructionSetThatIsNotHereHasNoRoofs) {
  Result<Target> target = HostTarget();
  ASSERT_TRUE(target);
  CpuTarget other = *target->cpu();
  other.isa = other.isa == Isa::kNeon ? Isa::kAvx2 : Isa::kNeon;
  EXPECT_EQ(MeasurePeaks(other, 1), MachinePeaks{});
  EXPECT_EQ(MeasurePeaks(DeviceTarget{"toaster", {}}, 1), MachinePeaks{});
}

}  // namespace
}  // namespace hone
