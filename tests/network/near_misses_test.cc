// What looks like a pattern that the simplifier recognises and is none: each differs in one condition, and computes
// what its file says.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "network/graph/simplify.h"
#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"
#include "network/run/check_network.h"
#include "tests/network/model_files.h"
#include "tests/network/plan_interpreter.h"

namespace hone::near_misses_test {
namespace {

Network Imported(const ModelFileBuilder& builder) {
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"near.onnx", ""});
  EXPECT_TRUE(model) << model.error().Text();
  Result<Network> network = BuildNetwork(*model, "near.onnx", {});
  EXPECT_TRUE(network) << network.error().Text();
  return *std::move(network);
}

// The simplified network's kernels against the file's definition. True if a kernel's name or text contains `pattern`.
bool Computes(const ModelFileBuilder& builder, const std::string& pattern) {
  Network plain = Imported(builder), network = Imported(builder);
  EXPECT_TRUE(Simplify(network.graph));
  CallPlan plan = Lower(network.graph);
  ValueNumbers inputs = RandomInputs(plain.graph, 7);
  std::vector<Numbers> data;
  for (ValueId input : plain.graph.inputs) data.push_back(inputs.at(input));
  Result<std::vector<Numbers>> expected = EvaluateNetwork(plain.graph, data);
  Result<std::vector<Numbers>> seen = InterpretPlan(network.graph, plan, inputs);
  EXPECT_TRUE(expected && seen) << (seen ? "" : seen.error().Text());
  for (size_t o = 0; expected && seen && o < seen->size(); ++o) {
    for (size_t i = 0; i < (*expected)[o].real.size(); ++i) {
      const double wanted = (*expected)[o].real[i];
      EXPECT_NEAR((*seen)[o].real[i], wanted, 1e-4 * (1 + std::abs(wanted))) << "output " << o << ", element " << i;
    }
  }
  bool found = false;
  for (const KernelCall& call : plan.calls)
    found |= call.label.find(pattern) != std::string::npos || call.kernel.find(pattern) != std::string::npos;
  return found;
}

// Rows that lie together are read where they are, if what they are of is anywhere: what is computed within the kernel
// of its only reader is not.
TEST(NearMisses, RowsOfWhatHasNoMemory) {
  ModelFileBuilder builder(11);
  builder.Input("x", {2, 3, 4}).Wholes("begin", {1}).Wholes("end", {2}).Wholes("axis", {0});
  builder.Node("Tanh", {"x"}, {"t"}).Node("Slice", {"t", "begin", "end", "axis"}, {"rows"});
  builder.Node("Softmax", {"rows"}, {"y"}, {{"axis", int64_t{2}}}).Output("y");
  EXPECT_TRUE(Computes(builder, "slice"));
}

// (x − mean(x)) / √(mean((x − mean(x))²) + ε) · gamma + beta of [3, 4], but for what differs.
struct Norm {
  std::string averaged = "x";          // what the mean is of
  std::string multiplied = "centred";  // with `centred`, under the root
  std::string spread = "ReduceMean";
  std::vector<int64_t> mean_axes = {1}, spread_axes = {1};
  std::string division = "Div";
  std::string root = "Sqrt";
  std::vector<int64_t> factors = {4};  // shape of gamma
};

ModelFileBuilder Written(const Norm& norm) {
  ModelFileBuilder builder(11);
  builder.Input("x", {3, 4}).Input("z", {3, 4}).Scalar("epsilon", 1e-2F).Random("beta", {4});
  builder.Scalar("large", 20);  // where the sum is of no squares, it may be negative
  builder.Random("gamma", norm.factors, 3);
  builder.Node("ReduceMean", {norm.averaged}, {"mean"}, {{"axes", norm.mean_axes}});
  builder.Node("Sub", {"x", "mean"}, {"centred"}).Node("Mul", {"centred", norm.multiplied}, {"square"});
  builder.Node(norm.spread, {"square"}, {"variance"}, {{"axes", norm.spread_axes}});
  builder.Node("Add", {"variance", norm.multiplied == "centred" ? "epsilon" : "large"}, {"sum"});
  builder.Node(norm.root, {"sum"}, {"root"}).Node(norm.division, {"centred", "root"}, {"normal"});
  builder.Node("Mul", {"normal", "gamma"}, {"scaled"}).Node("Add", {"scaled", "beta"}, {"y"}).Output("y", {3, 4});
  return builder;
}

TEST(NearMisses, LayerNormalisation) {
  EXPECT_TRUE(Computes(Written({}), "layer_norm"));
  Norm misses[8];
  misses[0].averaged = "z";
  misses[1].multiplied = "z";
  misses[2].spread = "ReduceSum";
  misses[3].spread_axes = {0};
  misses[4].mean_axes = misses[4].spread_axes = {0};
  misses[5].division = "Mul";
  misses[6].root = "Exp";
  misses[7].factors = {1};
  for (size_t i = 0; i < std::size(misses); ++i) {
    SCOPED_TRACE(i);
    EXPECT_FALSE(Computes(Written(misses[i]), "layer_norm"));
  }
}

// half · x · (one + erf(x · inner)), with the operand of erf and the factor apart.
struct Gelu {
  float half = 0.5F, one = 1, inner = 0.70710678F;
  std::string gate = "x";
};

ModelFileBuilder Written(const Gelu& gelu) {
  ModelFileBuilder builder;
  builder.Input("x", {3, 4}).Input("z", {3, 4}).Scalar("half", gelu.half).Scalar("one", gelu.one);
  builder.Scalar("inner", gelu.inner).Node("Mul", {gelu.gate, "inner"}, {"a"}).Node("Erf", {"a"}, {"e"});
  builder.Node("Add", {"e", "one"}, {"g"}).Node("Mul", {"x", "g"}, {"p"}).Node("Mul", {"p", "half"}, {"y"});
  builder.Output("y", {3, 4});
  return builder;
}

TEST(NearMisses, Gelu) {
  EXPECT_TRUE(Computes(Written(Gelu{}), "gelu"));
  for (const Gelu& miss : {Gelu{0.51F, 1, 0.70710678F, "x"}, Gelu{0.5F, 1.5F, 0.70710678F, "x"},
                           Gelu{0.5F, 1, 0.7F, "x"}, Gelu{0.5F, 1, 0.70710678F, "z"}}) {
    EXPECT_FALSE(Computes(Written(miss), "gelu")) << miss.half << " " << miss.one << " " << miss.inner << miss.gate;
  }
}

// half · x · (one + tanh(outer · (base + cubic · cube)))
struct GeluTanh {
  float half = 0.5F, one = 1, outer = 0.79788456F, cubic = 0.044715F;
  std::string base = "x";
  float power = 3;
};

ModelFileBuilder Written(const GeluTanh& gelu) {
  ModelFileBuilder builder;
  builder.Input("x", {3, 4}).Input("z", {3, 4}).Scalar("half", gelu.half).Scalar("one", gelu.one);
  builder.Scalar("outer", gelu.outer).Scalar("cubic", gelu.cubic).Scalar("power", gelu.power);
  // The power is of what is positive or whole, so that it is a number.
  builder.Node("Pow", {"x", "power"}, {"c"}).Node("Mul", {"c", "cubic"}, {"d"}).Node("Add", {gelu.base, "d"}, {"s"});
  builder.Node("Mul", {"s", "outer"}, {"a"}).Node("Tanh", {"a"}, {"t"}).Node("Add", {"t", "one"}, {"g"});
  builder.Node("Mul", {"x", "g"}, {"p"}).Node("Mul", {"p", "half"}, {"y"}).Output("y", {3, 4});
  return builder;
}

TEST(NearMisses, GeluByTanh) {
  EXPECT_TRUE(Computes(Written(GeluTanh{}), "gelu_tanh"));
  GeluTanh misses[6];
  misses[0].half = 0.6F;
  misses[1].one = 2;
  misses[2].outer = 0.8F;
  misses[3].cubic = 0.05F;
  misses[4].base = "z";
  misses[5].power = 5;
  for (size_t i = 0; i < std::size(misses); ++i) {
    SCOPED_TRACE(i);
    EXPECT_FALSE(Computes(Written(misses[i]), "gelu_tanh"));
  }
}

TEST(NearMisses, Silu) {
  auto written = [](const std::string& gate) {
    ModelFileBuilder builder;
    builder.Input("x", {3, 4}).Input("z", {3, 4}).Node("Sigmoid", {gate}, {"s"}).Node("Mul", {"x", "s"}, {"y"});
    return std::move(builder.Output("y", {3, 4}));
  };
  EXPECT_TRUE(Computes(written("x"), "silu"));
  EXPECT_FALSE(Computes(written("z"), "silu"));
}

TEST(NearMisses, HardSwish) {
  auto written = [](float shift, float least, float most, float divisor, const std::string& factor) {
    ModelFileBuilder builder;
    builder.Input("x", {3, 4}).Input("z", {3, 4}).Scalar("shift", shift).Scalar("least", least).Scalar("most", most);
    builder.Scalar("divisor", divisor).Node("Add", {"x", "shift"}, {"a"}).Node("Clip", {"a", "least", "most"}, {"c"});
    builder.Node("Mul", {factor, "c"}, {"m"}).Node("Div", {"m", "divisor"}, {"y"});
    return std::move(builder.Output("y", {3, 4}));
  };
  EXPECT_TRUE(Computes(written(3, 0, 6, 6, "x"), "hardswish"));
  EXPECT_FALSE(Computes(written(2, 0, 6, 6, "x"), "hardswish"));
  EXPECT_FALSE(Computes(written(3, 1, 6, 6, "x"), "hardswish"));
  EXPECT_FALSE(Computes(written(3, 0, 4, 6, "x"), "hardswish"));
  EXPECT_FALSE(Computes(written(3, 0, 6, 5, "x"), "hardswish"));
  EXPECT_FALSE(Computes(written(3, 0, 6, 6, "z"), "hardswish"));
}

TEST(NearMisses, HardSwishBySigmoid) {
  auto written = [](float alpha, float beta, const std::string& factor) {
    ModelFileBuilder builder;
    builder.Input("x", {3, 4}).Input("z", {3, 4});
    builder.Node("HardSigmoid", {"x"}, {"s"}, {{"alpha", alpha}, {"beta", beta}}).Node("Mul", {factor, "s"}, {"y"});
    return std::move(builder.Output("y", {3, 4}));
  };
  EXPECT_TRUE(Computes(written(1.0F / 6, 0.5F, "x"), "hardswish"));
  EXPECT_FALSE(Computes(written(0.2F, 0.5F, "x"), "hardswish"));
  EXPECT_FALSE(Computes(written(1.0F / 6, 0.4F, "x"), "hardswish"));
  EXPECT_FALSE(Computes(written(1.0F / 6, 0.5F, "z"), "hardswish"));
}

TEST(NearMisses, Clips) {
  auto written = [](float least, float most) {
    ModelFileBuilder builder;
    builder.Input("x", {3, 4}).Scalar("four", 4).Node("Mul", {"x", "four"}, {"b"}).Scalar("least", least);
    builder.Scalar("most", most).Node("Clip", {"b", "least", "most"}, {"y"});
    return std::move(builder.Output("y", {3, 4}));
  };
  EXPECT_TRUE(Computes(written(0, 6), "relu6"));
  EXPECT_FALSE(Computes(written(0, 5), "relu6"));
  EXPECT_FALSE(Computes(written(-1, 6), "relu"));
}

// A constant of the channels' number that runs over the columns, or a layer that something else reads too.
TEST(NearMisses, FactorsAndTermsOfLayers) {
  auto written = [](const std::string& op, const std::vector<int64_t>& shape, bool is_read_twice) {
    ModelFileBuilder builder;
    builder.Input("x", {1, 2, 4, 4}).Random("w", {4, 2, 1, 1}, 2).Random("c", shape, 5);
    builder.Node("Conv", {"x", "w"}, {"l"}).Node(op, {"l", "c"}, {"y"}).Output("y", {1, 4, 4, 4});
    if (is_read_twice) builder.Output("l", {1, 4, 4, 4});
    return builder;
  };
  for (const std::string op : {"Mul", "Add"}) {
    SCOPED_TRACE(op);
    const std::string left = op == "Mul" ? "mul" : "add";
    EXPECT_FALSE(Computes(written(op, {4, 1, 1}, false), left));  // folded
    EXPECT_TRUE(Computes(written(op, {4}, false), left));
    EXPECT_TRUE(Computes(written(op, {4, 1}, false), left));
    Computes(written(op, {4, 1, 1}, true), left);
  }
}

// Places that count up, each as often, are computed, and those of a slice are one; others are read.
TEST(NearMisses, PlacesThatCountUpNeedNoOperand) {
  auto written = [](const std::vector<int64_t>& places) {
    ModelFileBuilder builder;
    builder.Input("x", {3, 5}).Wholes("at", places).Node("Gather", {"x", "at"}, {"g"}, {{"axis", int64_t{1}}});
    return std::move(builder.Node("Neg", {"g"}, {"y"}).Output("y", {3, static_cast<int64_t>(places.size())}));
  };
  using Places = std::vector<int64_t>;
  for (const Places& places :
       {Places{0, 0, 1, 1, 2, 2, 3, 3, 4, 4}, {1, 1, 1, 2, 2, 2, 3}, {4, 4}, {1, 2, 3}, {0, 2, 4}, {-2, -1}})
    EXPECT_FALSE(Computes(written(places), "clamp")) << testing::PrintToString(places);
  for (const Places& places :
       {Places{0, 0, 1, 1, 2, 3}, {0, 0, 1, 2, 2}, {0, 0, 2, 2}, {0, 1, 1, 2, 2}, {2, 2, 1, 1}, {-1, 0, 1}})
    EXPECT_TRUE(Computes(written(places), "clamp")) << testing::PrintToString(places);
}

}  // namespace
}  // namespace hone::near_misses_test
