#include "codegen/rules/plan_cases.h"

#include <gtest/gtest.h>

#include <set>

#include "codegen/lower/dispatch.h"
#include "codegen/lower/lower.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"

namespace hone {
namespace {

const Target kTarget = ParseTarget("avx512 cpu=sapphirerapids l1=49152 l2=2097152").value();

Kernel Parse(const std::string& text) { return Specialize(ParseKernel(text).value()); }

TEST(OutlineCases, FewCasesCoverTheRange) {
  for (const char* text : {"dense(M=1..512,N=768,K=768,const=1)+bias", "matmul(M=1..100,N=64,K=31)",
                           "matmul(M=37..40,N=64,K=31)", "dense(M=1..100000,N=64,K=64)", "matmul(M=1..2,N=16,K=16)"}) {
    const Kernel kernel = Parse(text);
    const CasesOutline outline = OutlineCases(kernel, kTarget);
    EXPECT_LE(outline.cases.size(), kMostDefaultCases) << text;
    ScheduleCases cases = PlanCases(kernel, kTarget, false).value();
    EXPECT_EQ(cases.cases.size(), outline.cases.size());
    EXPECT_EQ(FindCaseSize(kernel, cases).value(), outline.size) << text << "\n" << PrintScheduleCases(cases);
    // Each has a number of rows of its own, and no size less than that.
    std::set<int64_t> rows;
    for (const CaseOutline& which : outline.cases) {
      EXPECT_TRUE(rows.insert(which.rows).second);
      EXPECT_TRUE(which.ranges.empty() || which.rows <= which.ranges[0].lo) << text;
    }
  }
  EXPECT_GE(OutlineCases(Parse("dense(M=1..512,N=768,K=768,const=1)"), kTarget).cases.size(), 4u);
  EXPECT_LE(OutlineCases(Parse("dense(M=1..512,N=768,K=768,const=1)"), kTarget, 3).cases.size(), 3u);
}

TEST(OutlineCases, OneCaseWhereNoTileHasRowsAlongASize) {
  for (const char* text : {"softmax(M=1..64,N=100)", "add(M=1..100,N=16)", "dense(M=64,N=64,K=64)",
                           "conv2d(N=1..9,C=3,H=14,W=14,O=16,R=3,S=3,pad=1,const=1)"}) {
    const CasesOutline outline = OutlineCases(Parse(text), kTarget);
    EXPECT_EQ(outline.size, -1) << text;
    ASSERT_EQ(outline.cases.size(), 1u) << text;
    EXPECT_TRUE(outline.cases[0].ranges.empty());
  }
}

TEST(OutlineCases, FewSizesHaveCodeOfTheirOwnEach) {
  const CasesOutline outline = OutlineCases(Parse("conv2d(N=2..5,C=3,H=14,W=14,O=16,R=3,S=3,pad=1,const=1)"), kTarget);
  ASSERT_EQ(outline.cases.size(), 4u);
  EXPECT_EQ(outline.cases[3].ranges, (std::vector<SizeRange>{{5, 5}}));
}

TEST(PlanCases, AStaticKernelsOnlyCaseIsItsDefaultSchedule) {
  const Kernel kernel = Parse("dense(M=64,N=64,K=64,const=1)+bias");
  EXPECT_EQ(PlanCases(kernel, kTarget, false).value().cases[0].steps, DefaultSchedule(kernel, kTarget).value());
  EXPECT_EQ(PlanCases(kernel, kTarget, true).value().cases[0].steps, ModestSchedule(kernel, kTarget).value());
}

// Whole tiles are proven to be inside: no access of the register tile is guarded.
TEST(PlanCases, InnerLoopsHaveNoGuards) {
  const Kernel kernel = Parse("dense(M=1..512,N=768,K=768,const=1)");
  const ScheduleCases cases = PlanCases(kernel, kTarget, false).value();
  const int size = FindCaseSize(kernel, cases).value();
  for (const ScheduleCase& scheduled : cases.cases) {
    Result<ScheduledKernel> applied = ApplySchedule(KernelOfCase(kernel, size, scheduled), scheduled.steps);
    ASSERT_TRUE(applied) << applied.error().Text();
    Result<LoopProgram> program = Lower(*applied);
    ASSERT_TRUE(program) << program.error().Text();
    const std::string text = PrintProgram(*program);
    EXPECT_EQ(text.substr(text.find("entry")).find(">= 0"), std::string::npos) << text;
  }
}

TEST(PlanDispatch, CasesShareOnePackedCopy) {
  const Kernel kernel = Parse("dense(M=1..512,N=768,K=768,const=1)");
  const ScheduleCases cases = PlanCases(kernel, kTarget, false).value();
  const int size = FindCaseSize(kernel, cases).value();
  std::vector<LoopProgram> programs;
  for (const ScheduleCase& scheduled : cases.cases)
    programs.push_back(Lower(ApplySchedule(KernelOfCase(kernel, size, scheduled), scheduled.steps).value()).value());
  std::vector<ProgramBody> bodies;
  for (size_t i = 0; i < programs.size(); ++i) bodies.push_back({&programs[i], cases.cases[i].ranges, {}});
  const Dispatch dispatch = PlanDispatch(size, std::move(bodies));
  EXPECT_EQ(dispatch.copies.size(), 1u);
  EXPECT_EQ(dispatch.PackedBytes(1), 768 * 768 * 4);
  EXPECT_EQ(dispatch.PackedBytes(0), 0);
}

}  // namespace
}  // namespace hone
