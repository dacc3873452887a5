// Features: hand counts on small programs, and what must hold of every program.
#include "tuner/features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "codegen/lower/lower.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "tuner/features_analysis.h"

namespace hone {
namespace {

Target TargetOf(const std::string& text) {
  Result<Target> target = ParseTarget(text);
  EXPECT_TRUE(target) << target.error().Text();
  return *target;
}
Target Avx512() { return TargetOf("avx512 cpu=generic l1=49152 l2=2097152 l3=33554432 cores=1"); }
Target Avx2() { return TargetOf("avx2 cpu=generic l1=32768 l2=262144 l3=8388608 cores=1"); }
Target OpenCl() { return TargetOf("opencl block_bytes=32768 block_threads=256"); }
Target Neon() { return TargetOf("neon cpu=generic l1=65536 l2=1048576 l3=4194304 cores=4"); }

// `schedule`: nullopt for the default one.
Result<LoopProgram> ProgramOf(const std::string& text, const Target& target,
                              const std::optional<std::string>& schedule = {}) {
  const Kernel kernel = Specialize(HONE_TRY(ParseKernel(text)));
  Schedule steps = schedule ? HONE_TRY(ParseSchedule(*schedule)) : HONE_TRY(DefaultSchedule(kernel, target));
  ScheduledKernel scheduled = HONE_TRY(ApplySchedule(kernel, steps));
  return Lower(scheduled);
}

class Features {
 public:
  Features(const std::string& text, const Target& target, const std::optional<std::string>& schedule = {}) {
    Result<LoopProgram> program = ProgramOf(text, target, schedule);
    EXPECT_TRUE(program) << text << ": " << program.error().Text();
    if (program) values_ = ExtractFeatures(*program, target);
  }
  float operator[](std::string_view name) const {
    auto names = FeatureNames();
    auto found = std::find(names.begin(), names.end(), name);
    EXPECT_NE(found, names.end()) << name;
    return found == names.end() || values_.empty() ? NAN : values_[static_cast<size_t>(found - names.begin())];
  }
  // What a logarithmic feature stands for.
  double Count(std::string_view name) const { return std::exp2((*this)[name]) - 1; }
  double Ratio(std::string_view name) const { return std::exp2((*this)[name]); }
  const std::vector<float>& values() const { return values_; }

 private:
  std::vector<float> values_;
};

// An 8 × 32 register tile, no packing.
constexpr const char* kMatmul = "matmul(M=64,N=64,K=64)";
constexpr const char* kTiled = R"(rewrite cache_write y tile
split y.n 2 16
split y.m 8
reorder y.m.0 y.n.0 y.m.1 y.n.1 y.n.2
unroll y.m.1 y.n.1
vectorize y.n.2
compute_at tile y.n.0
store tile registers
split tile.n 16
reorder tile.k tile.m tile.n.0 tile.n.1
unroll tile.m tile.n.0
vectorize tile.n.1
)";

TEST(Features, NamesAreDistinctAndFixed) {
  auto names = FeatureNames();
  EXPECT_GE(names.size(), 80u);
  EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(names.data(), FeatureNames().data());
}

TEST(Features, AreFiniteForTheModelsKernelsOnEachKindOfTarget) {
  std::set<std::string> kernels;
  for (const auto& entry : std::filesystem::directory_iterator(HONE_SOURCE_DIR "/models")) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);)
      if (!line.empty() && line[0] != '#') kernels.insert(line.substr(line.find(' ') + 1));
  }
  ASSERT_GT(kernels.size(), 100u);
  std::set<std::vector<float>> distinct;
  size_t programs = 0;
  double seconds = 0;
  for (const Target& target : {Avx512(), Avx2(), Neon(), OpenCl()})
    for (const std::string& kernel : kernels) {
      Result<LoopProgram> program = ProgramOf(kernel, target);
      ASSERT_TRUE(program) << kernel << ": " << program.error().Text();
      const auto start = std::chrono::steady_clock::now();
      std::vector<float> values = ExtractFeatures(*program, target);
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      ASSERT_EQ(values.size(), FeatureNames().size()) << kernel;
      for (size_t f = 0; f < values.size(); ++f)
        ASSERT_TRUE(std::isfinite(values[f])) << kernel << ": " << FeatureNames()[f];
      EXPECT_EQ(values, ExtractFeatures(*program, target)) << kernel;
      distinct.insert(std::move(values));
      ++programs;
    }
  EXPECT_GT(distinct.size(), programs * 9 / 10);  // different programs look different
  RecordProperty("microseconds_per_program", std::to_string(seconds / static_cast<double>(programs) * 1e6));
}

TEST(Features, CountTheBodyOfAMatmulTile) {
  Features f(kMatmul, Avx512(), kTiled);
  EXPECT_NEAR(f.Count("hot.trips"), 64, 0.01);  // k
  EXPECT_NEAR(f.Count("hot.entries"), 8 * 2, 0.01);
  EXPECT_NEAR(f.Count("hot.fma"), 8 * 2, 0.01);
  EXPECT_NEAR(f.Count("hot.arithmetic"), 8 * 2, 0.01);
  EXPECT_NEAR(f.Count("hot.broadcasts"), 8, 0.01);        // of a: shared by the two vectors of a row
  EXPECT_NEAR(f.Count("hot.contiguous_loads"), 2, 0.01);  // of b: shared by the rows
  EXPECT_NEAR(f.Count("hot.stores"), 0, 0.01);
  EXPECT_NEAR(f.Count("hot.instructions"), 16 + 8 + 2, 0.01);
  EXPECT_NEAR(f.Count("hot.tile_vectors"), 16, 0.01);
  EXPECT_NEAR(f.Count("hot.chains"), 16, 0.01);
  EXPECT_NEAR(f.Count("hot.chain_links"), 1, 0.01);
  EXPECT_NEAR(f.Ratio("hot.loads_per_operation"), 10.0 / 16, 0.01);
  EXPECT_EQ(f["hot.lanes_wasted"], 0);
  EXPECT_EQ(f["hot.innermost"], 1);
  EXPECT_NEAR(f.Count("work.flops"), 2.0 * 64 * 64 * 64, 10);
  EXPECT_NEAR(f.Ratio("work.redundancy"), 1, 0.001);
  EXPECT_EQ(f["structure.depth"], 3);
}

TEST(Features, FootprintOfAMatmulTile) {
  Features f(kMatmul, Avx512(), kTiled);
  const double a_rows = 8 * 64 * 4, b_columns = 64 * 32 * 4, b = 64 * 64 * 4, y_rows = 8 * 64 * 4;
  EXPECT_NEAR(f.Count("level0.bytes"), a_rows + b_columns, 64);   // the loop over k
  EXPECT_NEAR(f.Count("level1.bytes"), a_rows + b + y_rows, 64);  // over blocks of columns
  EXPECT_NEAR(f.Count("level2.bytes"), 3 * b, 64);                // over blocks of rows: everything
  EXPECT_NEAR(f.Ratio("level0.of_l1"), (a_rows + b_columns) / 49152, 0.01);
  // All of it fits: each byte comes in once, the output goes out again.
  EXPECT_NEAR(f.Count("cache1.bytes"), 4 * b, 64);
  EXPECT_NEAR(f.Count("cache2.bytes"), 4 * b, 64);
}

TEST(Features, PrefetchesShow) {
  Features without(kMatmul, Avx512(), kTiled);
  EXPECT_EQ(without["memory.prefetch_ahead"], 0);
  EXPECT_EQ(without["cache1.prefetched"], 0);
  Features with(kMatmul, Avx512(), std::string(kTiled) + "prefetch b for tile 4096\n");
  EXPECT_NEAR(with.Count("memory.prefetch_ahead"), 4096, 1);
  EXPECT_NEAR(with["cache1.prefetched"], 0.25, 0.01);  // b, of a, b and y, which comes and goes
  // What is not read in vectors is not asked for ahead.
  Features scalar(kMatmul, Avx512(), std::string(kTiled) + "prefetch a for tile 4096\n");
  EXPECT_EQ(scalar["memory.prefetch_ahead"], 0);
}

TEST(Features, WindowsOverlap) {
  // Rows of 64 read three times, each time one further: 66 elements, not 192. Steps of a loop over the row, 16 at a
  // time.
  Features f("depthwise_conv2d(C=4,H=66,W=66,R=3,S=3)", Avx512(),
             "inline xp\nsplit y.w0 16\nreorder y.n y.c y.h y.r y.s y.w0.0 y.w0.1\nvectorize y.w0.1");
  const double x_row = 66 * 4, y_row = 64 * 4, line = 64;
  EXPECT_NEAR(f.Count("level1.bytes"), x_row + y_row + line, 2 * line);            // over s; w is one line
  EXPECT_NEAR(f.Count("level2.bytes"), 3 * x_row + y_row + line, 4 * line);        // over r: three rows
  EXPECT_NEAR(f.Count("level3.bytes"), 66 * x_row + 64 * y_row + line, 8 * line);  // over h: 66 rows, not 192
}

TEST(Features, WhatIsReadTwiceIsLoadedOnce) {
  const std::string by_lanes = "split y.i 16\nvectorize y.i.1";
  Features square("kernel k(x: f32[N]) -> y: f32[N] where N=4096 { y[i] = x[i] * x[i] }", Avx512(), by_lanes);
  EXPECT_NEAR(square.Count("hot.contiguous_loads"), 1, 0.01);
  Features product("kernel k(x: f32[N], z: f32[N]) -> y: f32[N] where N=4096 { y[i] = x[i] * z[i] }", Avx512(),
                   by_lanes);
  EXPECT_NEAR(product.Count("hot.contiguous_loads"), 2, 0.01);
}

TEST(Features, SmallerCachesMeanMoreTraffic) {
  const std::string kernel = "matmul(M=512,N=512,K=512)";
  CpuTarget roomy = *Avx512().cpu();
  roomy.l1_bytes = 128 << 10;  // holds the 16 KiB of a and the 64 KiB of b that the loop over k reads: a stays
  Features large(kernel, roomy, kTiled), less(kernel, Avx512(), kTiled);
  EXPECT_GT(less.Count("cache1.bytes"), large.Count("cache1.bytes") * 1.01);
  EXPECT_GE(large.Count("cache1.bytes"), large.Count("cache2.bytes") - 1);
  EXPECT_GE(large.Count("cache2.bytes"), large.Count("cache3.bytes") - 1);
  EXPECT_GE(large.Count("cache3.bytes"), 3 * 512 * 512 * 4);
}

TEST(Features, NarrowerVectorsMeanMoreOperations) {
  Features wide(kMatmul, Avx512(), kTiled), narrow(kMatmul, Avx2(), kTiled);
  EXPECT_NEAR(narrow.Count("hot.fma"), 2 * wide.Count("hot.fma"), 0.01);
  EXPECT_NEAR(narrow.Count("hot.tile_vectors"), 32, 0.01);
  EXPECT_EQ(wide.Count("hot.spills"), 0);
  EXPECT_GT(narrow.Count("hot.spills"), 16);  // 32 accumulators, 16 registers
  EXPECT_GT(narrow["hot.pressure"], wide["hot.pressure"]);
}

TEST(Features, WastedLanesShow) {
  const std::string kernel = "add(M=64,N=56)";
  Features full(kernel, Avx512(), "split y.n 8\nreorder y.m y.n.0 y.n.1\nvectorize y.n.1");
  Features some(kernel, Avx512(), "split y.n 14\nreorder y.m y.n.0 y.n.1\nvectorize y.n.1");
  Features one(kernel, Avx512(), "");
  EXPECT_NEAR(some["hot.lanes_wasted"], 2.0 / 16, 1e-5);
  EXPECT_NEAR(full["hot.lanes_wasted"], 8.0 / 16, 1e-5);  // half a register
  EXPECT_EQ(some["work.masked_stores"], 1);
  EXPECT_EQ(full["work.masked_stores"], 0);
  EXPECT_EQ(one["work.scalar_share"], 1);
  EXPECT_EQ(full["work.scalar_share"], 0);
}

TEST(Features, PaddedWorkIsRedundancy) {
  const std::string split = "split y.n 16\nreorder y.m y.n.0 y.n.1\nvectorize y.n.1";
  EXPECT_NEAR(Features("add(M=64,N=64)", Avx512(), split).Ratio("work.redundancy"), 1, 1e-3);
  EXPECT_NEAR(Features("add(M=64,N=65)", Avx512(), split).Ratio("work.redundancy"), 80.0 / 65, 1e-2);
}

TEST(Features, TripsOfShortLastTilesAreAveraged) {
  // 100 rows in blocks of 32: the last block has 4.
  Features f("add(M=100,N=64)", Avx512(),
             "split y.m 32\nsplit y.n 16\nreorder y.m.0 y.n.0 y.m.1 y.n.1\nvectorize y.n.1");
  EXPECT_NEAR(f.Count("hot.trips"), 25, 0.01);
  EXPECT_NEAR(f.Count("hot.entries"), 4 * 4, 0.01);
  EXPECT_NEAR(f.Ratio("work.redundancy"), 1, 1e-3);
}

TEST(Features, KindsOfLoads) {
  const std::string by_row = "split y.n 16\nreorder y.m y.n.0 y.n.1\nvectorize y.n.1";
  Features plain("add(M=64,N=64)", Avx512(), by_row);
  EXPECT_NEAR(plain.Count("hot.contiguous_loads"), 2, 0.01);
  EXPECT_EQ(plain["work.gathered"], 0);
  EXPECT_NEAR(plain.Count("stream0.inner_stride"), 64, 0.01);  // 16 floats further per trip
  Features transposed("transpose(M=64,N=64)", Avx512(), "split y.m 16\nreorder y.n y.m.0 y.m.1\nvectorize y.m.1");
  EXPECT_NEAR(transposed["work.gathered"] + transposed["work.scattered"], 1, 1e-5);
}

TEST(Features, OneAccumulatorIsBoundByItsLatency) {
  const std::string kernel = "reduce_sum(M=64,N=1024)";
  Features one(kernel, Avx512(), "");
  EXPECT_EQ(one["hot.chain_in_memory"], 1);
  EXPECT_NEAR(one.Count("hot.loads"), 2, 0.01);  // of x and of y, which is stored each time
  EXPECT_NEAR(one.Count("hot.stores"), 1, 0.01);
  EXPECT_NEAR(one.Count("hot.chains"), 1, 0.01);
  EXPECT_EQ(one["hot.by_latency"], 1);
  Features many(kernel, Avx512());  // the default has lanes and several vectors
  EXPECT_GT(many.Count("hot.chains"), 1);
  EXPECT_LT(many["bound.cycles"], one["bound.cycles"]);
}

TEST(Features, PartsOfWorkers) {
  CpuTarget target = *Avx512().cpu();
  target.cores = 2;
  const std::string kernel = "add(M=96,N=64)";
  auto parallel = [](int rows) {
    return "split y.m " + std::to_string(rows) +
           "\nsplit y.n 16\nreorder y.m.0 y.m.1 y.n.0 y.n.1\nvectorize y.n.1\nparallel y.m.0";
  };
  Features three(kernel, target, parallel(32)), four(kernel, target, parallel(24)), serial(kernel, target, "");
  EXPECT_NEAR(three.Count("parallel.tasks"), 3, 0.01);
  EXPECT_NEAR(three.Ratio("parallel.imbalance"), 4.0 / 3, 1e-3);
  EXPECT_NEAR(four.Ratio("parallel.imbalance"), 1, 1e-3);
  EXPECT_NEAR(serial.Ratio("parallel.imbalance"), 2, 1e-3);
  EXPECT_EQ(three["parallel.workers"], 2);
  EXPECT_GT(three["parallel.share"], 0.99f);
  EXPECT_EQ(serial["parallel.share"], 0);
  // A thread of its own by the kernel's wish.
  EXPECT_EQ(Features("add(M=96,N=64,threads=1)", target, parallel(24))["parallel.workers"], 1);
}

TEST(Features, ElementaryFunctionsAndDivisions) {
  Features softmax("softmax(M=64,N=256)", Avx512());
  EXPECT_GT(softmax["work.transcendental_share"], 0);
  EXPECT_GT(softmax["work.divide_share"], 0);
  EXPECT_EQ(Features(kMatmul, Avx512(), kTiled)["work.transcendental_share"], 0);
}

TEST(Features, WhatALoopDoesNotMoveIsDoneBeforeIt) {
  // y = e · (1 / total): one division a row, although the statement with it runs for every vector of the row.
  Features softmax("softmax(M=64,N=256)", Avx512());
  EXPECT_NEAR(softmax.Count("work.arithmetic") * softmax["work.divide_share"], 64, 1);
}

TEST(Features, EveryOtherElementUnderAMaskOfRunTimeIsGathered) {
  const std::string window = "inline xp\nsplit y.w0 8\nreorder y.n y.c y.h y.w0.0 y.r y.s y.w0.1\nvectorize y.w0.1";
  Features plain("depthwise_conv2d(C=4,H=33,W=33,R=3,S=3,stride=2)", Avx512(), window);
  Features padded("depthwise_conv2d(C=4,H=32,W=32,R=3,S=3,stride=2,pad=1)", Avx512(), window);
  EXPECT_EQ(plain["work.gathered"], 0);
  EXPECT_NEAR(plain.Count("hot.strided_loads"), 1, 0.01);  // 16 floats, of which 8 are wanted
  EXPECT_EQ(padded["hot.strided_loads"], 0);
  EXPECT_NEAR(padded.Count("hot.gathered_loads"), 8, 0.01);
  EXPECT_GT(padded["bound.load"], plain["bound.load"] + 1);
}

TEST(Features, ManyCopiesOfAnElementaryFunctionAreCalls) {
  auto unrolled = [](int vectors) {
    return Features("kernel k(x: f32[N]) -> y: f32[N] where N=4096 { y[i] = exp(x[i]) }", Avx512(),
                    "split y.i " + std::to_string(vectors) + " 16\nunroll y.i.1\nvectorize y.i.2");
  };
  EXPECT_EQ(unrolled(4)["hot.math_calls"], 0);
  EXPECT_NEAR(unrolled(8).Count("hot.math_calls"), 8, 0.01);
  EXPECT_GT(unrolled(8)["bound.cycles"], unrolled(4)["bound.cycles"]);
}

TEST(Features, CodeBetweenLoopsWaitsForThem) {
  // One row at a time: a row's lanes are combined before the next row's loop may start. Four rows share the wait.
  auto rows = [](int count) {
    return Features(
        "reduce_sum(M=64,N=256)", Avx512(),
        "rfactor y n 16 -> lanes\nsplit y.m " + std::to_string(count) +
            "\nreorder y.m.0 y.m.1 y.l\nunroll y.m.1\nvectorize y.l\ncompute_at lanes y.m.0\nstore lanes registers\n"
            "reorder lanes.n lanes.m lanes.l\nunroll lanes.m\nvectorize lanes.l\n");
  };
  EXPECT_NEAR(rows(4)["bound.path"], rows(1)["bound.path"] - 2, 0.01);
  EXPECT_LT(rows(4)["bound.cycles"], rows(1)["bound.cycles"]);
}

TEST(Features, DynamicSizesCountAsTheirUpperBounds) {
  Features range("matmul(M=1..64,N=64,K=64)", Avx512(), ""), fixed("matmul(M=64,N=64,K=64)", Avx512(), "");
  EXPECT_EQ(range["work.flops"], fixed["work.flops"]);
  EXPECT_NEAR(range.Count("hot.trips"), fixed.Count("hot.trips"), 0.5);
}

}  // namespace
}  // namespace hone
