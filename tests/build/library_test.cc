// Every library operation at odd sizes, with the default schedule, on this machine's ISA and a smaller one: all
// elements against the reference, nothing touched outside the buffers, the number of workers not visible in the result.
#include <gtest/gtest.h>

#include <map>

#include "ir/language/parse.h"
#include "tests/support/odd_kernels.h"
#include "tests/support/operation_samples.h"
#include "tests/support/run_cases.h"
#include "tests/support/run_kernel.h"

namespace hone::library_test {
namespace {

constexpr uint64_t kUsualSeed = 11;
constexpr int kOddKernels = 160;

TEST(Library, DefaultSchedulesComputeTheReference) {
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  const std::vector<Target> targets = TestTargets();
  std::vector<std::string> kernels = OperationSamples();
  Rng rng(seed);
  for (int i = RoundsFromEnvironment(kOddKernels); i-- > 0;) kernels.push_back(OddKernel(rng));
  CaseReport report = RunCases(static_cast<int>(kernels.size()), [&](int index, CaseLog& log) {
    const std::string& text = kernels[static_cast<size_t>(index)];
    log.Note(text);
    if (Result<Kernel> parsed = ParseKernel(text); !parsed) return log.Fail(parsed.error().Text());
    KernelCase kernel(text, seed + static_cast<uint64_t>(index));
    for (const Target& target : targets) {
      log.Note(text + "\n" + PrintTarget(target));
      RunOutcome outcome = BuildAndRun(kernel, "", target);
      if (!outcome.failure.empty())
        log.Fail(outcome.failure + "\n" + outcome.schedule);
      else if (outcome.schedule.starts_with("# plain loops"))
        log.Fail(outcome.schedule);
      else
        log.Count("ran");
    }
  });
  EXPECT_TRUE(report.failures.empty()) << "seed " << seed << "\n" << report.Text();
  std::printf("seed %lu: %ld runs of %zu kernels\n", seed, report.count("ran"), kernels.size());
  EXPECT_EQ(report.count("ran") + static_cast<int64_t>(report.failures.size()),
            static_cast<int64_t>(kernels.size() * targets.size()));
}

}  // namespace
}  // namespace hone::library_test
