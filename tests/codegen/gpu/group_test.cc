// Products of matrices by a group of warps: operands through descriptors, sums that are on their way until they have
// been waited for, and everything that orders them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "codegen/gpu/print_launch.h"
#include "codegen/instructions.h"
#include "tests/support/gpu_run.h"
#include "tests/support/warp_schedules.h"

namespace hone::group_test {
namespace {

using straight::Node;
using testing::HasSubstr;
using testing::Not;

constexpr char kMatmul[] = "matmul(M=130,N=70,K=160,dtype=f16)+bias";

straight::DeviceLimits Limits(bool has_instruction = true, bool is_async = true) {
  straight::DeviceLimits limits{.shared_bytes = 64 << 10};
  limits.has_async_copies = is_async;
  for (const Instruction& instruction : AllInstructions())
    if (has_instruction && MeaningOf(instruction).is_of_group) limits.instructions.push_back(&instruction);
  return limits;
}

std::string Steps(int buffers, std::string schedule = GroupSchedule()) {
  if (buffers > 1) schedule += fmt::format("pipeline as {0}\npipeline bs {0}\n", buffers);
  return schedule;
}
Schedule With(int buffers) { return ParseSchedule(Steps(buffers)).value(); }

void ForEach(std::vector<Node>& nodes, Node::Kind kind, const std::function<void(std::vector<Node>&, size_t)>& visit) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == kind) visit(nodes, i);
    ForEach(nodes[i].body, kind, visit);
  }
}

int CountOf(straight::Program& program, Node::Kind kind) {
  int count = 0;
  ForEach(program.launches[0].code.nodes, kind, [&](std::vector<Node>&, size_t) { ++count; });
  return count;
}

TEST(Group, MultipliesAsTheHardwareDoesAndAsItIsMeant) {
  for (int buffers : {1, 2, 3, 4})
    for (const bool has : {true, false})
      for (const bool is_async : {true, false}) {
        if (!has && (buffers > 1) != is_async) continue;  // as it is meant takes the machine model ten times as long
        Result<straight::Program> program = StraightOf(kMatmul, With(buffers), Limits(has, is_async));
        ASSERT_TRUE(program) << buffers << ": " << program.error().Text();
        EXPECT_EQ(CountOf(*program, Node::Kind::kProduct), has ? 2 : 0) << "steps of 16 in each 32";
        const GpuOutcome outcome = RunStraight(kMatmul, *program);
        EXPECT_TRUE(outcome.IsRight()) << buffers << " " << has << " " << is_async << ": " << outcome.Text();
        EXPECT_EQ(outcome.report.most_threads, 256);
      }
  EXPECT_TRUE(RunOnGpu("matmul(M=64,N=64,K=32,dtype=bf16)",
                       ParseSchedule(GroupSchedule("wgmma_m64n64k16_bf16")).value(), Limits())
                  .IsRight());
}

// Of all that orders copies, products and sums nothing can be left out.
TEST(Group, EachPartIsNeeded) {
  struct Part {
    Node::Kind kind;
    int places[4];  // by the number of buffers
  };
  constexpr Part kParts[] = {{Node::Kind::kBarrier, {0, 2, 1, 1}},
                             {Node::Kind::kFenceStorage, {0, 2, 1, 1}},
                             {Node::Kind::kFenceSums, {0, 1, 1, 1}},
                             {Node::Kind::kCommitProducts, {0, 1, 1, 1}},
                             {Node::Kind::kAwaitProducts, {0, 1, 1, 2}}};
  for (int buffers : {1, 2, 3})
    for (const Part& part : kParts) {
      straight::Program program = StraightOf(kMatmul, With(buffers), Limits()).value();
      int places = 0;
      ForEach(program.launches[0].code.nodes, part.kind, [&](std::vector<Node>& list, size_t at) {
        ++places;
        const Node node = list[at];
        list[at] = {.kind = Node::Kind::kDeclare, .value = program.launches[0].code.values.Add({})};
        // The fence before copies that overwrite what nobody reads through descriptors any more.
        const bool is_idle = buffers == 1 && part.kind == Node::Kind::kFenceStorage && places == 1;
        EXPECT_EQ(RunStraight(kMatmul, program).IsRight(), is_idle)
            << buffers << " " << static_cast<int>(part.kind) << " " << places;
        list[at] = node;
      });
      EXPECT_EQ(places, part.places[buffers]) << buffers << " " << static_cast<int>(part.kind);
      EXPECT_TRUE(RunStraight(kMatmul, program).IsRight());
    }
}

// A trip more on its way than there is a buffer for.
TEST(Group, ABufferLessIsSeen) {
  straight::Program program = StraightOf(kMatmul, With(3), Limits()).value();
  ForEach(program.launches[0].code.nodes, Node::Kind::kAwaitProducts,
          [](std::vector<Node>& list, size_t at) { list[at].offset += list[at].offset; });
  EXPECT_THAT(RunStraight(kMatmul, program).Text(), HasSubstr("race: "));
}

TEST(Group, OtherDescriptorsAndSumsAreWrong) {
  const std::function<void(Node&)> mutations[] = {
      [](Node& node) { std::swap(node.matrices[0].row_bytes, node.matrices[0].step_bytes); },
      [](Node& node) { std::swap(node.matrices[1].row_bytes, node.matrices[1].step_bytes); },
      [](Node& node) { node.matrices[0].is_transposed = true; },
      [](Node& node) { node.matrices[1].is_transposed = false; },
      [](Node& node) { node.matrices[1].row_bytes -= 16; },
      [](Node& node) { node.offset += 8; },
      [](Node& node) { std::swap(node.args[0], node.args[1]); },
      [](Node& node) { std::swap(node.args[1], node.args[2]); },
      [](Node& node) { std::swap(node.args[0], node.args[4]); },
  };
  for (const auto& mutate : mutations) {
    straight::Program program = StraightOf(kMatmul, With(1), Limits()).value();
    EXPECT_EQ(CountOf(program, Node::Kind::kProduct), 2);
    ForEach(program.launches[0].code.nodes, Node::Kind::kProduct,
            [&](std::vector<Node>& list, size_t at) { mutate(list[at]); });
    EXPECT_FALSE(RunStraight(kMatmul, program).IsRight()) << &mutate - mutations;
  }
}

constexpr char kSwizzledMatmul[] = "matmul(M=128,N=128,K=192,dtype=f16)+bias";

straight::Program Swizzled(int buffers, bool has_instruction = true) {
  const Schedule schedule = ParseSchedule(Steps(buffers, SwizzledGroupSchedule())).value();
  straight::DeviceLimits limits = Limits(has_instruction);
  limits.shared_bytes = 128 << 10;
  return StraightOf(kSwizzledMatmul, schedule, limits).value();
}

TEST(Group, SwizzledRowsAreReadAsTheyWereWritten) {
  for (int buffers : {1, 3})
    for (const bool has : {true, false}) {
      straight::Program program = Swizzled(has ? buffers : 1, has);
      EXPECT_EQ(CountOf(program, Node::Kind::kProduct), has ? 4 : 0);
      const GpuOutcome outcome = RunStraight(kSwizzledMatmul, program);
      EXPECT_TRUE(outcome.IsRight()) << buffers << " " << has << ": " << outcome.Text();
    }
}

TEST(Group, SwizzledCopiesAndDescriptorsGoTogether) {
  straight::Program plain = Swizzled(1);
  int moved = 0;
  for (straight::Value& value : plain.launches[0].code.values)
    if (value.what == straight::Do::kBitXor) value.what = straight::Do::kMax, ++moved;  // where it would be without
  EXPECT_EQ(moved, 2) << "of each copy, in front of its loop";
  EXPECT_FALSE(RunStraight(kSwizzledMatmul, plain).IsRight());
  const std::function<void(Node&)> mutations[] = {
      [](Node& node) { node.matrices[0].is_swizzled = false; },
      [](Node& node) { node.matrices[1].is_swizzled = false; },
      [](Node& node) { node.matrices[0].row_bytes *= 2; },
      [](Node& node) { node.matrices[1].row_bytes /= 2; },
      [](Node& node) { node.matrices[1].step_bytes *= 2; },
      [](Node& node) { std::swap(node.matrices[1].row_bytes, node.matrices[1].step_bytes); },
      [](Node& node) { node.matrices[0].is_transposed = true; },
      [](Node& node) { node.matrices[1].is_transposed = false; },
      [](Node& node) { node.offset ^= 16; },
  };
  for (const auto& mutate : mutations) {
    straight::Program program = Swizzled(1);
    ForEach(program.launches[0].code.nodes, Node::Kind::kProduct,
            [&](std::vector<Node>& list, size_t at) { mutate(list[at]); });
    EXPECT_FALSE(RunStraight(kSwizzledMatmul, program).IsRight()) << &mutate - mutations;
  }
}

// Blocks of eight rows are 1024 bytes apart, and blocks of 64 columns 64 rows of k.
TEST(Group, SwizzledDescriptorsAsText) {
  const std::string source = PrintSources(Swizzled(1), *FindDialect("cuda"))[0];
  EXPECT_THAT(source, HasSubstr("__shared__ __align__(1024) unsigned short as[8192]"));
  EXPECT_THAT(source, HasSubstr(">> 4) | 0x4000004000010000ull), \"l\""));
  EXPECT_THAT(source, HasSubstr(">> 4) | 0x4000004002000000ull) :"));
  EXPECT_THAT(PrintSources(Swizzled(3), *FindDialect("cuda"))[0],
              HasSubstr("extern __shared__ __align__(1024) unsigned char block_storage[];"));
}

std::string SwizzledRefusal(const std::string& what, const std::string& with) {
  std::string schedule = SwizzledGroupSchedule();
  schedule.replace(schedule.find(what), what.size(), with);
  return RunOnGpu(kSwizzledMatmul, ParseSchedule(schedule).value(), Limits()).refusal;
}

TEST(Group, SaysWhatIsNotSwizzledAsItIsRead) {
  EXPECT_THAT(SwizzledRefusal("[k/64, m, k%64 swizzled]", "[k/32, m, k%32 swizzled]"),
              HasSubstr("as is swizzled, which block storage in rows of 128 bytes alone may be"));
  EXPECT_THAT(SwizzledRefusal("[k/64, m, k%64 swizzled]", "[m/64, k, m%64 swizzled]"), testing::IsEmpty())
      << "as a transposed matrix";
  EXPECT_THAT(SwizzledRefusal("[n/64, k, n%64 swizzled]", "[k/8, n/64, k%8+1, n%64 swizzled]"),
              HasSubstr("bytes apart, where a multiple of 1024 up to"));
}

std::string Refusal(const std::string& what, const std::string& with, straight::DeviceLimits limits = Limits()) {
  std::string schedule = GroupSchedule();
  const size_t at = schedule.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  schedule.replace(at, what.size(), with);
  return RunOnGpu(kMatmul, ParseSchedule(schedule).value(), limits).refusal;
}

std::string WithoutCopyOfA() {
  std::istringstream lines(GroupSchedule());
  std::string left;
  for (std::string line; std::getline(lines, line);)
    if (line.find(" as") == std::string::npos) left += line + "\n";
  return left;
}

TEST(Group, SaysWhatDoesNotFit) {
  const std::string a = "as for acc block [m/8, k/8, m%8+1, k%8]";
  for (const bool has : {true, false}) {
    EXPECT_THAT(Refusal(a, "as for acc block [m, k+8]", Limits(has)),
                HasSubstr("row 1 lies 40 elements from the first, where 8 are wanted"));
    EXPECT_THAT(Refusal(a, "as for acc block [m/4, k/8, m%4, k%8]", Limits(has)),
                HasSubstr("row 4 lies 128 elements from the first, where 32 are wanted"));
    EXPECT_THAT(Refusal(a, "as for acc block [m/8, k/8, m%8, k%8+1]", Limits(has)), HasSubstr("row 1 lies 9"));
    EXPECT_THAT(
        RunOnGpu("matmul(M=128,N=64,K=160,dtype=f16)+bias", ParseSchedule(WithoutCopyOfA()).value(), Limits(has))
            .refusal,
        HasSubstr("takes its rows from block storage, a is not there"));
  }
  EXPECT_THAT(Refusal("bind y.m.2+m.4+n.2 thread.x", "bind y.m.2+m.4+n.2 thread.z"), HasSubstr("depends on"));
  EXPECT_THAT(RunOnGpu(kMatmul, ParseSchedule(WarpSchedule("wgmma_m64n64k16_f16", 16)).value(), Limits()).refusal,
              HasSubstr("does 64 trips of m.1, which has 16"));
  EXPECT_THAT(Refusal("fuse y.m.2 y.m.4 y.n.2\nbind y.m.2+m.4+n.2 thread.x",
                      "reorder y.m.0 y.n.0 y.m.1 y.m.2 y.n.2 y.m.4 y.m.3 y.n.1 y.n.3\nfuse y.m.2 y.n.2 y.m.4\n"
                      "bind y.m.2+n.2+m.4 thread.x"),
              HasSubstr("thread.x 1 reads an element of acc that another thread holds"));
  straight::DeviceLimits few = Limits();
  few.registers = 16;
  EXPECT_THAT(Refusal("", "", few), HasSubstr("acc takes 32 registers of a thread"));
}

TEST(Group, WhoHasThem) {
  const Instruction& f16 = *FindInstruction("wgmma_m64n128k16_f16");
  const auto has = [&](const char* arch) {
    return HasInstruction(DeviceTarget{std::string(kCudaKind), {{"arch", arch}}}, f16);
  };
  EXPECT_TRUE(has("sm_90"));
  EXPECT_TRUE(has("sm_90a"));
  EXPECT_FALSE(has("sm_80"));
  EXPECT_FALSE(has("sm_100")) << "it went with the architecture";
}

TEST(Group, AsText) {
  straight::Program program = StraightOf(kMatmul, With(3), Limits()).value();
  const std::string source = PrintSources(program, *FindDialect("cuda"))[0];
  const std::string path = HONE_SOURCE_DIR "/tests/golden/group_matmul.cuda.txt";
  if (std::getenv("HONE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << source;
  std::ifstream file(path);
  std::stringstream wanted;
  wanted << file.rdbuf();
  EXPECT_EQ(source, wanted.str()) << path;
}

// More than arrays in a text may take is one array, whose size is said with the launch.
TEST(Group, MuchStorageIsOneArray) {
  const straight::Program program = StraightOf(kMatmul, With(4), Limits()).value();
  EXPECT_GT(program.launches[0].shared_bytes, 48 << 10);
  EXPECT_THAT(PrintSources(program, *FindDialect("cuda"))[0],
              HasSubstr("extern __shared__ __align__(1024) unsigned char block_storage[];"));
  EXPECT_THAT(PrintSources(program, *FindDialect("opencl"))[0], Not(HasSubstr("block_storage")));
}

}  // namespace
}  // namespace hone::group_test
