// One kernel and schedule in every dialect, as files for review. Set HONE_UPDATE_GOLDEN=1 to write them anew.
#include "codegen/gpu/print_launch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "codegen/machine_model.h"
#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"
#include "tests/support/gpu_schedules.h"
#include "tests/support/operation_samples.h"

namespace hone {
namespace {

TEST(PrintSources, OneKernelInFourDialects) {
  const straight::Program program = StraightOf(kTiledMatmul, ParseSchedule(kTiledMatmulSchedule).value()).value();
  ASSERT_EQ(Dialects().size(), 4u);
  for (const Dialect& dialect : Dialects()) {
    const std::vector<std::string> sources = PrintSources(program, dialect);
    ASSERT_EQ(sources.size(), 1u);
    const std::string path = HONE_SOURCE_DIR "/tests/golden/tiled_matmul." + std::string(dialect.name) + ".txt";
    if (std::getenv("HONE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << sources[0];
    std::ifstream file(path);
    std::stringstream wanted;
    wanted << file.rdbuf();
    EXPECT_EQ(sources[0], wanted.str()) << path;
  }
}

// All samples are C++ for HIP, beside declarations of what that has of its own.
TEST(PrintSources, HipIsTakenByACompiler) {
  if (std::system("c++ --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "[SKIP] there is no C++ compiler here";
  std::string text;
  const auto add = [&](const straight::Program& program) {
    for (std::string source : PrintSources(program, *FindDialect("hip"))) {
      // Launches of all kernels stand side by side.
      for (size_t at = 0; (at = source.find("extern \"C\" ", at)) != std::string::npos;) source.erase(at, 11);
      EXPECT_EQ(source.find("#include <hip/hip_runtime.h>"), 0u);
      text += fmt::format("namespace k{} {{\n{}}}\n", text.size(), source.substr(source.find('\n') + 1));
    }
  };
  add(StraightOf(kTiledMatmul, ParseSchedule(kTiledMatmulSchedule).value()).value());
  for (const std::string& sample : GpuSamples()) {
    const Kernel kernel = Specialize(ParseKernel(sample).value());
    add(StraightOf(sample, DefaultSchedule(kernel, SomeGpu()).value()).value());
  }
  const Target with_sub_groups = ParseTarget("opencl block_bytes=32768 block_threads=256 sub_group=32").value();
  const Kernel softmax = Specialize(ParseKernel("softmax(M=64,N=300)").value());
  add(StraightOf("softmax(M=64,N=300)", DefaultSchedule(softmax, with_sub_groups).value(),
                 straight::LimitsOf(ModelMachine(with_sub_groups)))
          .value());
  EXPECT_NE(text.find("__shfl_xor("), std::string::npos);
  const std::string path = fmt::format("{}/hip.{}.cc", ::testing::TempDir(), ::getpid());
  std::ofstream(path) << "#include <hip/hip_runtime.h>\n" << text;
  const std::string command =
      fmt::format("c++ -std=c++17 -fsyntax-only -Wno-unknown-pragmas -I{}/tests/support {} >{}.said 2>&1",
                  HONE_SOURCE_DIR, path, path);
  const int status = std::system(command.c_str());
  std::stringstream said;
  said << std::ifstream(path + ".said").rdbuf();
  EXPECT_EQ(status, 0) << said.str().substr(0, 4000);
  EXPECT_GT(text.size(), 100000u);
  std::remove(path.c_str());
  std::remove((path + ".said").c_str());
}

// What a stage may be called and a dialect has for itself gets another name.
TEST(PrintSources, NamesAreNoWordsOfTheDialect) {
  const std::string text = "kernel copy(half: f32[N]) -> uniform: f32[N] where N=64 { uniform[n] = half[n] }";
  const straight::Program program =
      StraightOf(text,
                 ParseSchedule("split uniform.n 32\nbind uniform.n.0 block.x\nbind uniform.n.1 thread.x\n").value())
          .value();
  const std::string source = PrintSources(program, *FindDialect("opencl"))[0];
  EXPECT_NE(source.find("restrict half_2"), std::string::npos) << source;
  EXPECT_NE(source.find("restrict uniform_2"), std::string::npos) << source;
}

TEST(PrintSources, BytesInShadersAreBytes) {
  const std::string text = "kernel cut(x: i8[N]) -> y: i8[N] where N=64 { y[n] = if(n < 9, x[n], 0) }";
  const straight::Program program = StraightOf(text, ParseSchedule("bind y.n thread.x\n").value()).value();
  const std::string shader = PrintSources(program, *FindDialect("glsl"))[0];
  EXPECT_NE(shader.find(": int8_t(0))"), std::string::npos) << shader;
}

TEST(PrintSources, BytesWithoutASignInShadersAreBytes) {
  const std::string text = "kernel cut(x: u8[N]) -> y: u8[N] where N=64 { y[n] = if(n < 9, x[n], 200) }";
  const straight::Program program = StraightOf(text, ParseSchedule("bind y.n thread.x\n").value()).value();
  const std::string shader = PrintSources(program, *FindDialect("glsl"))[0];
  EXPECT_NE(shader.find("uint8_t"), std::string::npos) << shader;
  EXPECT_EQ(shader.find(" int8_t"), std::string::npos) << shader;
}

// Such as what a copy of narrow elements would be computed with.
TEST(PrintSources, ValuesThatNobodyReadsAreNotWritten) {
  const std::regex named("const [a-z0-9_ ]+ (v[0-9]+) = "), word("[A-Za-z0-9_]+");
  size_t values = 0;
  for (const std::string& text : GpuSamples()) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    const straight::Program program = StraightOf(text, DefaultSchedule(kernel, SomeGpu()).value()).value();
    for (const Dialect& dialect : Dialects()) {
      const std::vector<std::string> sources = PrintSources(program, dialect);
      for (size_t i = 0; i < sources.size(); ++i) {
        const std::string& source = sources[i];
        // Of each launch by itself: names are.
        for (size_t at = source.find(fmt::format("hone_{}_", i)), end = 0; at < source.size(); at = end) {
          end = std::min(source.find("\n}\n", at), source.size() - 1) + 1;
          const std::string launch = source.substr(at, end - at);
          std::map<std::string, int> seen;
          for (std::sregex_iterator it(launch.begin(), launch.end(), word), none; it != none; ++it) ++seen[it->str()];
          for (std::sregex_iterator it(launch.begin(), launch.end(), named), none; it != none; ++it, ++values)
            EXPECT_GE(seen[(*it)[1].str()], 2) << it->str() << " of " << text << " in " << dialect.name;
        }
      }
    }
  }
  EXPECT_GT(values, 1000u);
}

// A shader is one launch, and so is a text of OpenCL's.
TEST(PrintSources, ATextForEachLaunch) {
  const std::string text =
      "kernel two(x: f32[N]) -> y: f32[N], z: f32[N] where N=64 { y[n] = tanh(x[n]) z[n] = max(y[63 - n], x[n]) }";
  const straight::Program program =
      StraightOf(text, ParseSchedule("bind y.n thread.x\nbind z.n thread.x\n").value()).value();
  EXPECT_EQ(PrintSources(program, *FindDialect("cuda")).size(), 1u);
  const std::vector<std::string> kernels = PrintSources(program, *FindDialect("opencl"));
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_NE(kernels[0].find("hone_tanh_f32(float x)"), std::string::npos) << kernels[0];
  EXPECT_EQ(kernels[1].find("hone_tanh_f32"), std::string::npos) << kernels[1];
  const std::vector<std::string> shaders = PrintSources(program, *FindDialect("glsl"));
  ASSERT_EQ(shaders.size(), 2u);
  EXPECT_NE(shaders[0].find("hone_tanh_f32(float x)"), std::string::npos) << shaders[0];
  EXPECT_EQ(shaders[1].find("hone_tanh_f32"), std::string::npos) << shaders[1];
  EXPECT_NE(shaders[1].find("hone_max_f32(float a"), std::string::npos) << shaders[1];
}

// A launch that two schedules have in common has one text, which a driver that keeps what it has compiled knows.
TEST(PrintSources, ALaunchOfTwoSchedulesHasOneText) {
  const std::string text = "conv2d(C=64,H=7,W=7,O=128,R=3,S=3,pad=1,const=1)";
  const Target target = ParseTarget("opencl block_bytes=1048576 block_threads=4096 type=cpu units=2 lanes=16").value();
  const auto sources = [&](int64_t rows) {
    const Chooser chooser = [&](const Choice& choice) {
      return choice.site.ends_with(".rows") ? rows : choice.preferred;
    };
    const Schedule schedule = PlanSchedule(Specialize(ParseKernel(text).value()), target, chooser).value().schedule;
    return PrintSources(StraightOf(text, schedule, straight::LimitsOf(ModelMachine(target))).value(),
                        *FindDialect("opencl"));
  };
  const std::vector<std::string> some = sources(4), others = sources(8);
  ASSERT_EQ(some.size(), others.size());
  size_t same = 0;
  for (size_t i = 0; i < some.size(); ++i) same += some[i] == others[i];
  EXPECT_EQ(same, some.size() - 1);  // all but the product
  EXPECT_GE(same, 1u);               // the columns
}

}  // namespace
}  // namespace hone
