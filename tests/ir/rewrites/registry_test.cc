// The tables of rewrites and of steps: every row is found by the word that schedules name it with.
#include "ir/rewrites/registry.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ir/language/parse.h"
#include "ir/schedule/apply.h"
#include "ir/schedule/schedule.h"
#include "ir/steps/step_type.h"
#include "tests/support/rewrites.h"
#include "tests/support/same_function.h"

namespace hone {
namespace {

TEST(Rewrites, AreFoundByTheirNames) {
  std::set<std::string_view> names;
  for (const GraphRewrite* rewrite : AllRewrites()) {
    EXPECT_TRUE(names.insert(rewrite->name).second) << rewrite->name << " is there twice";
    EXPECT_EQ(FindRewrite(rewrite->name), rewrite);
    EXPECT_FALSE(rewrite->takes.empty()) << rewrite->name;
  }
  EXPECT_EQ(FindRewrite("transpose"), nullptr);
}

// With too few arguments, and with too many: nothing gets as far as the rewrite itself.
TEST(Rewrites, RefuseOtherArgumentsThanTheyTake) {
  const Kernel kernel = Parsed("kernel k(x: f32[M, N]) -> y: f32[M] where M=5, N=7 { y[m] = sum(n) x[m, n] }");
  for (const GraphRewrite* rewrite : AllRewrites()) {
    const std::string refusal = std::string(rewrite->name) + " takes " + std::string(rewrite->takes);
    auto refusal_of = [&](size_t names, size_t numbers) {
      const RewriteStep step{std::string(rewrite->name), "y", std::vector<std::string>(names, "z"),
                             std::vector<int64_t>(numbers, 1)};
      Result<Kernel> rewritten = ApplyRewrite(kernel, step);
      return rewritten ? "no refusal" : rewritten.error().message;
    };
    EXPECT_EQ(refusal_of(rewrite->names, rewrite->numbers + 1), refusal);
    if (rewrite->names > 0) { EXPECT_EQ(refusal_of(rewrite->names - 1, rewrite->numbers), refusal); }
    if (!rewrite->or_more_names) { EXPECT_EQ(refusal_of(rewrite->names + 1, rewrite->numbers), refusal); }
    EXPECT_NE(refusal_of(rewrite->names, rewrite->numbers), refusal);
  }
}

TEST(Rewrites, OnlyCoarserRoundingNeedsAnAccuracyThatAllowsIt) {
  for (Rounding rounding : {Rounding::kSame, Rounding::kReordered, Rounding::kCoarser, Rounding::kCoarsest}) {
    EXPECT_EQ(Admits(Accuracy::kStrict, rounding), rounding < Rounding::kCoarser);
    EXPECT_EQ(Admits(Accuracy::kRelaxed, rounding), rounding < Rounding::kCoarsest);
    EXPECT_TRUE(Admits(Accuracy::kFast, rounding));
  }
  for (const GraphRewrite* rewrite : AllRewrites()) {
    const std::string_view name = rewrite->name;
    const Rounding expected = name == "winograd" || name == "bf16_pieces" ? Rounding::kCoarser
                              : name == "bf16_factors"                    ? Rounding::kCoarsest
                              : name == "online_reduction"                ? Rounding::kReordered
                                                                          : Rounding::kSame;
    EXPECT_EQ(rewrite->rounding, expected) << name;
  }
}

TEST(Rewrites, InASchedulePromiseWhatTheKernelDoes) {
  const auto why = [](const std::string& accuracy, const std::string& step) {
    const Kernel kernel = *ParseKernel("matmul(M=4,N=4,K=4,const=1,accuracy=" + accuracy + ")");
    const Result<ScheduledKernel> applied = ApplySchedule(kernel, *ParseSchedule(step));
    return applied ? "" : applied.error().message;
  };
  const std::string rounded = "rewrite bf16_factors y x1 x2", in_pieces = "rewrite bf16_pieces y x1 x2";
  EXPECT_EQ(why("fast", rounded), "");
  EXPECT_EQ(why("relaxed", in_pieces), "");
  for (const char* accuracy : {"strict", "relaxed"})
    EXPECT_NE(why(accuracy, rounded)
                  .find("bf16_factors rounds as the kernel's accuracy does not allow: it wants accuracy=fast"),
              std::string::npos)
        << why(accuracy, rounded);
  EXPECT_NE(why("strict", in_pieces).find("it wants accuracy=relaxed"), std::string::npos) << why("strict", in_pieces);
}

TEST(Steps, AreFoundByTheirVerbs) {
  std::set<std::string_view> verbs;
  const Step examples[] = {RewriteStep{},   InlineStep{},    CacheReadStep{},    RfactorStep{},   SplitStep{},
                           FuseStep{},      ReorderStep{},   ParallelStep{},     VectorizeStep{}, UnrollStep{},
                           ComputeAtStep{}, StoreStep{},     RegisterTileStep{}, TailStep{},      PrefetchStep{},
                           BindStep{},      TensorizeStep{}, PipelineStep{}};
  for (const Step& step : examples) {
    const StepType& type = TypeOf(step);
    EXPECT_TRUE(verbs.insert(type.verb).second) << type.verb << " is there twice";
    EXPECT_EQ(FindStepType(type.verb), &type);
    EXPECT_TRUE(type.print(step).starts_with(type.verb));
  }
  EXPECT_EQ(verbs.size(), std::variant_size_v<Step>);
  EXPECT_EQ(FindStepType("transpose"), nullptr);
}

}  // namespace
}  // namespace hone
