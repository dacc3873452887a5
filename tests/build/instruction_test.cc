// Kernels that an instruction of codegen/instructions.h does, in both ways of emission: as the instruction, where this
// machine has it, and as the loops that it stands for. Integers bit for bit. And that what could be wrong with them is
// seen: the mutants at the end compute something else from the same bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "backends/cpu/build_for_cpu.h"
#include "backends/cpu/host_target.h"
#include "codegen/instructions.h"
#include "codegen/rules/choices.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "tests/support/odd_numbers.h"
#include "tests/support/run_cases.h"
#include "tests/support/run_kernel.h"
#include "tests/support/soft_tiles.h"

namespace hone::instruction_test {
namespace {

constexpr uint64_t kUsualSeed = 23;
constexpr int kRandomKernels = 120;

// A target that has the instruction, and one that runs its loops, on any machine with its registers.
struct Ways {
  CpuTarget with, without;
  bool runs_here = false;  // the instruction
};

std::vector<Ways> WaysOf(const Instruction& instruction) {
  std::vector<Ways> ways;
  const CpuTarget host = *HostTarget().value().cpu();
  for (const bool small : {false, true}) {
    Ways way;
    way.without.isa = host.isa;
    way.without.cores = 3;
    if (small) way.without.l1_bytes = 4 << 10, way.without.l2_bytes = 16 << 10, way.without.l3_bytes = 64 << 10;
    way.with = way.without;
    way.with.isa = instruction.isa;
    if (!instruction.feature.empty()) way.with.features = {std::string(instruction.feature)};
    // What every AVX2 processor has, one with AVX-512 has as well; the other registers' code does what it means.
    const bool is_base = instruction.feature.empty() && host.isa == Isa::kAvx512;
    if (is_base && instruction.isa == Isa::kAvx512) way.without.isa = Isa::kAvx2;
    way.runs_here = HasInstruction(host, instruction) || is_base ||
                    (MeaningOf(instruction).is_on_tiles() && host.isa == Isa::kAvx512 && ProvideTiles());
    ways.push_back(way);
  }
  return ways;
}

std::string TypeFor(const Instruction& instruction, Rng& rng) {
  if (MeaningOf(instruction).sum == DType::kF32) return "bf16";
  return rng.Chance(0.5) ? "i8" : "u8";
}

// For an instruction on tiles: products and convolutions of its types, of which a good part of the tiles is no padding.
std::string RandomKernelOnTiles(const Instruction& instruction, Rng& rng) {
  const InstructionMeaning& meaning = MeaningOf(instruction);
  const std::string rows(Name(meaning.operands[0])), lanes(Name(meaning.operands[1])), sum(Name(meaning.sum));
  const int64_t m = rng.Between(5, 70), n = rng.Between(9, 70), k = rng.Between(40, 200);
  const std::string constants[] = {"", "const "};
  switch (rng.Below(4)) {
    case 0:  // the constant gives the rows, as in a convolution
      return fmt::format(
          "kernel k(const w: {3}[{0}, {2}], x: {4}[{2}, {1}], b: {5}[{0}]) -> y: {5}[{0}, {1}] {{ "
          "y[m, n] = (sum(k) w[m, k] * x[k, n]) + b[m] }}",
          m, n, k, rows, lanes, sum);
    case 1:
      return fmt::format(
          "kernel k({6}x: {3}[2, {0}, {2}], {7}w: {4}[{1}, {2}]) -> y: {5}[2, {0}, {1}] {{ "
          "y[b, m, n] = sum(k) x[b, m, k] * w[n, k] }}",
          m, n, k, rows, lanes, sum, constants[rng.Below(2)], constants[rng.Below(2)]);
    case 2: {
      const int64_t window = 1 + 2 * rng.Between(0, 1);
      if (rows != lanes) break;
      return fmt::format("conv2d(N={},C={},H={},W={},O={},R={},S={},pad={},stride={},const=1,dtype={})+bias",
                         1 + rng.Below(2), rng.Chance(0.3) ? 5 : 40 + rng.Below(40), window + rng.Below(6),
                         12 + rng.Below(24), 9 + rng.Below(40), window, window, rng.Between(0, window / 2),
                         rng.Between(1, 2), rows);
    }
    default: break;
  }
  return fmt::format(
      "kernel k(x: {3}[{0}, {2}], const w: {4}[{1}, {2}], b: {5}[{1}]) -> y: {5}[{0}, {1}] {{ "
      "y[m, n] = max((sum(k) x[m, k] * w[n, k]) + b[n], 0) }}",
      m, n, k, rows, lanes, sum);
}

// Of f32, whose accuracy allows that its factors are rounded to bf16 or, where that pays, taken apart into pieces.
std::string RandomKernelInBf16(const Instruction& instruction, Rng& rng) {
  const bool in_pieces = MeaningOf(instruction).is_on_tiles() && rng.Chance(0.5);
  const std::string rest = fmt::format(",const=1,accuracy={})+bias", in_pieces ? "relaxed" : "fast");
  const int64_t k = rng.Between(40, 200), n = rng.Between(16, 90), m = rng.Between(9, 40);
  if (rng.Chance(0.5)) return fmt::format("dense(M={},N={},K={}{}", m, n, k, rest);
  const int64_t window = 1 + rng.Below(2);
  return fmt::format("conv2d(C={},H={},W={},O={},R={},S={},pad={},stride={}{}", k, window + rng.Between(1, 6),
                     rng.Between(12, 20), n, window, window, rng.Below(static_cast<uint64_t>(window)),
                     rng.Between(1, 2), rest);
}

// Products and convolutions with a constant, of odd sizes, some in the kernel language, with types as the
// instruction's.
std::string RandomKernelFor(const Instruction& instruction, Rng& rng) {
  if (MeaningOf(instruction).sum == DType::kF32 && rng.Chance(0.3)) return RandomKernelInBf16(instruction, rng);
  if (MeaningOf(instruction).is_on_tiles()) return RandomKernelOnTiles(instruction, rng);
  auto number = [&](int64_t most) { return rng.Between(1, most); };
  const std::string type = TypeFor(instruction, rng);
  const char* epilogues[] = {"", "+bias", "+bias+relu", "+relu"};
  const std::string rest = fmt::format(",const=1,dtype={}){}", type, epilogues[rng.Below(4)]);
  switch (rng.Below(4)) {
    case 0: return fmt::format("dense(M={},N={},K={}{}", number(40), 15 + number(90), number(200), rest);
    case 1: return fmt::format("matmul(M={},N={},K={}{}", number(40), 15 + number(90), number(200), rest);
    case 2: {
      const int64_t window = 1 + 2 * rng.Between(0, 1);
      return fmt::format("conv2d(N={},C={},H={},W={},O={},R={},S={},pad={},stride={}{}", number(2), number(40),
                         window + number(9), window + number(17), 15 + number(50), window, window,
                         rng.Between(0, window / 2), number(2), rest);
    }
    default: break;
  }
  if (type == "bf16")
    return fmt::format("batch_matmul(B={},M={},N={},K={},const=1,dtype=bf16)", number(3), number(20), 15 + number(40),
                       number(100));
  // As a network's: bytes without and with a sign, scaled, rounded and saturated. Vectors along columns, or along
  // pixels.
  if (rng.Chance(0.5))
    return fmt::format(
        "kernel q(x: {5}[{0}, {1}, {2}, {3}], const w: i8[{4}, {1}], const bias: i32[{4}], const factor: f32[{4}]) -> "
        "y: u8[{0}, {4}, {2}, {3}] {{\n"
        "  a: i32[{0}, {4}, {2}, {3}] a[n, o, h, v] = sum(c) x[n, c, h, v] * w[o, c]\n"
        "  y[n, o, h, v] = u8(round(float(a[n, o, h, v] + bias[o]) * factor[o]) + 128)\n}}",
        number(2), number(40), number(20), number(20), number(40), type);
  return fmt::format(
      "kernel q(x: u8[{0}, {2}], const w: i8[{1}, {2}], bias: i32[{1}]) -> y: u8[{0}, {1}] {{\n"
      "  y[m, n] = u8(round(float((sum(k) x[m, k] * w[n, k]) + bias[n]) * 0.01) + 128)\n}}",
      number(30), 15 + number(70), number(150));
}

// Windows without reuse across channels, in bytes: rows that the lanes' groups overlap in, of any stride, margin and
// remainder.
std::string RandomWindow(const Instruction& instruction, Rng& rng) {
  const InstructionMeaning& meaning = MeaningOf(instruction);
  const std::string type(Name(rng.Chance(0.8) ? meaning.operands[1] : DType::kI8));
  const std::string other(Name(rng.Chance(0.8) ? meaning.operands[0] : DType::kI8));
  const int64_t rows = rng.Between(1, 5), columns = rng.Between(2, 9), stride = rng.Between(1, 3);
  const char* epilogues[] = {"", "+bias", "+bias+relu"};
  if (rng.Chance(other == type ? 0.7 : 0.2))
    return fmt::format("depthwise_conv2d(N={},C={},H={},W={},R={},S={},stride={},pad={},const=1,dtype={}){}",
                       rng.Between(1, 2), rng.Between(1, 9), rows + rng.Between(0, 20), columns + rng.Between(0, 70),
                       rows, columns, stride, rng.Between(0, std::min(rows, columns) / 2), type,
                       epilogues[rng.Below(3)]);
  return fmt::format(
      "kernel q(x: {5}[{0}, {1}, {2}], const w: {6}[{0}, {3}, {4}], const b: i32[{0}], const f: f32[{0}]) -> "
      "y: u8[{0}, {1}, {2}] {{\n"
      "  p: {5}[{0}, {1} + {3}, {2} + {4}] p[c, h, v] = pad(x[c, h - 1, v - 1], 7)\n"
      "  a: i32[{0}, {1}, {2}] a[c, h, v] = sum(r < {3}, s < {4}) p[c, h + r, v + s] * w[c, r, s]\n"
      "  y[c, h, v] = u8(round(float(a[c, h, v] + b[c]) * f[c]) + 128)\n}}",
      rng.Between(1, 9), rng.Between(1, 20), rng.Between(1, 70), rows, columns, other, type);
}

void TryBoth(const Instruction& instruction, const std::string& text, uint64_t seed, CaseLog& log,
             const std::function<void(const Kernel&, KernelInputs&)>& change = {}, const std::string& choices = "") {
  KernelCase kernel(text, seed, 1, change);
  for (const Ways& ways : WaysOf(instruction)) {
    const Result<Plan> planned = PlanSchedule(Specialize(kernel.kernel()), Target(ways.with), *ParseChoices(choices));
    if (!planned) return log.Fail(text + ": " + planned.error().Text());
    const std::string schedule = PrintSchedule(planned->schedule);
    const bool is_used = schedule.find("tensorize " + std::string(instruction.name)) != std::string::npos;
    log.Count(is_used ? "with the instruction" : "without");
    for (const bool itself : {true, false}) {
      if (itself && !ways.runs_here) {
        // What cannot run here is built all the same: registers are found for it, and the gate takes it.
        if (!MeaningOf(instruction).is_on_tiles()) continue;
        if (const Result<BuildOutput> built = BuildForCpu({text, schedule, Target(ways.with)}); !built)
          return log.Fail(text + ": " + built.error().Text() + "\n" + schedule);
        continue;
      }
      log.Note(fmt::format("{}\n{}\n{}", text, itself ? "as itself" : "as its meaning", schedule));
      const RunOutcome outcome = BuildAndRun(kernel, schedule, Target(itself ? ways.with : ways.without));
      if (!outcome.ran()) return log.Fail(outcome.failure + outcome.refusal);
      if (const TileCounts tiles = SoftTileCounts(); tiles.configured != tiles.released)
        return log.Fail(text + ": tiles are left in use\n" + schedule);
      log.Count(itself ? "as itself" : "as its meaning");
    }
  }
}

class InstructionProperty : public testing::TestWithParam<std::string_view> {
 protected:
  const Instruction& instruction() const { return *FindInstruction(GetParam()); }
};

TEST_P(InstructionProperty, RandomKernels) {
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  // Of another machine's the meaning alone is run here (tests/build/emulated_instruction_test.cc runs the instruction).
  const int kernels = MeaningOf(instruction()).is_on_tiles() ? kRandomKernels / 8
                      : instruction().isa == Isa::kNeon      ? kRandomKernels / 4
                                                             : kRandomKernels;
  CaseReport report = RunCases(RoundsFromEnvironment(kernels), [&](int index, CaseLog& log) {
    Rng rng = Rng(seed).Fork(static_cast<uint64_t>(index));
    TryBoth(instruction(), RandomKernelFor(instruction(), rng), seed, log);
  });
  std::printf("seed %lu\n", seed);
  for (const auto& [label, count] : report.counts) std::printf("%8ld %s\n", count, label.c_str());
  EXPECT_EQ(report.failures.size(), 0u) << report.Text();
  EXPECT_GT(report.count("with the instruction"), kernels / 2);
  if (report.count("as itself") == 0)
    std::printf("[SKIP] this processor has no %s: its meaning alone was run\n", std::string(GetParam()).c_str());
}

TEST_P(InstructionProperty, RandomWindows) {
  const InstructionMeaning& meaning = MeaningOf(instruction());
  if (meaning.sum != DType::kI32 || meaning.is_on_tiles()) GTEST_SKIP() << "of bytes in lanes";
  const uint64_t seed = SeedFromEnvironment(kUsualSeed);
  const int kernels = kRandomKernels / 4;
  CaseReport report = RunCases(RoundsFromEnvironment(kernels), [&](int index, CaseLog& log) {
    Rng rng = Rng(seed).Fork(static_cast<uint64_t>(index));
    TryBoth(instruction(), RandomWindow(instruction(), rng), seed, log, {},
            "a.instruction=1 acc.instruction=1 y.instruction=1");
  });
  for (const auto& [label, count] : report.counts) std::printf("%8ld %s\n", count, label.c_str());
  EXPECT_EQ(report.failures.size(), 0u) << report.Text();
  EXPECT_GT(report.count("with the instruction"), kernels / 2);
}

// Numbers as large as they can be, all of one sign, as many as the first layer of VGG's classifier has.
TEST_P(InstructionProperty, Extremes) {
  if (MeaningOf(instruction()).sum != DType::kI32) GTEST_SKIP() << "of integers";
  struct Extreme {
    const char *x, *w;
    int with, by;
  };
  std::vector<Extreme> extremes = {{"u8", "i8", 255, -128}, {"u8", "i8", 255, 127}, {"i8", "i8", -128, -128},
                                   {"i8", "i8", 127, -128}, {"u8", "u8", 255, 255}, {"i8", "u8", -128, 255}};
  const InstructionMeaning& meaning = MeaningOf(instruction());
  if (meaning.is_on_tiles())  // those of its types: another instruction on tiles does the others
    std::erase_if(extremes, [&](const Extreme& extreme) {
      return extreme.x != Name(meaning.operands[0]) || extreme.w != Name(meaning.operands[1]);
    });
  CaseReport report = RunCases(static_cast<int>(extremes.size()), [&](int index, CaseLog& log) {
    const Extreme& extreme = extremes[static_cast<size_t>(index)];
    const std::string text = fmt::format(
        "kernel e(x: {0}[{2}, K], const w: {1}[17, K]) -> y: i32[{2}, 17] where K=25088 {{ "
        "y[m, n] = sum(k) x[m, k] * w[n, k] }}",
        extreme.x, extreme.w, meaning.is_on_tiles() ? 8 : 3);
    TryBoth(instruction(), text, 1, log, [&](const Kernel& kernel, KernelInputs& inputs) {
      const auto rows = static_cast<size_t>(ElementCount(kernel, kernel.tensors[kernel.operands[0]]));
      const auto columns = static_cast<size_t>(ElementCount(kernel, kernel.tensors[kernel.operands[1]]));
      std::fill_n(inputs.As<int8_t>(0), rows, static_cast<int8_t>(extreme.with));
      std::fill_n(inputs.As<int8_t>(1), columns, static_cast<int8_t>(extreme.by));
    });
  });
  EXPECT_EQ(report.failures.size(), 0u) << report.Text();
  EXPECT_GT(report.count("with the instruction"), 0);
}

// NaN, infinities and zeros of both signs go where the kernel says; what is too small for bf16's exponents may count as
// zero (docs/kernel_language.md).
TEST_P(InstructionProperty, OddNumbers) {
  if (MeaningOf(instruction()).sum != DType::kF32) GTEST_SKIP() << "of floats";
  CaseReport report = RunCases(1, [&](int, CaseLog& log) {
    for (const char* text :
         {"dense(M=5,N=33,K=37,const=1,dtype=bf16)+relu", "matmul(M=4,N=48,K=8,const=1,dtype=bf16)",
          "dense(M=12,N=33,K=61,const=1,dtype=bf16)+relu", "dense(M=12,N=33,K=61,const=1,accuracy=fast)+relu"})
      TryBoth(instruction(), text, 2, log, [&](const Kernel& kernel, KernelInputs& inputs) {
        Rng rng(9);
        for (size_t i = 0; i < 2; ++i) {
          const Tensor& operand = kernel.tensors[kernel.operands[i]];
          const int64_t count = ElementCount(kernel, operand);
          for (int64_t e = 0; e < count; ++e) {
            if (!rng.Chance(0.02)) continue;
            const double odd[] = {INFINITY, -INFINITY, NAN, -0.0, 0.0, 0x1p-126, 0x1p100, -0x1p90};
            StoreElement(operand.dtype, odd[rng.Below(8)], inputs.buffer(i), static_cast<size_t>(e));
          }
        }
      });
  });
  EXPECT_EQ(report.failures.size(), 0u) << report.Text();
  EXPECT_GT(report.count("with the instruction"), 0);
}

std::vector<std::string_view> Names() {
  std::vector<std::string_view> names;
  for (const Instruction& instruction : AllInstructions())
    if (!MeaningOf(instruction).is_of_warp) names.push_back(instruction.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, InstructionProperty, testing::ValuesIn(Names()),
                         [](const auto& info) { return std::string(info.param); });

// ---- Mutants: code for another kernel over the same bytes. A check that passes one of them would pass such a mistake.

struct Mutant {
  std::string name, kernel, mutant;
};

std::vector<Mutant> Mutants() {
  const std::string kernel =
      "kernel q(x: u8[6, K], const w: i8[40, K]) -> y: i32[6, 40] where K=75 { y[m, n] = sum(k) x[m, k] * w[n, k] }";
  auto with = [](std::string text, const std::string& old, const std::string& now) {
    const size_t at = text.find(old);
    EXPECT_NE(at, std::string::npos) << old;
    return text.replace(at, old.size(), now);
  };
  const std::string rounded = with(with(kernel, "y: i32", "y: u8"), "= sum(k) x[m, k] * w[n, k]",
                                   "= u8(round(float(sum(k) x[m, k] * w[n, k]) * 0.01) + 128)");
  return {
      {"pairs_where_fours_are_interleaved", kernel,
       with(kernel, "x[m, k]", "x[m, clamp(k/4*4 + k%2*2 + k%4/2, 0, K - 1)]")},
      {"the_other_sign_of_the_first", kernel, with(kernel, "x: u8", "x: i8")},
      {"the_other_sign_of_the_second", kernel, with(kernel, "w: i8", "w: u8")},
      {"the_signs_swapped", kernel, with(with(kernel, "x: u8", "x: i8"), "w: i8", "w: u8")},
      {"no_correction", with(kernel, "x: u8", "x: i8"),
       with(with(kernel, "x: u8", "x: i8"), "x[m, k] *", "(x[m, k] + 128) *")},
      {"a_step_of_the_tail_too_many", kernel,
       with(kernel, "x[m, k] * w[n, k]", "x[m, k] * w[n, k] * if(k == K - 1, 2, 1)")},
      {"a_step_of_the_tail_too_few", kernel, with(kernel, "sum(k)", "sum(k < K - 1)")},
      {"products_that_saturate", kernel, with(kernel, "x[m, k] * w[n, k]", "clamp(x[m, k] * w[n, k], -16384, 16383)")},
      {"truncated_not_rounded", rounded, with(rounded, "round(", "(")},
  };
}

TEST(InstructionMutants, AreSeen) {
  const Target host = HostTarget().value();
  for (const Mutant& mutant : Mutants()) {
    SCOPED_TRACE(mutant.name);
    KernelCase kernel(mutant.kernel, 7);
    const RunOutcome right = BuildAndRun(kernel, "", host);
    EXPECT_EQ(right.failure, "");
    const Result<BuildOutput> built = BuildForCpu({mutant.mutant, "", host});
    ASSERT_TRUE(built) << built.error().Text();
    EXPECT_NE(RunBuilt(*built, kernel).failure, "");
  }
}

// Layouts of the wrong interleave, and loops that the instruction does not do, are refused before there is code.
TEST(InstructionMutants, WrongLayoutsAreRefused) {
  const Instruction& instruction = *FindInstruction("vpdpbusd_512");
  const Ways ways = WaysOf(instruction)[0];
  const std::string text = "dense(M=8,N=64,K=64,const=1,dtype=i8)";
  KernelCase kernel(text, 1);
  const std::string schedule = PrintSchedule(DefaultSchedule(Specialize(kernel.kernel()), Target(ways.with)).value());
  auto changed = [&](const std::string& old, const std::string& now) {
    std::string other = schedule;
    const size_t at = other.find(old);
    EXPECT_NE(at, std::string::npos) << old << " in\n" << schedule;
    other.replace(at, old.size(), now);
    return BuildAndRun(kernel, other, Target(ways.with));
  };
  const Result<BuildOutput> built = BuildForCpu({text, schedule, Target(ways.with)});  // which need not run here
  EXPECT_TRUE(built) << built.error().Text();
  for (const auto& [old, now] :
       std::vector<std::pair<std::string, std::string>>{{"split y_products.k 4", "split y_products.k 2"},
                                                        {"split y_products.n 16", "split y_products.n 8"},
                                                        {"tensorize vpdpbusd_512 y_products.k.1 y_products.n.1",
                                                         "tensorize vdpbf16ps_512 y_products.k.1 y_products.n.1"}}) {
    const RunOutcome outcome = changed(old, now);
    EXPECT_NE(outcome.refusal, "") << old;
    EXPECT_EQ(outcome.failure, "") << old;
  }
}

TEST(InstructionMutants, OtherTilesAreRefused) {
  const Ways ways = WaysOf(*FindInstruction("tdpbssd"))[0];
  KernelCase kernel("dense(M=64,N=128,K=128,const=1,dtype=i8)", 1);
  const std::string schedule = PrintSchedule(DefaultSchedule(Specialize(kernel.kernel()), Target(ways.with)).value());
  auto changed = [&](const std::string& old, const std::string& now) {
    std::string other = schedule;
    for (size_t at = other.find(old); at != std::string::npos; at = other.find(old, at + now.size()))
      other.replace(at, old.size(), now);
    EXPECT_NE(other, schedule) << old << " in\n" << schedule;
    return BuildAndRun(kernel, other, Target(ways.without));
  };
  EXPECT_EQ(BuildAndRun(kernel, schedule, Target(ways.without)).refusal, "");
  for (const auto& [old, now, why] : std::vector<std::array<std::string, 3>>{
           {"split tile.m 2 16", "split tile.m 2 8", "does 16 trips of m.2"},
           {"split tile.k 16 4", "split tile.k 32 2", "does 16 trips of k.1"},
           {"k/4, n%16, k%4", "k/2, n%16, k%2", "has them here and there"},
           {".n 2 16", ".n 4 16", "6 tiles for sums"},
           {"register_tile tile.n.0", "register_tile tile.k.0", "begins with zeros"},
           {"tensorize tdpbssd", "tensorize tdpbusd", "is i8 where u8 is meant"},
           {"m%16, n%16]", "n%16, m%16]", "lanes side by side"}})
    EXPECT_NE(changed(old, now).refusal.find(why), std::string::npos) << changed(old, now).refusal << "\n" << schedule;
}

}  // namespace
}  // namespace hone::instruction_test
