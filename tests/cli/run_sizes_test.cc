#include "client/cli/run_sizes.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ir/language/parse.h"

namespace hone::cli {
namespace {

using Lists = std::vector<std::vector<int64_t>>;

const Kernel kDense = ParseKernel("dense(M=1..512,N=64,K=32)").value();
const Kernel kTwo = ParseKernel(
                        "kernel two(a: f32[P, 4], b: f32[Q, 4]) -> c: f32[P, 4], d: f32[Q, 4] where P=1..9, Q=10..20 "
                        "{ c[i, j] = a[i, j] + 1.0\n d[i, j] = b[i, j] * 2.0 }")
                        .value();

std::string Refusal(const Kernel& kernel, const std::string& text) {
  Result<Lists> lists = ParseSizes(kernel, text);
  return lists ? "" : lists.error().Text();
}

TEST(ParseSizes, NamesMayBeLeftOut) {
  EXPECT_EQ(ParseSizes(kDense, "M=1,7, 64").value(), (Lists{{1}, {7}, {64}}));
  EXPECT_EQ(ParseSizes(kTwo, "P=1 Q=12,P=9 Q=10").value(), (Lists{{1, 12}, {9, 10}}));
}

TEST(ParseSizes, SizesThatAreNotNamedGoAlong) {
  EXPECT_EQ(ParseSizes(kTwo, "P=1,5,9").value(), (Lists{{1, 10}, {5, 15}, {9, 20}}));
  EXPECT_EQ(ParseSizes(kTwo, "Q=15").value(), (Lists{{5, 15}}));
}

TEST(ParseSizes, RefusalsSaySeenAndWanted) {
  EXPECT_NE(Refusal(kDense, "M=513").find("M from 1 to 512"), std::string::npos) << Refusal(kDense, "M=513");
  EXPECT_NE(Refusal(kDense, "M=0").find("M from 1 to 512"), std::string::npos);
  EXPECT_NE(Refusal(kDense, "N=64").find("a size that is a range, such as M"), std::string::npos);
  EXPECT_NE(Refusal(kDense, "64").find("a size that is a range"), std::string::npos);
  EXPECT_NE(Refusal(kDense, "64").find("saw \"64\""), std::string::npos) << Refusal(kDense, "64");
  for (const char* text : {"M=", "M=x", "M=1,,2", "", "M=1.5", "M=99999999999999999999"})
    EXPECT_NE(Refusal(kDense, text), "") << text;
}

TEST(SpreadSizes, EvenlyAndTheEndsOfCases) {
  ScheduleCases cases;
  cases.size = "M";
  cases.cases = {{{{1, 2}}, {}, {}}, {{{3, 6}, {9, 9}}, {}, {}}, {{{7, 8}, {10, 512}}, {}, {}}};
  const Lists lists = SpreadSizes(kDense, cases);
  EXPECT_TRUE(std::is_sorted(lists.begin(), lists.end()));
  EXPECT_EQ(lists.front(), (std::vector<int64_t>{1}));
  EXPECT_EQ(lists.back(), (std::vector<int64_t>{512}));
  for (int64_t end : {2, 3, 9, 7})
    EXPECT_NE(std::find(lists.begin(), lists.end(), std::vector<int64_t>{end}), lists.end()) << end;
  EXPECT_EQ(SpreadSizes(kTwo, {}).front(), (std::vector<int64_t>{1, 10}));
}

TEST(SharesOf, CountsEverySizeAlike) {
  EXPECT_EQ(SharesOf({7}, 1, 512), (std::vector<double>{1}));
  EXPECT_EQ(SharesOf({1, 2, 3, 4}, 1, 4), (std::vector<double>{0.25, 0.25, 0.25, 0.25}));
  const std::vector<double> shares = SharesOf({1, 64, 512}, 1, 512);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
  EXPECT_LT(shares[0], shares[1]);
}

TEST(HasDynamicSizes, TellsRangesFromConstants) {
  EXPECT_TRUE(HasDynamicSizes("dense(M=1..512,N=64,K=32)"));
  EXPECT_FALSE(HasDynamicSizes("dense(M=512,N=64,K=32)"));
  EXPECT_FALSE(HasDynamicSizes("no kernel"));
}

}  // namespace
}  // namespace hone::cli
