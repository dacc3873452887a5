// Vectors in straight code: what comes of it is what came of numbers, whatever is between; and what is packed of
// products, windows and functions is all there is to pack.
#include "codegen/gpu/pack_lanes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "codegen/gpu/dialect.h"
#include "codegen/gpu/print_launch.h"
#include "codegen/gpu/straight_builder.h"
#include "codegen/machine_model.h"
#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"
#include "tests/support/operation_samples.h"

namespace hone::pack_lanes_test {
namespace {

using straight::Builder;
using straight::Code;
using straight::Do;
using straight::Program;
using straight::ValueId;

Target Processor() {
  return DeviceTarget{
      std::string(kOpenClKind),
      {{"block_threads", "4096"}, {"block_bytes", "1048576"}, {"type", "cpu"}, {"units", "2"}, {"lanes", "16"}}};
}

bool ComputesVectors(const straight::Value& value) {
  return value.lanes > 1 && value.what != Do::kLoad && value.what != Do::kPack;
}

// Kernels by their default schedules for a processor, and by others that the rules may take.
TEST(PackLanes, WhatRulesMakeIsRight) {
  const straight::DeviceLimits limits = straight::LimitsOf(ModelMachine(Processor()));
  EXPECT_EQ(limits.lanes, 16);
  Rng rng(11);
  int runs = 0, with_vectors = 0;
  const std::vector<std::string> samples = GpuSamples();
  const std::vector<std::string> wide = {
      "matmul(M=9,N=40,K=21)+bias+gelu",
      "dense(M=9,N=37,K=24,const=1)+bias",
      "matmul(M=5,N=32,K=9,dtype=f16)+bias",
      "matmul(M=5,N=32,K=9,dtype=bf16)",
      "matmul(M=5,N=32,K=9,dtype=i8)+relu",
      "maxpool2d(C=2,H=8,W=32,R=3,S=3,pad=1,dtype=i8)",
      "kernel quantised(x: u8[M, K], const w: i8[N, K], s: f32[N]) -> y: u8[M, N] where M=9, N=32, K=12 "
      "{ y[m, n] = u8(round(float(sum(k) x[m, k] * w[n, k]) * s[n]) + 128.0) }",
      "matmul(M=17,N=21,K=16,tb=1)",
      "conv2d(C=3,H=9,W=40,O=5,R=3,S=3,stride=2,pad=1)+relu",
      "depthwise_conv2d(C=3,H=19,W=21,R=3,S=3,pad=1)+bias+relu",
      "softmax(M=3,N=70)",
      "kernel e(x: f32[M, N]) -> y: f32[M, N] where M=5, N=64 "
      "{ y[m, n] = if(x[m, n] < 0.5, exp(x[m, n]), tanh(x[m, n])) }"};
  std::vector<std::string> texts = samples;
  texts.insert(texts.end(), wide.begin(), wide.end());
  for (const std::string& text : texts) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    for (int trial = 0; trial < (std::ranges::find(wide, text) != wide.end() ? 40 : 4); ++trial) {
      const Chooser any = [&](const Choice& choice) {
        const bool keeps = trial == 0 || choice.is_flag || (trial % 2 == 0 && choice.site.ends_with(".columns"));
        return keeps ? choice.preferred : choice.options[static_cast<size_t>(rng.Below(choice.options.size()))];
      };
      const Schedule schedule = PlanSchedule(kernel, Processor(), any).value().schedule;
      const Result<Program> program = StraightOf(text, schedule, limits);
      if (!program && trial > 0) continue;
      ASSERT_TRUE(program) << program.error().Text();
      const GpuOutcome outcome = RunStraight(text, *program);
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(schedule);
      ++runs;
      with_vectors += std::ranges::any_of(program->launches, [](const straight::Launch& launch) {
        return std::ranges::any_of(launch.code.values, ComputesVectors);
      });
    }
  }
  EXPECT_GE(runs, 300);
  EXPECT_GE(with_vectors, 100);
}

Program StraightFor(const std::string& text) {
  const Kernel kernel = Specialize(ParseKernel(text).value());
  return StraightOf(text, DefaultSchedule(kernel, Processor()).value(), straight::LimitsOf(ModelMachine(Processor())))
      .value();
}

TEST(PackLanes, ProductsAreOfVectorsAlone) {
  const Program program = StraightFor("matmul(M=64,N=64,K=64)+bias+relu");
  const std::string text = PrintSources(program, *FindDialect("opencl"))[0];
  EXPECT_NE(text.find("float16 acc_0_16;"), std::string::npos) << text;
  EXPECT_NE(text.find("hone_max_f32x16("), std::string::npos) << text;
  EXPECT_NE(text.find("vstore16("), std::string::npos) << text;
  EXPECT_EQ(text.find(".s"), std::string::npos) << text;       // no lane is taken out
  EXPECT_EQ(text.find("float y"), std::string::npos) << text;  // no register holds a number
}

TEST(PackLanes, FunctionsAreOfVectors) {
  const Program program = StraightFor("kernel e(x: f32[4096]) -> y: f32[4096] { y[i] = tanh(exp(x[i]) * 2.0) }");
  const std::string text = PrintSources(program, *FindDialect("opencl"))[0];
  EXPECT_NE(text.find("hone_exp_f32x16("), std::string::npos) << text;
  EXPECT_NE(text.find("hone_tanh_f32x16("), std::string::npos) << text;
}

TEST(PackLanes, ConditionsAreStoredOneByOne) {
  const Program program = StraightFor("kernel b(x: f32[4096]) -> y: bool[4096] { y[i] = x[i] < 0.5 }");
  const std::string text = PrintSources(program, *FindDialect("opencl"))[0];
  EXPECT_EQ(text.find("vstore"), std::string::npos) << text;
}

// Code at random, most of which does the same to registers side by side: in turn, with something else in between, with
// neighbours' values, with what was read before it changed.
class RandomCode {
 public:
  RandomCode(const Program& program, uint64_t seed) : rng_(seed), builder_(code_) {
    for (BufferId id : program.buffers.ids())
      (program.buffers[id].name == "x" ? x_ : program.buffers[id].name == "y" ? y_ : tile_) = id;
    exp_ = 0;
  }

  Code Make() {
    for (int64_t i = 0; i < kRows * kLanes; ++i)
      registers_.push_back(builder_.Declare(
          {.what = Do::kRegister, .type = DType::kF32, .number = i, .buffer = tile_, .name = fmt::format("t_{}", i)}));
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t lane = 0; lane < kLanes; ++lane) builder_.Assign(Register(row, lane), Load(x_, row * 3 + lane));
    for (int64_t i = 0; i < kElements; ++i) builder_.Store(y_, {}, i, Const(0.5));
    Statements(8, 0);
    for (int64_t i = 0; i < kRows * kLanes; ++i) builder_.Store(y_, {}, i + 64, registers_[static_cast<size_t>(i)]);
    builder_.Finish();
    return std::move(code_);
  }

  static constexpr int64_t kRows = 2, kLanes = 16, kElements = 128;

 private:
  ValueId Register(int64_t row, int64_t lane) const { return registers_[static_cast<size_t>(row * kLanes + lane)]; }
  ValueId Const(double real) { return builder_.Constant(DType::kF32, 0, real); }
  ValueId Load(BufferId buffer, int64_t at) { return builder_.Load(buffer, DType::kF32, 1, {}, at % kElements); }
  int64_t Below(int64_t bound) { return static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(bound))); }

  // An operand of every lane.
  struct Operand {
    int kind;
    int64_t at, row;
    std::vector<ValueId> before;
  };
  Operand AnyOperand() { return {static_cast<int>(Below(9)), Below(40), Below(kRows), Before()}; }
  std::vector<ValueId> Before() { return pool_.empty() ? std::vector<ValueId>() : pool_[Below(pool_.size())]; }
  ValueId Of(const Operand& operand, int64_t lane) {
    switch (operand.kind) {
      case 0: return Load(x_, operand.at);
      case 1: return Load(x_, operand.at + lane);
      case 2: return Load(x_, operand.at + 2 * lane);
      case 3: return Load(y_, operand.at + lane);
      case 4:
        return builder_.Make(Do::kLane, DType::kF32,
                             {builder_.Load(x_, DType::kF32, 4, {}, operand.at / 4 * 4 + lane / 4 * 4)}, lane % 4);
      case 5: return Register(operand.row, lane);
      case 6: return Register(operand.row, (lane + operand.at) % kLanes);
      case 7: return operand.before.empty() ? Const(0.25) : operand.before[static_cast<size_t>(lane)];
      default: return Const(static_cast<double>(operand.at) / 8);
    }
  }
  ValueId Computed(int kind, ValueId a, ValueId b, ValueId c) {
    switch (kind) {
      case 0: return builder_.Make(Do::kFma, DType::kF32, {a, b, c});
      case 1: return builder_.Make(Do::kAdd, DType::kF32, {a, b});
      case 2: return builder_.Make(Do::kMax, DType::kF32, {a, c});
      case 3: return builder_.Make(Do::kSelect, DType::kF32, {builder_.Make(Do::kLt, DType::kBool, {a, b}), c, a});
      case 4: return builder_.Make(Do::kCall, DType::kF32, {builder_.Make(Do::kNeg, DType::kF32, {a})}, exp_);
      case 5: {
        const ValueId bits = builder_.Make(Do::kBits, DType::kI32, {a});
        const ValueId mask = builder_.Make(Do::kBitAnd, DType::kI32, {bits, builder_.Int(0x7fffffff)});
        return builder_.Make(Do::kBits, DType::kF32, {mask});
      }
      default: return a;
    }
  }
  void Statements(int count, int depth) {
    const size_t known = pool_.size();
    for (int i = 0; i < count; ++i) Statement(depth);
    pool_.resize(known);
  }
  void Statement(int depth) {
    const int64_t row = Below(kRows), kind = Below(7), width = rng_.Chance(0.8) ? kLanes : 8, at = Below(40);
    const Operand a = AnyOperand(), b = AnyOperand(), c = AnyOperand();
    switch (Below(depth < 2 ? 8 : 6)) {
      case 0:
      case 1:
      case 2: {
        std::vector<ValueId> seen;  // of what was assigned, before the others are
        for (int64_t lane = 0; lane < width; ++lane) {
          builder_.Assign(Register(row, lane), Computed(static_cast<int>(kind), Of(a, lane), Of(b, lane), Of(c, lane)));
          if (rng_.Chance(0.01)) builder_.Store(y_, {}, at, Register(Below(kRows), Below(kLanes)));
          if (rng_.Chance(0.01)) builder_.Assign(Register(1 - row, 3), Of(a, lane));
          if (rng_.Chance(0.01))
            seen.push_back(builder_.Make(Do::kMul, DType::kF32, {Register(row, lane), Const(0.5)}));
        }
        for (ValueId value : seen) builder_.Store(y_, {}, at, value);
        return;
      }
      case 3:
      case 4:
        for (int64_t lane = 0; lane < width; ++lane) builder_.Store(y_, {}, at + lane, Of(a, lane));
        return;
      case 5: {
        std::vector<ValueId> values;
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const ValueId value = Computed(static_cast<int>(kind % 3), Of(a, lane), Of(b, lane), Of(c, lane));
          values.push_back(builder_.Make(Do::kMul, DType::kF32, {value, Const(0.5)}));
        }
        pool_.push_back(std::move(values));
        return;
      }
      case 6: {
        const ValueId counter = builder_.OpenFor("i", false);
        builder_.Forget(y_);
        Statements(3, depth + 1);
        builder_.CloseFor(counter, builder_.Int(0), builder_.Int(3));
        builder_.Forget(y_);
        return;
      }
      default: {
        const ValueId holds = builder_.Make(Do::kLt, DType::kBool, {Of(a, 1), Const(0.3)});
        builder_.OpenIf();
        Statements(3, depth + 1);
        builder_.CloseIf(holds);
        builder_.Forget(y_);
        return;
      }
    }
  }

  Rng rng_;
  Code code_;
  Builder builder_;
  BufferId x_, y_, tile_;
  int64_t exp_ = 0;
  std::vector<ValueId> registers_;
  std::vector<std::vector<ValueId>> pool_;
};

std::vector<float> ResultOf(const Program& program) {
  std::vector<float> x(RandomCode::kElements), y(RandomCode::kElements);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 11) / 8 - 0.5f;
  void* const operands[] = {x.data(), y.data()};
  const SimtReport report = SimtRun(program, operands, {}).value();
  EXPECT_TRUE(report.findings.empty()) << report.findings[0];
  return y;
}

TEST(PackLanes, RandomCodeComputesTheSame) {
  const std::string text = "kernel k(x: f32[128]) -> y: f32[128] { y[i] = exp(x[i]) }";
  Program program = StraightOf(text, Schedule()).value();
  Buffer tile;
  tile.name = "t";
  tile.scope = Scope::kRegisters;
  tile.extents = {RandomCode::kRows, RandomCode::kLanes};
  tile.strides = {RandomCode::kLanes, 1};
  tile.elements = RandomCode::kRows * RandomCode::kLanes;
  program.buffers.Add(tile);
  int packed = 0, left = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    program.functions.resize(1);
    program.launches[0].code = RandomCode(program, seed).Make();
    const std::vector<float> wanted = ResultOf(program);
    program.launches[0].code = straight::PackLanes(program.launches[0].code, program, seed % 3 == 0 ? 8 : 16);
    const std::vector<float> seen = ResultOf(program);
    ASSERT_EQ(std::memcmp(seen.data(), wanted.data(), wanted.size() * sizeof(float)), 0)
        << "seed " << seed << "\n"
        << PrintSources(program, *FindDialect("opencl"))[0];
    const Code& code = program.launches[0].code;
    const bool has = std::ranges::any_of(
        code.values, [](const straight::Value& value) { return value.what == Do::kRegister && value.lanes > 4; });
    ++(has ? packed : left);
  }
  EXPECT_GE(packed, 200);
  EXPECT_GE(left, 100);
}

}  // namespace
}  // namespace hone::pack_lanes_test
