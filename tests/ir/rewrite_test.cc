// Rewrites keep the function: the reference of the rewritten kernel is that of the original, element by element, or the
// rewrite is refused. What each makes of a graph, what it refuses, and all of them on everything at odd sizes.
#include "ir/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/rewrite_winograd.h"
#include "ir/specialize.h"
#include "ir/verify.h"
#include "tests/support/kernel_inputs.h"
#include "tests/support/operation_samples.h"

namespace hone {
namespace {

Kernel Parsed(const std::string& text) {
  Result<Kernel> kernel = ParseKernel(text);
  EXPECT_TRUE(kernel) << text << ": " << kernel.error().Text();
  return kernel ? *std::move(kernel) : Kernel{};
}

// Sums in another order differ in the last bits of a double.
bool IsSameValue(const Reference& a, const Reference& b) {
  if (a.value == b.value || (std::isnan(a.value) && std::isnan(b.value))) return true;
  return std::abs(a.value - b.value) <= 1e-12 * std::max(a.magnitude, b.magnitude);
}

int OutputCount(const Kernel& kernel) {
  int count = 0;
  for (TensorId id : kernel.operands) count += kernel.tensors[static_cast<size_t>(id)].kind == TensorKind::kOutput;
  return count;
}

// Rewrites leave tensors behind that nothing fills or reads; the verifier wants a stage for each.
Kernel WithoutUnused(const Kernel& kernel) {
  Kernel result = kernel;
  result.tensors.clear();
  std::map<int64_t, TensorId> places;
  auto keep = [&](TensorId id) {
    if (places.emplace(id, static_cast<TensorId>(result.tensors.size())).second)
      result.tensors.push_back(kernel.tensors[static_cast<size_t>(id)]);
    return places.at(id);
  };
  for (TensorId& operand : result.operands) operand = keep(operand);
  for (Stage& stage : result.stages) {
    stage.body = Rewrite(stage.body, [&](const Expr& e) {
      return e.op() == Op::kLoad ? LoadOf(keep(static_cast<TensorId>(e.int_value())), e.type(), e.args()) : e;
    });
    stage.output = keep(stage.output);
  }
  return result;
}

// What the caller sees stays, and so does every value.
void ExpectSameFunction(const Kernel& before, const Kernel& after, uint64_t seed = 3) {
  SCOPED_TRACE(PrintKernel(before) + "\nis now\n" + PrintKernel(after));
  Result<void> verified = VerifyKernel(WithoutUnused(after));
  ASSERT_TRUE(verified) << verified.error().Text();
  ASSERT_EQ(before.operands.size(), after.operands.size());
  for (size_t i = 0; i < before.operands.size(); ++i) {
    const Tensor& a = before.tensors[static_cast<size_t>(before.operands[i])];
    const Tensor& b = after.tensors[static_cast<size_t>(after.operands[i])];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(ElementCount(before, a), ElementCount(after, b));
  }
  Rng rng(seed);
  KernelInputs inputs(before, rng);
  for (int output = 0; output < OutputCount(before); ++output) {
    std::vector<Reference> wanted = WholeReference(before, inputs, output), got = WholeReference(after, inputs, output);
    ASSERT_EQ(wanted.size(), got.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      ASSERT_TRUE(IsSameValue(wanted[i], got[i]))
          << "output " << output << " element " << i << ": " << got[i].value << ", was " << wanted[i].value;
  }
}

// The rewritten kernel, which computes the same; an empty one if it was refused.
Kernel Kept(const Kernel& before, const Result<Kernel>& after) {
  EXPECT_TRUE(after) << after.error().Text();
  if (!after) return {};
  ExpectSameFunction(before, *after);
  return *after;
}

std::string RefusalOf(const Result<Kernel>& result) { return result ? "no refusal" : result.error().Text(); }

std::vector<std::string> StageNames(const Kernel& kernel) {
  std::vector<std::string> names;
  for (const Stage& stage : kernel.stages) names.push_back(kernel.tensors[static_cast<size_t>(stage.output)].name);
  return names;
}

std::vector<std::string> AxisNames(const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  return names;
}

const Stage& StageOf(const Kernel& kernel, const std::string& name) {
  return kernel.stages.at(static_cast<size_t>(FindStage(kernel, name)));
}

TEST(Rewrite, FindsByName) {
  const Kernel kernel = Parsed("matmul(M=7,N=5,K=13)+bias+relu");
  EXPECT_THAT(StageNames(kernel), testing::ElementsAre("acc", "y"));
  EXPECT_EQ(FindStage(kernel, "acc"), 0);
  EXPECT_EQ(FindStage(kernel, "y"), 1);
  EXPECT_EQ(FindStage(kernel, "a"), -1);
  EXPECT_EQ(kernel.tensors[static_cast<size_t>(FindTensor(kernel, "bias"))].name, "bias");
  EXPECT_EQ(FindTensor(kernel, "nothing"), -1);
  EXPECT_THAT(ReadersOf(kernel, FindTensor(kernel, "acc")), testing::ElementsAre(1));
  EXPECT_THAT(ReadersOf(kernel, FindTensor(kernel, "a")), testing::ElementsAre(0));
  EXPECT_THAT(ReadersOf(kernel, FindTensor(kernel, "y")), testing::IsEmpty());
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
  EXPECT_THAT(ReadersOf(after, FindTensor(after, "x")), testing::ElementsAre(0));
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

// ---- collapse

TEST(Collapse, MakesOneAxisInEveryTensor) {
  const Kernel before = Parsed("add(M=7,N=13)+relu");
  Kernel after = Kept(before, CollapseAxes(before, FindStage(before, "y"), {"m", "n"}));
  EXPECT_EQ(AxisNames(StageOf(after, "y").axes).size(), 1u);
  for (TensorId id : after.operands) {
    const Tensor& tensor = after.tensors[static_cast<size_t>(id)];
    EXPECT_THAT(StaticShape(after, tensor), testing::ElementsAre(91)) << tensor.name;
    EXPECT_EQ(tensor.declared.size(), 2u) << tensor.name;  // callers still see two
  }
}

TEST(Collapse, FollowsAccessesThroughTheGraph) {
  const Kernel before = Specialize(Parsed("conv2d(N=2,C=5,H=3,W=7,O=4,R=1,S=1)+bias+add+relu"));
  const Stage& y = StageOf(before, "y");
  Kernel after = Kept(before, CollapseAxes(before, FindStage(before, "y"), {y.axes[2].name, y.axes[3].name}));
  for (const Stage& stage : after.stages) EXPECT_EQ(stage.axes.size(), 3u);
  EXPECT_THAT(StaticShape(after, after.tensors[static_cast<size_t>(FindTensor(after, "x"))]),
              testing::ElementsAre(2, 5, 21));
}

TEST(Collapse, OfReductionAxes) {
  const Kernel before = Parsed("global_avgpool(N=2,C=3,H=5,W=7)");
  const Stage* sum = nullptr;
  for (const Stage& stage : before.stages)
    if (stage.reduction == Reduction::kSum) sum = &stage;
  ASSERT_NE(sum, nullptr);
  Kernel after =
      Kept(before, CollapseAxes(before, static_cast<int>(sum - before.stages.data()), AxisNames(sum->reduce_axes)));
  EXPECT_THAT(StaticShape(after, after.tensors[static_cast<size_t>(FindTensor(after, "x"))]),
              testing::ElementsAre(2, 3, 35));
}

TEST(Collapse, OfThreeAxes) {
  const Kernel before =
      Parsed("kernel cube(x: f32[A, B, C]) -> y: f32[A, B, C] where A=3, B=5, C=7 { y[a, b, c] = x[a, b, c] * 2 }");
  Kernel after = Kept(before, CollapseAxes(before, 0, {"a", "b", "c"}));
  EXPECT_EQ(after.stages[0].axes.size(), 1u);
}

TEST(Collapse, RefusesWhatNeedsTheDimensionsApart) {
  auto refusal = [](const std::string& body, const std::vector<std::string>& axes) {
    const Kernel kernel = Parsed("kernel k(x: f32[M, N], v: f32[N]) -> y: f32[M, N] where M=5, N=7 { " + body + " }");
    const Kernel copy = kernel;
    std::string text = RefusalOf(CollapseAxes(kernel, FindStage(kernel, "y"), axes));
    EXPECT_TRUE(SameKernel(kernel, copy));
    return text;
  };
  EXPECT_EQ(refusal("y[m, n] = x[m, n] + v[n]", {"m"}), "collapse needs at least two axes");
  EXPECT_EQ(refusal("y[m, n] = x[m, n] + v[n]", {"n", "m"}), "collapse: y has no adjacent axes of these names");
  EXPECT_EQ(refusal("y[m, n] = x[m, n] + v[n]", {"m", "n"}), "collapse: an access needs the dimensions apart");
  EXPECT_EQ(refusal("y[m, n] = x[m, n] * float(m)", {"m", "n"}), "collapse: an access needs the dimensions apart");
  EXPECT_EQ(refusal("y[m, n] = x[m, n] + x[m, N - 1 - n]", {"m", "n"}),
            "collapse: an access needs the dimensions apart");
  EXPECT_EQ(refusal("y[m, n] = x[m, n] + x[0, n]", {"m", "n"}), "collapse: x is not indexed plainly");
  EXPECT_EQ(refusal("y[m, n] = pad(x[m + 1, n], 0)", {"m", "n"}), "collapse: an access needs the dimensions apart");
}

// Elements next to each other in the one axis must be neighbours in the tensor.
TEST(Collapse, RefusesAPartOfADimension) {
  const Kernel kernel = Parsed("kernel k(x: f32[M, N]) -> y: f32[M, L] where M=5, N=7, L=4 { y[m, l] = x[m, l] }");
  EXPECT_EQ(RefusalOf(CollapseAxes(kernel, 0, {"m", "l"})), "collapse: only a part of x is indexed");
  // The outermost dimension may be a part.
  const Kernel rows = Parsed("kernel k(x: f32[M, N]) -> y: f32[L, N] where M=5, N=7, L=3 { y[l, n] = x[l, n] }");
  Kept(rows, CollapseAxes(rows, 0, {"l", "n"}));
}

// ---- separate

TEST(Separate, MovesTheReductionOut) {
  const Kernel before = Parsed("matmul(M=7,N=5,K=13)");
  Kernel after = Kept(before, SeparateReduction(before, 0, "t"));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("t", "y"));
  EXPECT_EQ(StageOf(after, "t").reduction, Reduction::kSum);
  EXPECT_EQ(StageOf(after, "y").reduction, Reduction::kNone);
  EXPECT_TRUE(StageOf(after, "y").reduce_axes.empty());
}

TEST(Separate, Refuses) {
  const Kernel kernel = Parsed("matmul(M=7,N=5,K=13)+relu");
  EXPECT_EQ(RefusalOf(SeparateReduction(kernel, FindStage(kernel, "y"), "t")), "y reduces nothing");
  EXPECT_EQ(RefusalOf(SeparateReduction(kernel, FindStage(kernel, "acc"), "a")), "the name a is taken");
}

// ---- cache_read

TEST(CacheReadOf, AnOperandGoesThroughACopy) {
  const Kernel before = Parsed("matmul(M=7,N=5,K=13)");
  Kernel after = Kept(before, CacheRead(before, FindTensor(before, "b"), 0, "bp"));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("bp", "y"));
  // Named as in the reader.
  EXPECT_THAT(AxisNames(StageOf(after, "bp").axes), testing::ElementsAre("k", "n"));
  EXPECT_THAT(ReadersOf(after, FindTensor(after, "b")), testing::ElementsAre(0));
}

TEST(CacheReadOf, ManyAccessesGoThroughOneCopy) {
  const Kernel before = Parsed(R"(kernel jacobi(u: f32[H, W]) -> v: f32[H, W] where H=7, W=5 {
    v[i, j] = 0.25 * (pad(u[i-1, j], 0) + pad(u[i+1, j], 1) + pad(u[i, j-1], 2) + pad(u[i, j+1], 3))
  })");
  Kernel after = Kept(before, CacheRead(before, FindTensor(before, "u"), 0, "copy"));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("copy", "v"));
  EXPECT_THAT(ReadersOf(after, FindTensor(after, "u")), testing::ElementsAre(0));
}

TEST(CacheReadOf, AxesOfOneNameBecomeTwo) {
  const Kernel before = Parsed("kernel diagonal(x: f32[N, N]) -> y: f32[N] where N=7 { y[n] = x[n, n] }");
  Kernel after = Kept(before, CacheRead(before, FindTensor(before, "x"), 0, "xp"));
  std::vector<std::string> names = AxisNames(StageOf(after, "xp").axes);
  EXPECT_NE(names.at(0), names.at(1));
}

TEST(CacheReadOf, OnlyOneOfTwoReadersChanges) {
  const Kernel before =
      Parsed("kernel two(x: f32[N]) -> y: f32[N], z: f32[N] where N=7 { y[n] = x[n] + 1 z[n] = x[n] * y[n] }");
  Kernel after = Kept(before, CacheRead(before, FindTensor(before, "x"), FindStage(before, "z"), "xp"));
  EXPECT_THAT(StageNames(after), testing::ElementsAre("y", "xp", "z"));
  EXPECT_THAT(ReadersOf(after, FindTensor(after, "x")), testing::ElementsAre(0, 1));
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
      Kernel after = Kept(before, Rfactor(before, 0, "k", lanes, "part"));
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
        Kept(before, Rfactor(before, 0, "n", 4, "part"));
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
  Kernel after = Kept(before, Rfactor(before, 0, "l", 4, "part"));
  const Stage& part = StageOf(after, "part");
  EXPECT_NE(part.axes.back().name, part.reduce_axes[0].name);
}

TEST(RfactorOf, Refuses) {
  const Kernel kernel = Parsed("matmul(M=7,N=5,K=13)+bias");
  EXPECT_EQ(RefusalOf(Rfactor(kernel, FindStage(kernel, "acc"), "m", 4, "t")), "acc does not reduce over m");
  EXPECT_EQ(RefusalOf(Rfactor(kernel, FindStage(kernel, "y"), "k", 4, "t")), "y does not reduce over k");
  EXPECT_EQ(RefusalOf(Rfactor(kernel, FindStage(kernel, "acc"), "k", 4, "bias")), "the name bias is taken");
}

// ---- all of them, everywhere

struct Candidate {
  std::string kind;
  std::string what;
  Result<Kernel> result;
};

// Every single rewrite of the kernel.
std::vector<Candidate> AllRewrites(const Kernel& kernel, const std::string& fresh) {
  std::vector<Candidate> all;
  for (size_t s = 0; s < kernel.stages.size(); ++s) {
    const int stage = static_cast<int>(s);
    const Stage& at = kernel.stages[s];
    const std::string name = kernel.tensors[static_cast<size_t>(at.output)].name;
    all.push_back({"inline", name, InlineStage(kernel, stage)});
    all.push_back({"separate", name, SeparateReduction(kernel, stage, fresh)});
    for (const auto* axes : {&at.axes, &at.reduce_axes})
      for (size_t i = 0; i + 1 < axes->size(); ++i)
        for (size_t count = 2; i + count <= axes->size() && count <= 3; ++count) {
          std::vector<std::string> names;
          for (size_t j = 0; j < count; ++j) names.push_back((*axes)[i + j].name);
          all.push_back({"collapse", name + " from " + names[0], CollapseAxes(kernel, stage, names)});
        }
    for (const Axis& axis : at.reduce_axes)
      for (int lanes : {2, 5})
        all.push_back({"rfactor", name + " " + axis.name, Rfactor(kernel, stage, axis.name, lanes, fresh)});
    for (size_t t = 0; t < kernel.tensors.size(); ++t)
      all.push_back({"cache_read", kernel.tensors[t].name + " for " + name,
                     CacheRead(kernel, static_cast<TensorId>(t), stage, fresh)});
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
  for (const char* kind : {"inline", "separate", "collapse", "rfactor", "cache_read"})
    EXPECT_GT(kept[kind], 20) << kind;
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

// ---- winograd

std::string SumOf(const Kernel& kernel) {
  for (const Stage& stage : kernel.stages)
    if (stage.reduction != Reduction::kNone) return kernel.tensors[static_cast<size_t>(stage.output)].name;
  return "";
}

Result<Kernel> Winograd(const Kernel& kernel, int64_t m, int64_t columns) {
  return WinogradConvolution(kernel, FindStage(kernel, SumOf(kernel)), "wino", m, columns);
}

TEST(Winograd, KeepsConvolutions) {
  for (const char* text : {
           "conv2d(C=3,H=8,W=8,O=4,R=3,S=3,pad=1)+bias+relu",
           "conv2d(C=2,H=7,W=5,O=3,R=3,S=3)",
           "conv2d(N=2,C=3,H=5,W=9,O=2,R=3,S=3,pad=[0,2,1,3])+add",
           "conv2d(C=6,H=6,W=7,O=4,R=3,S=3,groups=2,pad=1)",
           "conv2d(C=2,H=9,W=4,O=2,R=3,S=3,pad=1,dtype=f64)",
       }) {
    const Kernel before = Specialize(Parsed(text));
    const int64_t width = EvalExtent(before, StageOf(before, SumOf(before)).axes.back().extent);
    for (int64_t m : {2, 4})
      for (int64_t more : {0, 3}) Kept(before, Winograd(before, m, (width + m - 1) / m + more));
  }
}

// The same with windows that a kernel writes itself: no padded copy, a fill, other orders of dimensions.
TEST(Winograd, KeepsWindowsOfTheLanguage) {
  for (const char* body :
       {"y[h, w, o] = sum(c, r < 3, s < 3) f[o, r, s, c] * x[c, h + r, w + s]",
        "y[h, w, o] = sum(c, r < 3, s < 3) pad(x[c, h + r - 2, w + s + 1], 0) * f[o, r, s, c]",
        "t[c, h, w] = x[c, h, w] + 1 y[h, w, o] = sum(r < 3, c, s < 3) t[c, h + r, w + s] * f[o, r, s, c]"}) {
    std::string declared = std::string(body).starts_with("t") ? "t: f32[C, H + 2, W + 2] " : "";
    const Kernel before = Specialize(Parsed("kernel k(x: f32[C, H + 2, W + 2], f: f32[O, 3, 3, C]) -> y: f32[H, W, O] where C=3, "
                                            "H=6, W=5, O=2 { " + declared + body + " }"));
    // The columns are not the last axis of this result.
    EXPECT_EQ(RefusalOf(Winograd(before, 2, 3)), "the window is not over rows and columns in this order");
  }
  for (const char* body :
       {"y[o, h, w] = sum(c, r < 3, s < 3) f[o, r, s, c] * x[c, h + r, w + s]",
        "y[o, h, w] = sum(c, r < 3, s < 3) pad(x[c, h + r - 2, w + s + 1], 0) * f[o, r, s, c]",
        "t[c, h, w] = x[c, h, w] + 1 y[o, h, w] = sum(r < 3, c, s < 3) t[c, h + r, w + s] * f[o, r, s, c]"}) {
    std::string declared = std::string(body).starts_with("t") ? "t: f32[C, H + 2, W + 2] " : "";
    const Kernel before = Specialize(Parsed("kernel k(x: f32[C, H + 2, W + 2], f: f32[O, 3, 3, C]) -> y: f32[O, H, W] where C=3, "
                                            "H=6, W=5, O=2 { " + declared + body + " }"));
    for (int64_t m : {2, 4}) Kept(before, Winograd(before, m, (5 + m - 1) / m));
  }
}

TEST(Winograd, RefusesWhatIsNoSuchConvolution) {
  auto refusal = [](const char* text, int64_t m = 2, int64_t columns = 8) {
    return RefusalOf(Winograd(Specialize(Parsed(text)), m, columns));
  };
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=5,S=3,pad=1)"), "a window that is not 3×3");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3,stride=2)"), "a window with strides or dilation, or of more dimensions");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3,dilation=2)"), "a window with strides or dilation, or of more dimensions");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3,dtype=i8)"), "no convolution of floats");
  EXPECT_EQ(refusal("maxpool2d(C=3,H=8,W=8,R=3,S=3)"), "no convolution of floats");
  EXPECT_EQ(refusal("matmul(M=8,N=8,K=9)"), "no window over two dimensions");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3)", 3), "winograd takes tiles of 2 or 4");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3,pad=1)", 4, 1), "1 tiles of 4 do not cover a row");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3)", 2, int64_t{1} << 60), "more tiles than can be counted, or none");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3)", 4, INT64_MAX), "more tiles than can be counted, or none");
  EXPECT_EQ(refusal("conv2d(C=3,H=8,W=8,O=4,R=3,S=3)", 4, 0), "more tiles than can be counted, or none");
  EXPECT_EQ(refusal("conv2d(N=1..4,C=3,H=8,W=8,O=4,R=3,S=3)"), "winograd takes constant sizes");
}

}  // namespace
}  // namespace hone
