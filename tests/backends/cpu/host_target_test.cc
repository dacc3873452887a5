#include "backends/cpu/host_target.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>

#include "base/cpu_features.h"

namespace hone {
namespace {

using ::testing::HasSubstr;

TEST(HostTarget, DescribesThisMachine) {
  ::unsetenv("HONE_TARGET");
  Result<Target> found = HostTarget();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->kind(), kCpuKind);
  const CpuTarget* target = found->cpu();
  ASSERT_NE(target, nullptr);
  EXPECT_FALSE(target->cpu.empty());
  EXPECT_GE(target->cores, 1);
  EXPECT_GE(target->l1_bytes, 8 << 10);
  EXPECT_LE(target->l1_bytes, 1 << 20);
  EXPECT_GE(target->l2_bytes, target->l1_bytes);
  EXPECT_GE(target->l3_bytes, 1 << 20);
  EXPECT_TRUE(std::is_sorted(target->features.begin(), target->features.end()));
  for (const std::string& feature : target->features) EXPECT_TRUE(CpuHasFeature(feature)) << feature;
  EXPECT_TRUE(PrintTarget(*found).starts_with(fmt::format("cpu {} cpu={} ", IsaName(target->isa), target->cpu)));
  for (std::string_view feature : FeaturesOfIsa(IsaName(target->isa))) EXPECT_TRUE(CpuHasFeature(feature)) << feature;
}

TEST(HostTarget, IsTheSameEveryTimeAndReadsBack) {
  ::unsetenv("HONE_TARGET");
  std::string first = PrintTarget(*HostTarget());
  EXPECT_EQ(PrintTarget(*HostTarget()), first);  // it is part of every cache key
  EXPECT_EQ(PrintTarget(*ParseTarget(first)), first);
}

TEST(HostTarget, CanBeOverridden) {
  const char* text = "avx2 cpu=haswell features= l1=32768 l2=262144 l3=8388608 cores=4";
  ::setenv("HONE_TARGET", text, 1);
  Result<Target> target = HostTarget();
  ASSERT_TRUE(target) << target.error().message;
  EXPECT_EQ(target->cpu()->isa, Isa::kAvx2);
  EXPECT_EQ(target->cores(), 4);
  ::setenv("HONE_TARGET", "cpu vax cpu=780", 1);
  EXPECT_THAT(HostTarget().error().message, HasSubstr("HONE_TARGET: target: saw \"vax\""));
  ::setenv("HONE_TARGET", "vax cpu=780", 1);  // some device, and no CPU
  EXPECT_THAT(HostTarget().error().message, HasSubstr("saw \"vax\", wanted a CPU's target"));
  ::unsetenv("HONE_TARGET");
}

TEST(ParseTarget, AFeatureOfALargerInstructionSetIsRefused) {
  EXPECT_TRUE(ParseTarget("avx2 cpu=alderlake features=avxvnni"));
  EXPECT_TRUE(ParseTarget("avx512 cpu=sapphirerapids features=avx512fp16,avxvnni"));
  Result<Target> target = ParseTarget("avx2 cpu=haswell features=avxvnni,avx512vnni");
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().kind, ErrorKind::kInvalid);
  EXPECT_THAT(target.error().message, HasSubstr("avx512vnni"));
}

}  // namespace
}  // namespace hone
