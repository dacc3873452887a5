// Pipelines: what is copied ahead is there in time, is not overwritten too early, and is waited for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/instructions.h"
#include "tests/support/gpu_run.h"
#include "tests/support/gpu_schedules.h"
#include "tests/support/warp_schedules.h"

namespace hone {
namespace {

using straight::Node;
using testing::HasSubstr;

constexpr char kWarpMatmul[] = "matmul(M=37,N=44,K=192,dtype=f16)+bias";

straight::DeviceLimits Limits(bool is_async) {
  straight::DeviceLimits limits;
  limits.has_async_copies = is_async;
  limits.instructions = {FindInstruction("mma_m16n8k16_f16")};
  return limits;
}

Schedule Ahead(std::string schedule, const std::string& steps) { return ParseSchedule(schedule + steps).value(); }

// Copies by vectors of four.
std::string WithVectors() {
  std::string schedule = WarpSchedule("mma_m16n8k16_f16", 16);
  for (const std::string copy : {"as", "bs"}) {
    const size_t begin = schedule.find("split " + copy), end = schedule.find("thread.x\n", begin) + 9;
    const std::string rows = copy == "as" ? "m" : "k", columns = copy == "as" ? "k" : "n";
    std::string text =
        "split %c.%x 4\nfuse %c.%y %c.%x.0\nsplit %c.%y+%x.0 2 32\nbind %c.%y+%x.0.1 thread.y\n"
        "bind %c.%y+%x.0.2 thread.x\nvectorize %c.%x.1\n";
    for (const auto& [what, with] : {std::pair("%c", copy), std::pair("%x", columns), std::pair("%y", rows)})
      for (size_t at = text.find(what); at != std::string::npos; at = text.find(what)) text.replace(at, 2, with);
    schedule.replace(begin, end - begin, text);
  }
  return schedule;
}

int CountOf(const std::vector<Node>& nodes, Node::Kind kind) {
  int count = 0;
  for (const Node& node : nodes) count += (node.kind == kind ? 1 : 0) + CountOf(node.body, kind);
  return count;
}

void ForEach(std::vector<Node>& nodes, Node::Kind kind, const std::function<void(std::vector<Node>&, size_t)>& visit) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == kind) visit(nodes, i);
    ForEach(nodes[i].body, kind, visit);
  }
}

TEST(Pipeline, IsRightWithAnyNumberOfBuffers) {
  for (int buffers : {2, 3, 4, 8}) {
    const std::string steps = "pipeline as " + std::to_string(buffers) + "\npipeline bs " + std::to_string(buffers);
    for (bool is_async : {false, true}) {
      const Result<straight::Program> program =
          StraightOf(kTiledMatmul, Ahead(kTiledMatmulSchedule, steps), Limits(is_async));
      ASSERT_TRUE(program) << program.error().Text();
      GpuOutcome outcome = RunStraight(kTiledMatmul, *program);
      EXPECT_TRUE(outcome.IsRight()) << buffers << " " << is_async << ": " << outcome.Text();
      EXPECT_EQ(CountOf(program->launches[0].code.nodes, Node::Kind::kBarrier), 1) << "a trip";
      if (buffers == 8) continue;  // more than a block has room for
      outcome = RunOnGpu(kWarpMatmul, Ahead(WithVectors(), steps), Limits(is_async));
      EXPECT_TRUE(outcome.IsRight()) << buffers << " " << is_async << ": " << outcome.Text();
    }
  }
}

TEST(Pipeline, CopiesPastTheRegistersWhereTheDeviceDoes) {
  const Schedule schedule = Ahead(WithVectors(), "pipeline as 3\npipeline bs 3");
  const straight::Program async = StraightOf(kWarpMatmul, schedule, Limits(true)).value();
  const std::vector<Node>& nodes = async.launches[0].code.nodes;
  EXPECT_GT(CountOf(nodes, Node::Kind::kCopyAhead), 0);
  EXPECT_EQ(CountOf(nodes, Node::Kind::kCommit), 3) << "two before the loop, one in it";
  EXPECT_EQ(CountOf(nodes, Node::Kind::kAwait), 1);
  EXPECT_EQ(CountOf(StraightOf(kWarpMatmul, schedule, Limits(false))->launches[0].code.nodes, Node::Kind::kCopyAhead),
            0);
}

// Each way in which it can be a stage short.
TEST(Pipeline, EachPartIsNeeded) {
  const Schedule schedule = Ahead(WithVectors(), "pipeline as 3\npipeline bs 3");
  for (bool is_async : {false, true}) {
    const straight::Program right = StraightOf(kWarpMatmul, schedule, Limits(is_async)).value();
    for (Node::Kind kind : {Node::Kind::kBarrier, Node::Kind::kCommit, Node::Kind::kAwait}) {
      straight::Program program = right;
      int places = 0;
      ForEach(program.launches[0].code.nodes, kind, [&](std::vector<Node>& list, size_t at) {
        ++places;
        const Node node = list[at];
        if (kind == Node::Kind::kAwait)
          ++list[at].offset;  // for a group less
        else
          list[at] = {.kind = Node::Kind::kIf, .a = node.a};
        if (kind != Node::Kind::kAwait) list.erase(list.begin() + static_cast<int64_t>(at));
        EXPECT_FALSE(RunStraight(kWarpMatmul, program).IsRight()) << is_async << " " << static_cast<int>(kind);
        if (kind == Node::Kind::kAwait)
          list[at] = node;
        else
          list.insert(list.begin() + static_cast<int64_t>(at), node);
      });
      EXPECT_EQ(places, kind == Node::Kind::kBarrier ? 1 : !is_async ? 0 : kind == Node::Kind::kCommit ? 3 : 1);
      EXPECT_TRUE(RunStraight(kWarpMatmul, program).IsRight());
    }
  }
}

TEST(Pipeline, ABufferLessIsARace) {
  const Kernel kernel = Specialize(ParseKernel(kTiledMatmul).value());
  const Schedule schedule = Ahead(kTiledMatmulSchedule, "pipeline as 3\npipeline bs 3");
  LoopProgram program = Lower(ApplySchedule(kernel, schedule).value()).value();
  int short_ones = 0;
  for (Buffer& buffer : program.buffers) {
    if (buffer.slots <= 1) continue;
    buffer.strides[0] = 0;  // all are one
    ++short_ones;
  }
  EXPECT_EQ(short_ones, 2);
  EXPECT_THAT(RunStraight(kTiledMatmul, Straighten(program).value()).Text(), HasSubstr("race"));
}

std::string Refusal(const std::string& schedule, const std::string& kernel = kTiledMatmul) {
  return RunOnGpu(kernel, ParseSchedule(schedule).value()).refusal;
}

TEST(Pipeline, SaysWhatDoesNotFit) {
  const std::string tiled = kTiledMatmulSchedule;
  EXPECT_THAT(Refusal(tiled + "pipeline as 2\npipeline bs 3"), HasSubstr("as has 2 buffers and bs has 3"));
  EXPECT_THAT(Refusal(tiled + "pipeline as 2\nunroll acc.k.0"), HasSubstr("stays one"));
  std::string reads = tiled + "cache_read a -> aa for as block\ncompute_at aa acc.k.0\npipeline as 2";
  EXPECT_THAT(Refusal(reads), HasSubstr("reads aa, which is not there a trip ahead"));
  EXPECT_THAT(
      Refusal("split y.n 32\nbind y.n.0 block.x\nbind y.n.1 thread.x\ncompute_at acc y.n.1\nstore acc registers\n"
              "pipeline acc 2"),
      HasSubstr("store it block"));
  for (const char* number : {"1", "9"}) {
    const Schedule schedule = ParseSchedule(std::string("pipeline acc ") + number).value();
    EXPECT_THAT(RunOnGpu(kTiledMatmul, schedule).refusal, HasSubstr("2 to 8"));
  }
  EXPECT_EQ(PrintSchedule(ParseSchedule("pipeline as 2\n").value()), "pipeline as 2\n");
}

}  // namespace
}  // namespace hone
