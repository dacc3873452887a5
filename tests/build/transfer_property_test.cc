// Whatever the donor and its schedule, a fit to other sizes is refused with a reason, or computes what the reference
// says: library operations and random kernels, donors with random legal schedules and with those of the rules.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "ir/schedule/fit_schedule.h"
#include "tests/support/odd_kernels.h"
#include "tests/support/operation_samples.h"
#include "tests/support/random_kernel.h"
#include "tests/support/random_schedule.h"
#include "tests/support/run_cases.h"
#include "tests/support/run_kernel.h"

namespace hone::transfer_property_test {
namespace {

constexpr uint64_t kUsualSeed = 29;
constexpr int kOddKernels = 120;
constexpr int kRandomKernels = 300;
constexpr int kAttempts = 30;

// The same text with other sizes, of the same class; "" if none was found.
std::string OtherSizes(const std::string& text, Rng& rng) {
  static const std::regex kSize("\\b([A-Z])=([0-9]+)");
  static constexpr int kExtents[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 33};
  const std::string class_text = Canonicalize(ParseKernel(text).value()).class_text;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string other;
    auto begin = std::sregex_iterator(text.begin(), text.end(), kSize);
    size_t from = 0;
    for (auto match = begin; match != std::sregex_iterator(); ++match) {
      other += text.substr(from, static_cast<size_t>(match->position()) - from);
      const std::string value =
          rng.Chance(0.7) ? std::to_string(kExtents[rng.Below(std::size(kExtents))]) : (*match)[2].str();
      other += (*match)[1].str() + "=" + value;
      from = static_cast<size_t>(match->position() + match->length());
    }
    other += text.substr(from);
    if (other == text) continue;
    Result<Kernel> kernel = ParseKernel(other);
    if (kernel && Canonicalize(*kernel).class_text == class_text && FlopCount(*kernel) < 3e6) return other;
  }
  return "";
}

// Of the rules with every decision at random, or random steps.
Schedule DonorSchedule(const Kernel& donor, const Target& target, bool by_rules, Rng& rng) {
  if (!by_rules) return RandomSchedule(donor, target, rng).Make();
  auto chooser = [&](const Choice& choice) {
    return rng.Chance(0.5) ? choice.options[rng.Below(choice.options.size())] : choice.preferred;
  };
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Result<Plan> plan = PlanSchedule(donor, target, chooser);
    if (plan && ApplySchedule(donor, plan->schedule)) return plan->schedule;
  }
  return {};
}

void TryFit(const std::string& donor_text, const std::string& text, const Target& target, bool by_rules, uint64_t seed,
            double slack, Rng& rng, CaseLog& log) {
  Kernel donor = Specialize(ParseKernel(donor_text).value());
  Schedule schedule = DonorSchedule(donor, target, by_rules, rng);
  log.Note(fmt::format("donor {}\n{}\nkernel {}\n{}", donor_text, PrintSchedule(schedule), text, PrintTarget(target)));
  KernelCase kernel(text, seed, slack);
  const Kernel wanted = Specialize(ParseKernel(text).value());
  const std::string way = by_rules ? "rules: " : "random: ";
  Result<Fit> strict = FitToShape(donor, schedule, wanted, FitMode::kStrict, 2);
  log.Count(way + (strict ? "strict fits" : "strict refused"));
  Result<Fit> fit = FitToShape(donor, schedule, wanted, FitMode::kFitted, 2);
  if (!fit) {
    EXPECT_FALSE(fit.error().message.empty());
    log.Count(way + "fit refused");
    return;
  }
  if (strict && !fit->IsExact()) log.Count(way + "fits otherwise than strictly");
  if (fit->notes.size() != schedule.size()) return log.Fail("a step without a note");
  log.Note(fmt::format("donor {}\n{}\nkernel {}\n{}\nfit\n{}", donor_text, PrintSchedule(schedule), text,
                       PrintTarget(target), PrintSchedule(fit->schedule)));
  RunOutcome outcome = BuildAndRun(kernel, PrintSchedule(fit->schedule) + "# end\n", target);
  if (!outcome.failure.empty()) return log.Fail(outcome.failure);
  log.Count(way + (outcome.refusal.empty() ? "ran" : "build refused"));
}

void Expect(const CaseReport& report, uint64_t seed) {
  std::printf("seed %lu\n", seed);
  for (const auto& [label, count] : report.counts) std::printf("%8ld %s\n", count, label.c_str());
  EXPECT_TRUE(report.failures.empty()) << "HONE_SEED=" << seed << "\n" << report.Text();
  // Most fits are good for something.
  EXPECT_GT(report.count("rules: ran"),
            3 * (report.count("rules: fit refused") + report.count("rules: build refused")));
}

TEST(TransferProperty, FitsOfLibraryOperations) {
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  const std::vector<Target> targets = TestTargets();
  std::vector<std::string> kernels = OperationSamples();
  Rng rng(seed);
  for (int i = RoundsFromEnvironment(kOddKernels); i-- > 0;) kernels.push_back(OddKernel(rng));
  CaseReport report = RunCases(static_cast<int>(kernels.size()), [&](int index, CaseLog& log) {
    for (int s = 0; s < 4; ++s) {
      Rng own = Rng(seed).Fork(static_cast<uint64_t>(4 * index + s));
      const std::string& donor = kernels[static_cast<size_t>(index)];
      log.Note(donor);
      const std::string text = OtherSizes(donor, own);
      if (text.empty()) continue;
      TryFit(donor, text, targets[static_cast<size_t>(index + s) % targets.size()], s % 2 == 0, seed, 1, own, log);
    }
  });
  Expect(report, seed);
}

TEST(TransferProperty, FitsOfRandomKernels) {
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  const std::vector<Target> targets = TestTargets();
  CaseReport report = RunCases(RoundsFromEnvironment(kRandomKernels), [&](int index, CaseLog& log) {
    Rng own = Rng(seed).Fork(static_cast<uint64_t>(index));
    const std::string donor = RandomKernel(own).Text();
    log.Note(donor);
    const std::string text = OtherSizes(donor, own);
    if (text.empty()) return log.Count("no other sizes");
    const double slack = 6 * std::sqrt(static_cast<double>(LongestReduction(ParseKernel(text).value())));
    for (bool by_rules : {true, false})
      TryFit(donor, text, targets[static_cast<size_t>(index) % targets.size()], by_rules, seed, slack, own, log);
  });
  Expect(report, seed);
}

}  // namespace
}  // namespace hone::transfer_property_test
