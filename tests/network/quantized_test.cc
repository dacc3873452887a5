// Quantised networks: as onnxruntime's tools write them, in whole numbers where that is the same, right where it is
// not, and refused in one line where a file contradicts itself. Scales are powers of two, so that floats and whole
// numbers agree exactly, ties included.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "network/graph/evaluate_network.h"
#include "network/graph/simplify.h"
#include "network/run/kernel_calls.h"
#include "network/run/lower_served.h"
#include "tests/network/plan_interpreter.h"
#include "tests/network/quantized_model.h"

namespace hone::quantized_test {
namespace {

using testing::HasSubstr;

ValueNumbers AnyBytes(const Graph& graph) {
  ValueNumbers inputs = RandomInputs(graph, 11);
  std::mt19937 random(12);
  for (auto& [id, numbers] : inputs) {
    const bool is_signed = graph.dtype(id) == DType::kI8;
    for (int64_t& value : numbers.whole) value = static_cast<int64_t>(random() % 256) - (is_signed ? 128 : 0);
  }
  return inputs;
}

using LowerFunction = std::function<CallPlan(Graph&)>;

// A network's plan, each of whose outputs is exactly what the file says.
CallPlan PlanOf(
    const ModelFileBuilder& builder, const LowerFunction& lower = [](Graph& graph) { return Lower(graph); }) {
  Result<Network> plain = ImportedQuantized(builder), network = ImportedQuantized(builder);
  EXPECT_TRUE(plain && network) << plain.error().Text();
  if (!plain || !network) return {};
  EXPECT_TRUE(Simplify(network->graph));
  CallPlan plan = lower(network->graph);
  const ValueNumbers inputs = AnyBytes(plain->graph);
  std::vector<Numbers> data;
  for (ValueId input : plain->graph.inputs) data.push_back(inputs.at(input));
  Result<std::vector<Numbers>> expected = EvaluateNetwork(plain->graph, data);
  Result<std::vector<Numbers>> seen = InterpretPlan(network->graph, plan, inputs);
  EXPECT_TRUE(expected && seen) << (expected ? seen.error().Text() : expected.error().Text());
  for (size_t o = 0; expected && seen && o < seen->size(); ++o) {
    EXPECT_EQ((*seen)[o].whole, (*expected)[o].whole) << "output " << o;
    for (size_t i = 0; i < (*expected)[o].real.size(); ++i)
      EXPECT_FLOAT_EQ((*seen)[o].real[i], (*expected)[o].real[i]) << "output " << o << ", element " << i;
  }
  return plan;
}

std::vector<std::string> KernelsOf(const ModelFileBuilder& builder) {
  std::vector<std::string> kernels;
  for (const KernelCall& call : PlanOf(builder).calls) {
    EXPECT_FALSE(call.is_host()) << call.label << ": " << call.why_host;
    kernels.push_back(call.kernel);
  }
  return kernels;
}

// One kernel, which sums products of bytes and multiplies floats nowhere but after it.
void ExpectOneOfBytes(const Model& model) {
  const std::vector<std::string> kernels = KernelsOf(model.file);
  ASSERT_EQ(kernels.size(), 1U) << testing::PrintToString(kernels);
  EXPECT_THAT(kernels[0], HasSubstr("const x1: i8["));
  EXPECT_THAT(kernels[0], HasSubstr("u8("));
}

struct ConvCase {
  std::string name;
  int64_t channels = 6, outputs = 8, groups = 1;
  Attributes attributes = {};
  int x_type = kUint8, x_zero = 131, w_type = kInt8, w_zero = 0;
  bool has_bias = true;
};

class Convolutions : public testing::TestWithParam<ConvCase> {};
void PrintTo(const ConvCase& each, std::ostream* out) { *out << each.name; }

Model Written(const ConvCase& each, bool as_one_operator) {
  Model model;
  Attributes attributes = each.attributes;
  attributes.emplace_back("group", each.groups);
  model.Input("x", {2, each.channels, 7, 6}, 0.5F, each.x_zero, each.x_type);
  model.Weight("w", {{each.outputs, each.channels / each.groups, 3, 3}, each.w_type}, 0, each.w_zero,
               each.w_type == kUint8 ? 0 : -128, each.w_type == kUint8 ? 255 : 127);
  if (each.has_bias) model.Bias("b", each.outputs, 0.5F);
  if (!as_one_operator) {
    model.file.Node("Conv",
                    each.has_bias ? std::vector<std::string>{"x", "w", "b"} : std::vector<std::string>{"x", "w"}, {"y"},
                    attributes);
    return std::move(model.Quantized("y", 64, 120).Output("y_q"));
  }
  model.file.Scalar("y_s", 64);
  model.Byte("y_z", 120);
  std::vector<std::string> inputs = {"x_q", "x_s", "x_z", "w_q", "w_s", "w_z", "y_s", "y_z"};
  if (each.has_bias) inputs.emplace_back("b_q");
  model.file.Node("QLinearConv", inputs, {"y_q"}, attributes);
  return std::move(model.Output("y_q"));
}

TEST_P(Convolutions, AreOneKernelOfBytes) {
  ExpectOneOfBytes(Written(GetParam(), false));
  ExpectOneOfBytes(Written(GetParam(), true));
}

const Attributes kPadded = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}};
INSTANTIATE_TEST_SUITE_P(
    All, Convolutions,
    testing::Values(ConvCase{.name = "plain"}, ConvCase{.name = "without_a_bias", .has_bias = false},
                    ConvCase{.name = "padded_with_the_zero_point", .attributes = kPadded},
                    ConvCase{.name = "strides",
                             .attributes = {{"pads", std::vector<int64_t>{1, 2, 0, 1}},
                                            {"strides", std::vector<int64_t>{2, 1}}}},
                    ConvCase{.name = "dilated", .attributes = {{"dilations", std::vector<int64_t>{2, 1}}}},
                    ConvCase{.name = "depthwise", .outputs = 6, .groups = 6, .attributes = kPadded},
                    ConvCase{.name = "groups", .groups = 2, .attributes = kPadded},
                    ConvCase{.name = "with_a_sign", .attributes = kPadded, .x_type = kInt8, .x_zero = -7},
                    ConvCase{.name = "no_zero_point", .attributes = kPadded, .x_zero = 0},
                    ConvCase{.name = "weights_around_128", .attributes = kPadded, .w_type = kUint8, .w_zero = 128}),
    [](const testing::TestParamInfo<ConvCase>& info) { return info.param.name; });

TEST(QuantizedProducts, AreOneKernelOfBytes) {
  for (const char* op : {"MatMul", "Gemm"}) {
    SCOPED_TRACE(op);
    Model model;
    const bool is_gemm = op == std::string("Gemm");
    model.Input("x", {3, 10}, 0.5F, 12).Weight("w", {{10, 5}, kInt8}, 1);
    if (is_gemm) model.Bias("b", 5, 0.5F);
    model.file.Node(op, is_gemm ? std::vector<std::string>{"x", "w", "b"} : std::vector<std::string>{"x", "w"}, {"y"});
    ExpectOneOfBytes(model.Quantized("y", 32, 128).Output("y_q"));
  }
  Model turned;
  turned.Input("x", {3, 10}, 0.5F, 12).Weight("w", {{5, 10}, kInt8}, 0);
  turned.file.Node("Gemm", {"x", "w"}, {"y"}, {{"transB", int64_t{1}}}).Node("Relu", {"y"}, {"r"});
  ExpectOneOfBytes(turned.Quantized("r", 32, 3).Output("r_q"));
}

TEST(QuantizedProducts, OfQLinearMatMulAndQGemm) {
  for (const char* op : {"QLinearMatMul", "QGemm"}) {
    SCOPED_TRACE(op);
    Model model;
    const bool is_gemm = op == std::string("QGemm");
    model.Input("x", {3, 10}, 0.5F, 12).Weight("w", {{10, 5}, kInt8}, 1).Bias("b", 5, 0.5F);
    model.file.Scalar("y_s", 32);
    model.Byte("y_z", 128);
    std::vector<std::string> inputs = {"x_q", "x_s", "x_z", "w_q", "w_s", "w_z", "y_s", "y_z"};
    if (is_gemm) inputs.insert(inputs.begin() + 6, "b_q");
    model.file.Node(op, inputs, {"y_q"}, {}, is_gemm ? "com.microsoft" : "");
    ExpectOneOfBytes(model.Output("y_q"));
  }
}

// A scale that is no power of two meets ties: then a step more or less is right, and nothing else is.
TEST(QuantizedResiduals, AreOneKernelWithTheConvolutionBefore) {
  Model model;
  model.Input("x", {1, 4, 5, 5}, 0.5F, 131).Input("r", {1, 8, 5, 5}, 8, 7).Weight("w", {{8, 4, 1, 1}, kInt8}, 0);
  model.file.Node("Conv", {"x", "w"}, {"c"});
  model.Quantized("c", 64, 120);
  model.file.Node("DequantizeLinear", {"c_q", "c_s", "c_z"}, {"d"})
      .Node("Add", {"d", "r"}, {"a"})
      .Node("Relu", {"a"}, {"y"});
  ExpectOneOfBytes(model.Quantized("y", 32, 0).Output("y_q"));
}

TEST(QuantizedPools, ComputeWithBytes) {
  Model top;
  top.Input("x", {1, 3, 6, 6}, 0.5F, 131);
  top.file.Node("MaxPool", {"x"}, {"y"},
                {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  const std::vector<std::string> kernels = KernelsOf(top.Quantized("y", 0.5F, 131).Output("y_q").file);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_THAT(kernels[0], HasSubstr("maxpool2d(C=3,H=6,W=6,R=2,S=2,stride=1,pad=1,dtype=u8)"));
  Model mean;
  mean.Input("x", {1, 3, 4, 8}, 0.5F, 131);
  mean.file.Node("GlobalAveragePool", {"x"}, {"y"});
  for (const std::string& kernel : KernelsOf(mean.Quantized("y", 0.25F, 100).Output("y_q").file))
    EXPECT_THAT(kernel, testing::AnyOf(HasSubstr("y: i32["), HasSubstr("y: u8[")));
}

// A convolution of `x`, and its result `y` in bytes and again as floats.
void AddConv(Model& model, const std::string& x, const std::string& y, const std::vector<int64_t>& shape,
             int64_t groups = 1) {
  const std::string sum = y + "0";
  const int64_t window = shape.back();
  model.Weight(y + "_w", {shape, kInt8}, 0, 0, -16, 15);
  model.file.Node("Conv", {x, y + "_w"}, {sum}, {{"pads", std::vector<int64_t>(4, window / 2)}, {"group", groups}});
  model.Quantized(sum, 8, 120);
  model.file.Node("DequantizeLinear", {sum + "_q", sum + "_s", sum + "_z"}, {y});
}

// An output of the network: the mean over pixels.
void AddMean(Model& model, const std::string& x) {
  model.file.Node("GlobalAveragePool", {x}, {"y"});
  model.Quantized("y", 1, 128).Output("y_q");
}

int64_t CountWith(const std::vector<std::string>& kernels, const std::string& text) {
  return std::count_if(kernels.begin(), kernels.end(),
                       [&](const std::string& kernel) { return kernel.find(text) != std::string::npos; });
}

// Between convolutions, through a sum of two of them and before a mean over pixels; not where anything else reads them.
TEST(QuantizedConvolutions, HaveChannelsLastBetweenThem) {
  Model model;
  model.Input("x", {1, 3, 6, 7}, 0.5F, 131);
  AddConv(model, "x", "a", {8, 3, 3, 3});
  AddConv(model, "a", "b", {12, 8, 1, 1});
  AddConv(model, "b", "c", {8, 12, 3, 3});
  model.file.Node("Add", {"a", "c"}, {"d0"}).Node("Relu", {"d0"}, {"d1"});
  model.Quantized("d1", 8, 0);
  model.file.Node("DequantizeLinear", {"d1_q", "d1_s", "d1_z"}, {"d"});
  AddConv(model, "d", "e", {4, 8, 1, 1});
  AddMean(model, "e");
  const std::vector<std::string> kernels = KernelsOf(model.file);
  EXPECT_EQ(CountWith(kernels, "-> y: u8[1, 6, 7, 8]"), 2);  // a, and d with c in it
  EXPECT_EQ(CountWith(kernels, "-> y: u8[1, 6, 7, 12]"), 1);
  EXPECT_EQ(CountWith(kernels, "-> y: u8[1, 6, 7, 4]"), 1);
  EXPECT_EQ(CountWith(kernels, "p: u8[1, 8, 9, 12]"), 1) << "the padded copy as well";
}

TEST(QuantizedConvolutions, HaveChannelsWhereTheFileHasThemForAnybodyElse) {
  const auto last = [](const std::function<void(Model&)>& add) {
    Model model;
    model.Input("x", {1, 3, 6, 7}, 0.5F, 131);
    AddConv(model, "x", "a", {8, 3, 3, 3});
    AddConv(model, "a", "b", {9, 8, 1, 1});
    AddMean(model, "b");
    add(model);
    return CountWith(KernelsOf(model.file), "-> y: u8[1, 6, 7, 8]");
  };
  EXPECT_EQ(last([](Model&) {}), 1);
  EXPECT_EQ(last([](Model& model) { model.Output("a0_q"); }), 0) << "an output";
  EXPECT_EQ(last([](Model& model) {
              AddConv(model, "a", "d", {5, 8, 1, 1});
              model.Output("d0_q");
            }),
            0)
      << "a convolution whose result is an output";
  EXPECT_EQ(last([](Model& model) {
              AddConv(model, "a", "d", {8, 1, 3, 3}, 8);
              model.Output("d0_q");
            }),
            0)
      << "a filter for each channel";
  EXPECT_EQ(last([](Model& model) {
              model.file.Node("MaxPool", {"a"}, {"m"}, {{"kernel_shape", std::vector<int64_t>{2, 2}}});
              model.Quantized("m", 8, 120).Output("m_q");
            }),
            0)
      << "an operation of the library";
  EXPECT_EQ(last([](Model& model) {
              model.file.Wholes("flat", {1, -1}).Node("Reshape", {"a", "flat"}, {"r"});
              model.Quantized("r", 8, 120).Output("r_q");
            }),
            0)
      << "memory that is shared";
}

// A kernel that honed refuses is computed on the host, which takes values as the file has them.
TEST(QuantizedConvolutions, HaveChannelsWhereTheFileHasThemIfOneIsComputedOnTheHost) {
  Model model;
  model.Input("x", {1, 3, 6, 7}, 0.5F, 131);
  AddConv(model, "x", "a", {8, 3, 3, 3});
  AddConv(model, "a", "b", {9, 8, 1, 1});
  AddMean(model, "b");
  const CallPlan plan = PlanOf(model.file, [](Graph& graph) {
    return LowerServed(graph, {},
                       [](const CallPlan& asked) {
                         Refusals refused;
                         for (const KernelCall& call : asked.calls)
                           if (call.kernel.find("i8[9, 8, 1, 1]") != std::string::npos)
                             refused.emplace(call.kernel, Error{ErrorKind::kLimit, "too large", ""});
                         return refused;
                       })
        .value();
  });
  EXPECT_TRUE(std::ranges::any_of(plan.calls, [](const KernelCall& call) { return call.is_host(); }));
}

TEST(QuantizedMoves, LeaveBytesAsTheyAre) {
  Model model;
  model.Input("x", {2, 3, 4}, 0.5F, 131);
  model.file.Node("Transpose", {"x"}, {"t"}, {{"perm", std::vector<int64_t>{2, 0, 1}}}).Wholes("shape", {8, 3});
  model.file.Node("Reshape", {"t", "shape"}, {"y"});
  const std::vector<std::string> kernels = KernelsOf(model.Quantized("y", 0.5F, 131).Output("y_q").file);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_THAT(kernels[0], testing::Not(HasSubstr("f32")));
}

TEST(OnnxruntimesOwn, QLinearOperatorsComputeWhatTheyAreMadeOf) {
  struct Case {
    const char* op;
    size_t operands;
  };
  for (const Case& each : {Case{"QLinearAdd", 2}, Case{"QLinearMul", 2}, Case{"QLinearLeakyRelu", 1},
                           Case{"QLinearGlobalAveragePool", 1}}) {
    SCOPED_TRACE(each.op);
    Model model;
    std::vector<std::string> inputs;
    for (const char* name : {"a", "b"}) {
      if (inputs.size() == 3 * each.operands) break;
      model.Input(name, {1, 4, 2, 2}, 0.5F, 130);
      for (const char* part : {"_q", "_s", "_z"}) inputs.push_back(name + std::string(part));
    }
    model.file.Scalar("y_s", 1);
    model.Byte("y_z", 100);
    inputs.insert(inputs.end(), {"y_s", "y_z"});
    model.file.Node(each.op, inputs, {"y_q"}, {{"alpha", 0.5F}}, "com.microsoft");
    KernelsOf(model.Output("y_q").file);
  }
  Model parts;
  parts.Input("a", {1, 2}, 0.5F, 130).Input("b", {1, 3}, 2, 3);
  parts.file.Scalar("y_s", 1);
  parts.Byte("y_z", 100);
  parts.file.Node("QLinearConcat", {"y_s", "y_z", "a_q", "a_s", "a_z", "b_q", "b_s", "b_z"}, {"y_q"},
                  {{"axis", int64_t{1}}}, "com.microsoft");
  KernelsOf(parts.Output("y_q").file);
}

// The zero point is known when the network runs.
TEST(DynamicallyQuantized, ProductsAreOfBytes) {
  Model model;
  model.file.Input("x", {3, 10}).Raw("w", {10, 5}, kInt8, RandomBytes({{10, 5}, kInt8}, 3));
  model.file.Node("DynamicQuantizeLinear", {"x"}, {"q", "s", "z"}).Node("MatMulInteger", {"q", "w", "z"}, {"y"});
  const std::vector<std::string> kernels = KernelsOf(model.Output("y", kInt32).file);
  ASSERT_FALSE(kernels.empty());
  EXPECT_THAT(kernels.back(), HasSubstr("const x1: i8[10, 5]"));
}

TEST(DynamicallyQuantized, ConvolutionsWithPaddingAreRight) {
  for (int padding : {0, 1}) {
    Model model;
    model.file.Input("x", {1, 4, 6, 6}, kUint8).Raw("w", {5, 4, 3, 3}, kInt8, RandomBytes({{5, 4, 3, 3}, kInt8}, 3));
    model.Byte("z", 77);
    model.file.Node("ConvInteger", {"x", "w", "z"}, {"y"}, {{"pads", std::vector<int64_t>(4, padding)}});
    const std::vector<std::string> kernels = KernelsOf(model.Output("y", kInt32).file);
    ASSERT_EQ(kernels.size(), 1U);
    EXPECT_THAT(kernels[0], HasSubstr("const x1: i8["));
  }
}

// What pads them is known when the network runs, too.
TEST(DynamicallyQuantized, ConvolutionsWithPaddingAreOfBytes) {
  Model model;
  model.file.Input("x", {1, 4, 6, 5}).Raw("w", {5, 4, 3, 3}, kInt8, RandomBytes({{5, 4, 3, 3}, kInt8}, 3));
  model.file.Node("DynamicQuantizeLinear", {"x"}, {"q", "s", "z"})
      .Node("ConvInteger", {"q", "w", "z"}, {"y"}, {{"pads", std::vector<int64_t>{1, 0, 2, 3}}});
  const std::vector<std::string> kernels = KernelsOf(model.Output("y", kInt32).file);
  ASSERT_FALSE(kernels.empty());
  EXPECT_THAT(kernels.back(), HasSubstr("const x1: i8["));
}

TEST(DynamicallyQuantized, NothingButZerosHasAScaleOf1) {
  ModelFileBuilder file(13);
  file.Input("x", {3})
      .Node("DynamicQuantizeLinear", {"x"}, {"q", "s", "z"})
      .Output("q", {}, kUint8)
      .Output("s", {})
      .Output("z", {}, kUint8);
  Result<Network> network = ImportedQuantized(file);
  ASSERT_TRUE(network) << network.error().Text();
  const CallPlan plan = Lower(network->graph);
  Result<std::vector<Numbers>> seen =
      InterpretPlan(network->graph, plan, {{network->graph.inputs[0], MakeNumbers(DType::kF32, {3})}});
  ASSERT_TRUE(seen) << seen.error().Text();
  EXPECT_EQ((*seen)[0].whole, std::vector<int64_t>(3, 0));
  EXPECT_EQ((*seen)[1].real, std::vector<double>(1, 1));
  EXPECT_EQ((*seen)[2].whole, std::vector<int64_t>(1, 0));
}

// ---- near misses: floats, and right

void ExpectFloats(const Model& model) {
  for (const std::string& kernel : KernelsOf(model.file)) EXPECT_THAT(kernel, testing::Not(HasSubstr("const x1: i8[")));
}

TEST(NearlyQuantized, AScaleThatIsComputed) {
  Model model;
  model.file.Input("x_q", {3, 8}, kUint8).Input("x_s", {});
  model.Byte("x_z", 3).Weight("w", {{8, 5}, kInt8}, 1);
  model.file.Node("DequantizeLinear", {"x_q", "x_s", "x_z"}, {"x"}).Node("MatMul", {"x", "w"}, {"y"}).Output("y");
  ExpectFloats(model);
}

TEST(NearlyQuantized, WeightsBeyondI8) {
  Model model;
  model.Input("x", {3, 8}, 0.5F, 12).Weight("w", {{8, 5}, kUint8}, 1, 3, 0, 255);
  model.file.Node("MatMul", {"x", "w"}, {"y"});
  ExpectFloats(model.Quantized("y", 32, 128).Output("y_q"));
}

TEST(NearlyQuantized, ScalesAlongTheSum) {
  Model model;
  model.Input("x", {3, 8}, 0.5F, 12).Weight("w", {{8, 5}, kInt8}, 0);
  model.file.Node("MatMul", {"x", "w"}, {"y"});
  ExpectFloats(model.Quantized("y", 32, 128).Output("y_q"));
}

TEST(NearlyQuantized, ABiasWithAnotherScaleStaysAFloat) {
  Model model;
  model.Input("x", {1, 4, 5, 5}, 0.5F, 131).Weight("w", {{8, 4, 3, 3}, kInt8}, 0).Bias("b", 8, 2);
  model.file.Node("Conv", {"x", "w", "b"}, {"y"});
  const std::vector<std::string> kernels = KernelsOf(model.Quantized("y", 64, 120).Output("y_q").file);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_THAT(kernels[0], HasSubstr("const x1: i8["));
}

TEST(NearlyQuantized, ARoundTripByOtherParameters) {
  for (const auto& [scale, zero] : {std::pair(0.5F, 130), std::pair(0.25F, 131)}) {
    Model model;
    model.Input("x", {9}, 0.5F, 131).file.Node("Identity", {"x"}, {"y"});
    const std::vector<std::string> kernels = KernelsOf(model.Quantized("y", scale, zero).Output("y_q").file);
    EXPECT_EQ(kernels.size(), 1U);
  }
}

// ---- refusals

void ExpectRefusal(const ModelFileBuilder& file, const std::string& message, const std::string& where) {
  Result<Network> network = ImportedQuantized(file);
  ASSERT_FALSE(network);
  EXPECT_EQ(network.error().kind, ErrorKind::kInvalid);
  EXPECT_THAT(network.error().message, HasSubstr(message));
  EXPECT_THAT(network.error().where, HasSubstr(where));
  EXPECT_EQ(network.error().Text().find('\n'), std::string::npos);
}

TEST(BadQuantization, ScalesThatAreNoPositiveNumbers) {
  for (float scale : {0.0F, -0.5F, NAN, INFINITY}) {
    for (const char* op : {"QuantizeLinear", "DequantizeLinear"}) {
      Model model;
      const bool quantizes = op == std::string("QuantizeLinear");
      model.file.Input("x", {4}, quantizes ? 1 : kUint8).Scalar("s", scale);
      model.Byte("z", 3);
      model.file.Node(op, {"x", "s", "z"}, {"y"}).Output("y", {}, quantizes ? kUint8 : 1);
      ExpectRefusal(model.file, "a scale of", std::string("node n_y (") + op + ")");
    }
    Model model;
    model.Input("x", {1, 4, 5, 5}, scale, 3);
    ExpectRefusal(model.Output("x", 1).file, "wanted a positive number", "node n_x");
  }
}

TEST(BadQuantization, ScalesAndZeroPointsOfTheWrongLength) {
  Model scales;
  scales.file.Input("x", {2, 3})
      .Floats("s", {2}, {1, 1})
      .Node("QuantizeLinear", {"x", "s"}, {"y"})
      .Output("y", {}, kUint8);
  ExpectRefusal(scales.file, "a scale of 2 along dimension 1 of 2x3", "node n_y (QuantizeLinear)");
  Model zeros;
  zeros.file.Input("x", {2, 3}).Floats("s", {3}, {1, 1, 1}).Raw("z", {2}, kUint8, "ab");
  zeros.file.Node("QuantizeLinear", {"x", "s", "z"}, {"y"}).Output("y", {}, kUint8);
  ExpectRefusal(zeros.file, "a zero point of 2 for a scale of 3", "node n_y (QuantizeLinear)");
  Model products;
  products.file.Input("a", {2, 3}, kUint8).Input("b", {3, 4}, kUint8).Raw("z", {3}, kUint8, "abc");
  products.file.Node("MatMulInteger", {"a", "b", "", "z"}, {"y"}).Output("y", {}, kInt32);
  ExpectRefusal(products.file, "3 zero points for 3x4", "node n_y (MatMulInteger)");
}

TEST(BadQuantization, ZeroPointsOfAnotherTypeOrOutOfRange) {
  Model type;
  type.file.Input("x", {4}, kUint8).Scalar("s", 1);
  type.Byte("z", 3, kInt8);
  type.file.Node("DequantizeLinear", {"x", "s", "z"}, {"y"}).Output("y");
  ExpectRefusal(type.file, "a zero point of i8 for u8", "node n_y (DequantizeLinear)");
  Model range;
  range.file.Input("x", {4}, kInt32).Scalar("s", 1).Raw("z", {}, kInt32, std::string("\1\0\0\0", 4));
  range.file.Node("DequantizeLinear", {"x", "s", "z"}, {"y"}).Output("y");
  ExpectRefusal(range.file, "a zero point that is not 0", "node n_y (DequantizeLinear)");
}

TEST(BadQuantization, ProductsOfOtherThanBytes) {
  ModelFileBuilder file(13);
  file.Input("a", {2, 3}, kInt32)
      .Input("b", {3, 4}, kUint8)
      .Node("MatMulInteger", {"a", "b"}, {"y"})
      .Output("y", {}, kInt32);
  ExpectRefusal(file, "it multiplies i32, wanted bytes", "node n_y (MatMulInteger)");
}

}  // namespace
}  // namespace hone::quantized_test
