// Rewrites keep the function: the reference of the rewritten kernel is that of the original, element by element, or the
// rewrite is refused. What each makes of a graph, what it refuses, and all of them on everything at odd sizes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "ir/graph/specialize.h"
#include "ir/rewrites/cache_read.h"
#include "ir/rewrites/inline_stage.h"
#include "ir/rewrites/rfactor.h"
#include "tests/support/operation_samples.h"
#include "tests/support/rewrites.h"
#include "tests/support/same_function.h"

namespace hone {
namespace {

TEST(Rewrite, FindsByName) {
  const Kernel kernel = Parsed("matmul(M=7,N=5,K=13)+bias+relu");
  EXPECT_THAT(StageNames(kernel), testing::ElementsAre("acc", "y"));
  EXPECT_EQ(FindStage(kernel, "acc"), StageId(0));
  EXPECT_EQ(FindStage(kernel, "y"), StageId(1));
  EXPECT_FALSE(FindStage(kernel, "a"));
  EXPECT_EQ(kernel.tensors[FindTensor(kernel, "bias")].name, "bias");
  EXPECT_FALSE(FindTensor(kernel, "nothing"));
  EXPECT_THAT(ReadersOf(kernel, FindTensor(kernel, "acc")), testing::ElementsAre(StageId(1)));
  EXPECT_THAT(ReadersOf(kernel, FindTensor(kernel, "a")), testing::ElementsAre(StageId(0)));
  EXPECT_THAT(ReadersOf(kernel, FindTensor(kernel, "y")), testing::IsEmpty());
  const Stage& acc = StageOf(kernel, "acc");
  EXPECT_EQ(FindAxis(acc, "n"), AxisId(1));
  EXPECT_EQ(FindAxis(acc, "k"), AxisId(2));
  EXPECT_TRUE(acc.Reduces(FindAxis(acc, "k")) && !acc.Reduces(FindAxis(acc, "n")));
  EXPECT_FALSE(FindAxis(acc, "q"));
  EXPECT_EQ(FreshAxis({&acc}, "q"), "q");
  EXPECT_EQ(FreshAxis({&StageOf(kernel, "y"), &acc}, "k"), "k1");
}

TEST(Rewrite, IdentitiesLeaveAReductionAsItIs) {
  for (DType type : {DType::kF32, DType::kF64, DType::kI32, DType::kI8}) {
    auto number = [&](Reduction reduction) {
      Expr e = ReductionIdentity(reduction, type);
      EXPECT_EQ(e.type(), type);
      return IsFloat(type) ? e.float_value() : static_cast<double>(e.int_value());
    };
    EXPECT_EQ(number(Reduction::kSum), 0);
    EXPECT_EQ(number(Reduction::kProd), 1);
    const double infinite = INFINITY;
    double lowest = type == DType::kI8 ? -128.0 : type == DType::kI32 ? -2147483648.0 : -infinite;
    double highest = type == DType::kI8 ? 127.0 : type == DType::kI32 ? 2147483647.0 : infinite;
    EXPECT_EQ(number(Reduction::kMax), lowest);
    EXPECT_EQ(number(Reduction::kMin), highest);
  }
}

// ---- inline

TEST(Inline, PutsAStageIntoItsReader) {
  const Kernel before = Parsed("conv2d(C=3,H=7,W=5,O=4,R=3,S=3,pad=1)+bias+relu");
  ASSERT_THAT(StageNames(before), testing::ElementsAre("xp", "acc", "y"));
  Kernel after = Kept(before, InlineStage(before, FindStage(before, "xp")));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("acc", "y"));
  EXPECT_THAT(ReadersOf(after, FindTensor(after, "x")), testing::ElementsAre(StageId(0)));
}

TEST(Inline, PutsAStageIntoAllItsReaders) {
  const Kernel before = Parsed(R"(kernel two(x: f32[N]) -> y: f32[N], z: f32[] where N=13 {
    t: f32[N]
    t[n] = exp(x[n]) + 1
    y[n] = t[n] * t[N - 1 - n]
    z[] = max(n) t[n]
  })");
  Kernel after = Kept(before, InlineStage(before, FindStage(before, "t")));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("y", "z"));
}

// Outside of what the inlined stage computes the reader's own fill holds, not what the stage would compute there.
TEST(Inline, KeepsFills) {
  for (const char* body : {"t[n] = x[n] + 1 y[n] = pad(t[n - 1], 5)", "t[n] = pad(x[n - 2], 2) y[n] = pad(t[n + 1], 3)",
                           "t[n] = pad(x[n + 1], 2) y[n] = pad(t[n + N/2], 3) + pad(t[n - N/2], 4)",
                           "t[n] = exp(pad(x[n + 3], 7)) y[n] = t[n] + pad(t[2*n - 3], 1)"}) {
    for (int n : {2, 7, 13}) {
      const Kernel before =
          Parsed("kernel pads(x: f32[N]) -> y: f32[N] where N=" + std::to_string(n) + " { t: f32[N] " + body + " }");
      Kept(before, InlineStage(before, FindStage(before, "t")));
    }
  }
}

TEST(Inline, KeepsFillsOfScalars) {
  const Kernel before =
      Parsed("kernel scalar(x: f32[N]) -> y: f32[N] where N=3 { t: f32[] t[] = x[0] * 2 y[n] = pad(t[], 5) + x[n] }");
  Kept(before, InlineStage(before, FindStage(before, "t")));
}

TEST(Inline, FollowsIndicesReadFromData) {
  const Kernel before = Parsed(R"(kernel bag(table: f32[V, D], ids: i32[B]) -> y: f32[B, D] where V=9, D=5, B=7 {
    t: f32[V, D]
    t[v, d] = table[v, d] * 2
    y[b, d] = t[clamp(ids[b], 0, V - 1), d]
  })");
  Kernel after = Kept(before, InlineStage(before, FindStage(before, "t")));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("y"));
}

TEST(Inline, RefusesReductionsAndOutputs) {
  const Kernel kernel = Parsed("matmul(M=7,N=5,K=13)+bias");
  EXPECT_EQ(RefusalOf(InlineStage(kernel, FindStage(kernel, "acc"))),
            "acc is a reduction: it can be placed, not inlined");
  EXPECT_EQ(RefusalOf(InlineStage(kernel, FindStage(kernel, "y"))), "y is an output: it must be stored");
}

// Each stage of the chain mentions the one before it twice: forty of them in one body would be 10^12 nodes.
TEST(Inline, EndsWhereAChainWouldDoubleWithoutEnd) {
  std::string text = "kernel chain(x: f32[N]) -> y: f32[N] where N=13 {\n  t0: f32[N] t0[n] = x[n] * 2\n";
  for (int i = 1; i <= 40; ++i) text += fmt::format("  t{0}: f32[N] t{0}[n] = t{1}[n] * 0.5 + t{1}[n]\n", i, i - 1);
  Kernel kernel = Parsed(text + "  y[n] = t40[n]\n}");
  int refused = 0;
  for (int i = 0; i <= 40; ++i) {
    const StageId stage = FindStage(kernel, fmt::format("t{}", i));
    const double wanted = NodesOnceInlined(kernel, stage, StageId(stage.value + 1));
    Result<Kernel> next = InlineStage(kernel, stage);
    if (!next) {
      EXPECT_THAT(next.error().message, testing::HasSubstr("is read too often, or in too long a chain, to be inlined"));
      ++refused;
      continue;
    }
    kernel = *std::move(next);
    EXPECT_LE(kernel.stages[stage].body.nodes(), wanted);
  }
  double nodes = 0;
  for (const Stage& stage : kernel.stages) nodes += stage.body.nodes();
  EXPECT_LE(nodes, 20'000);
  EXPECT_GT(refused, 0);
}

TEST(Inline, EndsWhereABodyWouldBecomeTooHigh) {
  std::string text = "kernel chain(x: f32[N]) -> y: f32[N] where N=13 {\n  t0: f32[N] t0[n] = x[n]";
  for (int i = 0; i < 600; ++i) text += " * 2";
  text += "\n  y[n] = t0[n]";
  for (int i = 0; i < 600; ++i) text += " + 1";
  const Kernel kernel = Parsed(text + "\n}");
  EXPECT_EQ(RefusalOf(InlineStage(kernel, StageId(0))), "t0 is read too often, or in too long a chain, to be inlined");
}

// Of pads, whose indices come three times, too.
TEST(Inline, CountsWhatItWillMake) {
  for (const char* body : {"t[n] = x[n] + 1 y[n] = pad(t[n - 1], 5)", "t[n] = pad(x[n - 2], 2) y[n] = pad(t[n + 1], 3)",
                           "t[n] = x[n] * float(n) + x[(n * 5) % 7] y[n] = pad(t[n * 3 - 4], 3) * t[n] - t[6 - n]",
                           "t[n] = exp(pad(x[n + 3], 7)) y[n] = t[n] + pad(t[2*n - 3], 1) * pad(t[n + 1], 2)"}) {
    const Kernel before =
        Parsed(std::string("kernel pads(x: f32[N]) -> y: f32[N] where N=7 { t: f32[N] ") + body + " }");
    const double counted = NodesOnceInlined(before, StageId(0), StageId(1));
    const Kernel after = *InlineStage(before, StageId(0));
    EXPECT_GE(counted, after.stages.front().body.nodes()) << body;
    EXPECT_LE(counted, 3 * after.stages.front().body.nodes()) << body;
  }
}

// ---- collapse

TEST(FuseAxes, MakesOneAxisInEveryTensor) {
  const Kernel before = Parsed("add(M=7,N=13)+relu");
  Kernel after = Kept(before, FuseAxes(before, FindStage(before, "y"), {"m", "n"}));
  EXPECT_EQ(AxisNames(StageOf(after, "y").axes).size(), 1u);
  for (TensorId id : after.operands) {
    const Tensor& tensor = after.tensors[id];
    EXPECT_THAT(StaticShape(after, tensor), testing::ElementsAre(91)) << tensor.name;
    EXPECT_EQ(tensor.declared.size(), 2u) << tensor.name;  // callers still see two
  }
}

TEST(FuseAxes, FollowsAccessesThroughTheGraph) {
  const Kernel before = Specialize(Parsed("conv2d(N=2,C=5,H=3,W=7,O=4,R=1,S=1)+bias+add+relu"));
  const Stage& y = StageOf(before, "y");
  Kernel after = Kept(before, FuseAxes(before, FindStage(before, "y"), {y.axes[2].name, y.axes[3].name}));
  for (const Stage& stage : after.stages) EXPECT_EQ(stage.axes.size(), 3u);
  EXPECT_THAT(StaticShape(after, after.tensors[FindTensor(after, "x")]), testing::ElementsAre(2, 5, 21));
}

TEST(FuseAxes, OfReductionAxes) {
  const Kernel before = Parsed("global_avgpool(N=2,C=3,H=5,W=7)");
  const StageId sum = FindStage(before, SumOf(before));
  ASSERT_TRUE(sum);
  Kernel after = Kept(before, FuseAxes(before, sum, AxisNames(before.stages[sum].reduce_axes)));
  EXPECT_THAT(StaticShape(after, after.tensors[FindTensor(after, "x")]), testing::ElementsAre(2, 3, 35));
}

TEST(FuseAxes, OfThreeAxes) {
  const Kernel before =
      Parsed("kernel cube(x: f32[A, B, C]) -> y: f32[A, B, C] where A=3, B=5, C=7 { y[a, b, c] = x[a, b, c] * 2 }");
  Kernel after = Kept(before, FuseAxes(before, StageId(0), {"a", "b", "c"}));
  EXPECT_EQ(after.stages.front().axes.size(), 1u);
}

TEST(FuseAxes, RefusesWhatNeedsTheDimensionsApart) {
  auto refusal = [](const std::string& body, const std::vector<std::string>& axes) {
    const Kernel kernel = Parsed("kernel k(x: f32[M, N], v: f32[N]) -> y: f32[M, N] where M=5, N=7 { " + body + " }");
    const Kernel copy = kernel;
    std::string text = RefusalOf(FuseAxes(kernel, FindStage(kernel, "y"), axes));
    EXPECT_TRUE(SameKernel(kernel, copy));
    return text;
  };
  EXPECT_EQ(refusal("y[m, n] = x[m, n] + v[n]", {"m"}), "fuse_axes takes two adjacent axes, or more");
  EXPECT_EQ(refusal("y[m, n] = x[m, n] + v[n]", {"n", "m"}), "fuse_axes: y has no adjacent axes of these names");
  EXPECT_EQ(refusal("y[m, n] = x[m, n] + v[n]", {"m", "n"}), "fuse_axes: an access needs the dimensions apart");
  EXPECT_EQ(refusal("y[m, n] = x[m, n] * float(m)", {"m", "n"}), "fuse_axes: an access needs the dimensions apart");
  EXPECT_EQ(refusal("y[m, n] = x[m, n] + x[m, N - 1 - n]", {"m", "n"}),
            "fuse_axes: an access needs the dimensions apart");
  EXPECT_EQ(refusal("y[m, n] = x[m, n] + x[0, n]", {"m", "n"}), "fuse_axes: x is not indexed plainly");
  EXPECT_EQ(refusal("y[m, n] = pad(x[m + 1, n], 0)", {"m", "n"}), "fuse_axes: an access needs the dimensions apart");
}

// Elements next to each other in the one axis must be neighbours in the tensor.
TEST(FuseAxes, RefusesAPartOfADimension) {
  const Kernel kernel = Parsed("kernel k(x: f32[M, N]) -> y: f32[M, L] where M=5, N=7, L=4 { y[m, l] = x[m, l] }");
  EXPECT_EQ(RefusalOf(FuseAxes(kernel, StageId(0), {"m", "l"})), "fuse_axes: only a part of x is indexed");
  // The outermost dimension may be a part.
  const Kernel rows = Parsed("kernel k(x: f32[M, N]) -> y: f32[L, N] where M=5, N=7, L=3 { y[l, n] = x[l, n] }");
  Kept(rows, FuseAxes(rows, StageId(0), {"l", "n"}));
}

// ---- separate

TEST(CacheWrite, MovesTheReductionOut) {
  const Kernel before = Parsed("matmul(M=7,N=5,K=13)");
  Kernel after = Kept(before, CacheWrite(before, StageId(0), "t"));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("t", "y"));
  EXPECT_EQ(StageOf(after, "t").reduction, Reduction::kSum);
  EXPECT_EQ(StageOf(after, "y").reduction, Reduction::kNone);
  EXPECT_TRUE(StageOf(after, "y").reduce_axes.empty());
}

TEST(CacheWrite, Refuses) {
  const Kernel kernel = Parsed("matmul(M=7,N=5,K=13)+relu");
  EXPECT_EQ(RefusalOf(CacheWrite(kernel, FindStage(kernel, "y"), "t")), "y reduces nothing");
  EXPECT_EQ(RefusalOf(CacheWrite(kernel, FindStage(kernel, "acc"), "a")), "the name a is taken");
}

// ---- cache_read

TEST(CacheReadOf, AnOperandGoesThroughACopy) {
  const Kernel before = Parsed("matmul(M=7,N=5,K=13)");
  Kernel after = Kept(before, CacheRead(before, FindTensor(before, "b"), StageId(0), "bp"));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("bp", "y"));
  // Named as in the reader.
  EXPECT_THAT(AxisNames(StageOf(after, "bp").axes), testing::ElementsAre("k", "n"));
  EXPECT_THAT(ReadersOf(after, FindTensor(after, "b")), testing::ElementsAre(StageId(0)));
}

TEST(CacheReadOf, ManyAccessesGoThroughOneCopy) {
  const Kernel before = Parsed(R"(kernel jacobi(u: f32[H, W]) -> v: f32[H, W] where H=7, W=5 {
    v[i, j] = 0.25 * (pad(u[i-1, j], 0) + pad(u[i+1, j], 1) + pad(u[i, j-1], 2) + pad(u[i, j+1], 3))
  })");
  Kernel after = Kept(before, CacheRead(before, FindTensor(before, "u"), StageId(0), "copy"));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("copy", "v"));
  EXPECT_THAT(ReadersOf(after, FindTensor(after, "u")), testing::ElementsAre(StageId(0)));
}

TEST(CacheReadOf, AxesOfOneNameBecomeTwo) {
  const Kernel before = Parsed("kernel diagonal(x: f32[N, N]) -> y: f32[N] where N=7 { y[n] = x[n, n] }");
  Kernel after = Kept(before, CacheRead(before, FindTensor(before, "x"), StageId(0), "xp"));
  std::vector<std::string> names = AxisNames(StageOf(after, "xp").axes);
  EXPECT_NE(names.at(0), names.at(1));
}

TEST(CacheReadOf, OnlyOneOfTwoReadersChanges) {
  const Kernel before =
      Parsed("kernel two(x: f32[N]) -> y: f32[N], z: f32[N] where N=7 { y[n] = x[n] + 1 z[n] = x[n] * y[n] }");
  Kernel after = Kept(before, CacheRead(before, FindTensor(before, "x"), FindStage(before, "z"), "xp"));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("y", "xp", "z"));
  EXPECT_THAT(ReadersOf(after, FindTensor(after, "x")), testing::ElementsAre(StageId(0), StageId(1)));
}

TEST(CacheReadOf, Refuses) {
  const Kernel kernel = Parsed("matmul(M=7,N=5,K=13)+bias");
  EXPECT_EQ(RefusalOf(CacheRead(kernel, FindTensor(kernel, "bias"), FindStage(kernel, "acc"), "t")),
            "acc does not read bias");
  EXPECT_EQ(RefusalOf(CacheRead(kernel, FindTensor(kernel, "b"), FindStage(kernel, "acc"), "a")),
            "the name a is taken");
}

// ---- rfactor

TEST(RfactorOf, ReducesInLanesFirst) {
  for (int lanes : {1, 2, 4, 8, 16, 64}) {
    for (int k : {1, 3, 8, 13, 31}) {
      const Kernel before = Parsed("matmul(M=3,N=5,K=" + std::to_string(k) + ")");
      Kernel after = Kept(before, Rfactor(before, StageId(0), "k", lanes, "part"));
      EXPECT_THAT(StageNames(after), testing::ElementsAre("part", "y"));
      EXPECT_EQ(EvalExtent(after, StageOf(after, "part").axes.back().extent), lanes);
      EXPECT_EQ(EvalExtent(after, StageOf(after, "part").reduce_axes[0].extent), (k + lanes - 1) / lanes);
      ASSERT_EQ(StageOf(after, "y").reduce_axes.size(), 1u);
      EXPECT_EQ(EvalExtent(after, StageOf(after, "y").reduce_axes[0].extent), lanes);
    }
  }
}

// Lanes beyond the end hold the value that a reduction starts from, whatever it is and over whatever type.
TEST(RfactorOf, EveryReductionAndType) {
  for (const char* reduction : {"sum", "max", "min", "prod"}) {
    for (const char* type : {"f32", "f64", "i32", "i8"}) {
      for (int n : {1, 7, 13}) {
        std::string result =
            type == std::string("i8") && (reduction == std::string("sum") || reduction == std::string("prod")) ? "i32"
                                                                                                               : type;
        const Kernel before =
            Parsed("kernel r(x: " + std::string(type) + "[M, N]) -> y: " + result +
                   "[M] where M=3, N=" + std::to_string(n) + " { y[m] = " + reduction + "(n) x[m, n] }");
        Kept(before, Rfactor(before, StageId(0), "n", 4, "part"));
      }
    }
  }
}

TEST(RfactorOf, OneOfSeveralAxes) {
  const Kernel before = Parsed("conv2d(C=3,H=5,W=4,O=2,R=3,S=3,pad=1)");
  const std::string stage = StageNames(before).back();
  for (const char* axis : {"c", "r", "s"})
    for (int lanes : {2, 3, 4}) Kept(before, Rfactor(before, FindStage(before, stage), axis, lanes, "part"));
}

// The lanes' axis is new, whatever the stage's are called.
TEST(RfactorOf, AnAxisCalledL) {
  const Kernel before = Parsed("kernel r(x: f32[L, M]) -> y: f32[M] where L=7, M=5 { y[m] = sum(l) x[l, m] }");
  Kernel after = Kept(before, Rfactor(before, StageId(0), "l", 4, "part"));
  const Stage& part = StageOf(after, "part");
  EXPECT_NE(part.axes.back().name, part.reduce_axes[0].name);
}

TEST(RfactorOf, Refuses) {
  const Kernel kernel = Parsed("matmul(M=7,N=5,K=13)+bias");
  EXPECT_EQ(RefusalOf(Rfactor(kernel, FindStage(kernel, "acc"), "m", 4, "t")), "acc does not reduce over m");
  EXPECT_EQ(RefusalOf(Rfactor(kernel, FindStage(kernel, "y"), "k", 4, "t")), "y does not reduce over k");
  EXPECT_EQ(RefusalOf(Rfactor(kernel, FindStage(kernel, "acc"), "k", 4, "bias")), "the name bias is taken");
  EXPECT_EQ(RefusalOf(Rfactor(kernel, FindStage(kernel, "acc"), "k", int64_t{1} << 31, "t", 4)),
            "2147483648 lanes of 4 elements are more than 2^32");
}

// ---- expand

TEST(Im2col, MakesColumns) {
  const Kernel conv = Parsed("conv2d(C=3,H=7,W=9,O=4,R=3,S=2,pad=1,stride=2)+bias");
  const StageId acc = FindStage(conv, "acc");
  const Kernel after = Kept(conv, Im2col(conv, acc, "xp", "cols", {"n", "c", "r", "s", "h", "w0"}));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("xp", "cols", "acc", "y"));
  EXPECT_THAT(AxisNames(StageOf(after, "cols").axes), testing::ElementsAre("n", "c", "r", "s", "h", "w0"));
}

TEST(Im2col, TakesTheFillAlong) {
  const Kernel before =
      Parsed(R"(kernel blur(x: f32[N]) -> y: f32[N] where N=9 { y[i] = sum(k < 3) pad(x[i + k - 1], 2) })");
  Kept(before, Im2col(before, before.stages.last(), "x", "cols", {"k", "i"}));
}

TEST(Im2col, Refuses) {
  const Kernel conv = Parsed("conv2d(C=3,H=7,W=9,O=4,R=3,S=2,pad=1)");
  const StageId acc = FindStage(conv, SumOf(conv));
  auto refusal = [&](const char* tensor, const std::vector<std::string>& axes, const std::string& name = "cols") {
    return RefusalOf(Im2col(conv, acc, tensor, name, axes));
  };
  const std::string by = "y reads xp by n h w0 c r s: name these, in any order, and no others";
  EXPECT_EQ(refusal("xp", {"c", "r", "s", "h", "w0"}), by);
  EXPECT_EQ(refusal("xp", {"n", "c", "r", "s", "h", "w0", "o"}), by);
  EXPECT_EQ(refusal("xp", {"n", "n", "r", "s", "h", "w0"}), by);
  EXPECT_EQ(refusal("x", {"n"}), "y does not read x");
  EXPECT_EQ(refusal("xp", {"n", "c", "r", "s", "h", "w0"}, "w"), "the name w is taken");
  const Kernel twice = Parsed("kernel t(x: f32[N]) -> y: f32[N] where N=9 { y[i] = x[i] + x[8 - i] }");
  EXPECT_EQ(RefusalOf(Im2col(twice, StageId(0), "x", "cols", {"i"})), "y reads x in more than one way");
}

// ---- all of them, everywhere

struct Candidate {
  std::string kind;
  std::string what;
  Result<Kernel> result;
};

// The stage's axes that appear in its reads of a tensor.
std::vector<std::string> AxesOfReads(const Kernel& kernel, const Stage& stage, TensorId tensor) {
  IdVector<AxisId, bool> uses(stage.axis_count());
  Walk(stage.body, [&](const Expr& e) {
    if (!e.Loads(tensor)) return;
    for (AxisId axis : AxesOf(e)) uses[axis] = true;
  });
  std::vector<std::string> used;
  for (AxisId axis : stage.axis_ids())
    if (uses[axis]) used.push_back(stage.axis(axis).name);
  return used;
}

// Every single rewrite of the kernel.
std::vector<Candidate> AllRewrites(const Kernel& kernel, const std::string& fresh) {
  std::vector<Candidate> all;
  for (StageId stage : kernel.stages.ids()) {
    const Stage& at = kernel.stages[stage];
    const std::string name = kernel.tensors[at.output].name;
    all.push_back({"inline", name, InlineStage(kernel, stage)});
    all.push_back({"cache_write", name, CacheWrite(kernel, stage, fresh)});
    for (const auto* axes : {&at.axes, &at.reduce_axes})
      for (size_t i = 0; i + 1 < axes->size(); ++i)
        for (size_t count = 2; i + count <= axes->size() && count <= 3; ++count) {
          std::vector<std::string> names;
          for (size_t j = 0; j < count; ++j) names.push_back((*axes)[i + j].name);
          all.push_back({"fuse_axes", name + " from " + names[0], FuseAxes(kernel, stage, names)});
        }
    for (const Axis& axis : at.reduce_axes)
      for (int lanes : {2, 5})
        all.push_back({"rfactor", name + " " + axis.name, Rfactor(kernel, stage, axis.name, lanes, fresh)});
    all.push_back({"max_ignore_nan", name, MaxIgnoreNan(kernel, stage)});
    for (TensorId tensor : kernel.tensors.ids()) {
      const std::string& source = kernel.tensors[tensor].name;
      std::vector<std::string> axes = AxesOfReads(kernel, at, tensor);
      std::reverse(axes.begin(), axes.end());
      all.push_back({"im2col", source + " for " + name, Im2col(kernel, stage, source, fresh, axes)});
      all.push_back({"cache_read", source + " for " + name, CacheRead(kernel, tensor, stage, fresh)});
    }
  }
  return all;
}

std::vector<std::string> Kernels() {
  std::vector<std::string> kernels = OperationSamples();
  kernels.push_back(R"(kernel attention(q: f32[H, M, D], k: f32[H, M, D]) -> p: f32[H, M, M] where H=2, M=7, D=3 {
    s: f32[H, M, M]
    s[h, i, j] = if(j <= i, (sum(d) q[h, i, d] * k[h, j, d]) / sqrt(float(D)), -inf)
    p[h, i, j] = exp(s[h, i, j] - max(l) s[h, i, l]) / sum(l) exp(s[h, i, l] - max(m) s[h, i, m])
  })");
  kernels.push_back(R"(kernel views(x: f32[N, C] as [N, G, C/G]) -> y: f32[N, C] as [N, G, C/G] where N=3, C=10, G=2 {
    y[n, g, c] = x[n, g, c] - (max(d) x[n, g, d])
  })");
  kernels.push_back(R"(kernel wave(u: f32[H, W]) -> v: f32[H, W] where H=5, W=7 {
    t: f32[H, W]
    t[i, j] = pad(u[i-1, j], 0) + pad(u[i+1, j], 0)
    v[i, j] = pad(t[i, j-1], 1) * t[i, j] + pad(t[i, j+1], 1)
  })");
  return kernels;
}

TEST(Rewrite, AnyOneKeepsTheFunction) {
  std::map<std::string, int> kept;
  for (const std::string& text : Kernels()) {
    const Kernel parsed = Parsed(text);
    for (const Kernel& kernel : {parsed, Specialize(parsed)}) {
      const std::string before = PrintKernel(kernel);
      for (const Candidate& candidate : AllRewrites(kernel, "fresh")) {
        EXPECT_EQ(PrintKernel(kernel), before);
        if (!candidate.result) {
          EXPECT_FALSE(candidate.result.error().message.empty());
          continue;
        }
        SCOPED_TRACE(candidate.kind + " " + candidate.what);
        ExpectSameFunction(kernel, *candidate.result);
        if (HasFatalFailure()) return;
        ++kept[candidate.kind];
      }
    }
  }
  for (const char* kind : {"inline", "cache_write", "fuse_axes", "rfactor", "cache_read", "im2col"})
    EXPECT_GT(kept[kind], 20) << kind;
  EXPECT_GT(kept["max_ignore_nan"], 1);
}

TEST(Rewrite, ChainsKeepTheFunction) {
  Rng rng(17);
  for (const std::string& text : Kernels()) {
    const Kernel original = Specialize(Parsed(text));
    for (int round = 0; round < 6; ++round) {
      Kernel kernel = original;
      std::string trace;
      for (int step = 0; step < 4; ++step) {
        std::vector<Candidate> all = AllRewrites(kernel, "fresh" + std::to_string(step));
        std::erase_if(all, [](const Candidate& candidate) { return !candidate.result; });
        if (all.empty()) break;
        const Candidate& taken = all[rng.Below(all.size())];
        trace += taken.kind + " " + taken.what + "\n";
        kernel = *taken.result;
      }
      SCOPED_TRACE(trace);
      ExpectSameFunction(original, kernel, static_cast<uint64_t>(round));
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace hone
