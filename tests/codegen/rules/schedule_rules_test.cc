// The tables of rules: what they say is what planning does.
#include "codegen/rules/schedule_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

std::vector<Target> Targets() {
  std::vector<Target> targets;
  for (const char* text : {"avx2 cpu=generic cores=2", "avx512 cpu=generic cores=2", "neon cpu=generic cores=2"})
    targets.push_back(ParseTarget(text).value());
  return targets;
}

Plan PlanBy(const std::string& kernel, const Target& target, const Chooser& chooser) {
  return PlanSchedule(Specialize(ParseKernel(kernel).value()), target, chooser).value();
}

// Stored choices name rules by their positions.
TEST(ScheduleRules, KeepTheirPositions) {
  for (const Target& target : Targets()) {
    const RuleTable& rules = RulesFor(target);
    ASSERT_GE(rules.reductions.size(), 4u);
    EXPECT_EQ(rules.reductions[0].name, "contraction");
    EXPECT_EQ(rules.reductions[1].name, "window");
    EXPECT_EQ(rules.reductions[2].name, "rows");
  }
}

TEST(ScheduleRules, AreOptionsButForTheLast) {
  for (const Target& target : Targets()) {
    std::vector<int64_t> all;
    for (size_t i = 0; i + 1 < RulesFor(target).reductions.size(); ++i) all.push_back(static_cast<int64_t>(i));
    int asked = 0;
    for (const Choice& choice : PlanBy("matmul(M=64,N=64,K=64)", target, {}).choices)
      if (choice.decision.name == "rule") {
        ++asked;
        EXPECT_EQ(choice.options, all);
      }
    EXPECT_EQ(asked, 1);
  }
}

TEST(ScheduleRules, AreTriedInOrderFromTheOneThatIsChosen) {
  for (const Target& target : Targets()) {
    const std::span<const ScheduleRule> rules = RulesFor(target).reductions;
    for (size_t first = 0; first + 1 < rules.size(); ++first) {
      const Plan plan = PlanBy("softmax(M=64,N=256)", target, [&](const Choice& choice) {
        return choice.decision.name == "rule" ? static_cast<int64_t>(first) : choice.preferred;
      });
      for (size_t i = 0; i < rules.size(); ++i) {
        const bool is_left_out = std::ranges::any_of(plan.notes, [&](const RuleNote& note) {
          return note.rule == rules[i].name && !note.applied && note.why == "left out by a choice of the search";
        });
        const bool is_asked =
            std::ranges::any_of(plan.choices, [](const Choice& choice) { return choice.decision.name == "rule"; });
        EXPECT_EQ(is_left_out, is_asked && i < first) << rules[i].name << " " << first;
      }
    }
  }
}

// However a reduction is left by the others, the last rule takes it.
TEST(ScheduleRules, EndWithOneThatTakesEveryStage) {
  for (const Target& target : Targets()) {
    for (const char* text : {"matmul(M=3,N=5,K=7)", "add(M=1,N=1)", "softmax(M=2,N=3)"}) {
      const Kernel kernel = Specialize(ParseKernel(text).value());
      for (const Stage& stage : kernel.stages) {
        SchedulePlanner planner(kernel, target);
        const RuleTable& rules = RulesFor(target);
        const auto& last = (stage.reduction == Reduction::kNone ? rules.elementwise : rules.reductions).back();
        EXPECT_TRUE(last.schedule(planner, planner.NameOf(stage))) << text;
        EXPECT_TRUE(planner.IsScheduled(planner.NameOf(stage))) << text;
      }
    }
  }
}

}  // namespace
}  // namespace hone
