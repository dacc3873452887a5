// Indices have 32 bits and addresses 64: a tensor of 2^31 elements and more is refused, and one of fewer is addressed
// to its end, however many bytes that is.
#include <gmock/gmock.h>

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "codegen/gpu/dialect.h"
#include "codegen/gpu/print_launch.h"
#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"

namespace hone::large_buffers_test {

using ::testing::HasSubstr;

// A few elements of a tensor of 8 GiB, half of it apart.
constexpr char kPicks[] =
    "kernel picks(x: f32[N], s: f32[M]) -> y: f32[M] where N=2147483644, M=3 { y[m] = x[m * 1073741820] * s[m] }";

Result<straight::Program> ByDefault(const std::string& text) {
  const Kernel kernel = Specialize(HONE_TRY(ParseKernel(text)));
  return StraightOf(text, HONE_TRY(DefaultSchedule(kernel, SomeGpu())));
}

TEST(LargeBuffers, OfTwoToThe31ElementsAreRefused) {
  const Result<straight::Program> refused = ByDefault("add(M=65536,N=32768,dtype=i8)");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(refused.error().Text(), HasSubstr("has 2147483648 elements: indices on a GPU have 32 bits"));
  EXPECT_TRUE(ByDefault("add(M=65535,N=32768,dtype=i8)"));
}

// An operand is a pointer to its elements in every language, and an index a number of them that 32 bits hold: what
// there is of bytes, more than four billion here, is the language's own.
TEST(LargeBuffers, AreAddressedByElements) {
  const straight::Program program = ByDefault(kPicks).value();
  const std::map<std::string_view, std::array<const char*, 2>> wanted{
      {"opencl", {"__global const float* restrict x,", " = x[(tx * 1073741820)];"}},
      {"cuda", {"const float* __restrict__ x,", " = x[(tx * 1073741820)];"}},
      {"hip", {"const float* __restrict__ x,", " = x[(tx * 1073741820)];"}},
      {"glsl", {"Of_float { float at[]; };", " = args.x.at[(tx * 1073741820)];"}}};
  for (const Dialect& dialect : Dialects()) {
    const std::string text = PrintSources(program, dialect)[0];
    for (const char* words : wanted.at(dialect.name)) EXPECT_THAT(text, HasSubstr(words));
    EXPECT_THAT(text, HasSubstr("const int tx = "));
  }
}

// A tile that the tensor's end cuts has places beyond it. Nobody accesses them, but their numbers do not fit into 32
// bits, and what a number that leaves its type becomes, languages leave open.
TEST(LargeBuffers, PlacesBeyondTheirEndAreComputedIn64Bits) {
  const std::string text = "kernel k(x: i8[M, N]) -> y: i8[M, N] where M=5, N=429496729 { y[m, n] = x[m, n] }";
  const Schedule schedule =
      ParseSchedule("split y.m 4\nreorder y.n y.m.0 y.m.1\nbind y.n block.x\nbind y.m.1 thread.x\n").value();
  const straight::Program program = StraightOf(text, schedule).value();
  EXPECT_THAT(PrintSources(program, *FindDialect("opencl"))[0],
              HasSubstr("(int)((((long)(bx) + ((long)(y_m_0) * 1717986916L)) + ((long)(tx) * 429496729L)))"));
}

}  // namespace hone::large_buffers_test
