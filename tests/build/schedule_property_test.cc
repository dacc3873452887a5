// Whatever the schedule, the result is the reference's: library operations and random kernels under random legal
// schedules. What lowering or code generation refuses is counted; a wrong result, a crash, an element left unwritten or
// an access outside a buffer is a failure, printed with the shortest schedule that shows it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <optional>

#include "codegen/lower/lower.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "ir/schedule/apply.h"
#include "tests/support/odd_kernels.h"
#include "tests/support/operation_samples.h"
#include "tests/support/random_kernel.h"
#include "tests/support/random_schedule.h"
#include "tests/support/run_cases.h"
#include "tests/support/run_kernel.h"

namespace hone::schedule_property_test {
namespace {

constexpr uint64_t kUsualSeed = 13;
constexpr int kOddKernels = 100;
constexpr int kSchedules = 4;  // of each kernel
constexpr int kRandomKernels = 1000;
constexpr int kRandomRows = 300;
constexpr int kRandomWindows = 300;
constexpr size_t kShown = 8;  // failures

// Random kernels add and multiply the same number again and again, through several stages: rounding errors of one sign,
// that grow with the number of terms and not with its root.
double Slack(const Kernel& kernel) { return 6 * std::sqrt(static_cast<double>(LongestReduction(kernel))); }

// A refusal without what is particular to its case: "r1.tile is read before it is written" -> "… is read before …".
std::string ReasonOf(const std::string& refusal) {
  std::string text;
  bool in_name = false;
  for (size_t i = 0; i < refusal.size(); ++i) {
    size_t end = refusal.find_first_of(" :,", i);
    if (end == std::string::npos) end = refusal.size();
    std::string word = refusal.substr(i, end - i);
    bool name = word.find_first_of("0123456789._+'") != std::string::npos || word.size() < 2;
    if (!name)
      text += (text.empty() ? "" : " ") + word;
    else if (!in_name)
      text += text.empty() ? "…" : " …";
    in_name = name;
    i = end;
  }
  return text.substr(0, 120);
}

Schedule MakeSchedule(const Kernel& kernel, const Target& target, Rng& rng, const std::string& what, CaseLog& log,
                      Schedule start = {}) {
  RandomSchedule random(Specialize(kernel), target, rng, std::move(start));
  random.on_try = [&](const Schedule& tried) {
    log.Note(what + "\nwhile applying or lowering\n" + PrintSchedule(tried));
  };
  Schedule schedule = random.Make();
  for (const auto& [step, count] : random.refusals())
    for (int64_t i = 0; i < count; ++i) log.Count("proposal refused: " + step);
  return schedule;
}

// What a note holds, to try it again.
struct Trial {
  std::string kernel, target, schedule;

  static constexpr std::string_view kBetween = "\n----\n";
  std::string Text() const { return fmt::format("{}{}{}{}{}", kernel, kBetween, target, kBetween, schedule); }
  static std::optional<Trial> Read(const std::string& note) {
    size_t first = note.find(kBetween), second = note.rfind(kBetween);
    if (first == std::string::npos || first == second) return std::nullopt;
    size_t skip = kBetween.size();
    return Trial{note.substr(0, first), note.substr(first + skip, second - first - skip), note.substr(second + skip)};
  }
};

void TryOne(KernelCase& kernel, const std::string& schedule, const Target& target, CaseLog& log) {
  log.Note(Trial{kernel.text(), PrintTarget(target), schedule}.Text());
  RunOutcome outcome = BuildAndRun(kernel, schedule, target);
  if (!outcome.failure.empty()) return log.Fail(outcome.failure);
  log.Count(outcome.refusal.empty() ? "ran" : "build refused");
  if (!outcome.refusal.empty()) log.Count("refusal: " + ReasonOf(outcome.refusal));
}

// The shortest schedule with which a failed trial still fails.
std::string Shrunk(const std::string& note, uint64_t seed) {
  std::optional<Trial> trial = Trial::Read(note);
  if (!trial) return "";
  Result<Schedule> schedule = ParseSchedule(trial->schedule);
  Result<Target> target = ParseTarget(trial->target);
  if (!schedule || !target) return "";
  Result<Kernel> kernel = ParseKernel(trial->kernel);
  double slack = kernel && kernel->name == "random" ? Slack(*kernel) : 1;
  std::string how;
  auto fails = [&](const Schedule& shorter) {
    CaseReport report = RunCases(1, [&](int, CaseLog& log) {
      KernelCase kernel(trial->kernel, seed, slack);
      TryOne(kernel, PrintSchedule(shorter), *target, log);
    });
    if (!report.failures.empty()) how = report.failures[0].text;
    return !report.failures.empty();
  };
  if (!fails(*schedule)) return "passes when tried again\n";
  std::string shortest = PrintSchedule(ShrinkSchedule(*schedule, fails));
  return fmt::format("shortest schedule ({}):\n{}", how, shortest);
}

void ExpectNoFailure(const CaseReport& report, uint64_t seed) {
  std::printf("seed %lu\n", seed);
  for (const auto& [label, count] : report.counts) std::printf("%8ld %s\n", count, label.c_str());
  for (size_t i = 0; i < std::min<size_t>(report.failures.size(), kShown); ++i) {
    const CaseFailure& failure = report.failures[i];
    ADD_FAILURE() << "HONE_SEED=" << seed << " case " << failure.index << ": " << failure.text << "\n"
                  << failure.note << "\n"
                  << Shrunk(failure.note, seed);
  }
  if (report.failures.size() > kShown) ADD_FAILURE() << report.failures.size() << " failures in all";
}

TEST(ScheduleProperty, LibraryOperationsUnderRandomSchedules) {
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  const std::vector<Target> targets = TestTargets();
  std::vector<std::string> kernels = OperationSamples();
  Rng rng(seed);
  for (int i = RoundsFromEnvironment(kOddKernels); i-- > 0;) kernels.push_back(OddKernel(rng));
  CaseReport report = RunCases(static_cast<int>(kernels.size()), [&](int index, CaseLog& log) {
    const std::string& text = kernels[static_cast<size_t>(index)];
    log.Note(text);
    KernelCase kernel(text, seed);
    for (int s = 0; s < kSchedules; ++s) {
      Rng own = Rng(seed).Fork(static_cast<uint64_t>(index * kSchedules + s));
      const Target& target = targets[static_cast<size_t>(s) % targets.size()];
      TryOne(kernel, PrintSchedule(MakeSchedule(kernel.kernel(), target, own, text, log)), target, log);
    }
  });
  ExpectNoFailure(report, seed);
  EXPECT_GT(report.count("ran"), report.count("build refused"));
}

TEST(ScheduleProperty, RandomKernelsUnderDefaultAndRandomSchedules) {
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  const std::vector<Target> targets = TestTargets();
  CaseReport report = RunCases(RoundsFromEnvironment(kRandomKernels), [&](int index, CaseLog& log) {
    Rng rng = Rng(seed).Fork(static_cast<uint64_t>(index));
    std::string text = RandomKernel(rng).Text();
    log.Note(text);
    KernelCase kernel(text, seed, Slack(ParseKernel(text).value()));
    const Target& target = targets[static_cast<size_t>(index) % targets.size()];
    log.Note(text + "\n" + PrintTarget(target) + "\ndefault schedule");
    RunOutcome outcome = BuildAndRun(kernel, "", target);
    if (!outcome.failure.empty())
      log.Fail("default schedule: " + outcome.failure + "\n" + outcome.schedule);
    else if (outcome.schedule.starts_with("# plain loops"))
      log.Count("default refused: " + ReasonOf(outcome.schedule.substr(outcome.schedule.find("refused: ") + 9)));
    else
      log.Count("default ran");
    TryOne(kernel, PrintSchedule(MakeSchedule(kernel.kernel(), target, rng, text, log)), target, log);
  });
  ExpectNoFailure(report, seed);
  EXPECT_GT(report.count("ran"), report.count("build refused"));
}

// Sums over windows without the terms of padding, and then any steps.
TEST(ScheduleProperty, WindowsWithoutPaddingUnderRandomSchedules) {
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  const std::vector<Target> targets = TestTargets();
  CaseReport report = RunCases(RoundsFromEnvironment(kRandomWindows), [&](int index, CaseLog& log) {
    Rng rng = Rng(seed).Fork(static_cast<uint64_t>(index));
    const int64_t window = rng.Between(1, 4), dilation = rng.Between(1, 2);
    const std::string text = fmt::format(
        "conv2d(C={},H={},W={},O={},R={},S={},stride={},dilation={},pad=[{},{},{},{}],const=1{}", rng.Between(1, 5),
        rng.Between(7, 9), rng.Between(7, 18), rng.Between(1, 20), window, rng.Between(1, 3), rng.Between(1, 2),
        dilation, rng.Between(0, 3), rng.Between(0, 3), rng.Between(0, 3), rng.Between(0, 3),
        rng.Chance(0.2)   ? ",dtype=f64)"
        : rng.Chance(0.3) ? ")+bias"
                          : ")");
    KernelCase kernel(text, seed);
    log.Note(text);
    const char* axes[] = {"r", "s", "r s"};
    const Schedule start = ParseSchedule(fmt::format("rewrite cache_write {} t\nrewrite trim_padding t xp whole {}\n",
                                                     text.ends_with("+bias") ? "acc" : "y", axes[rng.Below(3)]))
                               .value();
    const Target& target = targets[static_cast<size_t>(index) % targets.size()];
    if (!ApplySchedule(Specialize(kernel.kernel()), start)) return log.Count("not trimmed");
    TryOne(kernel, PrintSchedule(start), target, log);
    for (int s = 0; s < kSchedules; ++s)
      TryOne(kernel, PrintSchedule(MakeSchedule(kernel.kernel(), target, rng, text, log, start)), target, log);
  });
  ExpectNoFailure(report, seed);
  EXPECT_GT(report.count("ran"), report.count("build refused"));
  EXPECT_GT(report.count("ran"), 3 * report.count("not trimmed"));
}

// Two statistics of a row, block by block, and then any steps: odd lengths, blocks of one element and beyond the row's
// end.
TEST(ScheduleProperty, RowsInOnePassUnderRandomSchedules) {
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  const std::vector<Target> targets = TestTargets();
  CaseReport report = RunCases(RoundsFromEnvironment(kRandomRows), [&](int index, CaseLog& log) {
    Rng rng = Rng(seed).Fork(static_cast<uint64_t>(index));
    static constexpr int64_t kLengths[] = {1, 2, 3, 7, 8, 16, 29, 31, 48, 97, 130};
    const bool is_softmax = rng.Chance(0.5);
    const int64_t length = kLengths[rng.Below(std::size(kLengths))];
    const std::string text =
        fmt::format("{}(M={},N={}{}", is_softmax ? "softmax" : "layer_norm", rng.Between(1, 9), length,
                    rng.Chance(0.2)   ? ",dtype=f64)"
                    : rng.Chance(0.3) ? ")+mul"
                                      : ")");
    KernelCase kernel(text, seed);
    Schedule start;
    auto begin = [&](const std::string& step) {
      Schedule longer = start;
      longer.push_back(ParseSchedule(step).value()[0]);
      const bool applies = ApplySchedule(Specialize(kernel.kernel()), longer).has_value();
      if (applies) start = std::move(longer);
      return applies;
    };
    if (is_softmax && rng.Chance(0.5)) begin("rewrite max_ignore_nan top");
    if (!begin(fmt::format("rewrite online_reduction {} blocks {}", is_softmax ? "total" : "squares",
                           rng.Between(1, length + 3))))
      return log.Fail("rewrite online_reduction is refused");
    if (rng.Chance(0.5)) begin(is_softmax ? "inline e" : "inline centred");
    log.Note(text + "\n" + PrintSchedule(start));
    const Target& target = targets[static_cast<size_t>(index) % targets.size()];
    TryOne(kernel, PrintSchedule(start), target, log);
    TryOne(kernel, PrintSchedule(MakeSchedule(kernel.kernel(), target, rng, text, log, start)), target, log);
  });
  ExpectNoFailure(report, seed);
  EXPECT_GT(report.count("ran"), report.count("build refused"));
}

// Elements of a row that are computed where a sum reads them first, and kept for what reads them again, some in the
// output; then any steps.
TEST(ScheduleProperty, KeptRowsUnderRandomSchedules) {
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  const std::vector<Target> targets = TestTargets();
  CaseReport report = RunCases(RoundsFromEnvironment(kRandomRows), [&](int index, CaseLog& log) {
    Rng rng = Rng(seed).Fork(static_cast<uint64_t>(index));
    const int64_t rows = rng.Between(1, 9), length = rng.Between(1, 70);
    const std::string term = rng.Chance(0.3)   ? fmt::format("if(j < i + {}, e[i, j], 0.0)", rng.Between(0, length))
                             : rng.Chance(0.2) ? fmt::format("e[i, {} - j]", length - 1)
                                               : "e[i, j]";
    const std::string text = fmt::format(
        "kernel a(x: f32[{0}, {1}]) -> y: f32[{0}, {1}] {{\n  e: f32[{0}, {1}]\n  e[i, j] = x[i, j] * x[i, j]\n  t: "
        "f32[{0}]\n"
        "  t[i] = sum(j < {1}) {2}\n  y[i, j] = e[i, j] / (1.0 + t[i])\n}}",
        rows, length, term);
    KernelCase kernel(text, seed);
    std::string row = "i", sum = "t", part = "j", steps;
    if (rng.Chance(0.5)) {
      steps += fmt::format("rfactor t j {} -> lanes\n", rng.Between(1, 20));
      sum = "lanes";
    }
    if (rng.Chance(0.5)) {
      steps += fmt::format("split y.i {}\nreorder y.i.0 y.j y.i.1\n", rng.Between(1, 4));
      row = "i.0";
    }
    if (rng.Chance(0.6)) {
      steps += fmt::format("split {}.j {}\n", sum, rng.Between(1, 20));
      part = "j.0";
    }
    steps += fmt::format("compute_at t y.{}\n", row);
    if (sum != "t") steps += fmt::format("compute_at {} y.{}\n", sum, row);
    if (rng.Chance(0.5))
      steps += fmt::format("reorder {0}.{1} {0}.i{2}{3}\n", sum, part, sum == "t" ? "" : " lanes.l",
                           part == "j" ? "" : " " + sum + ".j.1");
    const Schedule placed = ParseSchedule(steps).value();
    steps += rng.Chance(0.7) ? fmt::format("compute_at e {}.{} keep y.{}\n", sum, part, row)
                             : fmt::format("compute_at e y.{}\n", row);
    if (rng.Chance(0.3)) steps += fmt::format("split e.j {}\nvectorize e.j.1\n", 1 << rng.Between(1, 4));
    if (rng.Chance(0.5)) steps += "store e output\n";
    const Schedule start = ParseSchedule(steps).value();
    log.Note(text + "\n" + PrintSchedule(start));
    const Target& target = targets[static_cast<size_t>(index) % targets.size()];
    const Result<ScheduledKernel> applied = ApplySchedule(Specialize(kernel.kernel()), start);
    if (!applied) return log.Count("not kept: " + ReasonOf(applied.error().message));
    if (!Lower(*applied)) return log.Count("not kept: lowering");
    log.Count("kept");
    TryOne(kernel, PrintSchedule(start), target, log);
    TryOne(kernel, PrintSchedule(MakeSchedule(kernel.kernel(), target, rng, text, log, start)), target, log);
  });
  ExpectNoFailure(report, seed);
  EXPECT_GT(report.count("ran"), report.count("build refused"));
  EXPECT_GT(report.count("kept"), RoundsFromEnvironment(kRandomRows) / 3);
}

}  // namespace
}  // namespace hone::schedule_property_test
