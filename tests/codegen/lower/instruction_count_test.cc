// How much code a schedule is said to become, before anybody makes it: LLVM's time grows with the square of a block's
// instructions, so what is not counted is paid for.
#include <gtest/gtest.h>

#include <string>

#include "codegen/lower/lower.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"

namespace hone::instruction_count_test {
namespace {

// As the refusal says it.
std::string CountOf(const std::string& kernel, const std::string& schedule) {
  const Kernel parsed = Specialize(ParseKernel(kernel).value());
  LowerLimits none;
  none.instructions = 0;
  Result<LoopProgram> lowered = Lower(ApplySchedule(parsed, ParseSchedule(schedule).value()).value(), none);
  if (lowered) return "accepted";
  const std::string& message = lowered.error().message;
  const size_t begin = message.find("about ") + 6;
  return message.substr(begin, message.find(" instructions") - begin);
}

TEST(InstructionCount, LanesSideBySideAreOneAccess) {
  EXPECT_EQ(CountOf("kernel k(x: f32[N]) -> y: f32[N] where N=16 { y[n] = x[n] }", "vectorize y.n"), "2");
}

TEST(InstructionCount, LanesAFewElementsApartAreAsManyAsThereAreBetween) {
  EXPECT_EQ(CountOf("kernel k(x: f32[M]) -> y: f32[N] where N=16, M=48 { y[n] = x[3 * n] }", "vectorize y.n"), "4");
}

TEST(InstructionCount, LanesFarApartAreOneEach) {
  const std::string transposed = "kernel k(x: f32[N,M]) -> y: f32[M,N] where N=16, M=32 { y[m,n] = x[n,m] }";
  EXPECT_EQ(CountOf(transposed, "vectorize y.n"), "17");
  EXPECT_EQ(CountOf(transposed, "unroll y.m\nvectorize y.n"), std::to_string(32 * 17));
  EXPECT_EQ(CountOf(transposed, "split y.m 8\nreorder y.m.0 y.n y.m.1\nvectorize y.m.1"), "9") << "written so";
}

TEST(InstructionCount, OfADeviceLanesFarApartAreOneAccess) {
  EXPECT_EQ(CountOf("kernel k(x: f32[N,M]) -> y: f32[M,N] where N=4, M=32 { y[m,n] = x[n,m] }",
                    "bind y.m block.x\nvectorize y.n"),
            "2");
}

TEST(InstructionCount, AnElementForAllLanesIsOneAccess) {
  EXPECT_EQ(CountOf("kernel k(x: f32[M], z: f32[N]) -> y: f32[M,N] where N=16, M=32 { y[m,n] = x[m] * z[n] }",
                    "vectorize y.n"),
            "4");
}

// A convolution by another's schedule, whose 1280 taps of weights 1280 elements apart took LLVM 14 seconds.
TEST(InstructionCount, TapsFarApartAreRefused) {
  const Kernel kernel = Specialize(ParseKernel("conv2d(C=5,H=16,W=16,O=33,R=16,S=16,stride=3,pad=0,const=1)").value());
  Result<Schedule> schedule = ParseSchedule(
      "inline xp\nsplit y.o 16\nreorder y.n y.o.0 y.h y.w0 y.c y.r y.s y.o.1\nunroll y.c y.r y.s\nvectorize y.o.1\n");
  ASSERT_TRUE(schedule) << schedule.error().Text();
  Result<ScheduledKernel> scheduled = ApplySchedule(kernel, *schedule);
  ASSERT_TRUE(scheduled) << scheduled.error().Text();
  Result<LoopProgram> lowered = Lower(*scheduled);
  ASSERT_FALSE(lowered);
  EXPECT_EQ(lowered.error().kind, ErrorKind::kLimit);
}

}  // namespace
}  // namespace hone::instruction_count_test
