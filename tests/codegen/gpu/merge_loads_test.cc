// Loads of elements side by side, merged: four, or two, where their place is a multiple of as many for certain, and no
// store, barrier or loop is between them.
#include "codegen/gpu/merge_loads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "codegen/gpu/straight_builder.h"
#include "tests/support/gpu_run.h"

namespace hone::merge_loads_test {
namespace {

using straight::Builder;
using straight::Code;
using straight::Do;
using straight::Program;
using straight::ValueId;

// One block of four threads; `write` says what they load of the block's 64 elements, which are 0, 1, 2 …, and the sum
// of it is what y[thread] comes to.
class Loads {
 public:
  Loads() : program_(StraightOf("kernel k(x: f32[64]) -> y: f32[64] { y[i] = x[i] }", Schedule()).value()) {
    for (BufferId id : program_.buffers.ids()) (program_.buffers[id].name == "x" ? x_ : y_) = id;
    Buffer block = program_.buffers[x_];
    block.name = "block";
    block.scope = Scope::kBlock;
    block_ = program_.buffers.Add(block);
    straight::Launch& launch = program_.launches[0];
    launch.shared = {block_};
    launch.block = {4, 1, 1};
    launch.grid = {Linear(1), Linear(1), Linear(1)};
    thread_ = builder_.Given({.what = Do::kThread, .type = DType::kI32, .number = 0, .varies = true});
    for (int64_t i = 0; i < 16; ++i) {
      const ValueId at = Times(thread_, 16);
      builder_.Store(block_, at, i, builder_.Load(x_, DType::kF32, 1, at, i));
    }
    builder_.Barrier();
  }

  Builder& builder() { return builder_; }
  ValueId thread() const { return thread_; }
  BufferId block() const { return block_; }
  ValueId Times(ValueId value, int64_t factor) {
    return builder_.Make(Do::kMul, DType::kI32, {value, builder_.Int(factor)});
  }
  void Load(ValueId at, int64_t offset) { loaded_.push_back(builder_.Load(block_, DType::kF32, 1, at, offset)); }

  // Lanes of each load from the block's elements that are read, in order, after merging; the results stay what they
  // were.
  std::vector<int> Merged() {
    ValueId sum = loaded_[0];
    for (size_t i = 1; i < loaded_.size(); ++i) sum = builder_.Make(Do::kAdd, DType::kF32, {sum, loaded_[i]});
    builder_.Store(y_, thread_, 0, sum);
    builder_.Finish();
    program_.launches[0].code = std::move(code_);
    const std::vector<float> wanted = Run();
    straight::MergeLoads(program_.launches[0].code, program_);
    EXPECT_EQ(Run(), wanted);
    std::vector<int> lanes;
    const Code& code = program_.launches[0].code;
    Collect(code, code.nodes, lanes);
    return lanes;
  }

 private:
  void Collect(const Code& code, const std::vector<straight::Node>& nodes, std::vector<int>& lanes) const {
    for (const straight::Node& node : nodes) {
      const bool is_let = node.kind == straight::Node::Kind::kLet;
      if (is_let && code.values[node.value].what == Do::kLoad && code.values[node.value].buffer == block_)
        lanes.push_back(code.values[node.value].lanes);
      Collect(code, node.body, lanes);
    }
  }
  std::vector<float> Run() const {
    std::vector<float> x(64), y(64);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    void* const operands[] = {x.data(), y.data()};
    const SimtReport report = SimtRun(program_, operands, {}).value();
    EXPECT_TRUE(report.findings.empty()) << report.findings[0];
    return y;
  }

  Program program_;
  Code code_;
  Builder builder_{code_};
  BufferId x_, y_, block_;
  ValueId thread_;
  std::vector<ValueId> loaded_;
};

TEST(MergeLoads, FourAreOneAndTwoAreOne) {
  Loads loads;
  const ValueId at = loads.Times(loads.thread(), 4);
  for (int64_t i : {3, 1, 2, 0, 4, 5, 7}) loads.Load(at, i);
  EXPECT_EQ(loads.Merged(), (std::vector<int>{4, 2, 1}));
}

TEST(MergeLoads, APlaceThatMayBeOddIsLeftAlone) {
  Loads odd;
  for (int64_t i = 0; i < 4; ++i) odd.Load(odd.thread(), i);
  EXPECT_EQ(odd.Merged(), (std::vector<int>{1, 1, 1, 1}));
  Loads even;
  for (int64_t i = 0; i < 4; ++i) even.Load(even.Times(even.thread(), 6), i);
  EXPECT_EQ(even.Merged(), (std::vector<int>{2, 2}));
  Loads begins_late;
  for (int64_t i = 2; i < 6; ++i) begins_late.Load(begins_late.Times(begins_late.thread(), 4), i);
  EXPECT_EQ(begins_late.Merged(), (std::vector<int>{2, 2}));
}

TEST(MergeLoads, AStoreBetweenThemKeepsThemApart) {
  Loads loads;
  const ValueId at = loads.Times(loads.thread(), 16);
  loads.Load(at, 0);
  loads.Load(at, 1);
  loads.builder().Store(loads.block(), at, 2, loads.builder().Constant(DType::kF32, 0, 0.5));
  loads.Load(at, 2);
  loads.Load(at, 3);
  EXPECT_EQ(loads.Merged(), (std::vector<int>{2, 2}));
}

TEST(MergeLoads, ABarrierBetweenThemKeepsThemApart) {
  Loads loads;
  const ValueId at = loads.Times(loads.thread(), 4);
  for (int64_t i = 0; i < 4; ++i) {
    if (i == 1) loads.builder().Barrier();
    loads.Load(at, i);
  }
  EXPECT_EQ(loads.Merged(), (std::vector<int>{1, 1, 2}));
}

}  // namespace
}  // namespace hone::merge_loads_test
