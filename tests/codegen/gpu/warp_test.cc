// Products of matrices by a warp: executed as the hardware defines its fragments, and as what the instruction means.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <utility>

#include "codegen/gpu/print_launch.h"
#include "codegen/gpu/print_warp.h"
#include "codegen/instructions.h"
#include "codegen/machine_model.h"
#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"
#include "tests/support/warp_schedules.h"

namespace hone {
namespace {

using straight::Node;
using testing::HasSubstr;

// With all instructions of warps, or with none.
straight::DeviceLimits LimitsOf(bool has_instructions) {
  straight::DeviceLimits limits;
  for (const Instruction& instruction : AllInstructions())
    if (has_instructions && MeaningOf(instruction).is_of_warp) limits.instructions.push_back(&instruction);
  return limits;
}

std::string Matmul(const WarpCase& of, int m = 37, int n = 45, int k = 64) { return WarpMatmul(of, m, n, k); }

Target Ampere() {
  return DeviceTarget{std::string(kCudaKind),
                      {{"arch", "sm_80"}, {"block_bytes", "49152"}, {"block_threads", "1024"}, {"units", "4"}}};
}

int Multiplications(const std::vector<Node>& nodes) {
  int count = 0;
  for (const Node& node : nodes) count += (node.kind == Node::Kind::kMultiply ? 1 : 0) + Multiplications(node.body);
  return count;
}

TEST(Warp, MultipliesAsTheHardwareDoesAndAsItIsMeant) {
  for (const WarpCase& of : kWarpCases) {
    const Schedule schedule = ParseSchedule(WarpSchedule(of.instruction, of.steps)).value();
    for (bool has : {true, false}) {
      const Result<straight::Program> program = StraightOf(Matmul(of), schedule, LimitsOf(has));
      ASSERT_TRUE(program) << of.instruction << ": " << program.error().Text();
      // Two rows of tiles and two of columns, in each of the 32 steps that block storage holds.
      EXPECT_EQ(Multiplications(program->launches[0].code.nodes), has ? 4 * 32 / of.steps : 0);
      const GpuOutcome outcome = RunStraight(Matmul(of), *program);
      EXPECT_TRUE(outcome.IsRight()) << of.instruction << " " << has << ": " << outcome.Text();
      EXPECT_EQ(outcome.report.most_threads, 64);
      EXPECT_GT(outcome.report.barriers, 0);
    }
  }
}

// What the first multiplication of a launch becomes is changed; the failure that comes of it.
std::string FailureWith(const WarpCase& of, const std::function<void(straight::Code&, Node&)>& change) {
  const Schedule schedule = ParseSchedule(WarpSchedule(of.instruction, of.steps)).value();
  straight::Program program = StraightOf(Matmul(of), schedule, LimitsOf(true)).value();
  straight::Code& code = program.launches[0].code;
  bool is_changed = false;
  auto visit = [&](auto&& self, std::vector<Node>& nodes) -> void {
    for (Node& node : nodes) {
      if (node.kind == Node::Kind::kMultiply && !std::exchange(is_changed, true)) change(code, node);
      self(self, node.body);
    }
  };
  visit(visit, code.nodes);
  EXPECT_TRUE(is_changed);
  return RunStraight(Matmul(of), program).failure;
}

// Two words of an operand in each other's place, or the fragment of another row: something else comes out.
TEST(Warp, OtherFragmentsAreWrong) {
  const std::pair<size_t, size_t> exchanges[] = {{0, 1}, {1, 2}, {0, 2}, {4, 5}, {5, 6}, {4, 7}, {8, 9}};
  for (const WarpCase& of : kWarpCases)
    for (const auto& [a, b] : exchanges)
      EXPECT_NE(FailureWith(of, [&](straight::Code&, Node& node) { std::swap(node.args[a], node.args[b]); }), "")
          << of.instruction << ": " << a << " and " << b;
}

// Of the second operand's words, whose elements lie apart in block storage and are put side by side.
TEST(Warp, OtherStepsOfAWordAreWrong) {
  for (const WarpCase& of : kWarpCases) {
    const std::string failure = FailureWith(of, [](straight::Code& code, Node& node) {
      straight::Value& word = code.values[node.args[8]];
      if (word.type == DType::kF32) return std::swap(node.args[4], node.args[6]);  // a word is a step
      straight::Value& loaded = code.values[word.args[0]];
      if (loaded.transposes) return void(loaded.transposes = false);
      ASSERT_EQ(word.what, straight::Do::kPack);
      std::swap(word.args[0], word.args[1]);
    });
    EXPECT_NE(failure, "") << of.instruction;
  }
}

// Matrices that lie in block storage in rows of 16 bytes are loaded by the warp together: of four words, of two, their
// steps side by side or their rows.
TEST(Warp, LoadsMatricesTogether) {
  struct Case {
    std::string kernel;
    int matrices[2][2];  // loads of two and of four words, plain and transposed: whether there are any
  };
  const Case cases[] = {{"matmul(M=37,N=45,K=64,dtype=f16)+bias", {{0, 1}, {1, 0}}},
                        {"matmul(M=37,N=45,K=64,dtype=bf16,tb=1)", {{1, 0}, {1, 0}}},
                        {"matmul(M=33,N=24,K=64,dtype=f16,ta=1)", {{0, 1}, {0, 1}}},
                        {"dense(M=33,N=40,K=64,dtype=i8)+bias", {{1, 0}, {1, 0}}},
                        {"matmul(M=33,N=40,K=64,dtype=u8)", {{1, 0}, {1, 0}}},
                        {"matmul(M=33,N=40,K=64,accuracy=fast)", {{0, 0}, {1, 0}}},
                        {"conv2d(C=16,H=9,W=11,O=24,R=3,S=3,pad=1,dtype=f16,const=1)", {{1, 0}, {1, 0}}}};
  const Target target = Ampere();
  for (const Case& of : cases) {
    SCOPED_TRACE(of.kernel);
    const Schedule schedule = DefaultSchedule(Specialize(ParseKernel(of.kernel).value()), target).value();
    const straight::Program right = StraightOf(of.kernel, schedule, straight::LimitsOf(ModelMachine(target))).value();
    EXPECT_TRUE(RunStraight(of.kernel, right).IsRight()) << RunStraight(of.kernel, right).Text();
    const auto loads = [](const straight::Program& program, int words, bool transposes) {
      std::vector<straight::ValueId> found;
      const straight::Code& code = program.launches.back().code;
      for (straight::ValueId id : code.values.ids())
        if (code.values[id].what == straight::Do::kMatrices && code.values[id].lanes == words &&
            code.values[id].transposes == transposes)
          found.push_back(id);
      return found;
    };
    for (const int words : {2, 4})
      for (const bool transposes : {false, true}) {
        const std::vector<straight::ValueId> found = loads(right, words, transposes);
        EXPECT_EQ(!found.empty(), of.matrices[words / 4][transposes] != 0) << words << " " << transposes;
        if (found.empty()) continue;
        const auto failure_with = [&](const std::function<void(straight::Value&)>& change) {
          straight::Program program = right;
          for (straight::Value& value : program.launches.back().code.values)
            if (value.what == straight::Do::kWord && value.args[0] == found[0]) change(value);
          change(program.launches.back().code.values[found[0]]);
          return RunStraight(of.kernel, program).Text();
        };
        // Words of one matrix in another's place; another row of 16 bytes; the other way round.
        EXPECT_NE(failure_with([&](straight::Value& value) {
                    if (value.what == straight::Do::kWord) value.number = (value.number + 1) % words;
                  }),
                  "");
        EXPECT_NE(failure_with([](straight::Value& value) {
                    if (value.what == straight::Do::kMatrices) value.number += 16 / ByteSize(value.type);
                  }),
                  "");
        EXPECT_THAT(failure_with([](straight::Value& value) {
                      if (value.what == straight::Do::kMatrices) value.number += 1;
                    }),
                    HasSubstr("misaligned"));
        if (right.launches.back().code.values[found[0]].type == DType::kF32 ||
            ByteSize(right.launches.back().code.values[found[0]].type) == 1)
          continue;
        EXPECT_NE(failure_with([](straight::Value& value) { value.transposes = !value.transposes; }), "");
      }
  }
}

// Factors are rounded to 11 bits, and by no code that is to be exact.
TEST(Warp, RoundsFactorsOfF32) {
  const WarpCase& of = kWarpCases[std::size(kWarpCases) - 1];
  const Schedule schedule = ParseSchedule(WarpSchedule(of.instruction, of.steps)).value();
  std::vector<float> a(16 * 8, 0), b(8 * 8, 0), bias(8, 0), y(16 * 8, 0);
  a[0] = 1 + 0x1p-11F;              // between two numbers, to the one with the larger magnitude
  a[8] = -1 - 0x1p-11F + 0x1p-20F;  // nearer to the other
  b[0] = b[8] = 1;
  const std::string text = WarpMatmul(of, 16, 8, 8);
  const straight::Program program = StraightOf(text, schedule, LimitsOf(true)).value();
  void* operands[] = {a.data(), b.data(), bias.data(), y.data()};
  ASSERT_TRUE(SimtRun(program, operands)->findings.empty());
  EXPECT_EQ(y[0], 1 + 0x1p-10F);
  EXPECT_EQ(y[8], -1);
  for (const char* accuracy : {"strict", "relaxed"}) {
    WarpCase exact = of;
    exact.accuracy = accuracy;
    EXPECT_THAT(RunOnGpu(Matmul(exact), schedule, LimitsOf(true)).refusal,
                HasSubstr("mma_m16n8k8_tf32 rounds its factors"));
  }
}

// Threads that do not come along, of those that a warp has.
TEST(Warp, AllThreadsComeToIt) {
  const WarpCase& of = kWarpCases[0];
  straight::Program program =
      StraightOf(Matmul(of), ParseSchedule(WarpSchedule(of.instruction, of.steps)).value(), LimitsOf(true)).value();
  straight::Code& code = program.launches[0].code;
  const straight::ValueId thread = code.values.Add({.what = straight::Do::kThread, .type = DType::kI32, .number = 0});
  const straight::ValueId last = code.values.Add({.what = straight::Do::kConstant, .type = DType::kI32, .number = 31});
  const straight::ValueId all_but_one =
      code.values.Add({.what = straight::Do::kLt, .type = DType::kBool, .args = {thread, last}});
  bool is_done = false;
  auto wrap = [&](auto&& self, std::vector<Node>& nodes) -> void {
    for (Node& node : nodes) {
      if (node.kind == Node::Kind::kMultiply && !std::exchange(is_done, true)) {
        Node around{.kind = Node::Kind::kIf, .a = all_but_one};
        around.body.push_back(node);
        node = std::move(around);
        return;
      }
      if (!is_done) self(self, node.body);
    }
  };
  wrap(wrap, code.nodes);
  code.nodes.insert(code.nodes.begin(), Node{.kind = Node::Kind::kLet, .value = all_but_one});
  EXPECT_THAT(RunStraight(Matmul(of), program).Text(), HasSubstr("divergent warp: 31 of 32"));
}

std::string Refusal(std::string schedule, const std::string& what, const std::string& with,
                    const std::string& kernel = Matmul(kWarpCases[0])) {
  const size_t at = schedule.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  schedule.replace(at, what.size(), with);
  return RunOnGpu(kernel, ParseSchedule(schedule).value(), LimitsOf(true)).refusal;
}

TEST(Warp, SaysWhatDoesNotFit) {
  const std::string schedule = WarpSchedule("mma_m16n8k16_f16", 16);
  EXPECT_THAT(Refusal(schedule, "fuse y.m.3 y.n.3\nbind y.m.3+n.3",
                      "reorder y.m.0 y.n.0 y.n.1 y.n.3 y.m.3 y.m.1 y.m.2 "
                      "y.n.2 y.n.4\nfuse y.n.3 y.m.3\nbind y.n.3+m.3"),
              HasSubstr("thread.x 1 reads an element of acc that another thread holds"));
  EXPECT_THAT(Refusal(schedule, "bind y.m.3+n.3 thread.x", "bind y.m.3+n.3 thread.z"),
              HasSubstr("depends on y.m.3+n.3"));
  EXPECT_THAT(Refusal(schedule, "store acc registers", "store acc block"), HasSubstr("store acc registers"));
  EXPECT_THAT(Refusal(schedule, "compute_at acc y.n.1", "compute_at acc y.m.3+n.3"), HasSubstr("mma_m16n8k16_f16"));
  EXPECT_THAT(Refusal(schedule, "unroll acc.k.1 acc.m.0 acc.n.0", "unroll acc.k.1 acc.m.0"), HasSubstr("unroll"));
  EXPECT_THAT(Refusal(schedule, "split acc.m 16", "split acc.m 8"), HasSubstr("does 16 trips of m.1, which has 8"));
  EXPECT_THAT(Refusal(schedule, "mma_m16n8k16_f16", "mma_m16n8k16_bf16"), HasSubstr("is f16 where bf16 is meant"));
  EXPECT_THAT(Refusal(WarpSchedule("mma_m16n8k32_u8_i8", 32), "mma_m16n8k32_u8_i8", "mma_m16n8k32_i8_u8",
                      Matmul({"", "u8", "i8", 32})),
              HasSubstr("takes a tile of bs along its rows and steps, bs is no such"));
  EXPECT_THAT(Refusal(schedule, "mma_m16n8k16_f16", "mma_m16n8k16_f16", Matmul(kWarpCases[0], 37, 45, 50)),
              HasSubstr("pad_reduction"));
  // A processor's schedule.
  EXPECT_THAT(RunOnGpu(Matmul(kWarpCases[0], 32, 32, 32),
                       ParseSchedule("split acc.k 16\nsplit acc.m 16\nsplit acc.n 8\nreorder acc.k.0 acc.m.0 acc.n.0 "
                                     "acc.k.1 acc.m.1 acc.n.1\ntensorize mma_m16n8k16_f16 acc.k.1 acc.m.1 acc.n.1\n")
                           .value())
                  .refusal,
              HasSubstr("is done by the threads of a warp"));
}

// A layer of a quantised network: bytes of both kinds, which the warp loads together, and bytes that come of it.
TEST(Warp, AsText) {
  const std::string kernel =
      "kernel quantised(x: u8[M, K], const w: i8[N, K], s: f32[N]) -> y: u8[M, N] where M=32, N=16, K=64 "
      "{ y[m, n] = u8(round(float(sum(k) x[m, k] * w[n, k]) * s[n]) + 128.0) }";
  const Schedule schedule = DefaultSchedule(Specialize(ParseKernel(kernel).value()), Ampere()).value();
  const straight::Program program = StraightOf(kernel, schedule, straight::LimitsOf(ModelMachine(Ampere()))).value();
  const std::string source = PrintSources(program, *FindDialect("cuda"))[0];
  const std::string path = HONE_SOURCE_DIR "/tests/golden/warp_quantised.cuda.txt";
  if (std::getenv("HONE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << source;
  std::ifstream file(path);
  std::stringstream wanted;
  wanted << file.rdbuf();
  EXPECT_EQ(source, wanted.str()) << path;
}

TEST(Warp, WhoHasThem) {
  const Instruction& f16 = *FindInstruction("mma_m16n8k16_f16");
  auto cuda = [](const char* arch) { return DeviceTarget{std::string(kCudaKind), {{"arch", arch}}}; };
  EXPECT_TRUE(HasInstruction(cuda("sm_80"), f16));
  EXPECT_TRUE(HasInstruction(cuda("sm_90a"), f16));
  EXPECT_FALSE(HasInstruction(cuda("sm_75"), f16));
  EXPECT_FALSE(HasInstruction(DeviceTarget{std::string(kOpenClKind), {{"arch", "sm_80"}}}, f16));
  EXPECT_FALSE(HasInstruction(DeviceTarget{std::string(kCudaKind), {}}, f16));
  for (const Instruction& instruction : AllInstructions()) {
    if (!MeaningOf(instruction).is_of_warp) continue;
    EXPECT_TRUE(PtxName(instruction).starts_with(MeaningOf(instruction).is_of_group ? "wgmma." : "mma.sync."))
        << instruction.name;
  }
}

}  // namespace
}  // namespace hone
