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

TEST(NamedKernel, OfAListIsCalledAsOftenAsCanBeAddedUp) {
  testing::ScratchFolder folder;
  const std::string path = folder.path() + "/some.kernels";
  const auto read = [&](const std::string& count) {
    std::ofstream(path) << count << " add(M=4,N=4)\n";
    return cli::ReadKernels(path);
  };
  ASSERT_TRUE(read("1000000000000"));
  EXPECT_EQ((*read("1000000000000"))[0].count, 1'000'000'000'000);
  for (const char* count : {"1000000000001", "9223372036854775807", "99999999999999999999", "0", "-1", "many", ""}) {
    const Result<std::vector<cli::NamedKernel>> kernels = read(count);
    ASSERT_FALSE(kernels) << count;
    EXPECT_EQ(kernels.error().where, path + ":1");
    EXPECT_TRUE(
        kernels.error().message.ends_with("wanted how often it is called, from 1 to 1000000000000, then a kernel"))
        << kernels.error().message;
  }
}

}  // namespace
}  // namespace hone::named_kernel_test
