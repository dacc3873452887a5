// Fits of schedules to other sizes: what is kept, what is changed, what is refused, and the words for it.
#include "ir/schedule/fit_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"

namespace hone::fit_schedule_test {
namespace {

using ::testing::HasSubstr;

Kernel Parsed(const std::string& text) { return Specialize(ParseKernel(text).value()); }
Schedule Steps(const std::string& text) { return ParseSchedule(text).value(); }

Result<Fit> FitDense(const std::string& donor, const std::string& schedule, const std::string& kernel,
                     FitMode mode = FitMode::kFitted) {
  return FitToShape(Parsed(donor), Steps(schedule), Parsed(kernel), mode, 2);
}

constexpr char kDense[] =
    "cache_read w -> w_panel for y const [n/48, k, n%48]\n"
    "split y.n 3 16\n"
    "split y.m 8\n"
    "reorder y.m.0 y.n.0 y.k y.m.1 y.n.1 y.n.2\n"
    "parallel y.m.0 grain=1\n"
    "unroll y.m.1 y.n.1\n"
    "vectorize y.n.2\n";

TEST(Transfer, KeepsEveryStepWhereTheSizesAllow) {
  Result<Fit> fit = FitDense("dense(M=128,N=768,K=768,const=1)", kDense, "dense(M=64,N=1536,K=100,const=1)");
  ASSERT_TRUE(fit.has_value()) << fit.error().Text();
  EXPECT_TRUE(fit->IsExact());
  EXPECT_EQ(PrintSchedule(fit->schedule), kDense);
}

TEST(Transfer, CutsTilesThatWouldRunOverAndLayoutsWithThem) {
  // 32 columns: 3 vectors of 16 are cut to what is there; 9 rows: two tiles of 5 instead of two of 8.
  Result<Fit> fit = FitDense("dense(M=128,N=768,K=768,const=1)", kDense, "dense(M=9,N=32,K=64,const=1)");
  ASSERT_TRUE(fit.has_value()) << fit.error().Text();
  EXPECT_FALSE(fit->IsExact());
  const std::string text = PrintSchedule(fit->schedule);
  EXPECT_THAT(text, HasSubstr("split y.n 2 16\n"));
  EXPECT_THAT(text, HasSubstr("split y.m 5\n"));
  EXPECT_THAT(text, HasSubstr("[n/32, k, n%32]"));
  ASSERT_EQ(fit->notes.size(), 7u);
  EXPECT_EQ(fit->notes[0].fate, FitNote::Fate::kChanged);
  EXPECT_THAT(fit->notes[0].why, HasSubstr("tiles of 32"));
  EXPECT_THAT(fit->notes[2].why, HasSubstr("2 tiles of 8 would compute 78 % too much of 9"));
  EXPECT_EQ(fit->notes[3].fate, FitNote::Fate::kKept);
}

TEST(Transfer, HalvesVectorsThatWouldBeHalfEmpty) {
  Result<Fit> fit = FitDense("dense(M=128,N=768,K=768)", "split y.n 16\nvectorize y.n.1\n", "dense(M=4,N=7,K=3)");
  ASSERT_TRUE(fit.has_value()) << fit.error().Text();
  EXPECT_EQ(PrintSchedule(fit->schedule), "split y.n 8\nvectorize y.n.1\n");
  EXPECT_EQ(fit->notes[0].why, "7 elements do not fill 16 lanes");
}

// Nor are threads of a block cut to what is there: warps, or vectors that are made of them, stay whole.
TEST(Transfer, HalvesThreadsThatWouldHaveNothingToDo) {
  const std::string steps = "reorder y.n.0 y.n.1 y.m y.k\nbind y.n.0 block.x\nbind y.n.1 thread.x\n";
  Result<Fit> fit = FitDense("dense(M=4,N=112,K=3)", "split y.n 64\n" + steps, "dense(M=4,N=28,K=3)");
  ASSERT_TRUE(fit.has_value()) << fit.error().Text();
  EXPECT_EQ(PrintSchedule(fit->schedule), "split y.n 32\n" + steps);
  EXPECT_EQ(fit->notes[0].why, "28 elements do not fill 64 threads");
}

TEST(Transfer, TheWholeStaysTheWhole) {
  // The inner loop went through all of k, there as here.
  Result<Fit> fit = FitDense("dense(M=4,N=16,K=32)", "split y.k 32\n", "dense(M=4,N=16,K=100)");
  ASSERT_TRUE(fit.has_value()) << fit.error().Text();
  EXPECT_EQ(PrintSchedule(fit->schedule), "split y.k 100\n");
}

TEST(Transfer, GrainsFollowTheWorkOfAnIteration) {
  Result<Fit> fit = FitDense("dense(M=64,N=16,K=16)", "parallel y.m grain=16\n", "dense(M=64,N=64,K=64)");
  ASSERT_TRUE(fit.has_value()) << fit.error().Text();
  EXPECT_EQ(PrintSchedule(fit->schedule), "parallel y.m grain=1\n");
  EXPECT_THAT(fit->notes[0].why, HasSubstr("16 times the work"));
}

TEST(Transfer, StrictlyRefusesWhatLeavesARemainder) {
  Result<Fit> fit =
      FitDense("dense(M=128,N=768,K=768)", "split y.n 48\n", "dense(M=128,N=100,K=768)", FitMode::kStrict);
  ASSERT_FALSE(fit.has_value());
  EXPECT_EQ(fit.error().message, "split y.n 48: 48 does not divide 100");
  EXPECT_TRUE(FitDense("dense(M=128,N=768,K=768)", "split y.n 48\n", "dense(M=1,N=96,K=5)", FitMode::kStrict));
}

TEST(Transfer, RefusesAnotherAlgorithmWhereItDoesNotApply) {
  const std::string relaxed = ",accuracy=relaxed)";
  Result<Fit> fit =
      FitToShape(Parsed("conv2d(C=8,H=12,W=12,O=8,R=3,S=3,pad=1" + relaxed), Steps("rewrite winograd y t 4 3\n"),
                 Parsed("conv2d(C=8,H=12,W=12,O=8,R=1,S=1,pad=1" + relaxed), FitMode::kFitted, 1);
  ASSERT_FALSE(fit.has_value());
  EXPECT_THAT(fit.error().message, HasSubstr("rewrite winograd y t 4 3"));
}

TEST(Transfer, TilesOfWinogradFollowTheWidth) {
  const std::string relaxed = ",accuracy=relaxed)";
  Result<Fit> fit =
      FitToShape(Parsed("conv2d(C=8,H=12,W=12,O=8,R=3,S=3,pad=1" + relaxed), Steps("rewrite winograd y t 4 3\n"),
                 Parsed("conv2d(C=8,H=28,W=28,O=8,R=3,S=3,pad=1" + relaxed), FitMode::kFitted, 1);
  ASSERT_TRUE(fit.has_value()) << fit.error().Text();
  EXPECT_EQ(PrintSchedule(fit->schedule), "rewrite winograd y t 4 7\n");
}

TEST(Transfer, BlocksOfARowAreAtMostTheRow) {
  const Schedule donor = Steps("rewrite online_reduction total blocks 4096\ninline e\n");
  for (const auto& [length, block] : {std::pair(100000, 4096), {4096, 4096}, {1000, 1000}}) {
    const Kernel kernel = Parsed("softmax(M=64,N=" + std::to_string(length) + ")");
    Result<Fit> fit = FitToShape(Parsed("softmax(M=4,N=1048576)"), donor, kernel, FitMode::kFitted, 1);
    ASSERT_TRUE(fit.has_value()) << fit.error().Text();
    EXPECT_THAT(PrintSchedule(fit->schedule), HasSubstr("blocks " + std::to_string(block) + "\n"));
    EXPECT_EQ(fit->notes[0].why, block < 4096 ? "rows have 1000 elements" : "");
  }
  // Whoever has no such pair of reductions cannot have the rest either.
  Result<Fit> fit =
      FitToShape(Parsed("softmax(M=4,N=1048576)"), donor, Parsed("rms_norm(M=4,N=1000)"), FitMode::kFitted, 1);
  ASSERT_FALSE(fit.has_value());
  EXPECT_THAT(fit.error().message, HasSubstr("rewrite online_reduction total blocks 4096"));
}

TEST(Transfer, CopiesLeaveOutPaddingOnlyWhereTheySpanTheImage) {
  const Kernel donor = Parsed("conv2d(C=8,H=7,W=7,O=8,R=3,S=3,pad=1,const=1)+relu");
  const Schedule steps = Steps("rewrite trim_padding acc xp whole r s\nsplit y.w0 7\nunroll acc.s\n");
  for (const auto& [width, trimmed] : {std::pair(14, "r"), {7, "r s"}, {5, "r s"}}) {
    const std::string size = std::to_string(width);
    const Kernel kernel = Parsed("conv2d(C=8,H=" + size + ",W=" + size + ",O=8,R=3,S=3,pad=1,const=1)+relu");
    Result<Fit> fit = FitToShape(donor, steps, kernel, FitMode::kFitted, 1);
    ASSERT_TRUE(fit.has_value()) << fit.error().Text();
    EXPECT_THAT(PrintSchedule(fit->schedule),
                HasSubstr(std::string("rewrite trim_padding acc xp whole ") + trimmed + "\n"));
    EXPECT_EQ(fit->notes[0].why, width > 7 ? "w0 of 14, 7 there" : "");
  }
  // Where nothing is left to leave out, the sum is taken as it is.
  Result<Fit> fit = FitToShape(donor, Steps("rewrite trim_padding acc xp whole s\nunroll acc.s\n"),
                               Parsed("conv2d(C=8,H=14,W=14,O=8,R=3,S=3,pad=1,const=1)+relu"), FitMode::kFitted, 1);
  ASSERT_TRUE(fit.has_value()) << fit.error().Text();
  EXPECT_EQ(PrintSchedule(fit->schedule), "unroll acc.s\n");
  EXPECT_THAT(fit->notes[0].why, HasSubstr("w0 of 14, 7 there; trim_padding takes"));
}

TEST(Transfer, DropsWhatDoesNotApplyAndGoesOn) {
  // With a padded image the pixels are no longer one axis.
  Result<Fit> fit = FitToShape(Parsed("conv2d(C=8,H=12,W=12,O=8,R=1,S=1)"),
                               Steps("inline xp\nrewrite fuse_axes y h w0\nsplit y.h 16\nvectorize y.h.1\n"),
                               Parsed("conv2d(C=8,H=12,W=12,O=8,R=1,S=1,pad=1)"), FitMode::kFitted, 1);
  ASSERT_TRUE(fit.has_value()) << fit.error().Text();
  ASSERT_EQ(fit->notes.size(), 4u);
  EXPECT_EQ(fit->notes[1].fate, FitNote::Fate::kDropped);
  EXPECT_FALSE(fit->notes[1].why.empty());
  EXPECT_EQ(fit->schedule.size(), 3u);
}

TEST(Transfer, TellsADonorThatDoesNotApplyToItself) {
  Result<Fit> fit = FitDense("dense(M=4,N=4,K=4)", "split y.q 4\n", "dense(M=8,N=4,K=4)");
  ASSERT_FALSE(fit.has_value());
  EXPECT_THAT(fit.error().Text(), HasSubstr("the donor's own schedule"));
}

}  // namespace
}  // namespace hone::fit_schedule_test
