// Instructions of other machines' processors, run: code for arm64 in qemu-user, by a hone-runner that was built for it,
// which compares it with the reference as it does on such a machine. Wants build/edge-arm64/bin/hone-runner (the preset
// edge-arm64), and skips without it; tests/build/instruction_test.cc runs the same instructions' meanings.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/build_for_cpu.h"
#include "backends/cpu/named_targets.h"
#include "backends/processes/runner_pool.h"
#include "codegen/instructions.h"
#include "ir/graph/dtype_traits.h"

namespace hone {
namespace {

MonotonicTime Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }

// A processor that has it, by name.
Target TargetWith(const Instruction& instruction) {
  return Target(NamedCpu("armv8.2-a+" + std::string(instruction.feature)).value());
}

// Sizes that tiles divide and such that they do not, a sum of whole groups and one with a rest, an image whose channels
// lie apart, and a sum as long as it gets.
std::vector<std::string> KernelsFor(const Instruction& instruction) {
  const InstructionMeaning& meaning = MeaningOf(instruction);
  const std::string x(Name(meaning.operands[0])), w(Name(meaning.operands[1])), sum(Name(meaning.sum));
  std::vector<std::string> kernels = {fmt::format(
      "kernel k(x: {0}[9, 77], const w: {1}[37, 77]) -> y: {2}[9, 37] {{ y[m, n] = sum(k) x[m, k] * w[n, k] }}", x, w,
      sum)};
  if (x != w) return kernels;
  for (const char* text :
       {"dense(M=8,N=32,K=64,const=1,dtype={})+bias+relu", "matmul(M=5,N=23,K=4608,const=1,dtype={})",
        "conv2d(C=13,H=9,W=17,O=24,R=3,S=3,pad=1,const=1,dtype={})+bias"})
    kernels.push_back(fmt::format(fmt::runtime(text), x));
  return kernels;
}

class EmulatedInstruction : public testing::TestWithParam<std::string_view> {
 protected:
  static void SetUpTestSuite() {
    const std::string emulator = "/usr/bin/qemu-aarch64";
    const std::string foreign = HONE_SOURCE_DIR "/build/edge-arm64/bin/hone-runner";
    if (::access(emulator.c_str(), X_OK) != 0 || ::access(foreign.c_str(), X_OK) != 0) return;
    RunnerPoolOptions options;
    options.executable = HONE_BIN_DIR "/hone-runner";
    options.arguments = {"--emulate", emulator, foreign};
    runners_ = RunnerPool::Start(options).value();
  }
  static void TearDownTestSuite() { runners_.reset(); }
  static inline std::unique_ptr<RunnerPool> runners_;
};

TEST_P(EmulatedInstruction, ComputesWhatItMeans) {
  if (!runners_) GTEST_SKIP() << "[SKIP] no qemu-aarch64, or no build/edge-arm64/bin/hone-runner";
  const Instruction& instruction = *FindInstruction(GetParam());
  for (const std::string& kernel : KernelsFor(instruction)) {
    SCOPED_TRACE(kernel);
    Result<RunnerPool::Prepared> prepared = runners_->Prepare(kernel, Soon());
    ASSERT_TRUE(prepared) << prepared.error().Text();
    const Result<BuildOutput> built = BuildForCpu({kernel, "", TargetWith(instruction)});
    ASSERT_TRUE(built) << built.error().Text();
    EXPECT_NE(built->schedule.find("tensorize " + std::string(instruction.name)), std::string::npos) << built->schedule;
    const Result<CheckReport> report =
        runners_->Check(*prepared, SealedMemfd::Create(built->object).value(), {.full = true}, Soon());
    ASSERT_TRUE(report) << report.error().Text();
    EXPECT_TRUE(report->verified()) << report->failure->Text();
    EXPECT_GT(report->samples, 0);
  }
}

std::vector<std::string_view> OfOtherMachines() {
  std::vector<std::string_view> names;
  for (const Instruction& instruction : AllInstructions())
    if (instruction.isa == Isa::kNeon) names.push_back(instruction.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedInstruction, testing::ValuesIn(OfOtherMachines()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hone
