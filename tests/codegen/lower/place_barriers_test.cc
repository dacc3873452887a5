// Barriers stand where threads of a block meet in its storage, and nowhere else.
#include "codegen/lower/place_barriers.h"

#include <gtest/gtest.h>

#include "codegen/lower/lower.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"
#include "tests/support/gpu_run.h"
#include "tests/support/gpu_schedules.h"

namespace hone {
namespace {

std::string ProgramText(const std::string& text, std::string_view schedule) {
  auto print = [&]() -> Result<std::string> {
    const Kernel kernel = Specialize(HONE_TRY(ParseKernel(text)));
    return PrintProgram(HONE_TRY(Lower(HONE_TRY(ApplySchedule(kernel, HONE_TRY(ParseSchedule(schedule)))))));
  };
  Result<std::string> printed = print();
  return printed ? *printed : printed.error().Text();
}

size_t BarriersIn(const std::string& program) {
  size_t count = 0;
  for (size_t at = program.find("barrier\n"); at != std::string::npos; at = program.find("barrier\n", at + 1)) ++count;
  return count;
}

// Copies wait for the readers of the trip before, readers for the copies: two barriers in the loop over k, none
// outside.
TEST(PlaceBarriers, TilesInBlockStorageTakeTwoPerTrip) {
  const std::string program = ProgramText(kTiledMatmul, kTiledMatmulSchedule);
  EXPECT_EQ(BarriersIn(program), 2u) << program;
  const size_t loop = program.find("for acc.k.0");
  ASSERT_NE(loop, std::string::npos) << program;
  EXPECT_GT(program.find("barrier\n"), loop) << program;
  EXPECT_LT(program.find("barrier\n"), program.find("as[")) << program;
}

constexpr char kChain[] =
    "kernel chain(x: f32[M, N]) -> y: f32[M, N] where M=4, N=32 { t: f32[M, N] t[m, n] = x[m, n] + 1 "
    "y[m, n] = t[m, n] * 2 }";

TEST(PlaceBarriers, NoneWhereEveryThreadReadsItsOwn) {
  EXPECT_EQ(BarriersIn(ProgramText(kChain,
                                   "bind y.m block.x\nbind y.n thread.x\ncompute_at t y.m\nstore t block\n"
                                   "bind t.n thread.x\n")),
            0u);
}

TEST(PlaceBarriers, OneWhereThreadsReadEachOthers) {
  const std::string reversed =
      "kernel turn(x: f32[M, N]) -> y: f32[M, N] where M=4, N=32 { t: f32[M, N] t[m, n] = x[m, n] + 1 "
      "y[m, n] = t[m, 31 - n] * 2 }";
  EXPECT_EQ(BarriersIn(ProgramText(reversed,
                                   "bind y.m block.x\nbind y.n thread.x\ncompute_at t y.m\nstore t block\n"
                                   "bind t.n thread.x\n")),
            1u);
}

// One thread fills what all read.
TEST(PlaceBarriers, OneWhereALoopIsNotBound) {
  EXPECT_EQ(BarriersIn(ProgramText(kChain, "bind y.m block.x\nbind y.n thread.x\ncompute_at t y.m\nstore t block\n")),
            1u);
}

// In a loop the second trip's writes wait for the first one's reads.
TEST(PlaceBarriers, LaterTripsCount) {
  const std::string program = ProgramText(
      kChain,
      "bind y.n thread.x\nreorder y.n y.m\ncompute_at t y.m\nstore t block\nsplit t.n 32\nbind t.n.1 thread.y\n");
  EXPECT_EQ(BarriersIn(program), 2u) << program;
}

// Of 32 threads 20 make trips; the others compute in registers what the last trip computes, of what another one wrote.
TEST(PlaceBarriers, ThreadsBeyondALoopsTripsReadTheLastOnesElement) {
  const std::string text =
      "kernel cut(x: f32[M, N]) -> y: f32[M, K] where M=4, N=32, K=20 { w: f32[M, N] w[m, n] = x[m, n] + 1 "
      "s: f32[M, K] s[m, k] = w[m, k] + w[m, k + 12] t: f32[M, K] t[m, k] = s[m, k] * 3 y[m, k] = t[m, k] * 2 }";
  const std::string shared =
      "bind y.m block.x\nbind y.k thread.x\ncompute_at s y.m\nstore s block\nbind s.k thread.x\n"
      "compute_at w y.m\nstore w block\nbind w.n thread.x\n";
  const std::string by_registers = shared + "compute_at t y.k\nstore t registers\n";
  EXPECT_EQ(BarriersIn(ProgramText(text, by_registers)), 2u) << ProgramText(text, by_registers);
  const GpuOutcome outcome = RunOnGpu(text, ParseSchedule(by_registers).value());
  EXPECT_TRUE(outcome.IsRight()) << outcome.Text();
  // Under a store to memory they read nothing.
  EXPECT_EQ(BarriersIn(ProgramText(text, "inline t\n" + shared)), 1u) << ProgramText(text, "inline t\n" + shared);
}

TEST(PlaceBarriers, RegistersNeedNone) {
  EXPECT_EQ(
      BarriersIn(ProgramText(kChain, "bind y.m block.x\nbind y.n thread.x\ncompute_at t y.n\nstore t registers\n")),
      0u);
}

}  // namespace
}  // namespace hone
