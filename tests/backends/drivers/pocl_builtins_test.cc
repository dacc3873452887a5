// What our code calls of OpenCL C's functions is declared to PoCL: it compiles without the header that has them all.
#if __has_include(<CL/cl.h>)
#include "backends/drivers/pocl_builtins.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/drivers/opencl_driver.h"
#include "backends/gpu/build_for_gpu.h"
#include "ir/device_artifact.h"
#include "tests/support/data_index_kernels.h"
#include "tests/support/operation_samples.h"
#include "tests/support/sanitizers.h"
#include "tests/support/want_of_device.h"

namespace hone {
namespace {

using ::testing::HasSubstr;

class PoclBuiltins : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kSeesThreads) GTEST_SKIP() << "[SKIP] a driver in this process";
    const Result<const OpenCl*> loaded = LoadOpenCl();
    const std::vector<OpenClFound> found = loaded ? FindOpenCl(**loaded).value() : std::vector<OpenClFound>();
    const auto pocl = std::ranges::find_if(found, [](const OpenClFound& one) { return IsPocl(one.target); });
    if (pocl == found.end()) HONE_SKIP_FOR_WANT_OF(kOpenClKind, "no device of PoCL's is here");
    cl_ = *loaded;
    device_ = *pocl;
    context_ = {cl_->clCreateContext(nullptr, 1, &device_.device, nullptr, nullptr, nullptr), cl_->clReleaseContext};
  }

  // What the compiler says of code without the header; "": it compiles.
  std::string Refusal(const std::string& source) const {
    const std::string declared = WithPoclBuiltins(source);
    const char* text = declared.c_str();
    const OpenClOwned<cl_program> program(cl_->clCreateProgramWithSource(context_.get(), 1, &text, nullptr, nullptr),
                                          cl_->clReleaseProgram);
    const std::string options = "-cl-std=CL1.2" + std::string(kWithoutPoclsHeader);
    if (cl_->clBuildProgram(program.get(), 1, &device_.device, options.c_str(), nullptr, nullptr) == CL_SUCCESS)
      return "";
    std::string log(16 << 10, '\0');
    cl_->clGetProgramBuildInfo(program.get(), device_.device, CL_PROGRAM_BUILD_LOG, log.size() - 1, log.data(),
                               nullptr);
    return log.substr(0, log.find('\0')) + " (no log)";
  }

  const OpenCl* cl_ = nullptr;
  OpenClFound device_;
  OpenClOwned<cl_context> context_;
};

TEST_F(PoclBuiltins, AreAllThatOurCodeCalls) {
  std::vector<std::string> kernels = GpuSamples();
  for (const DataIndexKernel& kernel : DataIndexKernels()) kernels.push_back(kernel.text);
  // Rows of every type in vectors, by themselves and through block storage.
  for (const char* type : {"f32", "f64", "f16", "bf16", "i32", "i8", "u8"}) {
    const std::string suffix = std::string(",dtype=") + type + ")";
    kernels.push_back("matmul(M=64,N=64,K=64" + suffix);
    kernels.push_back("depthwise_conv2d(C=8,H=16,W=16,R=3,S=3,pad=1" + suffix);
  }
  for (const std::string& kernel : kernels) {
    const Result<BuildOutput> built = BuildForGpu({kernel, "", device_.target});
    if (!built && built.error().kind == ErrorKind::kUnsupported) continue;
    ASSERT_TRUE(built) << kernel << ": " << built.error().Text();
    const DeviceArtifact artifact = DecodeDeviceArtifact(built->object).value();
    EXPECT_EQ(Refusal(artifact.sources.at(0)), "") << kernel;
  }
  for (const char* memory : {"__global", "__local"})
    for (const char* type : {"char", "uchar", "ushort", "int", "float", "double"})
      for (const std::string n : {"2", "4", "8", "16"})
        EXPECT_EQ(Refusal("#pragma OPENCL EXTENSION cl_khr_fp64 : enable\nstatic void copy(" + std::string(memory) +
                          " " + type + "* to, const " + memory + " " + type + "* from) { vstore" + n + "(vload" + n +
                          "(0, from), 0, to); }\n"),
                  "");
}

TEST_F(PoclBuiltins, LinesKeepTheirNumbers) {
  EXPECT_THAT(Refusal("__kernel void f(__global int* y) {\n  y[0] = nonsense;\n}\n"), HasSubstr(":2:10"));
}

}  // namespace
}  // namespace hone
#endif
