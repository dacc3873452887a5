#include "ir/schedule/schedule_cases.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/language/parse.h"

namespace hone::schedule_cases_test {
namespace {

constexpr char kThree[] =
    "case M=1\n"
    "split y.n 16\n"
    "vectorize y.n.1\n"
    "case M=2..3 9..16\n"
    "# choices: y.rows=2\n"
    "split y.m 2\n"
    "case M=4..8\n";

Kernel Parse(const std::string& text) { return ParseKernel(text).value(); }

std::string RefusalOf(const std::string& text) {
  Result<ScheduleCases> cases = ParseScheduleCases(text);
  return cases ? "" : cases.error().Text();
}

// Of cases in front of nothing, on matmul's M.
std::string GapIn(const std::string& text) {
  Result<int> size = FindCaseSize(Parse("matmul(M=1..16,N=64,K=32)"), ParseScheduleCases(text).value());
  return size ? "" : size.error().Text();
}

TEST(ScheduleCases, RoundTrip) {
  Result<ScheduleCases> cases = ParseScheduleCases(kThree);
  ASSERT_TRUE(cases) << cases.error().Text();
  EXPECT_EQ(PrintScheduleCases(*cases), kThree);
  ASSERT_EQ(cases->cases.size(), 3u);
  EXPECT_EQ(cases->size, "M");
  EXPECT_EQ(cases->cases[1].ranges, (std::vector<SizeRange>{{2, 3}, {9, 16}}));
  EXPECT_EQ(cases->cases[1].choices, "y.rows=2");
  EXPECT_EQ(cases->cases[0].steps.size(), 2u);
  EXPECT_TRUE(cases->cases[2].steps.empty());
}

TEST(ScheduleCases, ATextWithoutHeadersIsOneSchedule) {
  for (const char* text : {"", "split y.n 4\n", "# choices: y.rows=2\nsplit y.n 4\nunroll y.n.1\n"}) {
    EXPECT_FALSE(HasCases(text));
    Result<ScheduleCases> cases = ParseScheduleCases(text);
    ASSERT_TRUE(cases);
    EXPECT_EQ(cases->size, "");
    ASSERT_EQ(cases->cases.size(), 1u);
    EXPECT_TRUE(cases->cases[0].ranges.empty());
    EXPECT_EQ(PrintScheduleCases(*cases), text);
  }
  EXPECT_FALSE(HasCases("# case M=1\nsplit case.n 4\n"));
  EXPECT_TRUE(HasCases("# a comment\n  case M=1\n"));
}

TEST(ScheduleCases, CommentsAndBlanksMayComeFirst) {
  EXPECT_EQ(ParseScheduleCases(std::string("\n# three\n  ") + kThree).value(), ParseScheduleCases(kThree).value());
}

TEST(ScheduleCases, RefusalsNameThePlace) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"case\n", "schedule:1:5"},
      {"case 4\n", "schedule:1:6"},
      {"case M=\n", "schedule:1:8"},
      {"case M=x\n", "schedule:1:8"},
      {"case M=1...4\n", "schedule:1:8"},
      {"case M=1..\n", "schedule:1:8"},
      {"case M=-1\n", "schedule:1:8"},
      {"case M=99999999999999999999\n", "schedule:1:8"},
      {"case M=1..2199023255552\n", "schedule:1:8"},
      {"case M=4..2\n", "schedule:1:8"},
      {"case M=1..4 4..8\n", "schedule:1:13"},
      {"case M=1..4 5..8\n", "schedule:1:13"},
      {"case M=1\n\ncase N=2\n", "schedule:3:6"},
      {"split y.n 4\ncase M=1\n", "schedule:1:1"},
      {"case M=1\nsplit y.n 4\ncase M=2\nsplit y.n\n", "schedule:4:"},
      {"\n\ncase M=1\nfold y.n\n", "schedule:4:1"},
  };
  for (auto& [text, place] : kWrong)
    EXPECT_NE(RefusalOf(text).find(place), std::string::npos) << text << RefusalOf(text);
}

TEST(ScheduleCases, LimitsOnTheirNumber) {
  std::string text;
  for (int i = 1; i <= 65; ++i) text += "case M=" + std::to_string(i) + "\n";
  EXPECT_NE(RefusalOf(text).find("more than 64 cases"), std::string::npos) << RefusalOf(text);
  std::string ranges = "case M=";
  for (int i = 0; i <= 4096; ++i) ranges += std::to_string(3 * i) + " ";
  EXPECT_NE(RefusalOf(ranges).find("4096"), std::string::npos);
  EXPECT_NE(RefusalOf(std::string(2 << 20, ' ')), "");
}

TEST(ScheduleCases, CoverTheRangeExactly) {
  EXPECT_EQ(GapIn(kThree), "");
  EXPECT_NE(GapIn("case M=2..16\n").find("M=1 is in no case"), std::string::npos);
  EXPECT_NE(GapIn("case M=1..7\ncase M=9..16\n").find("M=8 is in no case"), std::string::npos);
  EXPECT_NE(GapIn("case M=1..15\n").find("M=16 is in no case"), std::string::npos);
  EXPECT_NE(GapIn("case M=1..16\ncase M=3\n").find("M=3 is in two cases"), std::string::npos);
  EXPECT_NE(GapIn("case M=0..16\n").find("below the range"), std::string::npos);
  EXPECT_NE(GapIn("case M=1..17\n").find("above the range"), std::string::npos);
  EXPECT_NE(GapIn("case M=1..16\ncase M=22\n").find("M=22 is above the range"), std::string::npos);
  EXPECT_NE(GapIn("case N=1..16\n").find("it is always 64"), std::string::npos);
  EXPECT_NE(GapIn("case Q=1..16\n").find("no such size"), std::string::npos);
}

TEST(ScheduleCases, ACaseNarrowsTheKernel) {
  const Kernel kernel = Parse("matmul(M=1..16,N=64,K=32)");
  const ScheduleCases cases = ParseScheduleCases(kThree).value();
  const int size = FindCaseSize(kernel, cases).value();
  const Kernel one = KernelOfCase(kernel, size, cases.cases[0]), some = KernelOfCase(kernel, size, cases.cases[1]);
  EXPECT_TRUE(IsStatic(one));
  EXPECT_EQ(one.stages.front().axes[0].extent.op(), Op::kInt);
  EXPECT_EQ(LowerExtent(some, some.stages.front().axes[0].extent), 2);
  EXPECT_EQ(UpperExtent(some, some.stages.front().axes[0].extent), 16);
}

TEST(ScheduleCases, AConstantWhoseShapeIsNotKnownIsNotPacked) {
  const Kernel kernel = Parse("dense(M=1..16,N=2..4,K=32,const=1)+bias");
  const Kernel packable = KernelOfCase(Parse("dense(M=1..16,N=4,K=32,const=1)+bias"), -1, {});
  EXPECT_TRUE(packable.tensors[packable.operands[1]].is_const);
  const Kernel case_of_three = KernelOfCase(kernel, 1, {{{3, 3}}, {}, {}});
  EXPECT_FALSE(case_of_three.tensors[case_of_three.operands[1]].is_const);
}

TEST(ScheduleCases, SizesToCheckAreEndsAndBetween) {
  const Kernel kernel = Parse("matmul(M=1..16,N=64,K=32)");
  std::vector<std::vector<int64_t>> sizes = SizesToCheck(kernel, kThree).value();
  EXPECT_EQ(sizes[0], (std::vector<int64_t>{16}));
  std::vector<int64_t> values;
  for (const std::vector<int64_t>& one : sizes) values.push_back(one.at(0));
  std::sort(values.begin(), values.end());
  EXPECT_EQ(values, (std::vector<int64_t>{1, 2, 3, 4, 6, 8, 9, 13, 16}));
  EXPECT_EQ(SizesToCheck(Parse("matmul(M=16,N=64,K=32)"), "").value(), (std::vector<std::vector<int64_t>>{{}}));
  EXPECT_EQ(SizesToCheck(Parse("softmax(M=1..100,N=8)"), "").value(),
            (std::vector<std::vector<int64_t>>{{100}, {1}, {62}}));
}

TEST(ScheduleCases, SeveralSizesGoAlong) {
  const Kernel kernel = Parse(
      "kernel two(a: f32[P, 4], b: f32[Q, 4]) -> c: f32[P, 4], d: f32[Q, 4] where P=1..9, Q=10..20 "
      "{ c[i, j] = a[i, j] + 1.0\n d[i, j] = b[i, j] * 2.0 }");
  std::vector<std::vector<int64_t>> sizes = SizesToCheck(kernel, "").value();
  EXPECT_EQ(sizes, (std::vector<std::vector<int64_t>>{{9, 20}, {1, 10}, {6, 16}, {9, 10}, {1, 20}}));
}

// Code that takes one size for another is right wherever they are equal.
TEST(ScheduleCases, OfAnyTwoSizesEachIsTheSmallerOneSomewhere) {
  const Kernel kernel = Parse(
      "kernel five(a: f32[P, Q], b: f32[R, S, T]) -> c: f32[P, Q], d: f32[R, S, T] "
      "where P=1..8, Q=1..8, R=1..8, S=1..8, T=1..8 { c[i, j] = a[i, j] + 1.0\n d[i, j, k] = b[i, j, k] * 2.0 }");
  const std::vector<std::vector<int64_t>> sizes = SizesToCheck(kernel, "").value();
  EXPECT_LT(sizes.size(), 12u);
  for (size_t a = 0; a < 5; ++a)
    for (size_t b = 0; b < 5; ++b)
      EXPECT_TRUE(a == b || std::any_of(sizes.begin(), sizes.end(), [&](const auto& one) { return one[a] < one[b]; }))
          << a << " and " << b;
}

TEST(AtSizes, RefusesWhatIsOutOfRange) {
  const Kernel kernel = Parse("matmul(M=2..16,N=64,K=32)");
  EXPECT_TRUE(IsStatic(AtSizes(kernel, {7}).value()));
  EXPECT_NE(AtSizes(kernel, {1}).error().Text().find("M=1 is out of its range, 2..16"), std::string::npos);
  EXPECT_FALSE(AtSizes(kernel, {17}));
  EXPECT_FALSE(AtSizes(kernel, {}));
  EXPECT_FALSE(AtSizes(kernel, {3, 4}));
}

}  // namespace
}  // namespace hone::schedule_cases_test
