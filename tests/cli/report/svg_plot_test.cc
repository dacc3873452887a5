#include "client/cli/report/svg_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/report/curve_plot.h"
#include "client/cli/report/roofline_plot.h"
#include "tests/cli/report_samples.h"
#include "tests/cli/xml_check.h"

namespace hone::cli {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

std::string CurveOf(const ReportKernel& kernel) {
  Markup out;
  DrawCurve(out, kernel);
  return std::move(out).Take();
}

TEST(Scale, MapsEndsAndMiddle) {
  const Scale linear = Scale::Linear(0, 10, 100, 0);
  EXPECT_DOUBLE_EQ(linear(0), 100);
  EXPECT_DOUBLE_EQ(linear(2.5), 75);
  const Scale log = Scale::Log(1, 10'000, 0, 400);
  EXPECT_DOUBLE_EQ(log(100), 200);
  EXPECT_DOUBLE_EQ(log(0.1), -100);
}

TEST(Ticks, LinearOnesAreRoundAndFew) {
  EXPECT_THAT(LinearTicks(0, 10, 5), Pointwise(DoubleEq(), {0.0, 5.0, 10.0}));
  EXPECT_EQ(TickText(LinearTicks(0, 10, 5)[0]), "0");
  EXPECT_THAT(LinearTicks(0, 0.9, 4), Pointwise(DoubleEq(), {0.0, 0.5}));
  EXPECT_THAT(LinearTicks(3, 47, 6), Pointwise(DoubleEq(), {10.0, 20.0, 30.0, 40.0}));
  for (double high : {1e-6, 0.3, 1.0, 7.7, 99.0, 12345.0}) {
    const std::vector<double> ticks = LinearTicks(0, high, 4);
    EXPECT_GE(ticks.size(), 2u) << high;
    EXPECT_LE(ticks.size(), 4u) << high;
  }
}

TEST(Ticks, LogarithmicOnesArePowersOfTen) {
  EXPECT_THAT(LogTicks(0.5, 2000), Pointwise(DoubleEq(), {1.0, 10.0, 100.0, 1000.0}));
  EXPECT_THAT(LogTicks(3, 70), Pointwise(DoubleEq(), {5.0, 10.0, 20.0, 50.0}));
}

TEST(Ticks, AreWrittenShortly) {
  EXPECT_EQ(TickText(0.05), "0.05");
  EXPECT_EQ(TickText(200), "200");
  EXPECT_EQ(TickText(5000), "5k");
  EXPECT_EQ(TickText(2e6), "2M");
}

TEST(SvgPlot, PathGoesFromPlaceToPlace) {
  Markup out;
  SvgPlot plot(out, 10, 5.25, "a <plot>", "c");
  plot.Path({{1, 2}, {3.14, -0.01}}, "p");
  plot.End();
  EXPECT_EQ(
      std::move(out).Take(),
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 5.2" class="c" role="img" aria-label="a &lt;plot&gt;">)"
      R"(<path d="M1 2L3.1 0" class="p"/></svg>)");
}

TEST(CurvePlot, StepsFromTheFirstTrialToTheLast) {
  const std::string svg = CurveOf(SampleKernel(0));
  EXPECT_TRUE(IsWellFormed(svg));
  // The default's time, 21 us, is its first trial's, at 1/1.18 of the panel's height; the best, 10 us, holds until the
  // last of 48 trials.
  EXPECT_THAT(svg, HasSubstr("d=\"M38 22.3L64 22.3L64 45.1L176.9 45.1L176.9 64.1L242 64.1\""));
  EXPECT_THAT(svg, HasSubstr("10.0 µs at trial 33, 2023-11-14 22:14 UTC"));
}

TEST(CurvePlot, AFirstTrialFarSlowerThanTheDefaultStaysWithin) {
  ReportKernel kernel = SampleKernel(0);
  kernel.history.front().best_us = 1e6;
  EXPECT_THAT(CurveOf(kernel), HasSubstr("d=\"M38 8L64 8L64 45.1"));
}

TEST(CurvePlot, OneTrialIsACurve) {
  ReportKernel kernel = SampleKernel(0);
  kernel.history = {{1, 3, 0}};
  kernel.trials = 1;
  kernel.default_us = 0;
  const std::string svg = CurveOf(kernel);
  EXPECT_TRUE(IsWellFormed(svg));
  EXPECT_EQ(CountOf(svg, "class=\"default\""), 0u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(RooflinePlot, OneOfEachNumberOfThreads) {
  std::vector<ReportKernel> kernels = {SampleKernel(0), SampleKernel(1), SampleKernel(2)};
  kernels[0].threads = 2;
  RankKernels(kernels);
  const std::vector<RooflinePlotData> plots = RooflinesOf(kernels);
  ASSERT_EQ(plots.size(), 2u);
  EXPECT_EQ(plots[0].threads, 1u);
  EXPECT_EQ(plots[0].kernels.size(), 2u);
  EXPECT_EQ(plots[1].threads, 2u);
  ASSERT_EQ(plots[1].memory.size(), 1u);
  EXPECT_EQ(plots[1].memory[0].level, "memory");
}

TEST(RooflinePlot, LeavesOutWhatHasNoPlace) {
  std::vector<ReportKernel> kernels = {SampleKernel(0), SampleKernel(1), SampleKernel(2),
                                       SampleKernel(3), SampleKernel(4), SampleKernel(5)};
  kernels[0].roofline.flops = 0;
  kernels[1].time_us = 0;
  kernels[2].roofline.peak_gflops = 0;
  kernels[3].is_removed = true;
  kernels[4].roofline.operand_bytes = 0;
  RankKernels(kernels);
  const std::vector<RooflinePlotData> plots = RooflinesOf(kernels);
  ASSERT_EQ(plots.size(), 1u);
  ASSERT_EQ(plots[0].kernels.size(), 1u);
  EXPECT_EQ(plots[0].kernels[0]->row.fingerprint, SampleRow(5).fingerprint);
}

TEST(RooflinePlot, HasRoofsPointsAndNumbers) {
  std::vector<ReportKernel> kernels;
  for (int i = 0; i < 8; ++i) kernels.push_back(SampleKernel(i));
  RankKernels(kernels);
  Markup out;
  DrawRoofline(out, RooflinesOf(kernels)[0], 900, 440, "wide");
  const std::string svg = std::move(out).Take();
  EXPECT_TRUE(IsWellFormed(svg));
  EXPECT_EQ(CountOf(svg, "class=\"roof\""), 3u);  // the peak, L2, memory
  EXPECT_EQ(CountOf(svg, "<circle"), 8u);
  EXPECT_EQ(CountOf(svg, "class=\"ptlabel\""), 8u);
  EXPECT_THAT(svg, HasSubstr("100 GFLOP/s"));
  EXPECT_THAT(svg, HasSubstr("L2 200 GB/s"));
  EXPECT_THAT(svg, HasSubstr("memory 20.0 GB/s"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(RooflinePlot, AThousandPointsInOnePlaceHaveFewNumbers) {
  std::vector<ReportKernel> kernels(1000, SampleKernel(3));
  RankKernels(kernels);
  Markup out;
  DrawRoofline(out, RooflinesOf(kernels)[0], 372, 380, "narrow");
  const std::string svg = std::move(out).Take();
  EXPECT_EQ(CountOf(svg, "<circle"), 1000u);
  EXPECT_LE(CountOf(svg, "class=\"ptlabel\""), 6u);
}

}  // namespace
}  // namespace hone::cli
