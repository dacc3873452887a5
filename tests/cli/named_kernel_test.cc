// What people see of a kernel that a command names.
#include <gtest/gtest.h>

#include <fstream>

#include "client/cli/context.h"
#include "tests/support/c_artifact.h"

namespace hone::named_kernel_test {
namespace {

TEST(NamedKernel, OfAFileIsShownByTheFilesName) {
  testing::ScratchFolder folder;
  const std::string path = folder.path() + "/twice.hone";
  std::ofstream(path) << "kernel twice(x: f32[4]) -> y: f32[4] {\n  y[i] = x[i] * 2.0\n}\n";
  Result<cli::NamedKernel> kernel = cli::ReadKernel(path);
  ASSERT_TRUE(kernel) << kernel.error().Text();
  EXPECT_EQ(kernel->shown(), path);
  EXPECT_TRUE(kernel->text.starts_with("kernel twice")) << kernel->text;
}

TEST(NamedKernel, OfTheCommandLineIsShownAsItIs) {
  Result<cli::NamedKernel> kernel = cli::ReadKernel("add(M=4,N=4)");
  ASSERT_TRUE(kernel) << kernel.error().Text();
  EXPECT_EQ(kernel->shown(), "add(M=4,N=4)");
}

}  // namespace
}  // namespace hone::named_kernel_test
