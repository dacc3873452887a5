// Each step of a schedule does what docs/schedules.md says, seen in the loops, places and storage that it leaves; or it
// is refused with its reason, and nothing has changed. All messages: tests/errors/schedule/. What lowering makes of
// the result: tests/golden.
#include "ir/schedule/apply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/graph/print.h"
#include "ir/graph/specialize.h"
#include "ir/graph/stage_graph.h"
#include "ir/language/parse.h"
#include "tests/support/kernel_inputs.h"

namespace hone::apply_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Kernel Parsed(const std::string& text) {
  Result<Kernel> kernel = ParseKernel(text);
  EXPECT_TRUE(kernel) << text << ": " << kernel.error().Text();
  return kernel ? Specialize(*std::move(kernel)) : Kernel{};
}

ScheduledKernel Applied(const Kernel& kernel, const std::string& text) {
  Result<Schedule> schedule = ParseSchedule(text);
  EXPECT_TRUE(schedule) << schedule.error().Text();
  Result<ScheduledKernel> applied = ApplySchedule(kernel, schedule.value());
  EXPECT_TRUE(applied) << applied.error().Text();
  if (!applied) return {};
  EXPECT_EQ(applied->stages.size(), applied->kernel.stages.size());
  return *std::move(applied);
}

// Why a schedule is refused. The kernel is as it was, and what is left of the schedule applies.
std::string RefusalOf(const Kernel& kernel, const std::string& before, const std::string& step) {
  const Kernel copy = kernel;
  Schedule schedule = ParseSchedule(before + step).value();
  Result<ScheduledKernel> applied = ApplySchedule(kernel, schedule);
  EXPECT_TRUE(SameKernel(kernel, copy)) << step;
  EXPECT_TRUE(ApplySchedule(kernel, ParseSchedule(before).value())) << before;
  if (applied) return "no refusal";
  EXPECT_EQ(applied.error().kind, ErrorKind::kInvalid);
  return applied.error().Text();
}

const StageSchedule& Of(const ScheduledKernel& scheduled, const std::string& stage) {
  return scheduled.stages.at(FindStage(scheduled.kernel, stage));
}

// "parallel n.0 grain 2, m, vector n.1"
std::string Loops(const ScheduledKernel& scheduled, const std::string& stage) {
  static constexpr const char* kKinds[] = {"?", "", "parallel ", "vector ", "unroll "};
  std::string text;
  for (const LoopDim& loop : Of(scheduled, stage).loops) {
    text += (text.empty() ? "" : ", ") + std::string(kKinds[static_cast<int>(loop.kind)]) + loop.path;
    if (loop.grain != 1) text += " grain " + std::to_string(loop.grain);
  }
  return text;
}

std::vector<std::string> StageNames(const ScheduledKernel& scheduled) {
  std::vector<std::string> names;
  for (const Stage& stage : scheduled.kernel.stages) names.push_back(scheduled.kernel.tensors[stage.output].name);
  return names;
}

const Kernel& Matmul() {
  static const Kernel kernel = Parsed("matmul(M=7,N=13,K=5,const=1)");
  return kernel;
}

const Kernel& MatmulRelu() {
  static const Kernel kernel = Parsed("matmul(M=7,N=13,K=5,const=1)+bias+relu");
  return kernel;
}

TEST(Apply, NothingGivesPlainLoops) {
  ScheduledKernel scheduled = Applied(MatmulRelu(), "");
  EXPECT_TRUE(SameKernel(scheduled.kernel, MatmulRelu()));
  EXPECT_EQ(Loops(scheduled, "acc"), "m, n, k");
  EXPECT_EQ(Loops(scheduled, "y"), "m, n");
  for (const StageSchedule& stage : scheduled.stages) {
    EXPECT_FALSE(stage.attach_stage);
    EXPECT_EQ(stage.scope, Scope::kDefault);
    EXPECT_THAT(stage.relations, IsEmpty());
  }
}

TEST(Split, GivesADerivedLoopAndItsFactors) {
  ScheduledKernel scheduled = Applied(Matmul(), "split y.n 4 32");
  EXPECT_EQ(Loops(scheduled, "y"), "m, n.0, n.1, n.2, k");
  ASSERT_EQ(Of(scheduled, "y").relations.size(), 1u);
  const LoopRelation& relation = Of(scheduled, "y").relations[0];
  EXPECT_THAT(relation.parents, ElementsAre("n"));
  EXPECT_THAT(relation.children, ElementsAre("n.0", "n.1", "n.2"));
  EXPECT_THAT(relation.factors, ElementsAre(4, 32));
  EXPECT_EQ(Loops(Applied(Matmul(), "split y.n 8\nsplit y.n.1 2\nsplit y.n.0 3"), "y"),
            "m, n.0.0, n.0.1, n.1.0, n.1.1, k");
}

TEST(Split, RefusesLoopsThatAreGoneOrAnnotated) {
  EXPECT_EQ(RefusalOf(Matmul(), "split y.m 4\n", "split y.m 2"),
            "step 2 (split y.m 2): y has no loop m; it has m.0, m.1, n, k");
  EXPECT_EQ(RefusalOf(Matmul(), "unroll y.k\n", "split y.k 2"),
            "step 2 (split y.k 2): k is no serial loop any more: split first");
}

TEST(Fuse, MakesOneLoopOfTwoAndMore) {
  ScheduledKernel scheduled = Applied(Matmul(), "fuse y.m y.n");
  EXPECT_EQ(Loops(scheduled, "y"), "m+n, k");
  const LoopRelation& relation = Of(scheduled, "y").relations.at(0);
  EXPECT_THAT(relation.parents, ElementsAre("m", "n"));
  EXPECT_THAT(relation.children, ElementsAre("m+n"));
  EXPECT_THAT(relation.factors, IsEmpty());
  const Kernel conv = Parsed("conv2d(N=2,C=3,H=5,W=7,O=4,R=1,S=1)");
  EXPECT_EQ(Loops(Applied(conv, "fuse y.n y.o y.h\nsplit y.n+o+h 8"), "y"), "n+o+h.0, n+o+h.1, w0, c, r, s");
  EXPECT_EQ(Loops(Applied(conv, "fuse y.c y.r y.s"), "y"), "n, o, h, w0, c+r+s");
  EXPECT_EQ(
      Loops(Applied(Matmul(), "split y.m 2\nsplit y.n 4\nreorder y.m.0 y.n.0 y.m.1 y.n.1 y.k\nfuse y.m.0 y.n.0"), "y"),
      "m.0+n.0, m.1, n.1, k");
}

TEST(Fuse, RefusesWhatIsApartOrDiffers) {
  EXPECT_EQ(RefusalOf(Matmul(), "split y.n 4\n", "fuse y.m y.n.1"),
            "step 2 (fuse y.m y.n.1): n.1 does not follow m directly: reorder first");
  EXPECT_EQ(RefusalOf(Matmul(), "", "fuse y.n y.k"),
            "step 1 (fuse y.n y.k): n and k cannot be fused: one is reduced over, the other is not");
  EXPECT_EQ(RefusalOf(Matmul(), "vectorize y.n\n", "fuse y.m y.n"),
            "step 2 (fuse y.m y.n): only serial loops can be fused");
}

TEST(Reorder, PutsLoopsInTheOrderGiven) {
  EXPECT_EQ(Loops(Applied(Matmul(), "reorder y.k y.n y.m"), "y"), "k, n, m");
  // Kinds move with their loops.
  EXPECT_EQ(Loops(Applied(Matmul(), "vectorize y.m\nunroll y.k\nreorder y.n y.k y.m"), "y"), "n, unroll k, vector m");
}

TEST(Reorder, RefusesAllButAPermutation) {
  EXPECT_EQ(RefusalOf(Matmul(), "", "reorder y.n y.m"), "step 1 (reorder y.n y.m): 2 loops named, y has 3");
  EXPECT_EQ(RefusalOf(Matmul(), "", "reorder y.n y.m y.n"), "step 1 (reorder y.n y.m y.n): n is named twice");
  EXPECT_EQ(RefusalOf(Matmul(), "split y.k 2\n", "reorder y.k y.m y.n y.k.1"),
            "step 2 (reorder y.k y.m y.n y.k.1): y has no loop k; it has m, n, k.0, k.1");
}

TEST(Parallel, TakesTheOutermostLoop) {
  EXPECT_EQ(Loops(Applied(Matmul(), "parallel y.m grain=2"), "y"), "parallel m grain 2, n, k");
  EXPECT_EQ(Loops(Applied(Matmul(), "fuse y.m y.n\nparallel y.m+n"), "y"), "parallel m+n, k");
  // What counts is the order in the end.
  EXPECT_EQ(Loops(Applied(Matmul(), "parallel y.n\nreorder y.n y.m y.k"), "y"), "parallel n, m, k");
}

TEST(Parallel, RefusesInnerAndReducingLoops) {
  EXPECT_EQ(RefusalOf(Matmul(), "", "parallel y.n"), "y.n is parallel but not outermost: reorder or fuse");
  EXPECT_EQ(RefusalOf(Matmul(), "split y.k 2\nfuse y.k.0 y.k.1\n", "parallel y.k.0+k.1"),
            "step 3 (parallel y.k.0+k.1 grain=1): k.0+k.1 is reduced over: workers would race");
  EXPECT_EQ(RefusalOf(MatmulRelu(), "compute_at acc y.m\n", "parallel acc.m"),
            "acc.m is parallel inside another loop: only outermost loops run on workers");
}

TEST(VectorizeAndUnroll, MarkLoops) {
  EXPECT_EQ(Loops(Applied(Matmul(), "split y.n 8\nvectorize y.n.1\nunroll y.m y.k"), "y"),
            "unroll m, n.0, vector n.1, unroll k");
}

TEST(VectorizeAndUnroll, RefuseASecondKindOrVector) {
  EXPECT_EQ(RefusalOf(Matmul(), "vectorize y.n\n", "vectorize y.m"),
            "step 2 (vectorize y.m): y has a vectorised loop already");
  EXPECT_EQ(RefusalOf(Matmul(), "unroll y.n\n", "vectorize y.n"), "step 2 (vectorize y.n): n has a kind already");
  EXPECT_EQ(RefusalOf(Matmul(), "vectorize y.n\n", "unroll y.n"), "step 2 (unroll y.n): n has a kind already");
}

TEST(ComputeAt, PlacesAStageInsideALoop) {
  ScheduledKernel scheduled = Applied(MatmulRelu(), "split y.n 4\ncompute_at acc y.n.0\nstore acc registers");
  EXPECT_EQ(Of(scheduled, "acc").attach_stage, FindStage(scheduled.kernel, "y"));
  EXPECT_EQ(Of(scheduled, "acc").attach_loop, "n.0");
  EXPECT_EQ(Of(scheduled, "acc").scope, Scope::kRegisters);
  EXPECT_FALSE(Of(scheduled, "y").attach_stage);
}

TEST(ComputeAt, FollowsItsConsumerThroughRewrites) {
  const Kernel kernel = Parsed(R"(kernel chain(x: f32[N]) -> y: f32[N] where N=13 {
    s: f32[N] t: f32[N] u: f32[N]
    s[n] = exp(x[n]) t[n] = s[n] * s[n] u[n] = t[n] + 1 y[n] = u[n] * t[n]
  })");
  // t's number changes when a copy comes before it, and when what precedes y goes.
  ScheduledKernel scheduled = Applied(kernel, "compute_at s t.n\ncache_read x -> xq for s workspace\ninline u");
  EXPECT_THAT(StageNames(scheduled), ElementsAre("xq", "s", "t", "y"));
  EXPECT_EQ(Of(scheduled, "s").attach_stage, FindStage(scheduled.kernel, "t"));
}

TEST(ComputeAt, RefusesWhereReadersCannotSeeIt) {
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "compute_at acc y.k"),
            "step 1 (compute_at acc y.k): y has no loop k; it has m, n");
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "compute_at y acc.m"),
            "step 1 (compute_at y acc.m): y is an output: it is computed at the root");
  const Kernel softmax = Parsed("softmax(M=5,N=13)");
  EXPECT_EQ(RefusalOf(softmax, "", "compute_at top y.m"), "top is computed inside y, but e reads it outside");
  EXPECT_EQ(RefusalOf(softmax, "compute_at e y.m\ncompute_at total y.m\ncompute_at scale y.m\n", "compute_at top y.n"),
            "top is computed at n, inside the loop where e already needs it");
}

TEST(ComputeAt, KeepsWhatOthersReadLater) {
  const Kernel softmax = Parsed("softmax(M=5,N=13)");
  const std::string placed = "inline scale\ncompute_at top y.m\ncompute_at total y.m\n";
  ScheduledKernel scheduled = Applied(softmax, placed + "compute_at e total.n keep y.m");
  EXPECT_EQ(Of(scheduled, "e").attach_stage, FindStage(scheduled.kernel, "total"));
  EXPECT_EQ(Of(scheduled, "e").keep_stage, FindStage(scheduled.kernel, "y"));
  EXPECT_EQ(Of(scheduled, "e").keep_loop, "m");
  // Numbers of stages change, and the last such step counts.
  scheduled = Applied(softmax, placed + "compute_at e total.n keep y.m\ncache_read x -> xq for top workspace");
  EXPECT_EQ(Of(scheduled, "e").keep_stage, FindStage(scheduled.kernel, "y"));
  EXPECT_FALSE(Of(Applied(softmax, placed + "compute_at e total.n keep y.m\ncompute_at e y.m"), "e").keep_stage);
}

TEST(ComputeAt, RefusesToKeepWhatOthersReadTooEarlyOrOutside) {
  const Kernel softmax = Parsed("softmax(M=5,N=13)");
  const std::string placed = "inline scale\ncompute_at top y.m\ncompute_at e y.m\ncompute_at total y.m\n";
  EXPECT_EQ(RefusalOf(softmax, placed, "compute_at e total.n keep y.k"),
            "step 5 (compute_at e total.n keep y.k): y has no loop k; it has m, n");
  EXPECT_EQ(RefusalOf(softmax, placed, "compute_at e total.n keep y.n"),
            "e is kept in y.n, where total is not computed");
  EXPECT_EQ(RefusalOf(softmax, placed, "compute_at e y.n keep y.m"), "e is kept in y.m, where y is not computed");
  EXPECT_EQ(RefusalOf(softmax, placed + "compute_at e total.n keep y.m\n", "store e registers"),
            "e is kept, as nothing may be that reduces, lies in registers or in another order, or runs on a GPU");
  EXPECT_EQ(RefusalOf(softmax, placed + "compute_at e total.n keep y.m\n", "store e per_worker [n, m]"),
            "e is kept, as nothing may be that reduces, lies in registers or in another order, or runs on a GPU");
  const Kernel twice = Parsed(R"(kernel twice(x: f32[5, 13]) -> y: f32[5, 13], z: f32[5] {
    e: f32[5, 13]
    e[m, n] = exp(x[m, n])
    total: f32[5]
    total[m] = sum(n < 13) e[m, n]
    y[m, n] = e[m, n] / total[m]
    z[m] = max(n < 13) e[m, n]
  })");
  EXPECT_EQ(RefusalOf(twice, "compute_at total y.m\n", "compute_at e total.n keep y.m"),
            "e is kept inside y, but z reads it outside");
}

TEST(Store, SetsScopeAndLayout) {
  ScheduledKernel scheduled =
      Applied(MatmulRelu(), "compute_at acc y.m\nstore acc per_worker [n/4, m, n%4+2]\ntail acc.n shift");
  EXPECT_EQ(Of(scheduled, "acc").scope, Scope::kPerWorker);
  const std::vector<LayoutDim> layout = {{"n", LayoutDim::Part::kQuotient, 4, 0},
                                         {"m", LayoutDim::Part::kWhole, 1, 0},
                                         {"n", LayoutDim::Part::kRemainder, 4, 2}};
  EXPECT_EQ(Of(scheduled, "acc").layout, layout);
  // The last one counts.
  EXPECT_THAT(Of(Applied(MatmulRelu(), "store acc workspace [n, m]\nstore acc workspace"), "acc").layout, IsEmpty());
}

TEST(Store, RefusesWhatCannotBe) {
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "store acc registers"), "acc is in registers but computed at the root");
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "store acc per_worker"), "acc is stored per worker but computed at the root");
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "store y workspace"),
            "step 1 (store y workspace): y is an output: it is stored in its operand");
  EXPECT_EQ(RefusalOf(MatmulRelu(), "parallel y.m\ncompute_at acc y.m\n", "store acc workspace"),
            "acc is in the workspace but computed inside a parallel loop of y: workers would race");
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "store acc workspace [n, m, m]"),
            "step 1 (store acc workspace [n, m, m]): the layout must name m once, or as m/f and m%f with one f");
}

TEST(Store, InTheOutputThatIsComputedFromIt) {
  const Kernel softmax = Parsed("softmax(M=5,N=13)");
  const std::string placed = "inline scale\ncompute_at top y.m\ncompute_at total y.m\n";
  ScheduledKernel scheduled = Applied(softmax, placed + "compute_at e y.m\nstore e output");
  EXPECT_EQ(Of(scheduled, "e").scope, Scope::kOutput);
  scheduled = Applied(softmax, placed + "compute_at e total.n keep y.m\nstore e output");
  EXPECT_EQ(EffectiveScope(scheduled, FindStage(scheduled.kernel, "e")), Scope::kOutput);
}

TEST(Store, InAnOutputIsRefusedWhereElementsWouldMeet) {
  const Kernel softmax = Parsed("softmax(M=5,N=13)");
  const std::string placed = "inline scale\ncompute_at top y.m\ncompute_at total y.m\n";
  const std::string in_place = "compute_at e y.m\nstore e output\n";
  EXPECT_EQ(
      RefusalOf(softmax, "", "store e output"),
      "e is stored in an output, but is not computed inside one: compute_at e OUTPUT.LOOP, or … keep OUTPUT.LOOP");
  EXPECT_EQ(RefusalOf(softmax, placed + in_place, "tail y.n shift"),
            "e is stored in y, but elements are computed a second time where its last tile is shifted");
  EXPECT_EQ(RefusalOf(softmax, placed + "compute_at e y.m\n", "store e output [n, m]"),
            "e is stored in y, but it has an order or buffers of its own");
  EXPECT_EQ(RefusalOf(MatmulRelu(), "compute_at acc y.m\n", "store acc output"),
            "acc is stored in y, but one of the two reduces");

  // What reads it: y alone, inside; y at another place; y, after it has begun to write.
  const std::string begin = "kernel a(x: f32[5, 13]) -> y: f32[5, 13] {\n  e: f32[5, 13]\n  e[m, n] = exp(x[m, n])\n";
  EXPECT_EQ(
      RefusalOf(Parsed(begin + "y[m, n] = e[m, n] + pad(e[m, n - 1], 0.0)\n}"), "compute_at e y.m\n", "store e output"),
      "e is stored in y, but elements are computed from others than those in their places");
  EXPECT_EQ(RefusalOf(Parsed(begin + "t: f32[5, 13]\nt[m, n] = sum(k < 13) e[m, k]\ny[m, n] = e[m, n] / t[m, n]\n}"),
                      "compute_at e y.m\ncompute_at t y.n\n", "store e output"),
            "e is stored in y, but t reads it where elements of y are in their places already");
  // As many bytes, and not the same.
  EXPECT_EQ(RefusalOf(Parsed("kernel a(x: f32[5, 13]) -> y: i32[5, 13] {\n  e: f32[5, 13]\n  e[m, n] = exp(x[m, n])\n"
                             "  y[m, n] = i32(e[m, n])\n}"),
                      "compute_at e y.m\n", "store e output"),
            "e is stored in y, but they are not of one shape and type");
  EXPECT_EQ(RefusalOf(Parsed("kernel a(x: f32[5, 13]) -> y: f32[5, 12] {\n  e: f32[5, 13]\n  e[m, n] = exp(x[m, n])\n"
                             "  y[m, n] = e[m, n]\n}"),
                      "compute_at e y.m\n", "store e output"),
            "e is stored in y, but they are not of one shape and type");
  EXPECT_EQ(RefusalOf(Parsed(begin + "f: f32[5, 13]\nf[m, n] = x[m, n] * 2.0\ny[m, n] = e[m, n] / f[m, n]\n}"),
                      "compute_at e y.m\ncompute_at f y.m\nstore f output\n", "store e output"),
            "e is stored in y, but f is, too");
}

TEST(CacheReadStep, ReadsThroughACopyWithALayout) {
  ScheduledKernel scheduled = Applied(Matmul(), "cache_read b -> bp for y const [n/8, k, n%8]");
  EXPECT_THAT(StageNames(scheduled), ElementsAre("bp", "y"));
  EXPECT_EQ(Of(scheduled, "bp").scope, Scope::kConst);
  EXPECT_EQ(Of(scheduled, "bp").layout.size(), 3u);
  EXPECT_EQ(Loops(scheduled, "bp"), "k, n");
  EXPECT_EQ(Loops(scheduled, "y"), "m, n, k");
  EXPECT_THAT(ReadersOf(scheduled.kernel, FindTensor(scheduled.kernel, "b")), ElementsAre(StageId(0)));
}

// The reader's axes stay, and so does what was done to its loops.
TEST(CacheReadStep, KeepsTheReadersLoops) {
  ScheduledKernel scheduled = Applied(Matmul(), "split y.n 8\nvectorize y.n.1\ncache_read a -> ap for y workspace");
  EXPECT_EQ(Loops(scheduled, "y"), "m, n.0, vector n.1, k");
  EXPECT_EQ(Loops(scheduled, "ap"), "m, k");
}

TEST(CacheReadStep, RefusesToPackWhatIsNoConstant) {
  EXPECT_EQ(RefusalOf(Matmul(), "", "cache_read a -> ap for y const"),
            "step 1 (cache_read a -> ap for y const): a is no constant operand: only those are packed ahead of time");
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "cache_read bias -> bp for acc workspace"),
            "step 1 (cache_read bias -> bp for acc workspace): acc does not read bias");
  EXPECT_EQ(RefusalOf(Matmul(), "cache_read b -> bp for y const\n", "compute_at bp y.m"),
            "bp is packed ahead of time: it is computed at the root");
}

TEST(RegisterTileStep, NamesTheLoopOfTheTile) {
  ScheduledKernel scheduled = Applied(Matmul(), "split y.m 4\nregister_tile y.m.0");
  EXPECT_EQ(Of(scheduled, "y").promote_loop, "m.0");
}

TEST(RegisterTileStep, RefusesStagesWithoutASum) {
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "register_tile y.m"),
            "step 1 (register_tile y.m): y reduces nothing: it has no tile to keep");
  EXPECT_EQ(RefusalOf(Matmul(), "register_tile y.m\n", "split y.m 4"), "y has no loop m; it has m.0, m.1, n, k");
}

TEST(TailStep, IsKeptByAxis) {
  ScheduledKernel scheduled = Applied(Matmul(), "split y.m 4\ntail y.m shift\ntail y.n guard\ntail y.k pad");
  const std::map<std::string, Tail> wanted = {{"m", Tail::kShift}, {"n", Tail::kGuard}, {"k", Tail::kPad}};
  EXPECT_EQ(Of(scheduled, "y").tails, wanted);
}

TEST(TailStep, RefusesLoopsAndShiftedReductions) {
  EXPECT_EQ(RefusalOf(Matmul(), "split y.m 4\n", "tail y.m.0 shift"), "step 2 (tail y.m.0 shift): y has no axis m.0");
  EXPECT_EQ(RefusalOf(Matmul(), "", "tail y.k shift"),
            "step 1 (tail y.k shift): a reduction cannot shift: it would count elements twice");
}

TEST(TailStep, RefusesToPeelWhatHasNoKnownRest) {
  EXPECT_EQ(RefusalOf(Matmul(), "", "tail y.k peel"),
            "step 1 (tail y.k peel): a reduction cannot be peeled: what is left would start from nothing again");
  const Kernel any = Parsed("kernel twice(x: f32[M]) -> y: f32[M] where M=1..8 { y[m] = 2 * x[m] }");
  EXPECT_EQ(RefusalOf(any, "", "tail y.m peel"),
            "step 1 (tail y.m peel): m is a dynamic size: how much is left to peel is not known");
}

TEST(PrefetchStep, IsKeptByTheTensorThatIsRead) {
  const std::map<std::string, int64_t> wanted = {{"a", 64}, {"b", 4096}};
  EXPECT_EQ(Of(Applied(Matmul(), "prefetch a for y 64\nprefetch b for y 1\nprefetch b for y 4096"), "y").prefetches,
            wanted);
}

TEST(PrefetchStep, RefusesWhatIsNotRead) {
  EXPECT_EQ(RefusalOf(Matmul(), "", "prefetch c for y 64"), "step 1 (prefetch c for y 64): there is no tensor c");
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "prefetch a for y 64"), "step 1 (prefetch a for y 64): y does not read a");
  EXPECT_EQ(RefusalOf(Matmul(), "", "prefetch a for y 1048577"),
            "step 1 (prefetch a for y 1048577): 1048577 bytes ahead, at most 1048576 are allowed");
  EXPECT_EQ(RefusalOf(Matmul(), "prefetch b for y 64\n", "cache_read b -> bp for y workspace"),
            "y does not read b any more: prefetch what it reads");
}

// An inner part that ran too far would visit what the next trip of the outer part visits too.
TEST(SplitStep, RefusesUnevenSplitsOfInnerParts) {
  EXPECT_EQ(
      RefusalOf(Matmul(), "split y.k 3 16\n", "split y.k.1 2"),
      "step 2 (split y.k.1 2): k.1 has 3 trips, which 2 does not divide: split the axis into all its parts at once");
  EXPECT_EQ(RefusalOf(Matmul(), "split y.k 12\nsplit y.k.1 6\n", "split y.k.1.0 4"),
            "step 3 (split y.k.1.0 4): k.1.0 has 2 trips, which 4 does not divide: split the axis into all its parts "
            "at once");
  EXPECT_EQ(RefusalOf(Matmul(), "split y.m 4\nfuse y.m.1 y.n\n", "split y.m.1+n 2"),
            "step 3 (split y.m.1+n 2): m.1+n is made of inner parts of a split: split before fusing");
  EXPECT_EQ(Loops(Applied(Matmul(), "split y.k 12\nsplit y.k.1 6\nsplit y.k.1.1 3\nsplit y.k.0 5"), "y"),
            "m, n, k.0.0, k.0.1, k.1.0, k.1.1.0, k.1.1.1");
}

// ---- rewrites, as steps: what they compute is tests/ir/rewrites/rewrite_test.cc

TEST(InlineStep, DropsTheStage) {
  const Kernel conv = Parsed("conv2d(C=3,H=5,W=7,O=4,R=3,S=3,pad=1)+bias");
  EXPECT_THAT(StageNames(Applied(conv, "")), ElementsAre("xp", "acc", "y"));
  ScheduledKernel scheduled = Applied(conv, "split acc.o 2\ninline xp\nvectorize acc.w0");
  EXPECT_THAT(StageNames(scheduled), ElementsAre("acc", "y"));
  EXPECT_EQ(Loops(scheduled, "acc"), "n, o.0, o.1, h, vector w0, c, r, s");
}

TEST(InlineStep, RefusesReductionsOutputsAndPlaces) {
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "inline acc"),
            "step 1 (inline acc): acc is a reduction: it can be placed, not inlined");
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "inline y"), "step 1 (inline y): y is an output: it must be stored");
  EXPECT_EQ(RefusalOf(MatmulRelu(), "", "inline a"), "step 1 (inline a): there is no stage a; there are acc, y");
}

TEST(RewriteStep, CollapsesAxesOfEveryStage) {
  const Kernel conv = Parsed("conv2d(N=2,C=3,H=5,W=7,O=4,R=1,S=1)+bias");
  ScheduledKernel scheduled = Applied(conv, "inline xp\nrewrite fuse_axes y h w0\nsplit y.h 8");
  EXPECT_EQ(Loops(scheduled, "y"), "n, o, h.0, h.1");
  EXPECT_EQ(Loops(scheduled, "acc"), "n, o, h, c, r, s");
}

TEST(RewriteStep, SeparatesAReduction) {
  ScheduledKernel scheduled = Applied(Matmul(), "rewrite cache_write y t\ncompute_at t y.m\nstore t per_worker");
  EXPECT_THAT(StageNames(scheduled), ElementsAre("t", "y"));
  EXPECT_EQ(Loops(scheduled, "t"), "m, n, k");
  EXPECT_EQ(Loops(scheduled, "y"), "m, n");
}

// Anything but a rewrite fixes a stage's axes: loops, kinds, places, storage and tails.
TEST(RewriteStep, RefusesStagesThatHaveSteps) {
  const std::string reason = ": y has loops, a place or storage already: rewrite its axes before that";
  for (const char* before : {"split y.m 2\n", "reorder y.n y.m y.k\n", "fuse y.m y.n\n", "unroll y.k\n",
                             "vectorize y.n\n", "parallel y.m\n", "register_tile y.m\n", "tail y.m guard\n"}) {
    EXPECT_EQ(RefusalOf(Matmul(), before, "rewrite cache_write y t"), "step 2 (rewrite cache_write y t)" + reason)
        << before;
    EXPECT_EQ(RefusalOf(Matmul(), before, "rfactor y k 2 -> t"), "step 2 (rfactor y k 2 -> t)" + reason) << before;
  }
  const Kernel kernel = Parsed(
      "kernel k(x: f32[M, N]) -> y: f32[M, N] where M=3, N=5 { t: f32[M, N] t[m, n] = exp(x[m, n]) y[m, n] = t[m, n] + "
      "1 }");
  for (const char* before : {"compute_at t y.m\n", "store t workspace\n", "store t workspace [n, m]\n"})
    EXPECT_EQ(
        RefusalOf(kernel, before, "rewrite fuse_axes y m n"),
        "step 2 (rewrite fuse_axes y m n): t has loops, a place or storage already: rewrite its axes before that");
}

TEST(RfactorStep, AddsAStageOfLanes) {
  ScheduledKernel scheduled = Applied(Matmul(), "rfactor y k 4 -> part\nvectorize part.l\nunroll y.l");
  EXPECT_THAT(StageNames(scheduled), ElementsAre("part", "y"));
  EXPECT_EQ(Loops(scheduled, "part"), "m, n, vector l, k");
  EXPECT_EQ(Loops(scheduled, "y"), "m, n, unroll l");
}

TEST(RfactorStep, RefusesOtherAxes) {
  EXPECT_EQ(RefusalOf(Matmul(), "", "rfactor y n 4 -> part"),
            "step 1 (rfactor y n 4 -> part): y does not reduce over n");
  EXPECT_EQ(RefusalOf(Matmul(), "rfactor y k 4 -> part\n", "rfactor y k 4 -> again"),
            "step 2 (rfactor y k 4 -> again): y does not reduce over k");
}

// The rewritten kernel of a whole schedule still computes the same.
TEST(Apply, RewritesOfAScheduleKeepTheFunction) {
  for (const auto& [text, steps] : std::vector<std::pair<std::string, std::string>>{
           {"conv2d(C=5,H=7,W=9,O=13,R=1,S=1,const=1)",
            "inline xp\nrewrite fuse_axes y r s\nrewrite fuse_axes y h w0\nrewrite cache_write y tile\n"
            "cache_read w -> wp for tile const [o/4, c, d2, d3, o%4]\nrfactor tile c 4 -> part\nsplit part.o 4"},
           {"softmax(M=5,N=37)",
            "inline e\nrfactor top n 16 -> top_lanes\ncompute_at top_lanes y.m\ncompute_at top y.m\n"
            "compute_at total y.m\ncompute_at scale y.m"},
           {"layer_norm(M=3,N=31)", "cache_read gamma -> g for y workspace\nvectorize y.n\nparallel y.m"}}) {
    const Kernel kernel = Parsed(text);
    ScheduledKernel scheduled = Applied(kernel, steps);
    ASSERT_FALSE(scheduled.stages.empty()) << text;
    Rng rng(11);
    KernelInputs inputs(kernel, rng);
    std::vector<Reference> wanted = WholeReference(kernel, inputs), got = WholeReference(scheduled.kernel, inputs);
    ASSERT_EQ(wanted.size(), got.size()) << text;
    for (size_t i = 0; i < wanted.size(); ++i)
      ASSERT_NEAR(wanted[i].value, got[i].value, 1e-12 * wanted[i].magnitude) << text << " element " << i;
  }
}

}  // namespace
}  // namespace hone::apply_test
