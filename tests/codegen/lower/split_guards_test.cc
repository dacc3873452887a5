// Loops are divided where guards hold in all but the last trips, and nowhere else.
#include "codegen/lower/split_guards.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/lower/lower.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"

namespace hone {
namespace {

// The program as it is emitted: the text of its nests after they were divided.
std::string Divided(const std::string& text, std::string_view schedule) {
  auto print = [&]() -> Result<std::string> {
    const Kernel kernel = Specialize(HONE_TRY(ParseKernel(text)));
    LoopProgram program = HONE_TRY(Lower(HONE_TRY(ApplySchedule(kernel, HONE_TRY(ParseSchedule(schedule))))));
    for (StmtPtr& nest : program.entry) nest = SplitGuardedLoops(program, *nest);
    return PrintProgram(program);
  };
  Result<std::string> printed = print();
  return printed ? *printed : printed.error().Text();
}

size_t CountOf(std::string_view what, std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

constexpr char kDouble[] = "kernel double(x: f32[M, N]) -> y: f32[M, N] where M=4, N={} {{ y[m, n] = 2.0 * x[m, n] }}";
constexpr char kVectors[] = "split y.n 16\nvectorize y.n.1\n";

std::string OfColumns(int columns) { return Divided(fmt::format(kDouble, columns), kVectors); }

TEST(SplitGuards, WholeVectorsHaveNone) {
  const std::string program = OfColumns(197);
  EXPECT_EQ(CountOf("for y.n.0 < 12\n", program), 1U) << program;
  EXPECT_EQ(CountOf("for y.n.0 = 12 .. 13\n", program) + CountOf("for 12 <= y.n.0 < 13\n", program), 1U) << program;
  const size_t whole = program.find("for y.n.0 < 12"), rest = program.find("y.n.0", program.find("y[m", whole) + 60);
  EXPECT_EQ(CountOf(">= 0", program.substr(whole, rest - whole)), 0U) << program;
  EXPECT_GT(CountOf(">= 0", program.substr(rest)), 0U) << program;
}

TEST(SplitGuards, NothingIsDividedWhereVectorsFitOrTripsAreFew) {
  for (int columns : {192, 40, 7}) {
    const std::string program = OfColumns(columns);
    EXPECT_LE(CountOf("for y.n.0", program), 1U) << program;
  }
}

TEST(SplitGuards, WhatAnOuterLoopSettlesStaysAsItIs) {
  // The window's guard depends on the row, which the loop over columns does not tell.
  const std::string program = Divided(
      "kernel rows(x: f32[M, N]) -> y: f32[M, N] where M=40, N=64 { y[m, n] = pad(x[m - 3, n], 0.0) }", kVectors);
  EXPECT_EQ(CountOf("for y.n.0", program), 1U) << program;
}

}  // namespace
}  // namespace hone
