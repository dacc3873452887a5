// Transposed convolutions against their definition: every element of the input spread over its window of the output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "network/graph/evaluate_network.h"
#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"
#include "tests/network/model_files.h"

namespace hone::transposed_test {
namespace {

struct Case {
  std::string name;
  std::vector<int64_t> from, window, stride, dilation, before, after, more;  // a number a dimension
  int64_t inputs, outputs, groups;                                           // channels; outputs: of a group
  bool is_split;                                                             // into several convolutions
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

int64_t Product(const std::vector<int64_t>& numbers) {
  int64_t product = 1;
  for (int64_t number : numbers) product *= number;
  return product;
}

std::vector<int64_t> OutputOf(const Case& c) {
  std::vector<int64_t> to;
  for (size_t d = 0; d < c.from.size(); ++d)
    to.push_back(c.stride[d] * (c.from[d] - 1) + (c.window[d] - 1) * c.dilation[d] + 1 + c.more[d] - c.before[d] -
                 c.after[d]);
  return to;
}

// The place in each dimension of element `index` of a shape.
std::vector<int64_t> PlaceOf(int64_t index, const std::vector<int64_t>& shape) {
  std::vector<int64_t> place(shape.size());
  for (size_t d = shape.size(); d-- > 0; index /= shape[d]) place[d] = index % shape[d];
  return place;
}

std::vector<double> Spread(const Case& c, const std::vector<double>& x, const std::vector<float>& w,
                           const std::vector<float>& bias) {
  const std::vector<int64_t> to = OutputOf(c);
  const int64_t inside = Product(c.from), taps = Product(c.window), size = Product(to);
  std::vector<double> y;
  for (int64_t o = 0; o < c.outputs * c.groups; ++o)
    y.insert(y.end(), static_cast<size_t>(size), bias[static_cast<size_t>(o)]);
  for (int64_t channel = 0; channel < c.inputs; ++channel) {
    const int64_t group = channel / (c.inputs / c.groups);
    for (int64_t i = 0; i < inside; ++i)
      for (int64_t r = 0; r < taps; ++r) {
        const std::vector<int64_t> at = PlaceOf(i, c.from), tap = PlaceOf(r, c.window);
        int64_t place = 0;
        bool is_inside = true;
        for (size_t d = 0; d < to.size(); ++d) {
          const int64_t u = c.stride[d] * at[d] + c.dilation[d] * tap[d] - c.before[d];
          is_inside &= u >= 0 && u < to[d];
          place = place * to[d] + u;
        }
        if (!is_inside) continue;
        for (int64_t o = 0; o < c.outputs; ++o)
          y[static_cast<size_t>((group * c.outputs + o) * size + place)] +=
              x[static_cast<size_t>(channel * inside + i)] *
              static_cast<double>(w[static_cast<size_t>((channel * c.outputs + o) * taps + r)]);
      }
  }
  return y;
}

class Transposed : public testing::TestWithParam<Case> {};

TEST_P(Transposed, IsWhatItsDefinitionSays) {
  const Case& c = GetParam();
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  auto draw = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = uniform(random);
    return values;
  };
  std::vector<int64_t> shape = {1, c.inputs}, filters = {c.inputs, c.outputs}, pads = c.before;
  shape.insert(shape.end(), c.from.begin(), c.from.end());
  filters.insert(filters.end(), c.window.begin(), c.window.end());
  pads.insert(pads.end(), c.after.begin(), c.after.end());
  const std::vector<float> w = draw(Product(filters)), bias = draw(c.outputs * c.groups);
  ModelFileBuilder builder;
  builder.Input("x", shape).Floats("w", filters, w).Floats("bias", {c.outputs * c.groups}, bias);
  builder.Node("ConvTranspose", {"x", "w", "bias"}, {"y"},
               {{"strides", c.stride},
                {"dilations", c.dilation},
                {"pads", pads},
                {"output_padding", c.more},
                {"group", c.groups}});
  builder.Output("y");
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"transposed.onnx", ""});
  ASSERT_TRUE(model) << model.error().Text();
  Result<Network> network = BuildNetwork(*model, "transposed.onnx", {});
  ASSERT_TRUE(network) << network.error().Text();
  const auto convolutions = std::count_if(network->graph.nodes.begin(), network->graph.nodes.end(),
                                          [](const Node& node) { return node.kind == NodeKind::kConv; });
  EXPECT_EQ(convolutions > 1, c.is_split) << convolutions << " convolutions";
  Numbers x = MakeNumbers(DType::kF32, Shape(shape.begin(), shape.end()));
  for (double& value : x.real) value = static_cast<double>(uniform(random));
  Result<std::vector<Numbers>> outputs = EvaluateNetwork(network->graph, {x});
  ASSERT_TRUE(outputs) << outputs.error().Text();
  std::vector<int64_t> wanted = {1, c.outputs * c.groups};
  for (int64_t extent : OutputOf(c)) wanted.push_back(extent);
  ASSERT_EQ(outputs->front().shape, Shape(wanted.begin(), wanted.end()));
  EXPECT_THAT(outputs->front().real, testing::Pointwise(testing::DoubleNear(1e-3), Spread(c, x.real, w, bias)));
}

// Those that are split: of one, two and three dimensions, along one or all of them, of windows that leave every number
// of phases with an element less, with borders cut off that are smaller and larger than a stride.
INSTANTIATE_TEST_SUITE_P(
    Network, Transposed,
    testing::Values(
        Case{"Square", {14, 14}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 96, 48, 1, true},
        Case{"NothingCutOff", {14, 14}, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, {0, 0}, 96, 48, 1, true},
        Case{"OneDimensionOfTwo", {14, 13}, {5, 4}, {2, 2}, {1, 1}, {3, 1}, {4, 2}, {0, 1}, 96, 32, 1, true},
        Case{"Groups", {12, 12}, {4, 5}, {3, 3}, {1, 1}, {4, 2}, {1, 5}, {2, 0}, 96, 24, 2, true},
        Case{"Dilated", {15, 15}, {2, 3}, {2, 2}, {2, 1}, {0, 2}, {1, 1}, {1, 0}, 96, 48, 1, true},
        Case{"Line", {300}, {7}, {4}, {1}, {6}, {2}, {3}, 96, 96, 1, true},
        Case{"Volume", {6, 6, 6}, {3, 2, 3}, {2, 2, 2}, {1, 1, 1}, {1, 0, 1}, {1, 0, 0}, {0, 0, 1}, 64, 32, 1, true},
        Case{"AWindowOfTwoStrides", {14, 14}, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, 96, 48, 1, false},
        Case{"NoStride", {12, 16}, {3, 2}, {1, 1}, {2, 2}, {1, 0}, {1, 0}, {0, 0}, 64, 32, 1, false},
        Case{"AWindowBelowTheStride", {10, 10}, {2, 1}, {3, 3}, {1, 1}, {0, 1}, {1, 0}, {1, 2}, 64, 64, 1, false},
        Case{"Small", {5, 5}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 4, 4, 1, false}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

}  // namespace
}  // namespace hone::transposed_test
