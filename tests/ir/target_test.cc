// Targets as text: of CPUs, of devices of other kinds, and as they were written before they had kinds.
#include "ir/target.h"

#include <gmock/gmock.h>

#include <string>

namespace hone {
namespace {

using ::testing::HasSubstr;

const std::string kCpu = "cpu avx512 cpu=znver5 features=avx512bf16,avx512vnni l1=49152 l2=1048576 l3=8388608 cores=2";

TEST(Target, OfACpuReadsBack) {
  Result<Target> target = ParseTarget(kCpu);
  ASSERT_TRUE(target) << target.error().Text();
  EXPECT_EQ(PrintTarget(*target), kCpu);
  EXPECT_EQ(target->kind(), "cpu");
  EXPECT_EQ(target->cores(), 2);
  ASSERT_NE(target->cpu(), nullptr);
  EXPECT_EQ(target->cpu()->isa, Isa::kAvx512);
  EXPECT_EQ(target->device(), nullptr);
  EXPECT_EQ(ArchitectureName(*target), "avx512");
}

TEST(Target, WithoutAKindIsACpusAndMeansTheSame) {
  const std::string once = kCpu.substr(4);
  EXPECT_EQ(ParseTarget(once).value(), ParseTarget(kCpu).value());
  EXPECT_EQ(TargetInWordsOfToday(once), kCpu);
  EXPECT_EQ(TargetInWordsOfToday(kCpu), kCpu);
  EXPECT_EQ(KindOfTarget(once), "cpu");
  EXPECT_EQ(KindOfTarget(kCpu), "cpu");
  EXPECT_EQ(HashedTarget(kCpu), once);
  EXPECT_EQ(HashedTarget(once), once);
  for (const char* short_one : {"avx2", "cpu neon"}) EXPECT_TRUE(ParseTarget(short_one)) << short_one;
}

TEST(Target, SaysWhetherItsCodeIsEverRun) {
  const std::string not_here = "cuda arch=sm_90 unchecked=sm_90 units=132";
  EXPECT_EQ(UncheckedName(not_here), "sm_90");
  EXPECT_FALSE(IsChecked(ParseTarget(not_here).value()));
  for (const std::string text : {"cuda arch=sm_90 units=132", "cuda uncheckedness=3", "cuda x=unchecked=1"}) {
    EXPECT_EQ(UncheckedName(text), "");
    EXPECT_TRUE(IsChecked(ParseTarget(text).value())) << text;
  }
  EXPECT_TRUE(IsChecked(ParseTarget(kCpu).value()));
}

TEST(Target, OfAnotherKindHoldsItsFacts) {
  const std::string text = "opencl driver=3.1 model=pocl-znver5 work_group=4096";
  Result<Target> target = ParseTarget("opencl work_group=4096 model=pocl-znver5 driver=3.1");
  ASSERT_TRUE(target) << target.error().Text();
  EXPECT_EQ(PrintTarget(*target), text);
  EXPECT_EQ(ParseTarget(text).value(), *target);
  EXPECT_EQ(target->kind(), "opencl");
  EXPECT_EQ(target->cores(), 1);
  EXPECT_EQ(target->cpu(), nullptr);
  ASSERT_NE(target->device(), nullptr);
  EXPECT_EQ(target->device()->Number("work_group"), 4096);
  EXPECT_EQ(target->device()->Number("model"), std::nullopt);
  EXPECT_EQ(target->device()->Number("registers"), std::nullopt);
  EXPECT_EQ(ArchitectureName(*target), "opencl");
  EXPECT_EQ(KindOfTarget(text), "opencl");
  EXPECT_EQ(TargetInWordsOfToday(text), text);
  EXPECT_EQ(HashedTarget(text), text);
}

TEST(Target, SaysWhatItSawAndWanted) {
  const auto refused = [](const std::string& text) { return ParseTarget(text).error().message; };
  EXPECT_THAT(refused(""), HasSubstr("wanted a kind of device"));
  EXPECT_THAT(refused("AVX2"), HasSubstr("saw \"AVX2\", wanted a kind of device"));
  EXPECT_THAT(refused("cpu"), HasSubstr("wanted an ISA"));
  EXPECT_THAT(refused("cpu vax"), HasSubstr("saw \"vax\", wanted an ISA: avx2, avx512 or neon"));
  EXPECT_THAT(refused("cpu avx2 l1=many"), HasSubstr("saw \"l1=many\", wanted a positive number"));
  EXPECT_THAT(refused("opencl fast"), HasSubstr("saw \"fast\", wanted name=value"));
  EXPECT_THAT(refused("opencl model="), HasSubstr("wanted name=value"));
  EXPECT_THAT(refused("opencl a=1 a=2"), HasSubstr("saw \"a=2\", wanted each name once"));
}

}  // namespace
}  // namespace hone
