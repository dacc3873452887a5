// The eleven published networks: every kernel that their lists name is found, as often as they say. A list says nothing
// of a layer normalisation's epsilon; the networks do.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "network/onnx/import_network.h"
#include "network/run/kernel_calls.h"

namespace hone::lists_test {
namespace {

std::string CanonicalOf(const std::string& text) {
  static const std::regex epsilon(",eps=[^,)]*");
  Result<Kernel> kernel = ParseKernel(std::regex_replace(text, epsilon, ""));
  EXPECT_TRUE(kernel) << text << ": " << kernel.error().Text();
  return kernel ? Canonicalize(*kernel).text : text;
}

std::vector<std::filesystem::path> Models() {
  std::vector<std::filesystem::path> models;
  const std::filesystem::path folder = std::filesystem::path(HONE_SOURCE_DIR) / "../shared/models";
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    if (entry.path().extension() == ".onnx") models.push_back(entry.path());
  }
  std::sort(models.begin(), models.end());
  return models;
}

TEST(Lists, EveryListedKernelIsFound) {
  std::vector<std::filesystem::path> models = Models();
  if (models.empty()) GTEST_SKIP() << "no ../shared/models beside the project";
  for (const std::filesystem::path& path : models) {
    SCOPED_TRACE(path.filename());
    Result<Network> network = ImportModel(path.string());
    ASSERT_TRUE(network) << network.error().Text();
    for (const LeftOut& left : network->left_out) ADD_FAILURE() << left.node << " (" << left.op << "): " << left.reason;
    CallPlan plan = Lower(network->graph);
    std::map<std::string, int64_t> found;
    for (const KernelCall& call : plan.calls) {
      if (call.is_library) ++found[CanonicalOf(call.kernel)];
    }
    std::ifstream list(std::filesystem::path(path).replace_extension(".kernels"));
    int64_t kernels = 0;
    for (std::string line; std::getline(list, line);) {
      std::istringstream words(line.substr(0, line.find('#')));
      int64_t count = 0;
      std::string kernel;
      if (!(words >> count >> kernel)) continue;
      ++kernels;
      EXPECT_GE(found[CanonicalOf(kernel)], count) << kernel;
    }
    EXPECT_GT(kernels, 0);
    // Whatever a kernel does beyond the lists, it parses, and inputs are computed before they are read.
    IdVector<ValueId, bool> ready(network->graph.values.size());
    for (ValueId input : network->graph.inputs) ready[input] = true;
    for (const KernelCall& call : plan.calls) {
      for (ValueId input : call.inputs) {
        EXPECT_TRUE(network->graph.is_constant(input) || ready[plan.place[input].root]) << call.label;
      }
      for (ValueId output : OutputsOf(network->graph, call)) ready[plan.place[output].root] = true;
    }
  }
}

// 339 kernels, each once.
TEST(Lists, TogetherTheyAreAllThereAre) {
  std::vector<std::filesystem::path> models = Models();
  if (models.empty()) GTEST_SKIP() << "no ../shared/models beside the project";
  EXPECT_EQ(models.size(), 13U);
}

}  // namespace
}  // namespace hone::lists_test
