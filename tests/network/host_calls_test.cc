// What no kernel is written for is computed on the host, between kernels, as ONNX defines it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "network/graph/simplify.h"
#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"
#include "network/run/check_network.h"
#include "network/run/kernel_calls.h"
#include "network/run/missing_operators.h"
#include "tests/network/model_files.h"

namespace hone::host_calls_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Network Imported(const ModelFileBuilder& builder) {
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"host.onnx", ""});
  EXPECT_TRUE(model) << model.error().Text();
  Result<Network> network = BuildNetwork(*model, "host.onnx", {});
  EXPECT_TRUE(network) << network.error().Text();
  EXPECT_TRUE(Simplify(network->graph));
  return *std::move(network);
}

Numbers Reals(Shape shape, std::vector<double> values) {
  Numbers numbers = MakeNumbers(DType::kF32, std::move(shape));
  numbers.real = std::move(values);
  return numbers;
}

TEST(HostCalls, ResultsOfOneOperationAreOneCall) {
  ModelFileBuilder builder;
  builder.Input("x", {2, 4}).Wholes("k", {2}).Node("Relu", {"x"}, {"r"}).Node("TopK", {"r", "k"}, {"top", "at"});
  builder.Node("Neg", {"top"}, {"y"}).Output("y").Output("at", {2, 2}, 7);
  Network network = Imported(builder);
  CallPlan plan = Lower(network.graph);
  EXPECT_TRUE(CheckComplete(network, "host.onnx"));
  ASSERT_EQ(plan.calls.size(), 3U);
  EXPECT_FALSE(plan.calls[0].is_host());
  EXPECT_EQ(plan.calls[1].label, "TopK");
  EXPECT_EQ(plan.calls[1].host_nodes.size(), 2U);
  EXPECT_EQ(OutputsOf(network.graph, plan.calls[1]).size(), 2U);
  EXPECT_FALSE(plan.calls[2].is_host());
  Result<std::vector<Numbers>> outputs = EvaluateNetwork(network.graph, {Reals({2, 4}, {1, 5, -3, 5, 0, -1, -2, 7})});
  ASSERT_TRUE(outputs) << outputs.error().Text();
  EXPECT_THAT((*outputs)[0].real, ElementsAre(-5, -5, -7, 0));
  EXPECT_THAT((*outputs)[1].whole, ElementsAre(1, 3, 3, 0));
}

TEST(HostCalls, ResultsThatNobodyReadsAreNotWritten) {
  ModelFileBuilder builder;
  builder.Input("x", {2, 4}).Wholes("k", {2}).Node("TopK", {"x", "k"}, {"top", "at"}).Output("at", {2, 2}, 7);
  Network network = Imported(builder);
  CallPlan plan = Lower(network.graph);
  ASSERT_EQ(plan.calls.size(), 1U);
  EXPECT_EQ(OutputsOf(network.graph, plan.calls[0]).size(), 1U);
}

TEST(HostCalls, AnIndexOutsideIsAnErrorThatNamesIt) {
  ModelFileBuilder builder;
  builder.Input("x", {4}).Input("at", {1, 1}, 7).Floats("u", {1}, {9}).Node("ScatterND", {"x", "at", "u"}, {"y"});
  builder.Output("y");
  Network network = Imported(builder);
  Result<std::vector<Numbers>> inside =
      EvaluateNetwork(network.graph, {Reals({4}, {1, 2, 3, 4}), WholeNumbers({-1}, {1, 1})});
  ASSERT_TRUE(inside) << inside.error().Text();
  EXPECT_THAT((*inside)[0].real, ElementsAre(1, 2, 3, 9));
  Result<std::vector<Numbers>> outside =
      EvaluateNetwork(network.graph, {Reals({4}, {1, 2, 3, 4}), WholeNumbers({4}, {1, 1})});
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().kind, ErrorKind::kInvalid);
  EXPECT_THAT(outside.error().Text(), HasSubstr("index 4 of 4 elements"));
}

size_t HostCallsOf(const ModelFileBuilder& builder) {
  Network network = Imported(builder);
  size_t count = 0;
  for (const KernelCall& call : Lower(network.graph).calls) count += call.is_host() ? 1 : 0;
  return count;
}

TEST(HostCalls, EinsteinSumsAreProductsOfMatricesButForDiagonals) {
  auto sum = [](const std::string& equation, const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    ModelFileBuilder builder;
    builder.Input("a", a).Input("b", b).Node("Einsum", {"a", "b"}, {"y"}, {{"equation", equation}});
    builder.Output("y");
    return HostCallsOf(builder);
  };
  EXPECT_EQ(sum("bhid,bhjd->bhij", {2, 3, 4, 5}, {2, 3, 6, 5}), 0U);
  EXPECT_EQ(sum("...ij,jk->i...k", {2, 3, 4, 5}, {5, 6}), 0U);
  EXPECT_EQ(sum("i,j->ji", {2}, {3}), 0U);
  EXPECT_EQ(sum("ii,ij->j", {3, 3}, {3, 2}), 1U);
}

TEST(HostCalls, WindowsOverVolumesAreWindowsOverPlanes) {
  ModelFileBuilder conv, pool;
  conv.Input("x", {1, 2, 5, 6, 7})
      .Random("w", {4, 1, 3, 3, 3})
      .Node("Conv", {"x", "w"}, {"y"}, {{"group", 2}})
      .Output("y");
  EXPECT_EQ(HostCallsOf(conv), 0U);
  pool.Input("x", {1, 2, 5, 6, 7});
  pool.Node("MaxPool", {"x"}, {"y"}, {{"kernel_shape", std::vector<int64_t>{3, 2, 2}}}).Output("y");
  EXPECT_EQ(HostCallsOf(pool), 0U);
}

TEST(HostCalls, RecurrentLayersAreUnrolledUnlessSequencesEndEarly) {
  auto layer = [](bool has_lengths) {
    ModelFileBuilder builder;
    builder.Input("x", {4, 1, 3}).Random("w", {1, 8, 3}).Random("r", {1, 8, 2}, 2).Random("b", {1, 16}, 3);
    if (has_lengths) builder.Input("lengths", {1}, 6);
    builder.Node("LSTM", {"x", "w", "r", "b", has_lengths ? "lengths" : ""}, {"y"}, {{"hidden_size", 2}}).Output("y");
    return HostCallsOf(builder);
  };
  EXPECT_EQ(layer(false), 0U);
  EXPECT_EQ(layer(true), 1U);
}

TEST(HostCalls, ResizingOfFloatsIsGathersButForWideFilters) {
  auto resized = [](const std::string& mode, int64_t antialias, float scale) {
    ModelFileBuilder builder;
    builder.Input("x", {1, 2, 8, 8}).Floats("scales", {4}, {1, 1, scale, scale});
    builder.Node("Resize", {"x", "", "scales"}, {"y"}, {{"mode", mode}, {"antialias", antialias}}).Output("y");
    return HostCallsOf(builder);
  };
  EXPECT_EQ(resized("linear", 0, 2.0F), 0U);
  EXPECT_EQ(resized("cubic", 0, 1.5F), 0U);
  EXPECT_EQ(resized("nearest", 0, 0.5F), 0U);
  EXPECT_EQ(resized("linear", 1, 0.25F), 1U);
}

TEST(HostCalls, IndicesInTheFileNeedNoHost) {
  auto gathered = [](const std::vector<int64_t>& indices) {
    ModelFileBuilder builder;
    builder.Input("x", {4, 6}).Wholes("at", indices).Node("Relu", {"x"}, {"r"});
    builder.Node("Gather", {"r", "at"}, {"g"}, {{"axis", 1}}).Node("Neg", {"g"}, {"y"}).Output("y");
    return Imported(builder);
  };
  Network windows = gathered({0, 1, 2, 2, 3, -2});
  const CallPlan plan = Lower(windows.graph);
  for (const KernelCall& call : plan.calls) EXPECT_FALSE(call.is_host()) << call.label << ": " << call.why_host;
  EXPECT_THAT(plan.calls.back().kernel, HasSubstr("i32"));
  Result<std::vector<Numbers>> outputs = EvaluateNetwork(
      windows.graph, {Reals({4, 6}, {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5})});
  ASSERT_TRUE(outputs) << outputs.error().Text();
  outputs->front().real.resize(6);
  EXPECT_THAT(outputs->front().real, ElementsAre(0, -1, -2, -2, -3, -4));
  // Even steps are a slice, and all of it nothing.
  Network even = gathered({1, 3, 5}), all = gathered({0, 1, 2, 3, 4, 5});
  EXPECT_THAT(Lower(even.graph).calls.back().label, HasSubstr("slice"));
  EXPECT_EQ(Lower(all.graph).calls.size(), 1U);
}

TEST(HostCalls, RowsThatTheFileNamesNeedNoHost) {
  auto raw = [](const std::vector<int64_t>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  };
  ModelFileBuilder scatter;
  scatter.Input("x", {2, 2}).Input("u", {3}).Raw("at", {3, 2}, 7, raw({0, 1, -1, 0, 0, 1}));
  scatter.Node("ScatterND", {"x", "at", "u"}, {"y"}).Output("y");
  EXPECT_EQ(HostCallsOf(scatter), 0U);
  Network network = Imported(scatter);
  Result<std::vector<Numbers>> outputs =
      EvaluateNetwork(network.graph, {Reals({2, 2}, {1, 2, 3, 4}), Reals({3}, {7, 8, 9})});
  ASSERT_TRUE(outputs) << outputs.error().Text();
  EXPECT_THAT((*outputs)[0].real, ElementsAre(1, 9, 8, 4));  // the last one counts
  ModelFileBuilder gather;
  gather.Input("x", {2, 3, 2}).Raw("at", {2, 2, 1}, 7, raw({2, 0, -2, 1}));
  gather.Node("GatherND", {"x", "at"}, {"g"}, {{"batch_dims", int64_t{1}}}).Node("Neg", {"g"}, {"y"}).Output("y");
  EXPECT_EQ(HostCallsOf(gather), 0U);
  Network batches = Imported(gather);
  outputs = EvaluateNetwork(batches.graph, {Reals({2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})});
  ASSERT_TRUE(outputs) << outputs.error().Text();
  EXPECT_THAT((*outputs)[0].shape, ElementsAre(2, 2, 2));
  EXPECT_THAT((*outputs)[0].real, ElementsAre(-4, -5, 0, -1, -8, -9, -8, -9));
}

// What a host operation of the model's gives for random inputs where memory has them, and by definition.
void ExpectSameInMemory(const ModelFileBuilder& builder, const std::vector<HostTensor>& inputs) {
  Network network = Imported(builder);
  const CallPlan plan = Lower(network.graph);
  size_t compared = 0;
  for (const KernelCall& call : plan.calls) {
    if (!call.is_host() || call.inputs.size() != inputs.size()) continue;
    const HostOperation& host = *network.graph.nodes[call.host_nodes[0]].host;
    ASSERT_TRUE(host.run) << host.name;
    std::vector<Numbers> numbers;
    std::vector<const Numbers*> arguments;
    std::vector<const void*> given;
    for (const HostTensor& input : inputs) {
      numbers.push_back(ToNumbers(input));
      given.push_back(input.data.data());
    }
    for (const Numbers& each : numbers) arguments.push_back(&each);
    Result<std::vector<Numbers>> wanted = host.compute(arguments);
    ASSERT_TRUE(wanted) << wanted.error().Text();
    std::vector<std::string> seen;
    std::vector<void*> results;
    for (const TensorType& type : host.types) seen.emplace_back(CountOf(type.shape) * ByteSize(type.dtype), '\0');
    for (std::string& each : seen) results.push_back(each.data());
    ASSERT_TRUE(host.run(given, results));
    for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], ToHost((*wanted)[i], host.types[i].dtype).data) << i;
    ++compared;
  }
  EXPECT_EQ(compared, 1U);
}

HostTensor RandomReals(const Shape& shape, uint32_t seed) {
  Numbers numbers = MakeNumbers(DType::kF32, shape);
  std::mt19937 random(seed);
  for (double& each : numbers.real) each = static_cast<float>(random() % 9) / 4.0F;  // many are equal
  return ToHost(numbers, DType::kF32);
}

// With a NaN among its elements.
HostTensor WithNaN(HostTensor x, size_t at) {
  const float none = NAN;
  std::string elements(x.data.view());
  std::memcpy(elements.data() + at * sizeof(none), &none, sizeof(none));
  x.data = std::move(elements);
  return x;
}

TEST(HostCalls, WorkInMemoryIsAsByDefinition) {
  for (int64_t axis : {0, 1, 2}) {
    for (int64_t largest : {0, 1}) {
      ModelFileBuilder top;
      top.Input("x", {5, 6, 7}).Wholes("k", {4});
      top.Node("TopK", {"x", "k"}, {"v", "at"}, {{"axis", axis}, {"largest", largest}});
      top.Output("v").Output("at", {}, 7);
      ExpectSameInMemory(top, {WithNaN(RandomReals({5, 6, 7}, 1), 10)});
    }
    for (bool is_spread : {false, true}) {  // one index for what is behind the axis
      ModelFileBuilder scatter;
      const Shape full = {3, 4, 2}, few = {axis == 0 ? 3 : 2, axis == 1 ? 4 : 2, 2};
      Shape own = is_spread ? Shape{1, 1, 1} : few;
      own[static_cast<size_t>(axis)] = few[static_cast<size_t>(axis)];
      Shape updates = few;
      for (size_t d = static_cast<size_t>(axis) + 1; d < 3; ++d) updates[d] = full[d];
      if (!is_spread) own = updates;
      scatter.Input("x", full).Input("at", own, 7).Input("u", updates).Wholes("shape", updates);
      scatter.Node("Expand", {"at", "shape"}, {"all"});
      scatter.Node("ScatterElements", {"x", "all", "u"}, {"y"}, {{"axis", axis}}).Output("y");
      std::vector<int64_t> at(static_cast<size_t>(CountOf(own)));
      for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<int64_t>(i * 5 % 3) - (i % 2 == 0 ? 2 : 0);
      for (int64_t& each : at) each = std::min(each, full[static_cast<size_t>(axis)] - 1);
      ExpectSameInMemory(scatter,
                         {RandomReals(full, 2), ToHost(WholeNumbers(at, own), DType::kI64), RandomReals(updates, 3)});
    }
  }
}

HostTensor Indices(const std::vector<int64_t>& at, const Shape& shape) {
  return ToHost(WholeNumbers(at, shape), DType::kI64);
}

TEST(HostCalls, ExtremesAndReversedSequencesInMemoryAreAsByDefinition) {
  for (int64_t axis : {0, 1, 2}) {
    for (const char* op : {"ArgMax", "ArgMin", "Hardmax"}) {
      SCOPED_TRACE(std::string(op) + " " + std::to_string(axis));
      const bool is_hard = op == std::string("Hardmax");
      ModelFileBuilder model(13);
      model.Input("x", {4, 5, 6}).Node(op, {"x"}, {"y"}, {{"axis", axis}}).Output("y", {}, is_hard ? 1 : 7);
      for (size_t nan : {0, 17, 119}) ExpectSameInMemory(model, {WithNaN(RandomReals({4, 5, 6}, 3), nan)});
    }
    if (axis == 2) continue;
    ModelFileBuilder reversed;
    reversed.Input("x", {4, 4, 3}).Input("l", {4}, 7);
    reversed.Node("ReverseSequence", {"x", "l"}, {"y"}, {{"time_axis", axis}, {"batch_axis", 1 - axis}}).Output("y");
    ExpectSameInMemory(reversed, {RandomReals({4, 4, 3}, 5), Indices({0, 1, 3, 4}, {4})});
  }
}

// Of any type: with all of their bits if they are whole numbers, but few of them where they say how far to shift.
HostTensor AnyElements(DType dtype, const Shape& shape, uint32_t seed, int64_t most = 0) {
  Numbers numbers = MakeNumbers(dtype, shape);
  std::mt19937_64 random(seed);
  for (double& each : numbers.real) each = static_cast<double>(random() % 33) / 8 - 2;
  for (int64_t& each : numbers.whole)
    each = static_cast<int64_t>(most > 0 ? random() % static_cast<uint64_t>(most) : random());
  return ToHost(numbers, dtype);
}

TEST(HostCalls, WorkOnElementsOfAnyTypeInMemoryIsAsByDefinition) {
  // By ONNX's numbers.
  const std::pair<int, DType> types[] = {{1, DType::kF32},  {2, DType::kU8},   {3, DType::kI8},  {4, DType::kU16},
                                         {5, DType::kI16},  {6, DType::kI32},  {7, DType::kI64}, {10, DType::kF16},
                                         {11, DType::kF64}, {12, DType::kU32}, {13, DType::kU64}};
  for (const auto& [number, dtype] : types) {
    SCOPED_TRACE(Name(dtype));
    for (int64_t axis : {0, 1, 2}) {
      ModelFileBuilder sums(14), hot(14);
      sums.Input("x", {2, 3, 4}, number).WholeScalar("a", axis);
      sums.Node("CumSum", {"x", "a"}, {"y"}, {{"exclusive", axis % 2}, {"reverse", axis / 2}}).Output("y", {}, number);
      ExpectSameInMemory(sums, {AnyElements(dtype, {2, 3, 4}, 1)});
      hot.Input("x", {2, 3}, 7).Input("v", {2}, number).WholeScalar("d", 4);
      hot.Node("OneHot", {"x", "d", "v"}, {"y"}, {{"axis", axis}}).Output("y", {}, number);
      ExpectSameInMemory(hot, {Indices({0, 3, -1, 4, -4, -5}, {2, 3}), AnyElements(dtype, {2}, 2)});
    }
    ModelFileBuilder columns(18);
    columns.Input("x", {2, 12, 4}, number).Wholes("image", {4, 5}).Wholes("block", {2, 3});
    columns.Node("Col2Im", {"x", "image", "block"}, {"y"},
                 {{"pads", std::vector<int64_t>{1, 0, 1, 1}},
                  {"strides", std::vector<int64_t>{2, 2}},
                  {"dilations", std::vector<int64_t>{2, 1}}});
    ExpectSameInMemory(columns.Output("y", {}, number), {AnyElements(dtype, {2, 12, 4}, 3)});
    ModelFileBuilder top(14), most(14);
    top.Input("x", {3, 20}, number).Wholes("k", {3}).Node("TopK", {"x", "k"}, {"v", "at"}, {{"axis", int64_t{0}}});
    ExpectSameInMemory(top.Output("v", {}, number).Output("at", {}, 7), {AnyElements(dtype, {3, 20}, 7)});
    most.Input("x", {3, 20}, number).Node("ArgMax", {"x"}, {"at"}).Output("at", {}, 7);
    ExpectSameInMemory(most, {AnyElements(dtype, {3, 20}, 8)});
    if (IsFloat(dtype)) continue;
    for (const char* op : {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"}) {
      ModelFileBuilder bits(18);
      bits.Input("x", {2, 3, 4}, number).Input("z", {3, 1}, number);
      bits.Node(op, {"x", "z"}, {"y"}, {{"direction", std::string("RIGHT")}}).Output("y", {}, number);
      ExpectSameInMemory(bits, {AnyElements(dtype, {2, 3, 4}, 4), AnyElements(dtype, {3, 1}, 5, 70)});
    }
    ModelFileBuilder bits(18);
    bits.Input("x", {5}, number).Node("BitwiseNot", {"x"}, {"y"}).Output("y", {}, number);
    ExpectSameInMemory(bits, {AnyElements(dtype, {5}, 6)});
  }
}

TEST(HostCalls, AnglesOfFloatsAreAKernelAndThoseOfDoublesTheLibrarys) {
  struct Angle {
    const char* op;
    double (*of)(double);
    double within;  // of the value, in f32
  };
  const Angle angles[] = {{"Atan", std::atan, 2e-7}, {"Asin", std::asin, 4e-7}, {"Acos", std::acos, 4e-7}};
  std::vector<double> x = {0, INFINITY, -INFINITY, 1e30, -1e-30, 1, -1, NAN, 0x1.fffffep-1, -0x1.fffffep-1, 1.5, -1.5};
  while (x.size() < 1000) x.push_back((static_cast<double>(x.size()) - 500) / 32);
  while (x.size() < 2000) x.push_back((static_cast<double>(x.size()) - 1500) / 512);
  for (const Angle& angle : angles)
    for (int type : {1, 11}) {
      ModelFileBuilder builder;
      builder.Input("x", {2000}, type).Node(angle.op, {"x"}, {"y"}).Output("y", {}, type);
      EXPECT_EQ(HostCallsOf(builder), type == 1 ? 0U : 1U);
      Numbers given = MakeNumbers(type == 1 ? DType::kF32 : DType::kF64, {2000});
      given.real = x;
      Network network = Imported(builder);
      const Result<std::vector<Numbers>> outputs = EvaluateNetwork(network.graph, {given});
      ASSERT_TRUE(outputs) << outputs.error().Text();
      for (size_t i = 0; i < x.size(); ++i) {
        const double y = (*outputs)[0].real[i], wanted = angle.of(x[i]);
        EXPECT_TRUE(std::isnan(wanted) ? std::isnan(y)
                                       : std::abs(y - wanted) <= (type == 1 ? angle.within : 0) * std::abs(wanted))
            << angle.op << " " << x[i] << ": " << y << ", wanted " << wanted;
      }
    }
}

TEST(HostCalls, ScatteredUpdatesInMemoryAreAsByDefinition) {
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    SCOPED_TRACE(reduction);
    ModelFileBuilder rows, elements, single;
    rows.Input("x", {3, 4, 2}).Input("at", {4, 2}, 7).Input("u", {4, 2});
    rows.Node("ScatterND", {"x", "at", "u"}, {"y"}, {{"reduction", std::string(reduction)}}).Output("y");
    ExpectSameInMemory(
        rows, {RandomReals({3, 4, 2}, 1), Indices({2, 3, 0, -1, 2, 3, -3, 1}, {4, 2}), RandomReals({4, 2}, 2)});
    elements.Input("x", {3, 4}).Input("at", {2, 4}, 7).Input("u", {2, 4});
    elements.Node("ScatterElements", {"x", "at", "u"}, {"y"}, {{"reduction", std::string(reduction)}}).Output("y");
    ExpectSameInMemory(elements,
                       {RandomReals({3, 4}, 1), Indices({2, 1, 0, -1, 2, 0, -3, 1}, {2, 4}), RandomReals({2, 4}, 2)});
  }
}

TEST(HostCalls, GatheredTuplesInMemoryAreAsByDefinition) {
  ModelFileBuilder tuples, batches;
  tuples.Input("x", {3, 4, 2}).Input("at", {2, 2, 2}, 7);
  tuples.Node("GatherND", {"x", "at"}, {"y"}).Output("y");
  ExpectSameInMemory(tuples, {RandomReals({3, 4, 2}, 1), Indices({2, 3, 0, -1, -3, 0, 1, 1}, {2, 2, 2})});
  batches.Input("x", {2, 4, 3}).Input("at", {2, 5, 1}, 7);
  batches.Node("GatherND", {"x", "at"}, {"y"}, {{"batch_dims", int64_t{1}}}).Output("y");
  ExpectSameInMemory(batches, {RandomReals({2, 4, 3}, 1), Indices({3, 0, -1, 1, 1, 2, -4, 3, 0, 0}, {2, 5, 1})});
}

// Single indices are rows: a kernel gathers them.
TEST(HostCalls, GatheredRowsNeedNoHost) {
  ModelFileBuilder rows;
  rows.Input("x", {5, 3}).Input("at", {2, 4, 1}, 7);
  rows.Node("GatherND", {"x", "at"}, {"g"}).Node("Neg", {"g"}, {"y"}).Output("y");
  Network network = Imported(rows);
  for (const KernelCall& call : Lower(network.graph).calls) EXPECT_TRUE(!call.is_host() || call.is_check) << call.label;
  Result<std::vector<Numbers>> outputs =
      EvaluateNetwork(network.graph, {Reals({5, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}),
                                      WholeNumbers({4, 0, 1, 1, -1, 2, 3, 0}, {2, 4, 1})});
  ASSERT_TRUE(outputs) << outputs.error().Text();
  EXPECT_THAT((*outputs)[0].shape, ElementsAre(2, 4, 3));
  outputs->front().real.resize(3);
  EXPECT_THAT(outputs->front().real, ElementsAre(-12, -13, -14));
}

TEST(HostCalls, ExtremesInMemoryAreAsByDefinition) {
  HostTensor x = RandomReals({4, 5, 6}, 1);  // many are equal
  const float none = NAN;
  std::string elements(x.data.view());
  std::memcpy(elements.data() + 40, &none, sizeof(none));
  x.data = std::move(elements);
  for (const char* op : {"ArgMax", "ArgMin"})
    for (int64_t axis : {0, 1, 2})
      for (int64_t last : {0, 1}) {
        ModelFileBuilder extremes;
        extremes.Input("x", {4, 5, 6});
        extremes.Node(op, {"x"}, {"y"}, {{"axis", axis}, {"select_last_index", last}}).Output("y", {}, 7);
        ExpectSameInMemory(extremes, {x});
      }
}

TEST(HostCalls, NoKernelReadsVeryManyParts) {
  for (int64_t axis : {0, 1}) {
    ModelFileBuilder builder;
    builder.Input("x", {2, 3});
    std::vector<std::string> parts;
    for (int i = 0; i < 60; ++i) {
      parts.push_back("p" + std::to_string(i));
      builder.Scalar("c" + std::to_string(i), static_cast<float>(i))
          .Node("Add", {"x", "c" + std::to_string(i)}, {parts.back()});
    }
    // Part of two concatenations: it cannot lie in both.
    builder.Node("Concat", parts, {"y"}, {{"axis", axis}}).Node("Concat", parts, {"z"}, {{"axis", axis}});
    builder.Output("y").Output("z");
    EXPECT_EQ(HostCallsOf(builder), 0U) << "axis " << axis;
  }
}

TEST(HostCalls, WhatKernelsCannotHoldIsSaidInWords) {
  ModelFileBuilder builder;
  builder.Input("x", {2, 3}, 7).Node("Add", {"x", "x"}, {"y"}).Output("y", {2, 3}, 7);
  Network network = Imported(builder);
  const CallPlan plan = Lower(network.graph);
  ASSERT_EQ(plan.calls.size(), 1U);
  EXPECT_EQ(plan.calls[0].why_host, "kernels have no tensors of i64");
}

TEST(HostCalls, AResidualSumOfOneRowLeavesTheWeightPacked) {
  ModelFileBuilder builder;
  builder.Input("x", {1, 8}).Input("z", {1, 6}).Random("w", {8, 6}).Node("MatMul", {"x", "w"}, {"p"});
  builder.Node("Add", {"p", "z"}, {"y"}).Output("y");
  Network network = Imported(builder);
  const CallPlan plan = Lower(network.graph);
  ASSERT_EQ(plan.calls.size(), 1U);
  EXPECT_EQ(plan.calls[0].kernel, "matmul(M=1,N=6,K=8,const=1)+add");
}

TEST(HostCalls, AModelWithoutKernelsRuns) {
  ModelFileBuilder builder;
  builder.Input("x", {2, 3}).Node("Identity", {"x"}, {"y"}).Output("y");
  Network network = Imported(builder);
  CallPlan plan = Lower(network.graph);
  EXPECT_TRUE(plan.calls.empty());
  EXPECT_TRUE(CheckComplete(network, "host.onnx"));
}

}  // namespace
}  // namespace hone::host_calls_test
