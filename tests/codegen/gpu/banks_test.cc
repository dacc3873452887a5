// Banks of block storage: of tiles no two threads meet in one, whichever way the operands lie, where copies have room
// and are turned round; and where they have not, they do.
#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "codegen/machine_model.h"
#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"

namespace hone::banks_test {
namespace {

Target Cuda() {
  return DeviceTarget{std::string(kCudaKind),
                      {{"arch", "sm_80"}, {"block_bytes", "49152"}, {"block_threads", "1024"}, {"units", "4"}}};
}

Plan PlanOf(const std::string& text, const Chooser& chooser) {
  return PlanSchedule(Specialize(ParseKernel(text).value()), Cuda(), chooser).value();
}

// How many times the passes over banks that there had to be.
double Passes(const std::string& text, const Chooser& chooser) {
  const Plan plan = PlanOf(text, chooser);
  const GpuOutcome outcome = RunOnGpu(text, plan.schedule, straight::LimitsOf(ModelMachine(Cuda())), {.count = true});
  EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(plan.schedule);
  EXPECT_GT(outcome.report.least_passes, 0) << text;
  return static_cast<double>(outcome.report.shared_passes) / static_cast<double>(outcome.report.least_passes);
}

// As the rules prefer, but for decisions by that name.
Chooser Without(const std::string& decision) {
  return [decision](const Choice& choice) {
    return choice.site.ends_with("." + decision) ? int64_t{0} : choice.preferred;
  };
}

TEST(Banks, NoTwoThreadsMeetInOne) {
  for (const std::string text :
       {"matmul(M=256,N=256,K=64)", "matmul(M=128,N=128,K=64)", "dense(M=256,N=256,K=64)", "dense(M=128,N=128,K=128)",
        "dense(M=64,N=64,K=256)", "dense(M=64,N=70,K=99)", "matmul(M=128,N=96,K=64,ta=1)+bias",
        "batch_matmul(B=2,M=64,N=64,K=64,tb=1)", "conv2d(C=64,H=14,W=14,O=64,R=1,S=1,const=1)",
        "conv2d(C=32,H=14,W=14,O=64,R=3,S=3,pad=1,const=1)"})
    EXPECT_EQ(Passes(text, {}), 1) << text;
}

TEST(Banks, ThreadsMeetWithoutRoomAndInWhatLiesCrosswise) {
  EXPECT_GE(Passes("matmul(M=256,N=256,K=64)", Without("room")), 1.3);
  EXPECT_GE(Passes("dense(M=256,N=256,K=64)", Without("turned")), 3);
}

// Whatever the tile is. Where few threads have a part each, those of several parts are in one warp, and meet.
TEST(Banks, OfAnyTile) {
  Rng rng(3);
  int tiles = 0;
  for (const std::string text : {"matmul(M=64,N=128,K=64)", "dense(M=64,N=128,K=64)"})
    for (int trial = 0; trial < 8; ++trial) {
      const Chooser any = [&](const Choice& choice) {
        const bool is_of_tile = choice.site.ends_with(".columns") || choice.site.ends_with(".threads_x") ||
                                choice.site.ends_with(".rows") || choice.site.ends_with(".threads_y");
        if (choice.site.ends_with(".parts")) return int64_t{1};
        return is_of_tile ? choice.options[static_cast<size_t>(rng.Below(choice.options.size()))] : choice.preferred;
      };
      EXPECT_LE(Passes(text, any), 1.3) << PrintSchedule(PlanOf(text, any).schedule);
      ++tiles;
    }
  EXPECT_EQ(tiles, 16);
}

}  // namespace
}  // namespace hone::banks_test
