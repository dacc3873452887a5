// Every default schedule applies to its kernel and lowers: the builder falls back to plain loops where one does not,
// and nobody would notice but by the time it takes. The kernels of the models, and awkward ones; no code is generated.
#include "codegen/rules/default_schedule.h"

#include <gtest/gtest.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "codegen/llvm/emitter.h"
#include "codegen/llvm/object.h"
#include "codegen/lower/lower.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"
#include "tests/support/operation_samples.h"

namespace hone {
namespace {

// One of each instruction set, with caches and core counts that lead to different blocks.
const std::vector<std::string>& TargetTexts() {
  static const std::vector<std::string> texts = {"avx512 cpu=sapphirerapids l1=49152 l2=2097152 l3=33554432 cores=8",
                                                 "avx2 cpu=haswell l1=32768 l2=262144 l3=8388608 cores=1",
                                                 "neon cpu=neoverse-n1 l1=65536 l2=1048576 l3=16777216 cores=64"};
  return texts;
}

// Everything up to what LLVM gets.
Result<void> Refusal(const Kernel& kernel, const Schedule& schedule, const Target& target, ObjectCompiler& compiler) {
  LoopProgram program = HONE_TRY(Lower(HONE_TRY(ApplySchedule(kernel, schedule))));
  EXPECT_FALSE(program.entry.empty());
  llvm::LLVMContext context;
  HONE_TRY(EmitModule(program, *target.cpu(), compiler, context));
  return {};
}

// What the builder tries with a kernel for which nothing better is known: the default schedule, then, if that is too
// much code, its modest form.
void ExpectAccepted(const std::string& text, const Target& target, ObjectCompiler& compiler, Schedule* schedule) {
  SCOPED_TRACE(text + "\n" + PrintTarget(target));
  Result<Kernel> parsed = ParseKernel(text);
  ASSERT_TRUE(parsed) << parsed.error().Text();
  const Kernel kernel = Specialize(*std::move(parsed));
  for (bool modest : {false, true}) {
    Result<Schedule> made = modest ? ModestSchedule(kernel, target) : DefaultSchedule(kernel, target);
    ASSERT_TRUE(made) << made.error().Text();
    const std::string printed = PrintSchedule(*made);
    Result<Schedule> read = ParseSchedule(printed);
    ASSERT_TRUE(read) << read.error().Text() << "\n" << printed;
    EXPECT_EQ(*read, *made) << printed << "is read as\n" << PrintSchedule(*read);
    if (Result<void> done = Refusal(kernel, *made, target, compiler); !done) {
      bool is_long = !modest && done.error().kind == ErrorKind::kLimit;
      EXPECT_TRUE(is_long) << (modest ? "the modest form: " : "") << done.error().Text() << "\n" << printed;
    }
    if (!modest) *schedule = *std::move(made);
  }
}

template <typename S>
bool Has(const Schedule& schedule) {
  return std::any_of(schedule.begin(), schedule.end(),
                     [](const Step& step) { return std::holds_alternative<S>(step); });
}

// One test each, so that they are found and run apart.
struct ModelRun {
  std::string name;
  std::vector<std::string> kernels;
  std::string target;
};

// models/*.kernels: lines of a count and a kernel. Those of an earlier file are left out.
std::vector<ModelRun> ModelRuns() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(HONE_SOURCE_DIR "/models"))
    if (entry.path().extension() == ".kernels") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<ModelRun> runs;
  std::set<std::string> seen;
  for (const std::filesystem::path& path : files) {
    std::vector<std::string> kernels;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line[0] == '#') continue;
      std::string kernel = line.substr(line.find(' ') + 1);
      if (seen.insert(kernel).second) kernels.push_back(kernel);
    }
    for (const std::string& target : TargetTexts())
      runs.push_back({path.stem().string() + "_" + target.substr(0, target.find(' ')), kernels, target});
  }
  return runs;
}

class DefaultScheduleOfModels : public testing::TestWithParam<ModelRun> {};

TEST_P(DefaultScheduleOfModels, IsAccepted) {
  Result<Target> target = ParseTarget(GetParam().target);
  ASSERT_TRUE(target) << target.error().Text();
  Result<std::unique_ptr<ObjectCompiler>> compiler = ObjectCompiler::Open(*target->cpu());
  ASSERT_TRUE(compiler) << compiler.error().Text();
  for (const std::string& kernel : GetParam().kernels) {
    Schedule schedule;
    ExpectAccepted(kernel, *target, **compiler, &schedule);
    EXPECT_TRUE(Has<VectorizeStep>(schedule)) << kernel << "\n" << PrintSchedule(schedule);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DefaultScheduleOfModels, testing::ValuesIn(ModelRuns()),
                         [](const auto& info) { return info.param.name; });

TEST(DefaultScheduleOfModelFiles, AreManyDistinctKernels) {
  size_t count = 0;
  for (const ModelRun& run : ModelRuns()) { count += run.kernels.size(); }
  EXPECT_GT(count, 250 * TargetTexts().size());
}

const std::vector<std::string>& Epilogues() {
  static const std::vector<std::string> names = {"bias",      "add",  "mul",     "relu", "relu6",    "gelu",
                                                 "gelu_tanh", "silu", "sigmoid", "tanh", "hardswish"};
  return names;
}

// Sizes below a vector, just past one, prime and one, for every operation.
std::vector<std::string> OddKernels() {
  std::vector<std::string> kernels;
  auto add = [&](const std::string& kernel) { kernels.push_back(kernel); };
  auto text = [](int n) { return std::to_string(n); };
  for (int m : {1, 3, 7, 13, 31})
    for (int n : {1, 3, 7, 13, 31}) {
      const std::string rows = "(M=" + text(m) + ",N=" + text(n);
      for (int k : {1, 7, 31}) {
        add("matmul" + rows + ",K=" + text(k) + ")");
        add("matmul" + rows + ",K=" + text(k) + ",const=1)+bias+relu");
        add("dense" + rows + ",K=" + text(k) + ",const=1)+bias");
      }
      for (const char* name : {"softmax", "layer_norm", "rms_norm", "reduce_sum", "transpose", "add"})
        add(name + rows + ")");
      const std::string plane = "H=" + text(m) + ",W=" + text(n);
      add("conv2d(C=3,O=5,R=1,S=1," + plane + ",const=1)");
      add("conv2d(C=3,O=17,R=3,S=3,pad=1," + plane + ",const=1)+bias");
      add("conv2d(C=13,O=3,R=3,S=3,pad=1,stride=2," + plane + ")+bias+relu");
      add("depthwise_conv2d(C=7,R=3,S=3,pad=1," + plane + ",const=1)+bias+relu6");
      add("depthwise_conv2d(C=3,R=5,S=5,pad=2,stride=2," + plane + ")");
      add("maxpool2d(C=3,R=3,S=3,pad=1,stride=2," + plane + ")");
      add("avgpool2d(C=3,R=2,S=2,pad=1,stride=1," + plane + ")");
      add("global_avgpool(C=13," + plane + ")");
    }
  return kernels;
}

// Groups, dilation, uneven padding, rows and columns of one, batches.
std::vector<std::string> AwkwardConvolutions() {
  return {
      "conv2d(C=6,H=13,W=13,O=9,R=3,S=3,groups=3,pad=1,const=1)+bias",
      "conv2d(C=32,H=14,W=14,O=64,R=3,S=3,groups=32,pad=1,const=1)+bias+relu",
      "conv2d(C=64,H=7,W=7,O=64,R=1,S=1,groups=2)+bias",
      "conv2d(C=16,H=31,W=31,O=16,R=3,S=3,dilation=2,pad=2,const=1)+bias",
      "conv2d(C=16,H=31,W=29,O=16,R=3,S=3,dilation=[1,3],pad=[1,3],stride=[2,1])+bias+relu",
      "conv2d(N=3,C=5,H=11,W=7,O=7,R=2,S=5,pad=[0,4,1,0],const=1)+add",
      "conv2d(C=1,H=28,W=28,O=1,R=5,S=5,pad=2)",
      "conv2d(C=3,H=1,W=224,O=8,R=1,S=7,pad=[0,3],const=1)",
      "conv2d(C=3,H=224,W=1,O=8,R=7,S=1,pad=[3,0],const=1)",
      "conv2d(C=512,H=2,W=2,O=512,R=3,S=3,pad=1,const=1)+bias+relu",
      "conv2d(C=3,H=15,W=15,O=4,R=15,S=15,pad=7,const=1)",
      "conv2d(C=64,H=56,W=56,O=64,R=3,S=3,pad=1,const=1,accuracy=relaxed)+bias+relu",
      "conv2d(C=128,H=28,W=28,O=128,R=3,S=3,pad=1,const=1,accuracy=fast,threads=1)+bias+add+relu",
      "conv2d(N=2,C=256,H=14,W=14,O=256,R=3,S=3,pad=1,const=1,accuracy=relaxed)",
      "conv2d(C=512,H=7,W=7,O=512,R=3,S=3,pad=1,const=1,accuracy=relaxed)+bias+relu",
      "depthwise_conv2d(C=1,H=9,W=9,R=3,S=3,dilation=3,pad=3)",
      "depthwise_conv2d(N=2,C=19,H=7,W=7,R=7,S=7,stride=2,pad=3,const=1)+bias+hardswish",
      "depthwise_conv2d(C=960,H=7,W=7,R=5,S=5,stride=3,pad=[2,1,0,3],const=1)+bias",
      "depthwise_conv2d(C=4,H=112,W=112,R=3,S=3,stride=4,pad=1)",
      "conv2d(C=17,H=9,W=11,O=19,R=3,S=3,pad=1,const=1,layout=nhwc)+bias+add+relu",
      "conv2d(C=64,H=14,W=14,O=64,R=3,S=3,pad=1,const=1,accuracy=relaxed,layout=nhwc)",
      "depthwise_conv2d(C=19,H=9,W=11,R=3,S=5,stride=2,pad=2,const=1,layout=nhwc)+bias",
      "avgpool2d(C=5,H=13,W=11,R=3,S=2,stride=2,pad=1,layout=nhwc)",
      "global_avgpool(C=65,H=7,W=7,layout=nhwc)+relu",
      "dense(M=1,N=70,K=4097,weights=bf16,const=1)+bias",
      "dense(M=33,N=52,K=300,weights=f16)",
      "maxpool2d(C=3,H=31,W=31,R=5,S=5,stride=3,pad=2,ceil=1)",
      "maxpool2d(C=5,H=13,W=13,R=13,S=13)",
      "avgpool2d(N=2,C=3,H=13,W=31,R=3,S=7,stride=[2,5],pad=[1,3],ceil=1)+relu",
      "batch_matmul(B=12,M=128,N=31,K=64,tb=1)",
      "batch_matmul(B=1,M=1,N=1,K=1)",
      "batch_matmul(B=7,M=31,N=13,K=3,ta=1)+add+relu",
      "matmul(M=1,N=4096,K=1)",
      "matmul(M=4096,N=1,K=1)",
      "matmul(M=1,N=1,K=4096)",
      "matmul(M=31,N=4097,K=1,const=1)+bias",
      "matmul(M=513,N=3,K=257,tb=1)",
      "matmul(M=3,N=513,K=8191,ta=1)",
      "dense(M=1,N=1,K=10007)",
  };
}

class DefaultScheduleOfAwkwardKernels : public testing::TestWithParam<std::string> {
 protected:
  void ExpectAllAccepted(const std::vector<std::string>& kernels) {
    Result<Target> target = ParseTarget(GetParam());
    ASSERT_TRUE(target) << target.error().Text();
    Result<std::unique_ptr<ObjectCompiler>> compiler = ObjectCompiler::Open(*target->cpu());
    ASSERT_TRUE(compiler) << compiler.error().Text();
    for (const std::string& kernel : kernels) {
      Schedule schedule;
      ExpectAccepted(kernel, *target, **compiler, &schedule);
    }
  }
};

TEST_P(DefaultScheduleOfAwkwardKernels, SamplesOfEveryOperation) { ExpectAllAccepted(OperationSamples()); }

TEST_P(DefaultScheduleOfAwkwardKernels, OddSizes) { ExpectAllAccepted(OddKernels()); }

TEST_P(DefaultScheduleOfAwkwardKernels, ConvolutionsAndProducts) { ExpectAllAccepted(AwkwardConvolutions()); }

TEST_P(DefaultScheduleOfAwkwardKernels, EveryElementType) {
  std::vector<std::string> kernels;
  for (const char* type : {"f64", "i32", "i8", "bf16"})
    for (const char* kernel :
         {"matmul(M=13,N=31,K=7", "matmul(M=64,N=64,K=64,const=1", "conv2d(C=16,H=13,W=13,O=31,R=3,S=3,pad=1,const=1",
          "depthwise_conv2d(C=7,H=31,W=31,R=3,S=3,pad=1", "maxpool2d(C=3,H=13,W=13,R=3,S=3,stride=2,pad=1",
          "transpose(M=31,N=67", "add(M=13,N=31", "reduce_sum(M=7,N=131"})
      kernels.push_back(std::string(kernel) + ",dtype=" + type + ")+relu");
  for (const char* kernel : {"softmax(M=13,N=131,dtype=f64)", "layer_norm(M=3,N=131,dtype=f64)",
                             "avgpool2d(C=3,H=13,W=13,R=3,S=3,pad=1,dtype=f64)", "gelu(M=7,N=31,dtype=f64)"})
    kernels.push_back(kernel);
  ExpectAllAccepted(kernels);
}

TEST_P(DefaultScheduleOfAwkwardKernels, EveryEpilogue) {
  std::vector<std::string> kernels;
  for (const std::string& epilogue : Epilogues()) {
    for (const char* kernel :
         {"matmul(M=13,N=31,K=7,const=1)", "conv2d(C=3,H=13,W=7,O=17,R=3,S=3,pad=1,const=1)",
          "depthwise_conv2d(C=17,H=7,W=7,R=3,S=3,pad=1)", "maxpool2d(C=3,H=13,W=13,R=2,S=2)", "softmax(M=7,N=31)",
          "layer_norm(M=7,N=31)", "transpose(M=13,N=31)", "add(M=13,N=31)", "global_avgpool(C=13,H=7,W=7)"})
      kernels.push_back(kernel + ("+" + epilogue));
  }
  kernels.push_back("matmul(M=13,N=31,K=7)+bias+gelu_tanh+mul+add");
  kernels.push_back("conv2d(C=16,H=14,W=14,O=32,R=3,S=3,pad=1,const=1)+bias+add+mul+hardswish+sigmoid");
  ExpectAllAccepted(kernels);
}

// Each of these uses what it gets twice: code and limits count a value once.
TEST_P(DefaultScheduleOfAwkwardKernels, AllEpiloguesAtOnce) {
  std::string all;
  for (const std::string& epilogue : Epilogues()) all += "+" + epilogue;
  std::vector<std::string> kernels;
  for (const char* kernel : {"matmul(M=13,N=31,K=7)", "matmul(M=128,N=128,K=128,const=1)",
                             "conv2d(C=16,H=14,W=14,O=32,R=3,S=3,pad=1,const=1)", "layer_norm(M=7,N=128)"})
    kernels.push_back(kernel + all);
  ExpectAllAccepted(kernels);
}

TEST_P(DefaultScheduleOfAwkwardKernels, OfTheKernelLanguage) {
  std::vector<std::string> kernels;
  for (const auto& entry : std::filesystem::directory_iterator(HONE_SOURCE_DIR "/examples")) {
    if (entry.path().extension() != ".hone") continue;
    std::ifstream file(entry.path());
    kernels.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  EXPECT_GE(kernels.size(), 2u);
  kernels.push_back(R"(kernel jacobi(u: f32[N, N], f: f32[N, N]) -> v: f32[N, N] where N=31 {
    v[i, j] = if(i == 0 or j == 0 or i == N - 1 or j == N - 1, u[i, j],
                 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - f[i, j]))
  })");
  // Two outputs, one of which the other reads.
  kernels.push_back(R"(kernel moments(x: f32[M, N]) -> mean: f32[M], variance: f32[M] where M=7, N=131 {
    mean[m] = (sum(n) x[m, n]) / float(N)
    variance[m] = (sum(n) ((x[m, n] - mean[m]) * (x[m, n] - mean[m]))) / float(N)
  })");
  // A product whose result feeds another product.
  kernels.push_back(R"(kernel chain(a: f32[M, K], const b: f32[K, N], const c: f32[N, P]) -> y: f32[M, P]
    where M=13, K=31, N=64, P=7 {
    t: f32[M, N]
    t[m, n] = max((sum(k) a[m, k] * b[k, n]), 0)
    y[m, p] = sum(n) t[m, n] * c[n, p]
  })");
  kernels.push_back(R"(kernel scalar(x: f32[N]) -> y: f32[] where N=1000 { y[] = max(n) x[n] })");
  kernels.push_back(R"(kernel prefix(x: f32[N]) -> y: f32[N] where N=67 { y[i] = sum(j < N) if(j <= i, x[j], 0) })");
  kernels.push_back(R"(kernel reverse(x: i8[N, M]) -> y: i8[M, N] where N=31, M=13 { y[m, n] = x[N - 1 - n, m] })");
  ExpectAllAccepted(kernels);
}

// Operands that are read through copies of f32: of one constant, of two, of what a window is padded to, in ranges.
TEST_P(DefaultScheduleOfAwkwardKernels, FloatsOf16Bits) {
  ExpectAllAccepted({"matmul(M=13,N=31,K=70,dtype=f16)", "matmul(M=31,N=70,K=13,ta=1,tb=1,dtype=bf16)",
                     "dense(M=1..40,N=31,K=70,const=1,dtype=bf16)+bias", "dense(M=1,N=31,K=7,const=1,dtype=f16)",
                     "conv2d(C=5,H=13,W=14,O=9,R=3,S=3,pad=1,stride=2,const=1,dtype=f16)+relu",
                     "conv2d(C=8,H=7,W=7,O=16,R=1,S=1,const=1,dtype=bf16)",
                     R"(kernel scaled(const w: bf16[N, K], const s: bf16[N], x: bf16[K, M]) -> y: f32[N, M]
                        where N=31, K=70, M=67 {
                        t: bf16[N, K]
                        t[n, k] = bf16(float(w[n, k]) * float(s[n]))
                        y[n, m] = sum(k) t[n, k] * x[k, m]
                      })"});
}

// Where an axis is called l, the lanes that rfactor makes are not.
TEST_P(DefaultScheduleOfAwkwardKernels, AxesNamedAsThoseOfRewrites) {
  std::vector<std::string> kernels;
  kernels.push_back(R"(kernel attention(q: f32[H, M, D], k: f32[H, M, D]) -> p: f32[H, M, M] where H=3, M=31, D=7 {
    s: f32[H, M, M]
    s[h, i, j] = if(j <= i, (sum(d) q[h, i, d] * k[h, j, d]) / sqrt(float(D)), -inf)
    p[h, i, j] = exp(s[h, i, j] - max(l) s[h, i, l]) / sum(l) exp(s[h, i, l] - max(m) s[h, i, m])
  })");
  kernels.push_back(R"(kernel bag(table: f32[V, D], ids: i32[B, L]) -> y: f32[B, D] where V=1000, D=64, B=4, L=7 {
    y[b, d] = (sum(l) table[clamp(ids[b, l], 0, V - 1), d]) / float(L)
  })");
  ExpectAllAccepted(kernels);
}

// Rows that are longer than what the second-level cache holds, few and many.
TEST_P(DefaultScheduleOfAwkwardKernels, LongRows) {
  ExpectAllAccepted({"softmax(M=1,N=10000000)", "softmax(M=3,N=9999991)+add", "softmax(M=100,N=10000000,dtype=f64)",
                     "layer_norm(M=1,N=10000000)", "layer_norm(M=200,N=9000001,const=1)+gelu",
                     "softmax(M=1,N=10000000,threads=1)"});
}

// Refused: a block in registers is made of every access to the tensor, though it fits the transposed one alone.
TEST_P(DefaultScheduleOfAwkwardKernels, TransposedAndOtherReadsOfATensor) {
  std::vector<std::string> kernels;
  for (const char* value : {"0.5 * (x[i, j] + x[j, i])", "x[j, i] + x[j, j]", "x[j, i] / sqrt(x[i, i] * x[j, j])",
                            "x[j, i] - x[N - 1 - j, i]", "x[j, i] + x[0, i]"})
    kernels.push_back(std::string("kernel k(x: f32[N, N]) -> y: f32[N, N] where N=67 { y[i, j] = ") + value + " }");
  ExpectAllAccepted(kernels);
}

TEST_P(DefaultScheduleOfAwkwardKernels, DynamicSizes) {
  ExpectAllAccepted({"add(M=1..100,N=16)", "add(M=16,N=1..100)", "gelu(M=1..7,N=31)", "matmul(M=1..100,N=64,K=31)+bias",
                     "dense(M=1..64,N=13,K=256,const=1)+bias+relu", "batch_matmul(B=1..12,M=31,N=13,K=64)",
                     "softmax(M=1..64,N=100)", "layer_norm(M=1..64,N=128)", "rms_norm(M=1..3,N=31)",
                     "softmax(M=1..64,N=10000000)", "layer_norm(M=1..2,N=9000001)",
                     "conv2d(N=1..8,C=3,H=14,W=14,O=16,R=3,S=3,pad=1,const=1)+bias",
                     "depthwise_conv2d(N=1..4,C=7,H=13,W=30,R=3,S=3,pad=1,const=1,dtype=u8)",
                     "depthwise_conv2d(N=1..4,C=7,H=13,W=13,R=3,S=3,pad=1)", "maxpool2d(N=1..4,C=3,H=14,W=14,R=2,S=2)",
                     "global_avgpool(N=1..4,C=3,H=7,W=7)"});
}

INSTANTIATE_TEST_SUITE_P(All, DefaultScheduleOfAwkwardKernels, testing::ValuesIn(TargetTexts()),
                         [](const auto& info) { return info.param.substr(0, info.param.find(' ')); });

// Instructions that sum several products in a lane take lanes that lie side by side, and packing brings a tensor's own
// rows there: not every row, nor from the last to the first.
TEST(DefaultSchedule, OfRowsThatInstructionsDoNotTakeAsTheyLie) {
  for (const char* text :
       {"avx512 cpu=znver4 features=avx512vnni l1=32768 l2=1048576 l3=33554432 cores=2",
        "avx512 cpu=sapphirerapids features=amx-int8,amx-tile,avx512vnni l1=49152 l2=2097152 l3=33554432 cores=8",
        "avx2 cpu=alderlake features=avxvnni l1=32768 l2=262144 l3=8388608 cores=1",
        "neon cpu=neoverse-n1 features=dotprod l1=65536 l2=1048576 l3=16777216 cores=64"}) {
    const Target target = ParseTarget(text).value();
    const std::unique_ptr<ObjectCompiler> compiler = ObjectCompiler::Open(*target.cpu()).value();
    for (const char* row : {"63 - n", "n + 1", "2 * n", "n / 2"}) {
      Schedule schedule;
      ExpectAccepted(std::string("kernel r(x: u8[64, 64], const w: i8[128, 64]) -> y: i32[64, 64] "
                                 "{ y[m, n] = sum(k) x[m, k] * w[") +
                         row + ", k] }",
                     target, *compiler, &schedule);
    }
  }
}

// A gather takes tens of cycles, sixteen loads one each at most: where windows are apart, no lane is masked at run
// time. Each stage reads the one before it twice: in one body they would be 2^200 nodes.
TEST(DefaultSchedule, OfAChainThatDoublesStaysSmall) {
  std::string text = "kernel chain(x: f32[N]) -> y: f32[N] where N=1024 {\n  t0: f32[N] t0[n] = x[n] * 2\n";
  for (int i = 1; i <= 200; ++i) {
    const std::string now = "t" + std::to_string(i), before = "t" + std::to_string(i - 1);
    text += "  " + now + ": f32[N] " + now + "[n] = " + before + "[n] * 0.5 + " + before + "[n]\n";
  }
  const Kernel kernel = Specialize(*ParseKernel(text + "  y[n] = t200[n]\n}"));
  for (const std::string& target_text : TargetTexts()) {
    const Target target = *ParseTarget(target_text);
    Result<ScheduledKernel> scheduled = ApplySchedule(kernel, *DefaultSchedule(kernel, target));
    ASSERT_TRUE(scheduled) << scheduled.error().Text();
    double nodes = 0;
    for (const Stage& stage : scheduled->kernel.stages) nodes += stage.body.nodes();
    EXPECT_LE(nodes, 20'000);
    EXPECT_LT(scheduled->kernel.stages.size(), 100u);  // what is short is in one body all the same
    Result<LoopProgram> program = Lower(*scheduled);
    EXPECT_TRUE(program) << program.error().Text();
  }
}

// What LLVM gets for a kernel; empty, and a failure, where it gets none.
std::string DefaultCode(const std::string& text, const Target& target) {
  const Kernel kernel = Specialize(ParseKernel(text).value());
  std::unique_ptr<ObjectCompiler> compiler = ObjectCompiler::Open(*target.cpu()).value();
  Result<ScheduledKernel> applied = ApplySchedule(kernel, DefaultSchedule(kernel, target).value());
  EXPECT_TRUE(applied) << applied.error().Text();
  if (!applied) return "";
  Result<LoopProgram> program = Lower(*applied);
  EXPECT_TRUE(program) << program.error().Text();
  if (!program) return "";
  llvm::LLVMContext context;
  auto module = EmitModule(*program, *target.cpu(), *compiler, context);
  EXPECT_TRUE(module) << module.error().Text();
  std::string code;
  llvm::raw_string_ostream out(code);
  if (module) (*module)->print(out, nullptr);
  return code;
}

TEST(DefaultSchedule, WindowsGatherNothing) {
  for (const std::string& text : {TargetTexts()[0], TargetTexts()[1]}) {
    const Target target = ParseTarget(text).value();
    for (const char* kernel :
         {"maxpool2d(C=64,H=55,W=55,R=3,S=3,stride=2)", "maxpool2d(C=256,H=56,W=56,R=2,S=2,stride=2)",
          "avgpool2d(C=128,H=57,W=57,R=2,S=2,stride=2)", "maxpool2d(C=64,H=112,W=112,R=3,S=3,stride=2,pad=1)",
          "depthwise_conv2d(C=5,H=61,W=61,R=5,S=5,stride=2)",
          "depthwise_conv2d(C=5,H=100,W=100,R=3,S=3,stride=3,pad=1)", "maxpool2d(C=64,H=25,W=25,R=3,S=3,stride=2)"}) {
      SCOPED_TRACE(kernel + ("\n" + text));
      const std::string code = DefaultCode(kernel, target);
      EXPECT_FALSE(code.empty());
      EXPECT_EQ(code.find("masked.gather"), std::string::npos);
    }
  }
}

// Three vectors of columns at a time leave a rest of 1024: one guard for all bytes of a vector. As masked loads, which
// AVX2 does not have for bytes, they were a branch for each, and 3 rows took ten times as long as 4.
TEST(DefaultSchedule, BytesUnderOneGuardAreLoadedTogether) {
  const std::string code =
      DefaultCode("dense(M=3,N=1024,K=1024,const=1,weights=u4,block=32,zero=1)", ParseTarget(TargetTexts()[1]).value());
  EXPECT_NE(code.find("hone.zero"), std::string::npos);
  EXPECT_EQ(code.find("masked.load"), std::string::npos);
}

// However many rows there are: a panel of floats would be four times as much to write and to read.
TEST(DefaultSchedule, WholeNumbersBecomeFloatsWhereTheyAreMultiplied) {
  const Target target = ParseTarget(TargetTexts()[1]).value();
  for (const char* text : {"dense(M=3,N=1024,K=1024,const=1,weights=i8)", "dense(M=64,N=96,K=70,const=1,weights=u8)"}) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    const std::string schedule = PrintSchedule(DefaultSchedule(kernel, target).value());
    EXPECT_NE(schedule.find("inline wide\n"), std::string::npos) << schedule;
    EXPECT_EQ(schedule.find("wide_panel"), std::string::npos) << schedule;
  }
}

std::string DefaultText(const std::string& text, const std::string& target) {
  const Kernel kernel = Specialize(ParseKernel(text).value());
  return PrintSchedule(DefaultSchedule(kernel, ParseTarget(target).value()).value());
}

// Rows of the output read the same rows of the input with other weights: in one body a row is loaded once for all of
// them. A window that is dilated is a window, too.
TEST(DefaultSchedule, RowsOfAWindowShareWhatTheyLoad) {
  for (const std::string& target : TargetTexts())
    for (const char* text : {"depthwise_conv2d(C=96,H=56,W=56,R=7,S=7,stride=1,pad=3)",
                             "depthwise_conv2d(C=96,H=56,W=56,R=7,S=7,stride=2,pad=3)",
                             "depthwise_conv2d(C=96,H=56,W=56,R=5,S=5,stride=1,pad=6,dilation=3)"}) {
      const std::string schedule = DefaultText(text, target);
      EXPECT_NE(schedule.find("reorder tile.s tile.r tile.n"), std::string::npos) << text << "\n" << schedule;
      EXPECT_NE(schedule.find("unroll tile.r tile.n"), std::string::npos) << text << "\n" << schedule;
    }
  // No row shares anything: the window is as high as the step from row to row.
  const std::string apart = DefaultText("depthwise_conv2d(C=96,H=60,W=60,R=3,S=3,stride=3)", TargetTexts()[0]);
  EXPECT_NE(apart.find("reorder tile.r tile.s tile.n"), std::string::npos) << apart;
}

TEST(DefaultSchedule, SmallWindowsWhoseLanesLieSideBySideNeedNoPaddedCopy) {
  for (const char* masked : {"depthwise_conv2d(C=32,H=112,W=112,R=3,S=3,stride=1,pad=1)",
                             "depthwise_conv2d(C=768,H=1,W=512,R=1,S=3,stride=1,pad=[0,1])",
                             "depthwise_conv2d(C=144,H=14,W=14,R=3,S=3,stride=2,pad=1)"})
    EXPECT_NE(DefaultText(masked, TargetTexts()[0]).find("inline xp\n"), std::string::npos) << masked;
  for (const char* padded : {"depthwise_conv2d(C=32,H=112,W=112,R=3,S=3,stride=2,pad=1)",
                             "depthwise_conv2d(C=32,H=112,W=112,R=5,S=5,stride=1,pad=2)",
                             "depthwise_conv2d(C=384,H=14,W=14,R=7,S=7,stride=1,pad=3)"})
    EXPECT_EQ(DefaultText(padded, TargetTexts()[0]).find("inline xp\n"), std::string::npos) << padded;
}

// Where the pipes are half as wide as the registers, seven half vectors cost less than four whole ones.
TEST(DefaultSchedule, HalfVectorsLeaveLessToComputeInVain) {
  const std::string zen4 = "avx512 cpu=znver4 l1=32768 l2=1048576 l3=8388608 cores=2";
  const std::string of_56 = "depthwise_conv2d(C=96,H=56,W=56,R=7,S=7,stride=1,pad=3)";
  const std::string of_112 = "depthwise_conv2d(C=96,H=112,W=112,R=7,S=7,stride=1,pad=3)";
  EXPECT_NE(DefaultText(of_56, zen4).find("split y.w0 8\n"), std::string::npos);
  EXPECT_NE(DefaultText(of_56, TargetTexts()[0]).find("split y.w0 16\n"), std::string::npos);
  EXPECT_NE(DefaultText(of_112, zen4).find("split y.w0 16\n"), std::string::npos);
}

}  // namespace
}  // namespace hone
