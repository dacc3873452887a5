// A long sum is a sum of sums, so that rounding stays within what a kernel promises; a short one is left as it is.
#include <gtest/gtest.h>

#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"
#include "network/run/kernel_calls.h"
#include "tests/network/model_files.h"
#include "tests/network/plan_interpreter.h"

namespace hone::long_sums_test {
namespace {

// How many sums are within each other in the kernel of a mean of `shape` over `axes`, whose value is checked.
size_t SumsOf(const std::vector<int64_t>& shape, const std::vector<int64_t>& axes) {
  ModelFileBuilder builder(11);
  builder.Input("x", shape).Node("ReduceMean", {"x"}, {"y"}, {{"axes", axes}}).Output("y");
  Result<OnnxModel> model = ParseOnnx(builder.Bytes(), {"sum.onnx", ""});
  EXPECT_TRUE(model);
  Result<Network> network = BuildNetwork(*model, "sum.onnx", {});
  EXPECT_TRUE(network);
  const CallPlan plan = Lower(network->graph);
  EXPECT_EQ(plan.calls.size(), 1U);
  const ValueNumbers inputs = RandomInputs(network->graph, 3);
  const Numbers& x = inputs.begin()->second;
  Result<std::vector<Numbers>> seen = InterpretPlan(network->graph, plan, inputs);
  EXPECT_TRUE(seen);
  double total = 0, mean = 0;
  for (double each : x.real) total += each;
  for (double each : (*seen)[0].real) mean += each;
  EXPECT_NEAR(mean / static_cast<double>((*seen)[0].real.size()), total / static_cast<double>(x.real.size()), 1e-6);
  const std::string& text = plan.calls[0].kernel;
  size_t sums = 0;
  for (size_t at = text.find("sum("); at != std::string::npos; at = text.find("sum(", at + 1)) ++sums;
  return sums;
}

TEST(LongSums, AreSumsOfSums) {
  EXPECT_EQ(SumsOf({2, 196, 8}, {1}), 2U);
  EXPECT_EQ(SumsOf({2, 6000}, {1}), 2U);
  EXPECT_EQ(SumsOf({3, 5, 7, 2}, {0, 1, 2}), 2U);
}

TEST(LongSums, ShortOnesPrimesAndRowsAreOne) {
  EXPECT_EQ(SumsOf({2, 16, 8}, {1}), 1U);
  EXPECT_EQ(SumsOf({2, 197, 8}, {1}), 1U);
  EXPECT_EQ(SumsOf({2, 768}, {1}), 1U);
}

}  // namespace
}  // namespace hone::long_sums_test
