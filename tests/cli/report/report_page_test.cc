#include "client/cli/report/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/report_samples.h"
#include "tests/cli/xml_check.h"

namespace hone::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ReportData, RanksByCallsTimesTimeRemovedOnesLast) {
  std::vector<ReportKernel> kernels = {SampleKernel(0), SampleKernel(5), SampleKernel(2)};
  kernels[1].is_removed = true;
  RankKernels(kernels);
  EXPECT_EQ(kernels[0].row.fingerprint, SampleRow(2).fingerprint);
  EXPECT_EQ(kernels[1].row.fingerprint, SampleRow(0).fingerprint);
  EXPECT_EQ(kernels[2].row.fingerprint, SampleRow(5).fingerprint);
  EXPECT_EQ(kernels[2].number, 3);
}

TEST(ReportData, SumsWhatWasWonAndTheTrials) {
  const ReportKernel tuned = SampleKernel(0), standard = SampleKernel(1);  // 1000 × 10 us, 1010 × 11 us
  ReportKernel removed = SampleKernel(2);
  removed.is_removed = true;
  const Totals totals = SumOf({&tuned, &standard, &removed});
  EXPECT_EQ(totals.kernels, 2u);
  EXPECT_EQ(totals.tuned, 1u);
  EXPECT_DOUBLE_EQ(totals.now_us, 10'000 + 11'110);
  EXPECT_DOUBLE_EQ(totals.before_us, 20'000 + 11'110);
  EXPECT_DOUBLE_EQ(totals.without_idle_us, 15'000 + 11'110);
  EXPECT_EQ(totals.trials, 48u);
  ASSERT_EQ(totals.verdicts.size(), 3u);
  EXPECT_EQ(totals.verdicts[0].name, "timed");
  // 1e5 flops and 20 kB: 1 us by either roof of the first; 2 us by arithmetic of the second.
  EXPECT_DOUBLE_EQ(totals.median_reached, (1.0 / 10 + 2.0 / 11) / 2);
}

TEST(ReportData, ModelQualityIsOfKernelsWithBoth) {
  std::vector<ReportKernel> kernels(4);
  for (size_t i = 0; i < 3; ++i) {
    kernels[i].estimate = {10.0 * static_cast<double>(i + 1), 5, 25};
    kernels[i].measured_us = 5.0 * static_cast<double>(i + 1);
  }
  kernels[2].measured_us = 60;
  ModelQuality quality = QualityOf(kernels);
  EXPECT_EQ(quality.kernels, 3u);
  EXPECT_EQ(quality.within, 2u);
  EXPECT_DOUBLE_EQ(quality.typical_factor, 2);
  EXPECT_DOUBLE_EQ(quality.rank_correlation, 1);
  kernels[2].measured_us = 1;
  EXPECT_DOUBLE_EQ(QualityOf(kernels).rank_correlation, -0.5);
}

TEST(ReportData, StatesAreSaidInWords) {
  ReportKernel kernel = SampleKernel(0);
  EXPECT_EQ(StateText(kernel), "tuned");
  kernel.row.pinned = true;
  kernel.row.artifact_bytes = 0;
  EXPECT_EQ(StateText(kernel), "tuned, pinned, code evicted");
  kernel.is_removed = true;
  EXPECT_EQ(StateText(kernel), "removed");
}

TEST(ReportPage, AnEmptyCacheIsAPage) {
  const std::string page = ReportPage(SampleReport(0));
  EXPECT_TRUE(IsWellFormed(page));
  EXPECT_THAT(page, HasSubstr("The cache holds no kernels yet"));
  EXPECT_EQ(CountOf(page, "<svg"), 0u);
}

TEST(ReportPage, AnyNumberOfKernelsIsAPageWithoutAnythingFromElsewhere) {
  for (int kernels : {1, 2, 7, 120}) {
    const std::string page = ReportPage(SampleReport(kernels));
    EXPECT_TRUE(IsWellFormed(page)) << kernels;
    EXPECT_EQ(CountOf(page, "<script"), 0u);
    EXPECT_EQ(CountOf(page, "src="), 0u);
    EXPECT_EQ(CountOf(page, "url("), 0u);
    EXPECT_EQ(CountOf(page, "@import"), 0u);
    EXPECT_EQ(CountOf(page, "://"), CountOf(page, "xmlns=\"http://www.w3.org/"));
    EXPECT_EQ(CountOf(page, "href="), CountOf(page, "href=\"#k"));
    EXPECT_EQ(CountOf(page, "<tr id=\"k"), static_cast<size_t>(kernels));
    EXPECT_EQ(page.find("nan"), std::string::npos);
    EXPECT_EQ(page.find("inf"), std::string::npos);
  }
}

TEST(ReportPage, SaysWhatWasWon) {
  const std::string page = ReportPage(SampleReport(2));
  // 1000 calls of 10 us that took 20, and 1010 of 11 us: 31.1 ms before, 21.1 ms now.
  EXPECT_THAT(page, HasSubstr("<b>21.1 ms</b><i>before refining 31.1 ms</i>"));
  EXPECT_THAT(page, HasSubstr("<b>1.47×</b><i>1.24× of it in idle time</i>"));
  EXPECT_THAT(page, HasSubstr("timed 40 (83.3 %)"));
  EXPECT_THAT(page, HasSubstr("crashed 2 (4.2 %)"));
}

TEST(ReportPage, WhatHonedCouldNotTellIsNotMadeUp) {
  ReportData data = SampleReport(0);
  ReportKernel kernel;
  kernel.row = SampleRow(1);
  kernel.problem = "unreadable <record>";
  data.kernels = {kernel};
  data.model_problem = "the model has seen too little";
  RankKernels(data.kernels);
  const std::string page = ReportPage(data);
  EXPECT_TRUE(IsWellFormed(page));
  EXPECT_THAT(page, HasSubstr("title=\"unreadable &lt;record&gt;\""));
  EXPECT_THAT(page, HasSubstr("Nothing has been searched yet"));
  EXPECT_THAT(page, HasSubstr("No estimates: the model has seen too little."));
  EXPECT_EQ(CountOf(page, "class=\"curve\""), 0u);
}

TEST(ReportPage, NamesStayNames) {
  ReportData data = SampleReport(0);
  const std::string bad = "</style><script>alert(\"1\" & '2')</script>\x01\xff";
  data.kernels.push_back(SampleKernel(0, bad));
  data.kernels[0].row.class_name = "<img src=x onerror=alert(1)>";
  data.kernels[0].row.origin = "<i>";
  data.status.cache = "/tmp/<b>&\"";
  data.status.targets = {"<svg/onload=alert(1)>"};
  data.activity.idle_state = "others & <others>";
  RankKernels(data.kernels);
  const std::string page = ReportPage(data);
  EXPECT_TRUE(IsWellFormed(page));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<svg/")));
  EXPECT_THAT(page, HasSubstr("/tmp/&lt;b&gt;&amp;&quot;"));
}

TEST(ReportPage, ALongKernelIsCutInTheMiddle) {
  ReportData data = SampleReport(0);
  data.kernels.push_back(SampleKernel(0, "kernel begin\n" + std::string(1 << 20, 'x') + "\nend"));
  RankKernels(data.kernels);
  const std::string page = ReportPage(data);
  EXPECT_LT(page.size(), 40'000u);
  EXPECT_THAT(page, HasSubstr("kernel begin x"));
  EXPECT_THAT(page, HasSubstr("x end"));
}

TEST(ReportPage, TheCurvesThatAreShownAreOfWhatWonMost) {
  ReportData data = SampleReport(0);
  for (int i : {0, 2, 4}) data.kernels.push_back(SampleKernel(i));
  data.kernels[0].won = 10;  // the one with the least calls × time
  RankKernels(data.kernels);
  PageLimits limits;
  limits.curves = limits.gains = 1;
  const std::string page = ReportPage(data, limits);
  const std::string curves =
      page.substr(page.find("id=\"curves\""), page.find("id=\"cache\"") - page.find("id=\"curves\""));
  EXPECT_THAT(curves, HasSubstr("href=\"#k3\""));
  EXPECT_EQ(CountOf(curves, "<figure>"), 1u);
  const std::string gains =
      page.substr(page.find("id=\"won\""), page.find("id=\"roofline\"") - page.find("id=\"won\""));
  EXPECT_THAT(gains, HasSubstr("href=\"#k3\""));
  EXPECT_THAT(gains, HasSubstr("2 kernels more that won less"));
}

TEST(ReportPage, ALargeCacheIsCutAndSaysHowMuchIsLeftOut) {
  PageLimits limits;
  limits.kernels = 1000;
  limits.points = 500;
  const std::string page = ReportPage(SampleReport(2400), limits);
  EXPECT_TRUE(IsWellFormed(page));
  EXPECT_EQ(CountOf(page, "<tr id=\"k"), 1000u);
  EXPECT_THAT(page, HasSubstr("1,400 kernels with less to do are left out"));
  EXPECT_EQ(CountOf(page, "class=\"curve\""), limits.curves);
  EXPECT_THAT(page, HasSubstr("1,152 searched kernels that won less are left out"));
  EXPECT_EQ(CountOf(page, "<circle"), 2 * limits.points + limits.curves + 4);  // both plots, curves, the legend
  EXPECT_THAT(page, HasSubstr("1,900 kernels with less to do are left out"));
  EXPECT_THAT(page, HasSubstr("1,185 kernels more that won less are left out"));
  EXPECT_EQ(CountOf(page, "<details>"), 3u);  // folded
}

}  // namespace
}  // namespace hone::cli
