// Small networks from the file to the kernels: every kernel that the importer writes, computed by the reference
// interpreter, against the network computed by definition before anything was simplified.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <sstream>
#include <utility>

#include "network/graph/simplify.h"
#include "network/onnx/import_network.h"
#include "network/run/check_network.h"
#include "network/run/lower_served.h"
#include "tests/network/model_files.h"
#include "tests/network/plan_interpreter.h"

namespace hone::samples_test {
namespace {

Network Import(const std::string& bytes) {
  Result<OnnxModel> model = ParseOnnx(bytes, {"sample.onnx", ""});
  EXPECT_TRUE(model) << model.error().Text();
  Result<Network> network = BuildNetwork(*model, "sample.onnx", {});
  EXPECT_TRUE(network) << network.error().Text();
  return *std::move(network);
}

const SampleModel& Find(const std::string& name) {
  static const std::vector<SampleModel> models = SampleModels();
  for (const SampleModel& model : models) {
    if (model.name == name) return model;
  }
  ADD_FAILURE() << name;
  return models[0];
}

std::vector<std::string> KernelsOf(const std::string& bytes) {
  Network network = Import(bytes);
  EXPECT_TRUE(Simplify(network.graph));
  std::vector<std::string> kernels;
  for (const KernelCall& call : Lower(network.graph).calls) kernels.push_back(call.label);
  return kernels;
}

// An accuracy is asked of layers, of f32 alone; all else is as it was.
TEST(Samples, LayersAreAskedWithTheNetworksAccuracy) {
  ModelFileBuilder builder;
  builder.Input("x", {1, 3, 9, 9}).Random("f", {4, 3, 3, 3}).Random("w", {196, 5});
  builder.Node("Conv", {"x", "f"}, {"c"}).Node("Relu", {"c"}, {"r"}).Node("Flatten", {"r"}, {"l"});
  builder.Node("MatMul", {"l", "w"}, {"m"}).Node("Softmax", {"m"}, {"y"}).Output("y");
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"layers.onnx", ""});
  ASSERT_TRUE(model) << model.error().Text();
  const auto kernels = [&](Accuracy accuracy) {
    ImportOptions options;
    options.accuracy = accuracy;
    Network network = *BuildNetwork(*model, "layers.onnx", options);
    EXPECT_TRUE(Simplify(network.graph));
    std::vector<std::string> texts;
    for (const KernelCall& call : Lower(network.graph).calls) texts.push_back(call.kernel);
    return texts;
  };
  const std::string conv = "conv2d(C=3,H=9,W=9,O=4,R=3,S=3,stride=1,pad=0,const=1",
                    product = "matmul(M=1,N=5,K=196,const=1";
  EXPECT_EQ(kernels(Accuracy::kStrict), (std::vector<std::string>{conv + ")+relu", product + ")", "softmax(M=1,N=5)"}));
  EXPECT_EQ(kernels(Accuracy::kFast),
            (std::vector<std::string>{conv + ",accuracy=fast)+relu", product + ",accuracy=fast)", "softmax(M=1,N=5)"}));
}

std::vector<Numbers> InOrder(const Graph& graph, const ValueNumbers& inputs) {
  std::vector<Numbers> data;
  for (ValueId input : graph.inputs) data.push_back(inputs.at(input));
  return data;
}

// The plan's results are those of the definition.
void ExpectRight(const Graph& plain, Graph& graph, const CallPlan& plan) {
  for (uint32_t seed : {1U, 2U}) {
    const ValueNumbers inputs = RandomInputs(plain, seed);
    Graph definition = plain;
    Result<std::vector<Numbers>> expected = EvaluateNetwork(definition, InOrder(plain, inputs));
    ASSERT_TRUE(expected) << expected.error().Text();
    Result<std::vector<Numbers>> seen = InterpretPlan(graph, plan, inputs);
    ASSERT_TRUE(seen) << seen.error().Text();
    ASSERT_EQ(seen->size(), expected->size());
    for (size_t o = 0; o < seen->size(); ++o) {
      const Numbers &a = (*seen)[o], &b = (*expected)[o];
      ASSERT_EQ(a.shape, b.shape);
      for (size_t i = 0; i < b.real.size() + b.whole.size(); ++i) {
        // Each of a handful of kernels rounds its operands to float.
        ASSERT_NEAR(a.RealAt(i), b.RealAt(i), 2e-5 * (1 + std::abs(b.RealAt(i)))) << "element " << i;
      }
    }
  }
}

TEST(Samples, KernelsComputeWhatTheFileSays) {
  for (const SampleModel& sample : SampleModels()) {
    SCOPED_TRACE(sample.name);
    Network plain = Import(sample.bytes), network = Import(sample.bytes);
    ASSERT_TRUE(network.left_out.empty()) << network.left_out[0].node << ": " << network.left_out[0].reason;
    Result<void> simplified = Simplify(network.graph);
    ASSERT_TRUE(simplified) << simplified.error().Text();
    CallPlan plan = Lower(network.graph);
    ASSERT_FALSE(plan.calls.empty());
    ExpectRight(plain.graph, network.graph, plan);
  }
}

// Whatever honed refuses, in every round: what is left computes the same.
TEST(Samples, ComputeWhatTheFileSaysWithoutKernelsThatAreRefused) {
  for (const SampleModel& sample : SampleModels()) {
    for (uint32_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(sample.name + ", seed " + std::to_string(seed));
      const Network plain = Import(sample.bytes);
      Network network = Import(sample.bytes);
      ASSERT_TRUE(Simplify(network.graph));
      std::mt19937 random(seed);
      std::map<std::string, bool> is_refused;
      bool is_first = true;
      Result<CallPlan> plan = LowerServed(network.graph, {}, [&](const CallPlan& tried) {
        Refusals refused;
        for (const KernelCall& call : tried.calls) {
          if (call.is_host()) continue;
          const bool is_one = is_refused.emplace(call.kernel, random() % 2 == 0).first->second;
          if (is_one) refused.emplace(call.kernel, Error{ErrorKind::kLimit, "there is no kernel for it", ""});
        }
        if (is_first && refused.size() == is_refused.size()) {
          is_refused[refused.begin()->first] = false;  // all of them would be nobody's fault
          refused.erase(refused.begin());
        }
        is_first = false;
        return refused;
      });
      ASSERT_TRUE(plan) << plan.error().Text();
      for (const KernelCall& call : plan->calls)
        if (!call.is_host()) { EXPECT_FALSE(is_refused.at(call.kernel)) << call.kernel; }
      ExpectRight(plain.graph, network.graph, *plan);
    }
  }
}

std::vector<std::string> LabelsWithout(const std::string& bytes,
                                       const std::function<bool(const KernelCall&)>& refuses) {
  Network network = Import(bytes);
  EXPECT_TRUE(Simplify(network.graph));
  const CallPlan plan = LowerServed(network.graph, {}, [&](const CallPlan& tried) {
                          Refusals refused;
                          for (const KernelCall& call : tried.calls)
                            if (!call.is_host() && refuses(call))
                              refused.emplace(call.kernel, Error{ErrorKind::kBuildFailed, "too large", call.kernel});
                          return refused;
                        }).value();
  std::vector<std::string> labels;
  for (const KernelCall& call : plan.calls)
    labels.push_back(call.is_host() ? call.label + " on the host: " + call.why_host : call.label);
  return labels;
}

TEST(Samples, WhatIsRefusedIsWrittenInSmallerPartsAndThenLeftToTheHost) {
  const std::string& bytes = Find("conv_batchnorm_relu").bytes;
  EXPECT_EQ(LabelsWithout(bytes, [](const KernelCall& call) { return call.kernel.ends_with("+bias"); }),
            KernelsOf(bytes));
  const auto last = [&](const std::string& word) {
    bool is_first = true;
    return LabelsWithout(Find("squeeze_excite").bytes, [&, word](const KernelCall& call) {
      return call.label.find(word) != std::string::npos && std::exchange(is_first, false);
    });
  };
  EXPECT_EQ(last("depthwise")[0], "depthwise_conv2d(C=6,H=5,W=4,R=3,S=3,stride=1,pad=1,const=1)");
  const std::vector<std::string> without = LabelsWithout(
      Find("squeeze_excite").bytes, [](const KernelCall& call) { return call.label.starts_with("depthwise"); });
  EXPECT_EQ(without[0], "conv on the host: depthwise_conv2d(C=6,H=5,W=4,R=3,S=3,stride=1,pad=1,const=1): too large");
  Network network = Import(bytes);
  ASSERT_TRUE(Simplify(network.graph));
  const Result<CallPlan> none = LowerServed(network.graph, {}, [&](const CallPlan& tried) {
    return Refusals{{tried.calls[0].kernel, Error{ErrorKind::kUnsupported, "no builder", ""}}};
  });
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "no builder");
  const Result<CallPlan> wrong = LowerServed(network.graph, {}, [&](const CallPlan& tried) {
    Refusals refused;
    for (const KernelCall& call : tried.calls)
      if (!call.is_host()) refused.emplace(call.kernel, Error{ErrorKind::kWrongResult, "it failed its check", ""});
    return refused;
  });
  ASSERT_TRUE(wrong) << "what one kernel alone is refused for leaves a network that has no other";
  EXPECT_TRUE(std::ranges::all_of(wrong->calls, &KernelCall::is_host));
}

TEST(Samples, BatchNormalizationGoesIntoTheConvolution) {
  EXPECT_EQ(KernelsOf(Find("conv_batchnorm_relu").bytes),
            std::vector<std::string>{
                "conv2d(N=2,C=4,H=9,W=7,O=6,R=3,S=3,stride=[2,1],pad=[1,0,1,2],groups=2,const=1)+bias+relu"});
}

TEST(Samples, EpiloguesAreFusedWhereNothingElseReads) {
  EXPECT_EQ(KernelsOf(Find("residual_pools").bytes),
            (std::vector<std::string>{"conv2d(C=3,H=11,W=11,O=4,R=3,S=3,stride=2,pad=1,const=1)+bias+relu6",
                                      "maxpool2d(C=4,H=6,W=6,R=3,S=3,stride=1,pad=1)", "avgpool2d_padded",
                                      "conv2d(C=4,H=6,W=6,O=4,R=1,S=1,stride=1,pad=0,const=1)+bias+add+relu",
                                      "global_avgpool(C=4,H=6,W=6)", "dense(M=1,N=10,K=4,const=1)+bias"}));
}

TEST(Samples, SpelledOutActivationsAreEpilogues) {
  EXPECT_EQ(KernelsOf(Find("squeeze_excite").bytes),
            (std::vector<std::string>{"depthwise_conv2d(C=6,H=5,W=4,R=3,S=3,stride=1,pad=1,const=1)+silu",
                                      "global_avgpool(C=6,H=5,W=4)",
                                      "conv2d(C=6,H=1,W=1,O=2,R=1,S=1,stride=1,pad=0,const=1)+bias+relu",
                                      "conv2d(C=2,H=1,W=1,O=6,R=1,S=1,stride=1,pad=0,const=1)+bias+sigmoid", "mul"}));
  EXPECT_EQ(KernelsOf(Find("layer_norm_decomposed").bytes), std::vector<std::string>{"layer_norm(M=3,N=10)"});
}

TEST(Samples, AttentionIsListedKernelsAndWhatMovesBetweenThem) {
  EXPECT_EQ(KernelsOf(Find("attention").bytes),
            (std::vector<std::string>{"index", "gather+add", "layer_norm(M=5,N=8,eps=9.99999997e-07)",
                                      "matmul(M=5,N=8,K=8,const=1)+bias", "transpose", "matmul(M=5,N=8,K=8,const=1)",
                                      "transpose", "transpose", "batch_matmul(B=2,M=5,N=5,K=4)", "mul",
                                      "softmax(M=10,N=5)", "batch_matmul(B=2,M=5,N=4,K=5)", "transpose",
                                      "matmul(M=5,N=8,K=8,const=1)+add", "matmul(M=5,N=12,K=8,const=1)+bias+gelu"}));
}

// Parts along the outermost dimension are computed where the whole lies, also within a larger whole, and twice where a
// part belongs to two.
TEST(Samples, ConcatenationsAreMemory) {
  EXPECT_EQ(KernelsOf(Find("dense_blocks").bytes),
            (std::vector<std::string>{"conv2d(C=3,H=4,W=4,O=2,R=1,S=1,stride=1,pad=0,const=1)+relu", "neg",
                                      "conv2d(C=4,H=4,W=4,O=3,R=3,S=3,stride=1,pad=1,const=1)", "concat"}));
}

// The fuzzer's corpus is these files, every few bytes of them cut. HONE_WRITE_CORPUS=1 writes them anew.
TEST(Samples, TheFuzzersCorpusIsTheseFiles) {
  const std::string folder = HONE_SOURCE_DIR "/tests/fuzz/corpus/onnx/";
  std::vector<SampleModel> samples = SampleModels();
  std::ranges::move(SampleModelsInParts(), std::back_inserter(samples));
  for (const SampleModel& sample : samples) {
    const std::string path = folder + sample.name + ".onnx";
    if (getenv("HONE_WRITE_CORPUS") != nullptr) std::ofstream(path, std::ios::binary) << sample.bytes;
    std::stringstream kept;
    kept << std::ifstream(path, std::ios::binary).rdbuf();
    EXPECT_TRUE(kept.str() == sample.bytes) << path << ": write it with HONE_WRITE_CORPUS=1";
  }
}

TEST(Samples, EveryTruncationIsRefusedOrRead) {
  for (const SampleModel& sample : SampleModels()) {
    SCOPED_TRACE(sample.name);
    for (size_t n = 0; n < sample.bytes.size(); n += n < 64 ? 1 : 7) {
      Result<OnnxModel> model = ParseOnnx(std::string_view(sample.bytes).substr(0, n), {"cut.onnx", ""});
      if (!model) {
        EXPECT_EQ(model.error().where.rfind("cut.onnx", 0), 0U) << model.error().Text();
        continue;
      }
      Result<Network> network = BuildNetwork(*model, "cut.onnx", {});
      if (network) continue;
      EXPECT_EQ(network.error().where.rfind("cut.onnx", 0), 0U) << network.error().Text();
    }
  }
}

}  // namespace
}  // namespace hone::samples_test
