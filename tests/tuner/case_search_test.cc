// Searches of kernels with a range of sizes, on a made-up device: what a mishap costs, and what a search may take.
#include "tuner/case_search.h"

#include <gtest/gtest.h>

#include "codegen/rules/plan_cases.h"
#include "ir/language/parse.h"
#include "tests/tuner/scripted_evaluator.h"

namespace hone::case_search_test {
namespace {

using testing::ScriptedEvaluator;

constexpr const char* kKernel = "matmul(M=1..9,N=32,K=16)";

Target Machine() {
  CpuTarget target;
  target.cpu = "haswell";
  return target;
}

// A search in which timings fail as the test says, counted through all evaluators.
Result<CasesFound> SearchWith(const std::function<std::optional<Error>(int timing)>& on_time, int trials) {
  const Kernel kernel = ParseKernel(kKernel).value();
  const std::string served = PrintScheduleCases(PlanCases(kernel, Machine(), false).value());
  int timings = 0;
  auto make_rig = [&](const std::string&) -> Result<std::unique_ptr<Evaluator>> {
    auto evaluator = std::make_unique<ScriptedEvaluator>();
    evaluator->on_time = [&](int) { return on_time(timings++); };
    return std::unique_ptr<Evaluator>(std::move(evaluator));
  };
  const SearchOptions options{.trials = trials, .seed = 7, .strategy = Strategy::kEvolution};
  return SearchCases(kernel, Machine(), served, make_rig, nullptr, options, {}, {});
}

TEST(CaseSearch, MakesAsManyTrialsAsItMay) {
  for (int trials : {1, 7, 12, 64, 101}) {
    Result<CasesFound> found = SearchWith([](int) { return std::nullopt; }, trials);
    ASSERT_TRUE(found) << found.error().Text();
    EXPECT_EQ(found->search.progress.trials, trials);
    EXPECT_FALSE(found->search.exhausted);
  }
}

// Any of the tiles may be the one that could not be measured, and all that are left together be of no use.
TEST(CaseSearch, ATileThatIsNotMeasuredIsLeftOut) {
  const Error disturbed{ErrorKind::kBusy, "never quiet", ""};
  for (int first = 0; first < 24; ++first)
    for (int last : {first, first + 3}) {
      Result<CasesFound> found = SearchWith(
          [&](int timing) { return timing >= first && timing <= last ? std::optional(disturbed) : std::nullopt; }, 64);
      ASSERT_TRUE(found) << found.error().Text();
      EXPECT_EQ(found->search.progress.trials, 64);
    }
}

}  // namespace
}  // namespace hone::case_search_test
