// The machine model: right code computes what the reference computes and nothing is reported; each mistake is.
#include "codegen/gpu/simt_run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"
#include "tests/support/gpu_schedules.h"
#include "tests/support/operation_samples.h"

namespace hone {
namespace {

using straight::Node;

TEST(SimtRun, TilesInBlockStorage) {
  const GpuOutcome outcome = RunOnGpu(kTiledMatmul, ParseSchedule(kTiledMatmulSchedule).value(), {}, {.count = true});
  EXPECT_TRUE(outcome.IsRight()) << outcome.Text();
  EXPECT_EQ(outcome.report.most_threads, 32);
  EXPECT_EQ(outcome.report.blocks, 6);
  EXPECT_GT(outcome.report.shared_accesses, 0);
  EXPECT_GT(outcome.report.global_sectors, outcome.report.global_accesses);
}

// One thread that does everything: the same values and loops as on a processor.
TEST(SimtRun, SchedulesForProcessorsAsOneThread) {
  const Target target = ParseTarget("avx2 cpu=generic l1=32768 l2=524288 l3=4194304 cores=1").value();
  straight::DeviceLimits limits;
  limits.registers = 4096;
  for (const std::string& text : GpuSamples()) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    const GpuOutcome outcome = RunOnGpu(text, DefaultSchedule(kernel, target).value(), limits);
    EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text();
  }
}

// Every place of a kind of node in a launch, one after the other.
void ForEachPlace(std::vector<Node>& nodes, Node::Kind kind,
                  const std::function<void(std::vector<Node>& list, size_t at)>& visit) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == kind) visit(nodes, i);
    ForEachPlace(nodes[i].body, kind, visit);
  }
}

TEST(SimtRun, EachBarrierIsNeeded) {
  straight::Program program = StraightOf(kTiledMatmul, ParseSchedule(kTiledMatmulSchedule).value()).value();
  int barriers = 0;
  ForEachPlace(program.launches[0].code.nodes, Node::Kind::kBarrier, [&](std::vector<Node>& list, size_t at) {
    const Node barrier = list[at];
    list.erase(list.begin() + static_cast<int64_t>(at));
    const GpuOutcome outcome = RunStraight(kTiledMatmul, program);
    EXPECT_FALSE(outcome.report.findings.empty()) << "without barrier " << barriers;
    EXPECT_NE(outcome.Text().find("race"), std::string::npos) << outcome.Text();
    list.insert(list.begin() + static_cast<int64_t>(at), barrier);
    ++barriers;
  });
  EXPECT_EQ(barriers, 2);
  EXPECT_TRUE(RunStraight(kTiledMatmul, program).IsRight());
}

TEST(SimtRun, EachBarrierOfDefaultSchedulesIsNeeded) {
  std::vector<std::string> texts = GpuSamples();
  for (const std::string& text : LongRowSamples()) texts.push_back(text);
  int barriers = 0, kernels = 0;
  for (const std::string& text : texts) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    straight::Program program = StraightOf(text, DefaultSchedule(kernel, SomeGpu()).value()).value();
    int here = 0;
    const auto without = [&](std::vector<Node>& list, size_t at) {
      const Node barrier = list[at];
      list.erase(list.begin() + static_cast<int64_t>(at));
      EXPECT_FALSE(RunStraight(text, program).IsRight()) << text << " without barrier " << here;
      list.insert(list.begin() + static_cast<int64_t>(at), barrier);
      ++here;
    };
    for (straight::Launch& launch : program.pack) ForEachPlace(launch.code.nodes, Node::Kind::kBarrier, without);
    for (straight::Launch& launch : program.launches) ForEachPlace(launch.code.nodes, Node::Kind::kBarrier, without);
    barriers += here;
    kernels += here > 0;
  }
  EXPECT_GE(barriers, 80);
  EXPECT_GE(kernels, 30);
}

bool Has(const std::vector<Node>& nodes, const std::function<bool(const Node&)>& is) {
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) { return is(node) || Has(node.body, is); });
}

// A guard of what is stored in an operand that lets everything through, and a loop over a copy's elements that makes a
// trip too many. (What lies beyond an operand is read as zeros: more of those would do no harm.)
TEST(SimtRun, EachBoundIsNeeded) {
  straight::Program program = StraightOf(kTiledMatmul, ParseSchedule(kTiledMatmulSchedule).value()).value();
  straight::Code& code = program.launches[0].code;
  auto stores_operand = [&](const Node& node) {
    return node.kind == Node::Kind::kStore && program.buffers[node.buffer].scope == Scope::kDefault;
  };
  auto stores_block = [&](const Node& node) {
    return node.kind == Node::Kind::kStore && program.buffers[node.buffer].scope == Scope::kBlock;
  };
  int guards = 0;
  const straight::ValueId always =
      code.values.Add({.what = straight::Do::kConstant, .type = DType::kBool, .number = 1});
  ForEachPlace(code.nodes, Node::Kind::kIf, [&](std::vector<Node>& list, size_t at) {
    if (!std::any_of(list[at].body.begin(), list[at].body.end(), stores_operand)) return;
    const straight::ValueId condition = std::exchange(list[at].a, always);
    EXPECT_FALSE(RunStraight(kTiledMatmul, program).IsRight()) << "without guard " << guards;
    list[at].a = condition;
    ++guards;
  });
  EXPECT_GT(guards, 0);
  int loops = 0;
  ForEachPlace(code.nodes, Node::Kind::kFor, [&](std::vector<Node>& list, size_t at) {
    if (Has(list[at].body, [](const Node& node) { return node.kind == Node::Kind::kBarrier; })) return;
    ASSERT_TRUE(Has(list[at].body, stores_block));
    const straight::ValueId end = list[at].b;
    const int64_t trips = code.values[end].number;
    list[at].b = code.values.Add({.what = straight::Do::kConstant, .type = DType::kI32, .number = trips + 1});
    EXPECT_FALSE(RunStraight(kTiledMatmul, program).IsRight()) << "loop " << loops;
    list[at].b = end;
    ++loops;
  });
  EXPECT_EQ(loops, 2);
  EXPECT_TRUE(RunStraight(kTiledMatmul, program).IsRight());
}

TEST(SimtRun, ThreadsMustComeToTheSameBarriers) {
  straight::Program program = StraightOf(kTiledMatmul, ParseSchedule(kTiledMatmulSchedule).value()).value();
  straight::Code& code = program.launches[0].code;
  const straight::ValueId thread =
      code.values.Add({.what = straight::Do::kThread, .type = DType::kI32, .number = 0, .varies = true});
  const straight::ValueId one = code.values.Add({.what = straight::Do::kConstant, .type = DType::kI32, .number = 1});
  const straight::ValueId first =
      code.values.Add({.what = straight::Do::kLt, .type = DType::kBool, .args = {thread, one}});
  Node barrier{.kind = Node::Kind::kBarrier};
  Node condition{.kind = Node::Kind::kIf, .a = first};
  condition.body.push_back(barrier);
  code.nodes.insert(code.nodes.begin(), {Node{.kind = Node::Kind::kLet, .value = first}, condition});
  const GpuOutcome outcome = RunStraight(kTiledMatmul, program);
  EXPECT_NE(outcome.Text().find("divergent barrier"), std::string::npos) << outcome.Text();
}

// Copies that are read along a column of 32 elements all hit one bank; one element of room between rows helps.
TEST(SimtRun, CountsBankConflicts) {
  const std::string text = "kernel turn(x: f32[M, N]) -> y: f32[N, M] where M=32, N=32 { y[n, m] = x[m, n] }";
  const std::string shared =
      "split y.n 8\nreorder y.n.0 y.n.1 y.m\nbind y.n.1 thread.y\nbind y.m thread.x\ncache_read x -> xs for y block "
      "%s\n"
      "compute_at xs y.n.0\nsplit xs.m 4\nreorder xs.m.0 xs.m.1 xs.n\nbind xs.m.1 thread.x\nbind xs.n thread.y\n";
  auto with = [&](const std::string& layout) {
    std::string schedule = shared;
    schedule.replace(schedule.find("%s"), 2, layout);
    return RunOnGpu(text, ParseSchedule(schedule).value(), {}, {.count = true});
  };
  const GpuOutcome dense = with("[m, n]"), roomy = with("[m, n+1]");
  EXPECT_TRUE(dense.IsRight()) << dense.Text();
  EXPECT_TRUE(roomy.IsRight()) << roomy.Text();
  EXPECT_EQ(roomy.report.shared_passes, roomy.report.shared_accesses);
  EXPECT_GT(2 * dense.report.shared_passes, 3 * dense.report.shared_accesses);
}

}  // namespace
}  // namespace hone
