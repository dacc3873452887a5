// `prefetch x for t panel`: over all passes over a panel, the next one is asked for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/codegen/lower/lowered.h"

namespace hone::prefetch_test {
namespace {

// Products of 64 rows and 96 columns over 40 steps: panels of 32 columns, each of which tiles of `rows` rows pass over.
std::string ScheduleOf(int rows, const std::string& ahead) {
  return fmt::format(
      "rewrite cache_write y tile\ncache_read w -> w_panel for tile const [n/32, k, n%32]\nsplit y.n 2 16\n"
      "split y.m {}\nreorder y.n.0 y.m.0 y.m.1 y.n.1 y.n.2\nunroll y.m.1 y.n.1\nvectorize y.n.2\n"
      "compute_at tile y.m.0\nstore tile registers\nsplit tile.n 16\nreorder tile.k tile.m tile.n.0 tile.n.1\n"
      "unroll tile.m tile.n.0\nvectorize tile.n.1\nprefetch w_panel for tile {}\n",
      rows, ahead);
}

constexpr char kProducts[] =
    "kernel d(x: f32[64, 40], const w: f32[96, 40]) -> y: f32[64, 96] { y[m, n] = sum(k) x[m, k] * w[n, k] }";

std::string ProgramOf(const std::string& schedule) {
  const Result<LoopProgram> program = lowered::Lowered(kProducts, schedule);
  return program ? PrintProgram(*program) : program.error().Text();
}

TEST(PrefetchPanel, AsksForTheNextPanelEvenly) {
  // A panel has 1280 elements, read in 8 passes of 40 trips: 4 elements a trip.
  const std::string program = ProgramOf(ScheduleOf(8, "panel"));
  EXPECT_NE(program.find("asks for 4 from 1280*y.n.0 + 160*y.m.0 + 4*tile.k + 16*tile.n.0 + tile.n.1 + 1280"),
            std::string::npos)
      << program;
}

TEST(PrefetchPanel, OfOnePassIsAhead) {
  EXPECT_NE(ProgramOf(ScheduleOf(64, "panel")).find(" ahead 4096"), std::string::npos);
  EXPECT_EQ(ProgramOf(ScheduleOf(64, "panel")).find("asks for"), std::string::npos);
  EXPECT_EQ(ProgramOf(ScheduleOf(8, "4096")).find("asks for"), std::string::npos);
}

}  // namespace
}  // namespace hone::prefetch_test
