// What the scheduling rules lead to, whatever is chosen: every list of choices either is refused or computes the
// reference. Convolutions of looser accuracy come here too, for Winograd's rewrite.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "codegen/rules/choices.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "tests/support/odd_kernels.h"
#include "tests/support/odd_numbers.h"
#include "tests/support/operation_samples.h"
#include "tests/support/random_schedule.h"
#include "tests/support/run_cases.h"
#include "tests/support/run_kernel.h"

namespace hone::choices_property_test {
namespace {

constexpr uint64_t kUsualSeed = 17;
constexpr int kOddKernels = 60;
constexpr int kPlans = 4;  // of each kernel

// 3×3 windows of every kind that the rewrite takes, and of some that it does not.
std::vector<std::string> RelaxedConvolutions() {
  std::vector<std::string> kernels;
  for (const char* shape : {
           "C=16,H=14,W=14,O=24,pad=1",
           "C=5,H=13,W=31,O=7,pad=1",
           "C=8,H=9,W=7,O=16,pad=0",
           "N=3,C=7,H=8,W=10,O=13,pad=1",
           "C=4,H=7,W=7,O=32,pad=[0,1,2,3]",
           "C=6,H=12,W=12,O=9,groups=3,pad=1",
           "C=3,H=3,W=3,O=2",
           "C=33,H=4,W=70,O=5,pad=2",
           "C=8,H=9,W=9,O=8,pad=1,stride=2",
           "C=8,H=11,W=11,O=8,pad=2,dilation=2",
           "C=2,H=40,W=5,O=64,pad=1",
       })
    for (const char* rest :
         {"accuracy=relaxed,const=1)+bias+relu", "accuracy=relaxed,const=1,threads=1)",
          "accuracy=fast,const=1)+bias+add+gelu", "accuracy=relaxed)", "accuracy=relaxed,const=1,dtype=f64)"})
      kernels.push_back(fmt::format("conv2d({},R=3,S=3,{}", shape, rest));
  return kernels;
}

// The chooser of a kernel's plan number p.
using Choosers = std::function<Chooser(Rng& rng, int p)>;

Chooser AtRandom(Rng& rng, double share) {
  return [&rng, share](const Choice& choice) {
    return rng.Chance(share) ? choice.options[rng.Below(choice.options.size())] : choice.preferred;
  };
}

// The rules' own first, then ever more at random.
Chooser EverMoreAtRandom(Rng& rng, int p) { return AtRandom(rng, p / 4.0); }

// Columns in memory, columns in the panel; then the same with the rest at random.
Chooser OfColumns(Rng& rng, int p) {
  return [p, rest = AtRandom(rng, p / 6.0)](const Choice& choice) {
    return choice.site.ends_with(".im2col") ? 1 + p % 2 : p < 2 ? choice.preferred : rest(choice);
  };
}

// One pass over a row, in blocks of ever other sizes; then the same with the rest at random.
Chooser OfBlocks(Rng& rng, int p) {
  return [p, rest = AtRandom(rng, p / 6.0)](const Choice& choice) {
    if (choice.site.ends_with(".rule")) return choice.preferred;
    if (choice.site.ends_with(".online"))
      return choice.options[1 + static_cast<size_t>(p) % (choice.options.size() - 1)];
    return rest(choice);
  };
}

void Expect(const std::vector<std::string>& kernels, uint64_t seed, const std::string& step, int least,
            const Choosers& choosers = EverMoreAtRandom,
            const std::function<void(const Kernel& kernel, KernelInputs& inputs)>& change = {}) {
  const std::vector<Target> targets = TestTargets();
  CaseReport report = RunCases(static_cast<int>(kernels.size()), [&](int index, CaseLog& log) {
    const std::string& text = kernels[static_cast<size_t>(index)];
    KernelCase kernel(text, seed, 1, change);
    for (int p = 0; p < kPlans; ++p) {
      Rng rng = Rng(seed).Fork(static_cast<uint64_t>(index * kPlans + p));
      const Target& target = targets[static_cast<size_t>(p + index) % targets.size()];
      Result<Plan> plan = PlanSchedule(Specialize(kernel.kernel()), target, choosers(rng, p));
      if (!plan) {
        log.Fail(fmt::format("{}: {}", text, plan.error().Text()));
        continue;
      }
      std::string schedule = PrintSchedule(plan->schedule);
      log.Note(fmt::format("{}\n{}\n{}\n{}", text, PrintTarget(target), PrintChoices(plan->choices), schedule));
      RunOutcome outcome = BuildAndRun(kernel, schedule, target);
      if (!outcome.failure.empty()) {
        log.Fail(outcome.failure);
        continue;
      }
      log.Count(outcome.refusal.empty() ? "ran" : "refused");
      if (!outcome.refusal.empty())
        log.Count("refused: " + outcome.refusal.substr(0, 100));
      else if (schedule.find(step) != std::string::npos)
        log.Count("with step");
    }
  });
  std::printf("seed %lu\n", seed);
  for (const auto& [label, count] : report.counts) std::printf("%8ld %s\n", count, label.c_str());
  for (const CaseFailure& failure : report.failures)
    ADD_FAILURE() << "HONE_SEED=" << seed << " case " << failure.index << ": " << failure.text << "\n" << failure.note;
  EXPECT_GT(report.count("ran"), 3 * report.count("refused"));
  EXPECT_GE(report.count("with step"), least);
}

TEST(ChoicesProperty, OfLibraryOperations) {
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  std::vector<std::string> kernels = OperationSamples();
  Rng rng(seed);
  for (int i = RoundsFromEnvironment(kOddKernels); i-- > 0;) kernels.push_back(OddKernel(rng));
  Expect(kernels, seed, "vectorize", 100);
}

TEST(ChoicesProperty, OfRelaxedConvolutions) {
  Expect(RelaxedConvolutions(), SeedFromEnvironment(kUsualSeed), "rewrite winograd", 30);
}

TEST(ChoicesProperty, OfWindowsAsColumns) {
  std::vector<std::string> kernels;
  for (const std::string& text : OperationSamples())
    if (text.starts_with("conv2d")) kernels.push_back(text);
  kernels.push_back(
      "kernel c(x: f32[C, H + 2, W + 4], f: f32[O, C, 3, 3]) -> y: f32[O, H, W] where C=5, H=9, W=33, O=7 { "
      "y[o, h, w] = sum(c, r < 3, s < 3) x[c, h + r, w + 2*s] * f[o, c, r, s] }");
  Expect(kernels, SeedFromEnvironment(kUsualSeed), "rewrite im2col", static_cast<int>(kernels.size()), OfColumns);
}

// Windows that reach beyond the image on any side, and weights of every kind.
std::vector<std::string> PaddedWindows() {
  std::vector<std::string> kernels;
  for (const char* shape : {
           "C=9,H=7,W=7,O=33,R=3,S=3,pad=1",
           "C=40,H=14,W=14,O=16,R=3,S=3,pad=1",
           "C=7,H=5,W=9,O=20,R=5,S=5,pad=2",
           "C=8,H=6,W=17,O=24,R=1,S=7,pad=[0,3]",
           "C=6,H=4,W=4,O=48,R=3,S=3,pad=[0,1,2,3]",
           "C=12,H=9,W=9,O=18,R=3,S=3,pad=2,dilation=2",
           "C=16,H=8,W=8,O=16,R=3,S=3,pad=1,stride=2",
           "N=2,C=12,H=7,W=6,O=36,R=3,S=3,groups=3,pad=1",
           "C=3,H=2,W=2,O=8,R=5,S=5,pad=4",
           "C=1,H=6,W=6,O=16,R=3,S=3,pad=1",
       })
    for (const char* rest : {"const=1)", "const=1)+bias+relu", "const=1,threads=1,dtype=f64)"})
      kernels.push_back(fmt::format("conv2d({},{}", shape, rest));
  return kernels;
}

// Terms of padding left out by loops, by copies of their bodies, and with the rest at random.
Chooser OfPadding(Rng& rng, int p) {
  return [p, rest = AtRandom(rng, p / 6.0)](const Choice& choice) {
    return choice.site.ends_with(".trim") ? choice.options[choice.options.size() - 1 - static_cast<size_t>(p % 2)]
                                          : rest(choice);
  };
}

TEST(ChoicesProperty, OfWindowsWithoutPadding) {
  Expect(PaddedWindows(), SeedFromEnvironment(kUsualSeed), "rewrite trim_padding", 25, OfPadding);
}

TEST(ChoicesProperty, OfWindowsWithoutPaddingAndOddNumbers) {
  for (size_t operand : {size_t{0}, size_t{1}}) {
    auto change = [operand](const Kernel& kernel, KernelInputs& inputs) { PutOddNumbers(kernel, inputs, operand); };
    Expect(PaddedWindows(), SeedFromEnvironment(kUsualSeed), "rewrite trim_padding", 25, OfPadding, change);
  }
}

std::vector<std::string> Rows() {
  std::vector<std::string> kernels;
  for (const char* shape : {"M=11,N=256", "M=13,N=300", "M=12,N=1031", "M=4,N=1280", "M=1,N=4099", "M=2,N=5000"})
    for (const char* kernel : {"softmax({})+add", "softmax({},dtype=f64)", "layer_norm({},const=1)+gelu"})
      kernels.push_back(fmt::format(fmt::runtime(kernel), shape));
  kernels.push_back(R"(kernel sums(x: f32[M, N]) -> y: f32[M] where M=22, N=700 {
    y[i] = (max(k) x[i, k]) + log(sum(k) exp(x[i, k] - max(l) x[i, l]))
  })");
  kernels.push_back(R"(kernel moments(x: f32[M, N]) -> mean: f32[M], variance: f32[M] where M=22, N=640 {
    mean[m] = (sum(n) x[m, n]) / float(N)
    variance[m] = (sum(n) ((x[m, n] - mean[m]) * (x[m, n] - mean[m]))) / float(N)
  })");
  kernels.push_back(R"(kernel causal(q: f32[H, N, D], k: f32[H, N, D]) -> p: f32[H, N, N] where H=2, N=264, D=3 {
    s: f32[H, N, N]
    s[h, i, j] = if(j <= i, (sum(d) q[h, i, d] * k[h, j, d]) / sqrt(float(D)), -inf)
    p[h, i, j] = exp(s[h, i, j] - max(l) s[h, i, l]) / sum(l) exp(s[h, i, l] - max(m) s[h, i, m])
  })");
  return kernels;
}

TEST(ChoicesProperty, OfRowsInOnePass) {
  Expect(Rows(), SeedFromEnvironment(kUsualSeed), "rewrite online_reduction", 3 * static_cast<int>(Rows().size()),
         OfBlocks);
}

TEST(ChoicesProperty, OfRowsInOnePassWithOddNumbers) {
  auto change = [](const Kernel& kernel, KernelInputs& inputs) { PutOddNumbers(kernel, inputs); };
  Expect(Rows(), SeedFromEnvironment(kUsualSeed), "rewrite online_reduction", 3 * static_cast<int>(Rows().size()),
         OfBlocks, change);
}

}  // namespace
}  // namespace hone::choices_property_test
